"""What the one who starts an owner may set: nothing here changes what a table learns from an event.

All that does is journaled with the table (`memcon.policy_types.LearningSettings`) or stands in the event itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from memcon import checks
from memcon.errors import ConfigError

__all__ = ["Limits", "OwnerOptions"]


@dataclass(slots=True, kw_only=True)
class Limits:
    """What a request may ask for at most; more is refused by name, and changes nothing."""

    max_body_bytes: int = 1 << 20
    # A whole table: about 1 kB a key with nine arms.
    max_import_bytes: int = 64 << 20
    # Of a key, an id, a table's name.
    max_text_chars: int = 1024
    # Decisions or outcomes in one request.
    max_batch: int = 1024
    # Of one table at one shard; every key takes about 0.5 kB of memory.
    max_keys_per_table: int = 2_000_000
    max_tables: int = 10_000
    # Of one table: a decide looks at each, and holds up all others of its shard meanwhile.
    max_arms: int = 256
    # Open at one listener; never more than three quarters of the files that the process may open.
    max_connections: int = 4096
    # From the first byte of a request to its last, and from there to the reply.
    request_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        for limit in fields(self):
            if limit.name != "request_timeout_s":
                checks.in_range(limit.name, getattr(self, limit.name), 1, 1 << 40)
        checks.in_range("request_timeout_s", self.request_timeout_s, 0.01, 3600.0)


@dataclass(slots=True, kw_only=True)
class OwnerOptions:
    """How the owner of a shard keeps its promises. The defaults are a sweep's."""

    # A decide is answered after it is durable. Without it a kill may forget decides of the last `flush_every_s`; their
    # outcomes still count, since the token carries the decision.
    durable_decides: bool = True
    # Longest that an event which nobody waits for stays in memory only.
    flush_every_s: float = 0.05
    # A decision without an outcome ends after this long; None = never.
    expire_after_s: float | None = None
    # Reward that is learned when a decision expires; None = its count is taken back and nothing is learned.
    default_reward: float | None = None
    # Events after which a snapshot is written (later for a large shard: see `snapshot_writer`).
    snapshot_every: int = 10_000
    # How long the event loop stays awake after an answer for a client that asks one thing after the other (`BusyPoll`).
    busy_poll_us: int = 50
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        checks.in_range("busy_poll_us", self.busy_poll_us, 0, 1_000_000)
        checks.in_range("flush_every_s", self.flush_every_s, 0.0, 60.0)
        checks.in_range("snapshot_every", self.snapshot_every, 1, 1 << 40)
        if self.expire_after_s is not None:
            checks.in_range("expire_after_s", self.expire_after_s, 0.01, 1e9)
        if self.default_reward is not None:
            checks.in_range("default_reward", self.default_reward, -1e6, 1e6)
            if self.expire_after_s is None:
                raise ConfigError("default_reward: decisions never expire; set expire_after_s too")
