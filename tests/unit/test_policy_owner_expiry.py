"""Open decisions that wait too long end by themselves; their ages are those of the owner's process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memcon.errors import ConflictError
from memcon.learning.events import Cancelled, Decided
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import DecideReply, OutcomeReply, OutcomeRequest
from memcon.testing.policy import decide_request, outcome_request
from memcon_policy_server.journal.fold import folded
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.owner import expiry as expiry_module
from memcon_policy_server.owner.expiry import Expiry
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.wire import MovedError
from support.owners import HandClock, eventually

SETTINGS = UcbConfig().learning_settings()


def decided(number: int) -> Decided:
    return Decided(
        table="table",
        decision_id=f"decision-{number}",
        episode_id="episode",
        position=0,
        keys=("key",),
        draw=0,
        allowed=None,
        action_id="noop",
    )


class Ended:
    """An expiry of 10 s under a clock that the test moves, and what it has ended."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.ids: list[str] = []
        self.expiry = Expiry(10.0, self.clock, lambda _, decision_id: self.ids.append(decision_id))


def test_decisions_end_in_the_order_of_their_age_and_not_before_it() -> None:
    ended = Ended()
    for number in range(3):
        ended.expiry.follow(decided(number))
        ended.clock.now += 1.0

    ended.clock.now += 6.0
    assert (ended.expiry.turn(), ended.ids) == (1.0, [])
    ended.clock.now += 2.0
    assert (ended.expiry.turn(), ended.ids) == (1.0, ["decision-0", "decision-1"])
    ended.clock.now += 1.0
    assert (ended.expiry.turn(), ended.ids) == (10.0, ["decision-0", "decision-1", "decision-2"])


def test_one_that_has_ended_otherwise_is_forgotten_and_one_that_opens_again_begins_anew() -> None:
    ended = Ended()
    ended.expiry.follow(decided(0))
    ended.expiry.follow(decided(1))
    ended.clock.now += 6.0
    ended.expiry.follow(Cancelled(table="table", decision_id="decision-0", reason="cancelled"))
    ended.expiry.follow(Cancelled(table="table", decision_id="decision-1", reason="superseded"))
    ended.expiry.follow(decided(1))

    ended.clock.now += 5.0
    ended.expiry.turn()
    assert ended.ids == []
    ended.clock.now += 5.0
    ended.expiry.turn()
    assert ended.ids == ["decision-1"]


def test_a_crowd_that_is_due_together_ends_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry_module, "MAX_AT_ONCE", 2)
    ended = Ended()
    for number in range(5):
        ended.expiry.follow(decided(number))
    ended.clock.now += 10.0

    pauses = [ended.expiry.turn() for _ in range(3)]

    assert pauses == [0.0, 0.0, 10.0]
    assert len(ended.ids) == 5


# --- at an owner -------------------------------------------------------------------------------------------------


def new_owner(directory: Path, after_s: float, default_reward: float | None = None) -> ShardOwner:
    options = OwnerOptions(expire_after_s=after_s, default_reward=default_reward, flush_every_s=0.0)
    return ShardOwner(directory, shard=0, num_shards=1, options=options)


async def told(owner: ShardOwner, request: OutcomeRequest) -> str:
    (answer,) = await owner.outcomes([request])
    assert isinstance(answer, OutcomeReply)
    return answer.status


async def expired(directory: Path, default_reward: float | None) -> tuple[ShardOwner, DecideReply]:
    owner = new_owner(directory, 0.02, default_reward)
    await owner.open_table("table", SETTINGS)
    decision = await owner.decide(decide_request(0))
    await eventually(lambda: owner.metrics().expired == 1 and owner.metrics().pending == 0)
    assert owner.metrics().open_decisions == 0
    return owner, decision


async def test_an_outcome_after_the_expiry_is_late_and_counts(tmp_path: Path) -> None:
    owner, decision = await expired(tmp_path, None)
    taken = (await owner.served())["tables"]["table"]["numbers"]["keys"]["key"]["retrieve_shallow"]["taken"]

    late = outcome_request(decision, 1.0)
    assert [await told(owner, late), await told(owner, late)] == ["late", "duplicate"]

    row = (await owner.served())["tables"]["table"]["numbers"]["keys"]["key"]["retrieve_shallow"]
    assert (taken, row["taken"], row["credited"]) == (0, 1, 1)
    assert owner.metrics().outcomes == {"late": 1, "duplicate": 1}
    await owner.close()


async def test_after_a_default_outcome_the_real_one_is_only_recorded(tmp_path: Path) -> None:
    owner, decision = await expired(tmp_path, -0.5)
    learned = (await owner.served())["tables"]["table"]["numbers"]

    request = outcome_request(decision, 1.0)
    assert [await told(owner, request), await told(owner, request)] == ["not_applied", "duplicate"]
    (other,) = await owner.outcomes([outcome_request(decision, 0.5)])

    assert isinstance(other, ConflictError)
    assert (await owner.served())["tables"]["table"]["numbers"] == learned
    before = await owner.served()
    await owner.close()
    core, _ = folded(tmp_path, 0, 1)
    assert json.dumps(core.dump("table")) == json.dumps(before["tables"]["table"])


async def test_an_outcome_in_time_leaves_nothing_to_expire(tmp_path: Path) -> None:
    owner = new_owner(tmp_path, 0.05)
    await owner.open_table("table", SETTINGS)
    decision = await owner.decide(decide_request(0))
    assert await told(owner, outcome_request(decision, 1.0)) == "credited"

    await owner.decide(decide_request(1))
    await eventually(lambda: owner.metrics().expired)

    assert owner.metrics().expired == 1
    await owner.close()


async def test_those_that_are_open_at_a_start_begin_anew(tmp_path: Path) -> None:
    owner = ShardOwner(tmp_path, shard=0, num_shards=1)
    await owner.open_table("table", SETTINGS)
    for number in range(3):
        await owner.decide(decide_request(number))
    await owner.close()

    again = new_owner(tmp_path, 0.02)
    assert again.metrics().open_decisions == 3
    await eventually(lambda: again.metrics().expired == 3)

    assert (await again.served())["tables"]["table"]["open"] == {}
    await again.close()


async def test_a_lease_that_lapses_at_the_last_moment_stops_no_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = new_owner(tmp_path, 0.02)
    await owner.open_table("table", SETTINGS)
    refused: list[str] = []

    def lapsed() -> None:
        refused.append("moved")
        raise MovedError("the lease lapsed since it was looked at")

    await owner.decide(decide_request(0))
    with monkeypatch.context() as patched:
        patched.setattr(owner._run, "check_answers", lapsed)
        await eventually(lambda: len(refused) > 1)
    await eventually(lambda: owner.metrics().expired == 1)
    await owner.close()


async def test_without_the_option_nothing_expires(tmp_path: Path) -> None:
    owner = ShardOwner(tmp_path, shard=0, num_shards=1)
    await owner.open_table("table", SETTINGS)
    await owner.decide(decide_request(0))
    assert owner._expiry is None
    await owner.close()
