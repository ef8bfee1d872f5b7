"""The reckoning of a soak finds what it is there to find: each kind of loss, made by hand, is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcon.learning.events import Cancelled, Credited, Event, RecoveredDecision
from memcon.learning.events import Decided as DecidedEvent
from memcon_policy_server.owner.lease import LEASE_S
from soak.agent import reward_of
from soak.ledger import Ledger
from soak.log import Began, Decided, Ended, Failed, LogReader, LogWriter, Record, Told
from soak.run import percentile
from soak.schedule import CLAIM, KILLS, OWNER, ROLL, draw_schedule
from soak.watch import StaleOwners

ID = "decision"
ARM, OTHER_ARM = "noop", "forget"
DECIDED = DecidedEvent(
    table="t", decision_id=ID, episode_id="e", position=0, keys=("k",), draw=1, allowed=None, action_id=ARM
)
ANSWERED = Decided(decision_id=ID, shard=0, action_id=ARM, is_fallback=False, asked=1.0, answered=2.0)
TOLD = Told(decision_id=ID, status="spooled", reward=reward_of(ID), position=0, num_decisions=1)
ENDED = Ended(waiting=0, refused=())
GOOD_LOG = (Began(life=0), ANSWERED, TOLD, ENDED)


def credited(*, reward: float = reward_of(ID), arm: str | None = None, num_decisions: int = 1) -> Credited:
    recovered = None if arm is None else RecoveredDecision(episode_id="e", keys=("k",), action_id=arm)
    return Credited(
        table="t",
        decision_id=ID,
        reward=reward,
        position=0,
        num_decisions=num_decisions,
        cost=0.0,
        recovered=recovered,
    )


def problems(events: list[Event], log: tuple[Record, ...] = GOOD_LOG) -> list[str]:
    ledger = Ledger(events)
    return [*ledger.problems(), *ledger.problems_of("client", log)]


@pytest.mark.parametrize("events", [[DECIDED, credited()], [credited(arm=ARM)]])
def test_an_outcome_that_is_in_the_journal_once_is_no_problem(events: list[Event]) -> None:
    assert problems(events) == []


@pytest.mark.parametrize(
    ("events", "named"),
    [
        ([DECIDED], "is not in the journal"),
        ([], "is not in the journal"),
        ([DECIDED, credited(), credited()], "credited 2 times"),
        ([DECIDED, DECIDED, credited()], "counted 2 times"),
        # The owner took its own decision for one that had died.
        ([DECIDED, credited(arm=ARM)], "counted 2 times"),
        ([DECIDED, credited(reward=-reward_of(ID))], "a reward that nobody told"),
        ([DECIDED, credited(num_decisions=2)], "the journal holds"),
        ([credited(arm=OTHER_ARM)], "the journal holds"),
        ([DECIDED, Cancelled(table="t", decision_id=ID, reason="late"), credited()], "is cancelled"),
    ],
)
def test_a_journal_that_is_not_what_was_acknowledged_is_named(events: list[Event], named: str) -> None:
    assert any(named in problem for problem in problems(events))


@pytest.mark.parametrize(
    ("log", "named"),
    [
        ((), "did not end in order"),
        ((Began(life=0), ANSWERED, TOLD), "did not end in order"),
        ((Failed(what="decide", decision_id=ID, error="ConflictError: x"), ENDED), "failed: ConflictError"),
        (
            (Decided(decision_id="other", shard=0, action_id=ARM, is_fallback=True, asked=1, answered=2), ENDED),
            "fallback",
        ),
        ((*GOOD_LOG[:-1], Ended(waiting=3, refused=())), "3 messages were never delivered"),
        ((*GOOD_LOG[:-1], Ended(waiting=0, refused=("ConflictError: x",))), "refused: ConflictError"),
        ((ANSWERED, TOLD, TOLD, ENDED), "answered 'spooled'"),
    ],
)
def test_a_client_that_met_more_than_retries_is_named(log: tuple[Record, ...], named: str) -> None:
    assert any(named in problem for problem in problems([DECIDED, credited()], log))


def test_a_log_is_read_on_and_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = LogReader(path)
    assert reader.new() == []
    LogWriter(path).write(ANSWERED)
    with path.open("ab") as file:
        file.write(b'Told {"decision_id": "cut')
    assert reader.new() == [ANSWERED]

    # The next life of the client.
    LogWriter(path).write(ENDED)

    assert reader.new() == [ENDED]


def test_an_owner_that_answers_longer_than_its_lease_is_named() -> None:
    assert StaleOwners(longest_s=LEASE_S).problems() == []
    assert len(StaleOwners(longest_s=LEASE_S + 0.01).problems()) == 1


def test_a_schedule_is_its_seed_s_and_half_of_its_kills_are_of_owners() -> None:
    schedule = draw_schedule(7, 100, roll=True)
    kinds = [fault.kind for fault in schedule]

    assert schedule == draw_schedule(7, 100, roll=True)
    assert schedule != draw_schedule(8, 100, roll=True)
    assert sum(kind in KILLS for kind in kinds) == 100
    assert (kinds.count(OWNER), kinds.count(CLAIM), kinds.count(ROLL)) == (50, 10, 1)
    assert 45 <= kinds.index(ROLL) <= 60


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.95, 4.0), (1.0, 4.0)])
def test_percentiles_are_values_that_were_seen(share: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == value
