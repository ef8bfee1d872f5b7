"""How long an event loop stays awake after an answer, told by how often it looks at the clock."""

from __future__ import annotations

import asyncio

import pytest

from memcon_policy_server.http.busy_poll import BusyPoll
from support.counted_time import CountedClock

LOOK_S = 10e-6


async def _turns(count: int = 40) -> None:
    for _ in range(count):
        await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop, no wait


async def test_the_loop_turns_until_the_time_is_over() -> None:
    clock = CountedClock(LOOK_S)
    poll = BusyPoll(50, clock=clock)
    for _ in range(2):
        poll.answered("one")
    await _turns()
    # Once to begin, then at each turn until 50 us have gone by.
    assert clock.looks == 6
    poll.answered("one")
    await _turns()
    assert clock.looks == 12


async def test_an_answer_meanwhile_lengthens_it_and_starts_no_second_one() -> None:
    clock = CountedClock(LOOK_S)
    poll = BusyPoll(50, clock=clock)
    for _ in range(2):
        poll.answered("one")
    await _turns(3)
    looks = clock.looks
    poll.answered("one")
    await _turns()
    assert clock.looks == looks + 6


@pytest.mark.parametrize(
    ("microseconds", "connections"),
    [(50, ["one"]), (50, ["one", "two", "one", "two"]), (0, ["one", "one", "one"])],
    ids=["one answer", "answers by turns", "switched off"],
)
async def test_it_sleeps_unless_one_connection_asks_on(microseconds: int, connections: list[str]) -> None:
    clock = CountedClock(LOOK_S)
    poll = BusyPoll(microseconds, clock=clock)
    for connection in connections:
        poll.answered(connection)
    await _turns()
    assert clock.looks == 0


@pytest.mark.parametrize("end", ["lost", "another"])
async def test_it_ends_with_its_reason(end: str) -> None:
    clock = CountedClock(LOOK_S)
    poll = BusyPoll(1_000_000, clock=clock)
    for _ in range(2):
        poll.answered("one")
    await _turns(3)
    if end == "lost":
        poll.gone("one")
    else:
        poll.answered("two")
    await _turns(2)
    looks = clock.looks
    await _turns()
    assert clock.looks == looks
