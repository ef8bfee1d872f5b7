"""One client process of a soak, `python -m soak.agent SPEC`: plays until SIGTERM, then delivers what it still holds.

Streams play episodes of one to three decisions, at keys of all shards, and tell how each ended.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memcon import codec, ids
from memcon.errors import MemconError
from memcon.policy_types import DecideRequest, OutcomeRequest
from memcon.seeds import Generator, SeedTree
from memcon_policy_server.client.gateway_map import HttpShardMap
from memcon_policy_server.client.http import HttpPolicyClient
from memcon_policy_server.client.live import LiveDecision, LivePolicy
from memcon_policy_server.sharding import shard_of_keys
from soak.log import Began, Decided, Ended, Failed, LogWriter, Told

__all__ = ["DIRECT", "GATEWAY", "MODES", "PLAIN", "AgentSpec", "reward_of"]

# A live agent with a spool that asks the owners; one that sends all through the gateway; a client without a spool, as a
# sweep's workers have it, that waits for the owner's word.
DIRECT, GATEWAY, PLAIN = "direct", "gateway", "plain"
MODES = (DIRECT, GATEWAY, PLAIN)

# Nobody loses patience in a soak: a call that fails is a finding.
PATIENCE_S = 60.0
MAX_DECISIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What a client plays, and where."""

    name: str
    # How often it was started before.
    life: int
    mode: str
    url: str
    token_path: str
    table: str
    num_shards: int
    seed: int
    streams: int
    keys: int
    # Mean of the pause between two episodes of a stream.
    pause_s: float
    log_path: str
    spool_path: str


def reward_of(decision_id: str) -> float:
    """The one reward that this decision may get."""
    return 1.0 if ids.draw64("soak reward", decision_id) % 3 else -0.5


class _Caller(Protocol):
    async def decide(self, key: str, episode_id: str, position: int) -> LiveDecision: ...

    async def tell(self, decision: LiveDecision, reward: float, num_decisions: int) -> Sequence[str]:
        """The status of each acknowledgement."""

    async def end(self) -> Ended: ...


class _Live:
    def __init__(self, policy: LivePolicy, table: str) -> None:
        self._policy, self._table = policy, table

    async def decide(self, key: str, episode_id: str, position: int) -> LiveDecision:
        return await self._policy.decide(self._table, key, episode_id=episode_id, position=position)

    async def tell(self, decision: LiveDecision, reward: float, num_decisions: int) -> Sequence[str]:
        await self._policy.outcome(decision, reward, num_decisions=num_decisions)
        return ("spooled",)

    async def end(self) -> Ended:
        stays = asyncio.Event()
        deadline = time.monotonic() + PATIENCE_S
        while (left := (await self._policy.counters()).waiting) and time.monotonic() < deadline:
            await _pause(stays, 0.05)
        refused = tuple(f"{item.error}: {item.reason}" for item in await self._policy.refused())
        await self._policy.close()
        return Ended(waiting=left, refused=refused)


class _Plain:
    def __init__(self, shard_map: HttpShardMap, client: HttpPolicyClient, table: str) -> None:
        self._map, self._client, self._table = shard_map, client, table

    async def decide(self, key: str, episode_id: str, position: int) -> LiveDecision:
        decision_id = ids.decision_id(episode_id, position)
        reply = await self._client.decide(
            DecideRequest(
                table=self._table,
                decision_id=decision_id,
                episode_id=episode_id,
                position=position,
                keys=(key,),
                draw=ids.draw64("decision", decision_id),
            )
        )
        return LiveDecision(
            decision_id=decision_id,
            table=self._table,
            episode_id=episode_id,
            position=position,
            action_id=reply.action_id,
            propensity=reply.propensity,
            is_fallback=False,
            token=reply.token,
        )

    async def tell(self, decision: LiveDecision, reward: float, num_decisions: int) -> Sequence[str]:
        request = OutcomeRequest(
            decision_id=decision.decision_id,
            token=decision.token,
            reward=reward,
            position=decision.position,
            num_decisions=num_decisions,
        )
        statuses = [(await self._client.outcomes([request]))[0].status]
        if ids.draw64("soak repeat", decision.decision_id) % 4 == 0:
            statuses.append((await self._client.outcomes([request]))[0].status)
        return statuses

    async def end(self) -> Ended:
        await self._client.close()
        await self._map.close()
        return Ended(waiting=0, refused=())


