"""Ways in which an outcome may reach a server, and what it answers; for an owner's listener and the gateway alike.

`docs/serving.md` has the same table for people, and a test holds the two together.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from memcon.learning import decision_token
from memcon_policy_server import wire
from memcon_policy_server.secret import load_secret
from memcon_policy_server.sharding import shard_of_keys
from support.wire import TABLE, Wire

__all__ = ["CASES", "KEY", "OrderCase", "World", "asked", "decide_body", "outcome_of"]

KEY = "key"


@dataclass(slots=True, kw_only=True)
class World:
    """A server with one open table, as its clients see it; `directory` is what an owner of it would know."""

    wire: Wire
    base_url: str
    bearer: str
    directory: Path
    num_shards: int

    async def decide(self, name: str = "d", **changes: Any) -> dict[str, Any]:
        """The reply to a decide that must succeed."""
        status, reply = await self.wire.post(wire.DECIDE, decide_body(name) | changes)
        assert status == 200, reply
        found: dict[str, Any] = reply
        return found

    async def tell(self, outcome: dict[str, Any] | bytes) -> str:
        """How the server takes an outcome, as "200 credited" or "409 conflict"."""
        return _word(await self.wire.post(wire.OUTCOME, outcome))

    async def tell_all(self, *outcomes: dict[str, Any]) -> list[str]:
        """The same of each in one request, without the status that only a lone one has."""
        status, answer = await self.wire.post(wire.OUTCOMES, {"outcomes": outcomes})
        assert status == 200, answer
        return [reply.get("status", reply.get("error")) for reply in answer["replies"]]

    async def cancel(self, reply: dict[str, Any]) -> str:
        """How the server takes a cancel, as "200 True" or "404 not_found"."""
        body = {"decision_id": reply["decision_id"], "token": reply["token"]}
        return _word(await self.wire.post(wire.CANCEL, body))

    async def table(self) -> dict[str, Any]:
        """The table whole."""
        status, answer = await self.wire.get(f"{wire.TABLES}?table={TABLE}")
        assert status == 200, answer
        found: dict[str, Any] = answer["tables"][TABLE]
        return found

    async def until_expired(self) -> None:
        """Wait until no decision is open."""
        async with asyncio.timeout(30):
            while (await self.table())["open"]:
                pass

    def neighbour(self) -> str:
        """Another key that lies at the same owner."""
        home = shard_of_keys(TABLE, (KEY,), self.num_shards)
        names = map("key {}".format, range(100))
        return next(key for key in names if shard_of_keys(TABLE, (key,), self.num_shards) == home)

    def signed(self, name: str = "forgotten", **claims: Any) -> dict[str, Any]:
        """What a decide answered whose owner was killed before it was on the disk: known by its token only."""
        made = decision_token.Claims(
            table=TABLE, keys=(KEY,), action_id="noop", position=0, decision_id=name, episode_id=f"episode of {name}"
        )
        token = decision_token.sign(load_secret(self.directory), dataclasses.replace(made, **claims))
        return {"decision_id": name, "token": token, "action_id": made.action_id}


def decide_body(name: str) -> dict[str, Any]:
    return {"table": TABLE, "decision_id": name, "keys": [KEY]}


def outcome_of(reply: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The outcome of a decision that was alone in its episode."""
    told = {"decision_id": reply["decision_id"], "token": reply["token"], "reward": 1.0}
    return {**told, "position": 0, "num_decisions": 1} | changes


def _word(answer: tuple[int, Any]) -> str:
    status, body = answer
    return f"{status} {body.get('status', body.get('error', body.get('cancelled')))}"


