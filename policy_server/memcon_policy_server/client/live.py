"""The policy for a live agent: an answer within a deadline whatever the server does, and outcomes that are not lost.

While the server is away an agent plays its fallback arm, which is flagged and never credited; what it has told is kept
in a spool and delivered later. Neither Ray nor numpy.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from memcon import checks, ids
from memcon.errors import ConfigError, MemconError, UnavailableError
from memcon.learning import state_key
from memcon.learning.credit import check_outcome
from memcon.policy_types import CancelRequest, DecideReply, DecideRequest, LearningSettings, OutcomeRequest
from memcon.types import StateFeatures
from memcon_policy_server.client.delivery import Delivery
from memcon_policy_server.client.gateway_map import HttpShardMap
from memcon_policy_server.client.http import HttpPolicyClient
from memcon_policy_server.client.spool import Refusal, Spool
from memcon_policy_server.client.transport import Pauses

__all__ = ["Counters", "LiveDecision", "LivePolicy", "State"]

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "MEMCON_TOKEN"
DEFAULT_FALLBACK = "noop"
DEFAULT_DEADLINE_S = 0.5
# How long one outcome is tried before the delivery pauses, and a decide beyond its deadline to learn whether the server
# answers again; and how long one connection before another is made.
DELIVERY_PATIENCE_S = 10.0
ATTEMPT_TIMEOUT_S = 2.0
FLUSH_S = 5.0

# What a decision is taken at: the raw signals, or the texts of the keys, finest first (one alone for one key).
State: TypeAlias = StateFeatures | Sequence[str] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDecision:
    """What to do now. Pickles, so that the outcome may be told by another process."""

    decision_id: str
    table: str
    episode_id: str
    position: int
    action_id: str
    # Probability with which the policy chose it; None for the fallback, which no policy chose.
    propensity: float | None
    is_fallback: bool
    # Signed; "" for the fallback.
    token: str
    per_arm: Mapping[str, Mapping[str, float]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What happened since the start, and what the spool holds now."""

    decisions: int
    # Decisions of `decisions` that the server did not give.
    fallbacks: int
    # Decisions that the server gave when the fallback had been played: they are cancelled.
    abandoned: int
    # Outcomes and cancels.
    spooled: int
    delivered: int
    refused: int
    waiting: int


class _StillSilentError(UnavailableError):
    """Nobody waited: the server is known to be silent."""