class _Agent:
    def __init__(self, spec: AgentSpec, caller: _Caller, log: LogWriter) -> None:
        self._spec, self._caller, self._log = spec, caller, log
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def play(self) -> None:
        await asyncio.gather(*(self._stream(number) for number in range(self._spec.streams)))
        self._log.write(await self._caller.end())

    async def _stream(self, number: int) -> None:
        spec = self._spec
        place = (spec.name, spec.life, number)
        generator = SeedTree(("soak agent", spec.seed, *place)).generator()
        ordinal = 0
        while not self._stop.is_set():
            await self._episode("{}.{}.{}".format(*place) + f".{ordinal}", generator)
            ordinal += 1
            await _pause(self._stop, generator.uniform(0.0, 2 * spec.pause_s))

    async def _episode(self, episode_id: str, generator: Generator) -> None:
        count = generator.randint(1, MAX_DECISIONS)
        keys = [f"soak/1|number={generator.randrange(self._spec.keys)}" for _ in range(count)]
        decisions = [await self._decided(key, episode_id, position) for position, key in enumerate(keys)]
        for decision in decisions:
            if decision is not None:
                await self._tell(decision, count)

    async def _decided(self, key: str, episode_id: str, position: int) -> LiveDecision | None:
        asked = time.monotonic()
        try:
            decision = await self._caller.decide(key, episode_id, position)
        except MemconError as error:
            self._failed("decide", ids.decision_id(episode_id, position), error)
            return None
        self._log.write(
            Decided(
                decision_id=decision.decision_id,
                shard=shard_of_keys(self._spec.table, (key,), self._spec.num_shards),
                action_id=decision.action_id,
                is_fallback=decision.is_fallback,
                asked=asked,
                answered=time.monotonic(),
            )
        )
        return decision

    async def _tell(self, decision: LiveDecision, num_decisions: int) -> None:
        reward = reward_of(decision.decision_id)
        try:
            statuses = await self._caller.tell(decision, reward, num_decisions)
        except MemconError as error:
            self._failed("outcome", decision.decision_id, error)
            return
        for status in statuses:
            self._log.write(
                Told(
                    decision_id=decision.decision_id,
                    status=status,
                    reward=reward,
                    position=decision.position,
                    num_decisions=num_decisions,
                )
            )

    def _failed(self, what: str, decision_id: str, error: MemconError) -> None:
        self._log.write(Failed(what=what, decision_id=decision_id, error=f"{type(error).__name__}: {error}"))


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


async def _caller(spec: AgentSpec, token: str) -> _Caller:
    if spec.mode == PLAIN:
        shard_map = HttpShardMap(spec.url, token)
        client = HttpPolicyClient(shard_map, token=token, patience_s=PATIENCE_S, attempt_timeout_s=2.0)
        return _Plain(shard_map, client, spec.table)
    policy = await LivePolicy.connect(
        spec.url, token, deadline_s=PATIENCE_S, spool=Path(spec.spool_path), direct=spec.mode == DIRECT
    )
    return _Live(policy, spec.table)


async def _main(spec: AgentSpec, token: str) -> None:
    log = LogWriter(Path(spec.log_path))
    agent = _Agent(spec, await _caller(spec, token), log)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, agent.stop)
    log.write(Began(life=spec.life))
    await agent.play()


if __name__ == "__main__":
    given = codec.decode_json(AgentSpec, sys.argv[1])
    asyncio.run(_main(given, Path(given.token_path).read_text(encoding="ascii").strip()))
