"""Turns at a bounded table: who may begin a task, in which order, and what deaths and failures change."""

from __future__ import annotations

import pytest

from memcon_platform.sweep.turns import Turns, out_of_order

# Two cells of one named table, in the order of the plan; the ids sort the other way round.
A, B, C = ("z", 0), ("z", 1), ("a", 0)


def turns(bound: int = 1) -> Turns:
    return Turns([A, B, C], bound=bound)


def all_ready(table: Turns) -> Turns:
    for name in (C, B, A):
        table.ready(name, 0)
    return table


def test_the_first_turn_waits_until_every_stream_is_claimed() -> None:
    table = turns()
    table.ready(B, 0)
    table.ready(C, 0)
    assert table.next() == []
    table.ready(A, 0)
    assert table.next() == [A]


def test_turns_go_by_ordinal_then_place_in_the_plan() -> None:
    table = all_ready(turns())
    ended = {A: 0, B: 0, C: 0}
    order = []
    for _ in range(9):
        (name,) = table.next()
        order.append(name)
        ended[name] += 1
        table.ready(name, ended[name])
    assert order == [A, B, C] * 3


def test_a_stream_that_is_behind_after_a_resume_goes_first() -> None:
    table = turns()
    for name, ended in ((A, 2), (B, 1), (C, 1)):
        table.ready(name, ended)
    assert table.next() == [B]
    table.ready(B, 2)
    assert table.next() == [C]


def test_a_lost_stream_holds_the_table_up_until_it_is_claimed_again() -> None:
    table = all_ready(turns())
    assert table.next() == [A]
    table.lost(A)
    assert table.next() == []
    # Its task had ended, and the claim has delivered the outcomes.
    table.ready(A, 1)
    assert table.next() == [B]


def test_a_lost_stream_repeats_its_turn_when_the_task_had_not_ended() -> None:
    table = all_ready(turns())
    table.next()
    table.lost(A)
    table.lost(B)
    table.ready(B, 0)
    table.ready(A, 0)
    assert table.next() == [A]


def test_only_a_stream_that_waits_dies_innocently() -> None:
    table = all_ready(turns())
    table.next()
    assert not table.lost(A)
    assert table.lost(B)
    # Not claimed again yet: the claim itself may be what kills.
    assert not table.lost(B)


def test_a_stream_that_leaves_gives_its_turns_up() -> None:
    table = all_ready(turns())
    table.next()
    table.leaves(A)
    assert table.next() == [B]
    table.lost(B)
    assert table.next() == []
    table.leaves(B)
    assert table.next() == [C]
    table.leaves(C)
    assert table.next() == []


def test_a_wider_bound_opens_that_many_and_waits_for_nobody() -> None:
    table = turns(bound=2)
    table.ready(C, 0)
    assert table.next() == [C]
    table.ready(B, 0)
    table.ready(A, 0)
    assert table.next() == [A]
    table.ready(C, 1)
    assert table.next() == [B]


def test_an_episode_whose_worker_died_is_open_until_its_stream_is_claimed_again() -> None:
    table = all_ready(turns(bound=2))
    assert table.next() == [A, B]
    table.lost(A)
    assert table.next() == []
    table.ready(A, 0)
    assert table.next() == [A]


def test_the_same_news_twice_is_one_turn() -> None:
    table = all_ready(turns())
    table.ready(A, 0)
    assert table.next() == [A]
    table.ready(A, 1)
    table.ready(B, 0)
    assert table.next() == [B]
    table.ready(B, 1)
    assert table.next() == [C]


def test_a_stopped_table_gives_no_turns_and_dismisses_who_waits_once() -> None:
    table = all_ready(turns())
    assert table.next() == [A]
    assert table.dismissed() == []
    table.stop()
    assert (table.next(), table.dismissed(), table.dismissed()) == ([], [B, C], [])
    # It had its turn, and waits for the next.
    table.ready(A, 1)
    assert (table.next(), table.dismissed()) == ([], [A])


@pytest.mark.parametrize(
    ("progress", "is_out"),
    [
        # Nothing has run; all has; a kill in the first round, in a later one, and between two.
        ([(0, 3), (0, 3)], False),
        ([(3, 3), (3, 3)], False),
        ([(1, 3), (0, 3)], False),
        ([(3, 5), (2, 5)], False),
        ([(2, 5), (2, 5)], False),
        # A shorter stream is done.
        ([(2, 2), (4, 5)], False),
        # A new stream begins behind others that have ended one task each: a fresh run would do the same.
        ([(1, 3), (1, 3), (0, 3)], False),
        ([(2, 3), (2, 3), (0, 3)], True),
        ([(3, 3), (0, 3)], True),
        # A stream failed and the others went on.
        ([(0, 3), (1, 3)], True),
    ],
)
def test_an_order_of_tasks_that_no_fresh_run_has_is_seen(progress: list[tuple[int, int]], is_out: bool) -> None:
    assert out_of_order(progress) is is_out