class LivePolicy:
    """Decides and tells outcomes over HTTP; belongs to one event loop. Made by `connect`."""

    def __init__(self, shard_map: HttpShardMap, token: str | None, spool: Spool, *, fallback: str, deadline_s: float):
        self._map = shard_map
        self._client = HttpPolicyClient(
            shard_map, token=token, attempt_timeout_s=ATTEMPT_TIMEOUT_S, abandoned=self._on_abandoned,
            patience_s=deadline_s + DELIVERY_PATIENCE_S,
        )  # fmt: skip
        self._delivery = Delivery(spool, self._client)
        self._fallback, self._deadline_s = fallback, deadline_s
        self._settings: dict[str, LearningSettings] = {}
        self._asking_settings = asyncio.Lock()
        self._settings_failure = ""
        # By shard (None: not known yet which): the one decide that still waits there beyond its deadline. The others
        # need not wait with it, and when it is answered they ask again.
        self._silent: dict[int | None, asyncio.Task[DecideReply]] = {}
        self._taking_back: set[asyncio.Task[None]] = set()
        self._decisions = self._fallbacks = self._abandoned = 0
        self._closed = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        url: str,
        token: str | None = None,
        *,
        fallback: str = DEFAULT_FALLBACK,
        deadline_s: float = DEFAULT_DEADLINE_S,
        spool: Path | str | None = None,
        direct: bool = True,
    ) -> Self:
        """A policy at the server `url`, which need not be up yet.

        `token`: the server's; default: the environment's MEMCON_TOKEN. `fallback`: the arm that is played when the
        server does not answer within `deadline_s` seconds. `spool`: file that keeps outcomes until they are delivered;
        without one they end with this process. `direct` off sends all through the gateway.

        Raises:
            ConfigError: a parameter is out of its range.
            MemconError: the spool cannot be used, as in `Spool`.
        """
        checks.in_range("deadline_s", deadline_s, 0.001, 3600.0)
        if not fallback:
            raise ConfigError("fallback = '': expected the id of an arm that can always be played, such as 'noop'")
        token = token or os.environ.get(TOKEN_VARIABLE) or None  # noqa: TID251 - a shell: its caller's environment
        shard_map = HttpShardMap(url, token, direct=direct)
        try:
            opened = await asyncio.to_thread(Spool, None if spool is None else Path(spool))
        except BaseException:
            await shard_map.close()
            raise
        return cls(shard_map, token, opened, fallback=fallback, deadline_s=deadline_s)

    async def decide(
        self,
        table: str,
        state: State,
        *,
        episode_id: str | None = None,
        position: int = 0,
        allowed: Sequence[str] | None = None,
        explain: bool = False,
    ) -> LiveDecision:
        """Choose at `state`, the `position`-th decision (0-based) of the episode; without an id it is a new episode.

        The same episode and position again give the same answer while the decision is open. Only silence leads to
        the fallback, at once while the server is known to be silent; a refusal is raised. A place that had the
        fallback is spent: go on with the next position.

        Raises:
            ConfigError: `allowed` lacks the fallback arm or names an unknown one, or the state gives no key.
            ConflictError: the episode was cancelled, or this decision has its outcome already.
            NotFoundError: no such table.
            UnauthorizedError: the token is not the server's.
        """
        if allowed is not None and self._fallback not in allowed:
            raise ConfigError(
                f"deciding in table '{table}': allowed = {list(allowed)} lacks the fallback arm '{self._fallback}'; "
                "allow it, or connect with another fallback"
            )
        episode = episode_id or uuid.uuid4().hex
        decision_id = ids.decision_id(episode, position)

        async def _ask() -> DecideReply:
            request = DecideRequest(
                table=table,
                decision_id=decision_id,
                episode_id=episode,
                position=position,
                keys=await self._keys(table, state),
                draw=ids.draw64("decision", decision_id),
                allowed=None if allowed is None else tuple(allowed),
                explain=explain,
            )
            return await self._client.decide(request)

        reply: DecideReply | None = None
        try:
            reply = await self._in_time(self._place(table, state), _ask)
        except UnavailableError as error:
            self._fallbacks += 1
            # An agent has no handler that shows `extra`. A silence is told once, not once a decide.
            level = logging.DEBUG if isinstance(error, _StillSilentError) else logging.WARNING
            log.log(level, "policy.fallback: %s", error, extra={"table": table, "decision": decision_id})
        self._decisions += 1
        return LiveDecision(
            decision_id=decision_id,
            table=table,
            episode_id=episode,
            position=position,
            action_id=self._fallback if reply is None else reply.action_id,
            propensity=None if reply is None else reply.propensity,
            is_fallback=reply is None,
            token="" if reply is None else reply.token,
            per_arm=None if reply is None else reply.per_arm,
        )

    async def outcome(
        self, decision: LiveDecision, reward: float, *, num_decisions: int | None = None, cost: float = 0.0
    ) -> None:
        """Tell what the episode of `decision` ended with; kept in the spool when this returns, delivered soon.

        `num_decisions` of the whole episode; default: `decision` was its last. `cost` is taken off the decision's
        return. A fallback teaches nothing: its outcome has no effect.

        Raises:
            InvalidOutcomeError: a number that no outcome can have; nothing is kept.
            MemconError: the spool cannot be used, as in `Delivery.add`.
        """
        decisions = decision.position + 1 if num_decisions is None else num_decisions
        check_outcome(reward, position=decision.position, num_decisions=decisions, cost=cost)
        if not decision.is_fallback:
            request = OutcomeRequest(
                decision_id=decision.decision_id, token=decision.token, reward=float(reward),
                position=decision.position, num_decisions=decisions, cost=float(cost),
            )  # fmt: skip
            await self._delivery.add(request)

    async def cancel(self, decision: LiveDecision) -> None:
        """Take `decision` back: it will have no outcome. Kept in the spool and delivered as an outcome is.

        Raises:
            MemconError: the spool cannot be used, as in `Delivery.add`.
        """
        if not decision.is_fallback:
            await self._delivery.add(CancelRequest(decision_id=decision.decision_id, token=decision.token))

    async def refused(self) -> list[Refusal]:
        """Outcomes and cancels that the server will never take, with the reason; they stay in the spool's file."""
        return await self._delivery.refused()

    async def counters(self) -> Counters:
        """What happened since the start, and what the spool holds now."""
        counts = self._delivery.counts
        return Counters(
            decisions=self._decisions,
            fallbacks=self._fallbacks,
            abandoned=self._abandoned,
            spooled=counts.spooled,
            delivered=counts.delivered,
            refused=counts.refused,
            waiting=await self._delivery.waiting(),
        )

    async def close(self, flush_s: float = FLUSH_S) -> None:
        """Deliver what waits, for at most `flush_s` seconds, and free all; may be called twice.

        What is left is logged; a spool with a file delivers it at the next `connect`.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        for asking in self._silent.values():
            asking.cancel()
        if self._taking_back:
            await asyncio.wait(self._taking_back)
        try:
            left = await self._delivery.close(flush_s)
        finally:
            await self._client.close()
            await self._map.close()
        if left:
            log.warning("policy.undelivered", extra={"messages": left})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- keys --------------------------------------------------------------------------------------------------------

    def _known_keys(self, table: str, state: State) -> tuple[str, ...] | None:
        """The keys of `state`; None where the table's settings must be asked for first."""
        if isinstance(state, str):
            return (state,)
        if not isinstance(state, StateFeatures):
            return tuple(state)
        settings = self._settings.get(table)
        return None if settings is None else state_key.key_chain(settings, state)

    async def _keys(self, table: str, state: State) -> tuple[str, ...]:
        keys = self._known_keys(table, state)
        while keys is None:
            async with self._asking_settings:
                if table not in self._settings:
                    self._settings[table] = await self._settings_of(table)
            keys = self._known_keys(table, state)
        return keys

    async def _settings_of(self, table: str) -> LearningSettings:
        pauses = Pauses(self._closed)
        while not self._closed.is_set():
            try:
                settings = await self._map.table_settings(table)
            except UnavailableError as error:
                self._settings_failure = str(error)
                # The decide's deadline bounds this, and the patience of the one that goes on beyond it.
                await pauses.wait()
            else:
                self._settings_failure = ""
                return settings
        raise self._closed_error()

    # --- deadlines ---------------------------------------------------------------------------------------------------

    def _place(self, table: str, state: State) -> int | None:
        """The shard that decides at `state`, as far as it is known by now."""
        keys = self._known_keys(table, state)
        return None if keys is None else self._client.shard_of(table, keys)

    async def _in_time(self, place: int | None, ask: Callable[[], Coroutine[Any, Any, DecideReply]]) -> DecideReply:
        """What `ask` gives within the deadline.

        Raises:
            MemconError: what the owner raised; `UnavailableError` without an answer.
        """
        if self._closed.is_set():
            raise self._closed_error()
        if place in self._silent:
            # A look at the event loop: an agent that only decides must not keep it from the answer.
            await asyncio.wait({self._silent[place]}, timeout=0)
            raise _StillSilentError("the policy server is silent; an earlier decide still waits for it")
        asking = asyncio.get_running_loop().create_task(ask())
        try:
            await asyncio.wait({asking}, timeout=self._deadline_s)
        except asyncio.CancelledError:
            self._leave(asking)
            raise
        if asking.done():
            return asking.result()
        if place in self._silent:
            self._leave(asking)
        else:
            self._silent[place] = asking
            asking.add_done_callback(partial(self._ended, place))
        failure = self._settings_failure or self._client.last_failure
        raise UnavailableError(f"the policy server did not answer within {self._deadline_s:g} s (last: {failure})")

    def _leave(self, asking: asyncio.Task[DecideReply]) -> None:
        """Nobody waits for `asking` any more."""
        if not asking.cancel():
            self._too_late(asking)

    def _ended(self, place: int | None, asking: asyncio.Task[DecideReply]) -> None:
        del self._silent[place]
        if not asking.cancelled():
            self._too_late(asking)

    def _too_late(self, asking: asyncio.Task[DecideReply]) -> None:
        error = asking.exception()
        if error is None:
            self._on_abandoned(asking.result())
        elif not isinstance(error, UnavailableError):
            log.warning("policy.late_refusal", extra={"error": str(error)})

    @staticmethod
    def _closed_error() -> UnavailableError:
        return UnavailableError("the policy client is closed; make a new one")

    def _on_abandoned(self, reply: DecideReply) -> None:
        self._abandoned += 1
        if not self._closed.is_set():
            task = asyncio.get_running_loop().create_task(self._take_back(reply))
            self._taking_back.add(task)
            task.add_done_callback(self._taking_back.discard)

    async def _take_back(self, reply: DecideReply) -> None:
        """Cancel a decision that came too late: its count must not stay in the table as if it were played."""
        try:
            await self._delivery.add(CancelRequest(decision_id=reply.decision_id, token=reply.token))
        except MemconError as error:
            log.error("policy.take_back_failed", extra={"decision": reply.decision_id, "error": str(error)})
