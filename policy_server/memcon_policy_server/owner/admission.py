"""What a shard does not take on: keys of another shard, and more keys or tables than its limits allow."""

from __future__ import annotations

from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideRequest, LearningSettings
from memcon_policy_server.options import Limits
from memcon_policy_server.sharding import shard_of_keys
from memcon_policy_server.wire import LimitError, MovedError

__all__ = ["Admission"]


class Admission:
    """Refuses by name, before anything changes."""

    def __init__(self, core: PolicyShard, limits: Limits, *, shard: int, num_shards: int) -> None:
        self._core, self._limits, self._shard, self._num_shards = core, limits, shard, num_shards

    def check_table(self, table: str, settings: LearningSettings) -> None:
        """Refuse a new table too many, or one of too many arms.

        Raises:
            LimitError: there are as many tables as the limit allows, or the new one has more arms than it allows.
        """
        known = self._core.tables()
        if table in known:
            return
        num_arms = len(settings.action_ids)
        if num_arms > self._limits.max_arms:
            raise LimitError(
                f"opening policy table '{table}': it has {num_arms} arms, max_arms is {self._limits.max_arms}; leave "
                "some out, or raise the limit"
            )
        if len(known) >= self._limits.max_tables:
            raise LimitError(
                f"opening policy table '{table}': shard {self._shard} has {len(known)} tables, max_tables is "
                f"{self._limits.max_tables}; use one of them, or raise the limit"
            )

    def check_keys(self, request: DecideRequest) -> None:
        """Refuse a decide at another shard's keys, or at new keys too many. Not asked about keys that all have numbers.

        Raises:
            MovedError: another shard owns the keys.
            LimitError: the table has as many keys as the limit allows.
            NotFoundError: no such table.
        """
        table, keys = request.table, request.keys
        owner = shard_of_keys(table, keys, self._num_shards)
        if owner != self._shard:
            raise MovedError(
                f"key '{keys[-1]}' of table '{table}' belongs to shard {owner}, this is shard {self._shard}"
            )
        self.check_room(table, len(keys))

    def check_room(self, table: str, num_keys: int) -> None:
        """Refuse `num_keys` more keys if they are too many.

        Raises:
            LimitError: the table would have more than the limit allows.
            NotFoundError: no such table.
        """
        known = self._core.num_keys(table)
        if known + num_keys > self._limits.max_keys_per_table:
            raise LimitError(
                f"policy table '{table}': it has {known} keys at shard {self._shard}, {num_keys} more would pass "
                f"max_keys_per_table = {self._limits.max_keys_per_table}; nothing was changed, use a coarser key or "
                "raise the limit"
            )
