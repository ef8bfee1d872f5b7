"""The queue before a shard: alone at once, together while one is on its way, each with its own answer, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from memcon.errors import ConflictError, InvariantError, UnavailableError
from memcon_policy_server import wire
from memcon_policy_server.client import batching
from memcon_policy_server.client.batching import DECIDES, Batcher
from memcon_policy_server.client.transport import Transport
from memcon_policy_server.shard_map import ShardMap

Answer = Callable[[str, list[Any]], Any]


async def no_map() -> ShardMap:
    raise UnavailableError("no shard map")


def echo(path: str, items: list[Any]) -> Any:
    """As a server that accepts all: the reply to an item is the item."""
    return items[0] if path == wire.DECIDE else {"replies": items}


class ScriptedTransport(Transport):
    """Each post waits for a `go`, then is answered by `answer`; keeps what was posted."""

    def __init__(self, answer: Answer = echo) -> None:
        super().__init__(no_map, token=None, attempt_timeout_s=5.0)
        self.answer = answer
        self.posted: list[tuple[str, list[Any]]] = []
        self.arrived = asyncio.Semaphore(0)
        self.go = asyncio.Semaphore(0)

    async def post(self, shard: int, path: str, body: bytes) -> Any:
        record = json.loads(body)
        items = [record] if path == wire.DECIDE else record["decides"]
        self.posted.append((path, items))
        self.arrived.release()
        await self.go.acquire()
        return self.answer(path, items)

    def open_gate(self) -> None:
        for _ in range(1000):
            self.go.release()


@pytest.fixture
async def transport() -> AsyncIterator[ScriptedTransport]:
    transport = ScriptedTransport()
    yield transport
    await transport.close()


@pytest.fixture
async def queue(transport: ScriptedTransport) -> AsyncIterator[Batcher]:
    queue = Batcher(transport, 0, DECIDES)
    yield queue
    transport.closed.set()
    await queue.close()


def asked(queue: Batcher, *numbers: int) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(queue.ask(b'{"n":%d}' % number)) for number in numbers]


def item(number: int) -> dict[str, int]:
    return {"n": number}


async def test_a_lone_request_goes_alone(transport: ScriptedTransport, queue: Batcher) -> None:
    transport.open_gate()

    assert await queue.ask(b'{"n":1}') == item(1)
    assert transport.posted == [(wire.DECIDE, [item(1)])]


async def test_what_comes_meanwhile_goes_together_in_order(transport: ScriptedTransport, queue: Batcher) -> None:
    [first] = asked(queue, 0)
    await transport.arrived.acquire()
    others = asked(queue, 1, 2, 3)

    transport.open_gate()

    assert await asyncio.gather(first, *others) == [item(n) for n in range(4)]
    assert transport.posted == [(wire.DECIDE, [item(0)]), (wire.DECIDE_BATCH, [item(1), item(2), item(3)])]


async def test_streams_that_ask_in_one_moment_go_together(transport: ScriptedTransport, queue: Batcher) -> None:
    transport.open_gate()

    await asyncio.gather(*asked(queue, *range(32)))

    assert [len(items) for _, items in transport.posted] == [32]


async def test_each_gets_its_own_refusal(transport: ScriptedTransport, queue: Batcher) -> None:
    def refuse_odd(path: str, items: list[Any]) -> Any:
        failure = {"error": "conflict", "message": "the episode was cancelled"}
        return {"replies": [failure if entry["n"] % 2 else entry for entry in items]}

    transport.answer = refuse_odd
    transport.open_gate()

    replies = await asyncio.gather(*asked(queue, 0, 1, 2, 3), return_exceptions=True)

    assert [replies[0], replies[2]] == [item(0), item(2)]
    assert [type(replies[n]) for n in (1, 3)] == [ConflictError, ConflictError]


async def test_one_with_a_bad_form_does_not_spoil_the_others(transport: ScriptedTransport, queue: Batcher) -> None:
    def refuse_whole(path: str, items: list[Any]) -> Any:
        if any(entry["n"] == 1 for entry in items):
            raise wire.RejectedError("n = 1")
        return echo(path, items)

    transport.answer = refuse_whole
    transport.open_gate()

    replies = await asyncio.gather(*asked(queue, 0, 1, 2), return_exceptions=True)

    assert [replies[0], replies[2]] == [item(0), item(2)]
    assert isinstance(replies[1], wire.RejectedError)


@pytest.mark.parametrize("code", ["moved", "unavailable", "fault"])
async def test_only_those_that_were_not_served_are_asked_again(
    transport: ScriptedTransport, queue: Batcher, code: str
) -> None:
    def once(path: str, items: list[Any]) -> Any:
        if len(transport.posted) > 1:
            return echo(path, items)
        return {"replies": [{"error": code, "message": "not now"} if entry["n"] else entry for entry in items]}

    transport.answer = once
    transport.open_gate()

    assert await asyncio.gather(*asked(queue, 0, 1, 2)) == [item(0), item(1), item(2)]
    assert transport.posted[1:] == [(wire.DECIDE_BATCH, [item(1), item(2)])]


@pytest.mark.parametrize("answer", [[], {}, {"replies": []}, {"replies": [1, 2]}, "text"])
async def test_an_answer_of_another_form_is_no_owners(
    transport: ScriptedTransport, queue: Batcher, answer: Any
) -> None:
    transport.answer = lambda path, items: echo(path, items) if len(transport.posted) > 1 else answer
    transport.open_gate()

    assert await asyncio.gather(*asked(queue, 0, 1)) == [item(0), item(1)]


async def test_after_a_failure_the_order_is_kept(transport: ScriptedTransport, queue: Batcher) -> None:
    def fail_first(path: str, items: list[Any]) -> Any:
        if len(transport.posted) == 1:
            raise UnavailableError("stopping")
        return echo(path, items)

    transport.answer = fail_first
    first = asked(queue, 0, 1)
    await transport.arrived.acquire()
    others = asked(queue, 2, 3)
    transport.open_gate()

    await asyncio.gather(*first, *others)

    assert transport.posted[1:] == [(wire.DECIDE_BATCH, [item(n) for n in range(4)])]


async def test_what_nobody_waits_for_is_not_sent(transport: ScriptedTransport, queue: Batcher) -> None:
    [first] = asked(queue, 0)
    await transport.arrived.acquire()
    given_up, kept = asked(queue, 1, 2)
    await asyncio.wait([given_up], timeout=0)
    given_up.cancel()
    transport.open_gate()

    assert list(await asyncio.gather(first, kept)) == [item(0), item(2)]
    assert transport.posted[1:] == [(wire.DECIDE, [item(2)])]


async def test_an_answer_that_nobody_waits_for_any_more_is_told(transport: ScriptedTransport) -> None:
    orphans: list[Any] = []
    queue = Batcher(transport, 0, DECIDES, orphaned=orphans.append)
    given_up, kept = asked(queue, 1, 2)
    await transport.arrived.acquire()
    given_up.cancel()
    transport.open_gate()

    assert await kept == item(2)
    assert orphans == [item(1)]
    transport.closed.set()
    await queue.close()


async def test_an_answer_that_was_lost_is_asked_for_again_though_its_caller_has_gone(
    transport: ScriptedTransport,
) -> None:
    told: list[Any] = []
    queue = Batcher(transport, 0, DECIDES, orphaned=told.append)
    stays, goes = asked(queue, 1, 2)
    await transport.arrived.acquire()
    goes.cancel()

    def lost(path: str, items: list[Any]) -> Any:
        transport.answer = echo
        raise httpx2.ReadError("the connection broke")

    transport.answer = lost
    transport.go.release()
    await transport.arrived.acquire()
    transport.go.release()

    assert await stays == item(1)
    assert [items for _, items in transport.posted] == [[item(1), item(2)], [item(1), item(2)]]
    # Once, and nothing of it is asked a third time.
    assert told == [item(2)]
    await queue.close()


async def test_what_was_not_sent_is_not_asked_again_for_nobody(transport: ScriptedTransport) -> None:
    told: list[Any] = []
    queue = Batcher(transport, 0, DECIDES, orphaned=told.append)
    stays, goes = asked(queue, 1, 2)
    await transport.arrived.acquire()
    goes.cancel()

    def nobody_there(path: str, items: list[Any]) -> Any:
        transport.answer = echo
        raise httpx2.ConnectError("refused")

    transport.answer = nobody_there
    transport.go.release()
    await transport.arrived.acquire()
    transport.go.release()

    assert await stays == item(1)
    assert (transport.posted[-1][1], told) == ([item(1)], [])
    await queue.close()


async def test_an_answer_that_meets_a_leaving_caller_is_told(
    transport: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    queue = Batcher(transport, 0, DECIDES, orphaned=told.append)
    [asking] = asked(queue, 1)
    settle = queue._settle

    def settle_and_leave(*arguments: Any) -> None:
        settle(*arguments)
        asking.cancel()

    monkeypatch.setattr(queue, "_settle", settle_and_leave)
    transport.go.release()

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert told == [item(1)]
    await queue.close()


async def test_a_batch_is_bounded_by_number_and_by_size(
    transport: ScriptedTransport, queue: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "MAX_ITEMS", 3)
    monkeypatch.setattr(batching, "MAX_BYTES", 40)
    transport.open_gate()

    await asyncio.gather(*asked(queue, 1, 2, 3, 4))
    await asyncio.gather(*asked(queue, 10**14, 10**15, 10**29, 5))

    assert [len(items) for _, items in transport.posted] == [3, 1, 1, 1, 1, 1]


async def test_a_closed_queue_refuses_whoever_waits_and_whoever_comes(
    transport: ScriptedTransport, queue: Batcher
) -> None:
    on_its_way = asked(queue, 0)
    await transport.arrived.acquire()
    waiting = asked(queue, 1, 2)
    await asyncio.wait(waiting, timeout=0)

    transport.closed.set()
    await queue.close()

    for task in (*on_its_way, *waiting, *asked(queue, 3)):
        with pytest.raises(UnavailableError, match="closed"):
            await task


async def test_a_defect_leaves_nobody_waiting(transport: ScriptedTransport, queue: Batcher) -> None:
    def defect(path: str, items: list[Any]) -> Any:
        raise LookupError("a bug")

    transport.answer = defect
    transport.open_gate()

    for task in asked(queue, 1, 2):
        with pytest.raises(InvariantError, match="a bug"):
            await task
    # The queue works on.
    transport.answer = echo
    assert await queue.ask(b'{"n":3}') == item(3)