Sent: TypeAlias = dict[str, Any]
Prepare: TypeAlias = Callable[[World], Awaitable[Sent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCase:
    """One row of the table in the documentation."""

    # As it stands there.
    what: str
    answer: str
    # Brings the server to where it is, and gives the outcome to send then.
    prepare: Prepare
    # Outcomes that the numbers hold more of afterwards.
    learned: int = 0
    # What becomes of a decision that waits: nothing, its count is "lost", or the "default" is learned.
    expiry: str = "never"


# --- what comes before -----------------------------------------------------------------------------------------------


async def _open(world: World) -> Sent:
    return outcome_of(await world.decide())


def _again(**changes: Any) -> Prepare:
    async def _prepare(world: World) -> Sent:
        outcome = await _open(world)
        assert await world.tell(outcome) == "200 credited"
        return outcome | changes

    return _prepare


async def _other_decision_first(world: World) -> Sent:
    first, second = await world.decide("d1"), await world.decide("d2")
    assert await world.tell(outcome_of(second)) == "200 credited"
    return outcome_of(first)


async def _cancelled(world: World) -> Sent:
    reply = await world.decide()
    assert await world.cancel(reply) == "200 True"
    return outcome_of(reply)


async def _episode_cancelled(world: World) -> Sent:
    reply = await world.decide(episode_id="e")
    assert await world.wire.post(wire.CANCEL_EPISODE, {"table": TABLE, "episode_id": "e"}) == (200, {"cancelled": 1})
    return outcome_of(reply)


async def _unknown_of_cancelled_episode(world: World) -> Sent:
    assert await world.wire.post(wire.CANCEL_EPISODE, {"table": TABLE, "episode_id": "e"}) == (200, {"cancelled": 0})
    return outcome_of(world.signed(episode_id="e"))


async def _expired(world: World) -> Sent:
    outcome = await _open(world)
    await world.until_expired()
    return outcome


def _defaulted_and_told(**changes: Any) -> Prepare:
    async def _prepare(world: World) -> Sent:
        outcome = await _expired(world)
        assert await world.tell(outcome) == "200 not_applied"
        return outcome | changes

    return _prepare


async def _unknown(world: World) -> Sent:
    return outcome_of(world.signed())


async def _unknown_again(world: World) -> Sent:
    outcome = await _unknown(world)
    assert await world.tell(outcome) == "200 recovered"
    # The owner that was killed may have been asked for the decision twice.
    assert _word(await world.wire.post(wire.DECIDE, decide_body("forgotten"))) == "409 conflict"
    return outcome


async def _unknown_without_token(world: World) -> Sent:
    return outcome_of(world.signed(), token="")


async def _altered(world: World) -> Sent:
    reply = await world.decide()
    arm = reply["action_id"]
    assert reply["token"].count(arm) == 1
    return outcome_of(reply, token=reply["token"].replace(arm, "noop"))


async def _foreign(world: World) -> Sent:
    reply = await world.decide()
    claims = decision_token.read(reply["token"])
    return outcome_of(reply, token=decision_token.sign(b"the secret of another server", claims))


async def _of_another_decision(world: World) -> Sent:
    first, second = await world.decide("d1"), await world.decide("d2")
    return outcome_of(first, token=second["token"])


async def _at_another_position(world: World) -> Sent:
    return outcome_of(await world.decide(), position=1, num_decisions=2)


async def _of_another_table(world: World) -> Sent:
    return outcome_of(world.signed(table="none"))


async def _of_an_earlier_choice(world: World) -> Sent:
    first = await world.decide()
    await world.decide(keys=[world.neighbour()])
    return outcome_of(first)


def _with(**changes: Any) -> Prepare:
    async def _prepare(world: World) -> Sent:
        return outcome_of(await world.decide()) | changes

    return _prepare


async def asked(world: World, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a decide was sent whole, and its reply not yet read."""
    body = json.dumps(decide_body(name)).encode()
    head = f"POST {wire.DECIDE} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {world.bearer}\r\n"
    host, port = world.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
    return reader, writer


async def _before_the_reply_was_read(world: World) -> Sent:
    _, writer = await asked(world, "d")
    # A client that lost the reply asks again, and may get its answer before the first one is out.
    reply = await world.decide()
    writer.close()
    return outcome_of(reply)


CASES: tuple[OrderCase, ...] = (
    OrderCase(what="for an open decision", answer="200 credited", prepare=_open, learned=1),
    OrderCase(what="for a later decision first", answer="200 credited", prepare=_other_decision_first, learned=1),
    OrderCase(
        what="before the reply of its decide was read",
        answer="200 credited",
        prepare=_before_the_reply_was_read,
        learned=1,
    ),
    OrderCase(what="the same again", answer="200 duplicate", prepare=_again()),
    OrderCase(what="again with another reward", answer="409 conflict", prepare=_again(reward=0.5)),
    OrderCase(what="again with another cost", answer="409 conflict", prepare=_again(cost=0.5)),
    OrderCase(what="again with another number of decisions", answer="409 conflict", prepare=_again(num_decisions=2)),
    OrderCase(what="late: the decision has expired", answer="200 late", prepare=_expired, learned=1, expiry="lost"),
    OrderCase(
        what="late: it has learned the default reward", answer="200 not_applied", prepare=_expired, expiry="default"
    ),
    OrderCase(
        what="the same again after that", answer="200 duplicate", prepare=_defaulted_and_told(), expiry="default"
    ),
    OrderCase(
        what="another one after that", answer="409 conflict", prepare=_defaulted_and_told(reward=0.5), expiry="default"
    ),
    OrderCase(what="after its decision was cancelled", answer="409 conflict", prepare=_cancelled),
    OrderCase(what="after its episode was cancelled", answer="409 conflict", prepare=_episode_cancelled),
    OrderCase(what="for an unknown decision, with a valid token", answer="200 recovered", prepare=_unknown, learned=1),
    OrderCase(what="the same again after that recovery", answer="200 duplicate", prepare=_unknown_again),
    OrderCase(
        what="for an unknown decision of a cancelled episode",
        answer="409 conflict",
        prepare=_unknown_of_cancelled_episode,
    ),
    OrderCase(what="without a token", answer="404 not_found", prepare=_with(token="")),
    OrderCase(what="for an unknown decision, without a token", answer="404 not_found", prepare=_unknown_without_token),
    OrderCase(what="with a token that was altered", answer="404 not_found", prepare=_altered),
    OrderCase(what="with a token that another server signed", answer="404 not_found", prepare=_foreign),
    OrderCase(what="with the token of another table", answer="404 not_found", prepare=_of_another_table),
    OrderCase(what="with the token of another decision", answer="409 conflict", prepare=_of_another_decision),
    OrderCase(what="at another position than its token's", answer="409 conflict", prepare=_at_another_position),
    OrderCase(what="with the token of an earlier choice", answer="409 conflict", prepare=_of_an_earlier_choice),
    OrderCase(what="at a position beyond the episode", answer="400 invalid", prepare=_with(position=1)),
)
