"""Decisions that count at several keys: chains at a shard, and frozen tables (reading A-31)."""

from __future__ import annotations

import dataclasses

import pytest

from memcon import ids
from memcon.errors import ConfigError, ConflictError, InvariantError, NotFoundError
from memcon.learning.events import Created, Credited, Decided, Event, RecoveredDecision
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideReply, DecideRequest
from memcon.testing.policy import cancel_request, outcome_request
from support.key_chains import POOLED, chain
from support.shards import SECRET, SETTINGS, decided, new_shard, numbers

PUT, HEAT, FAR = chain(goal_type="put"), chain(goal_type="heat"), chain("audit", "find")


def _request(number: int, keys: tuple[str, ...], **changes: object) -> DecideRequest:
    request = DecideRequest(
        table="table", decision_id=f"d{number}", episode_id=f"e{number}", position=0, keys=keys, draw=number
    )
    return dataclasses.replace(request, **changes)  # type: ignore[arg-type]


def _decided(shard: PolicyShard, number: int, keys: tuple[str, ...]) -> DecideReply:
    return shard.decide(_request(number, keys)).reply


def _taken(shard: PolicyShard, key: str) -> dict[str, float | int | None]:
    arms = shard.inspect("table").get(key, {})
    return {arm: row["taken"] for arm, row in arms.items() if row["taken"]}


def test_decision_counts_at_its_key_and_at_the_coarser_ones() -> None:
    shard = new_shard(POOLED)

    arms = [_decided(shard, n, keys).action_id for n, keys in enumerate((PUT, HEAT, FAR))]

    assert list(_taken(shard, PUT[0])) == [arms[0]]
    assert sum(int(count or 0) for count in _taken(shard, PUT[2]).values()) == 2
    assert sum(int(count or 0) for count in _taken(shard, FAR[2]).values()) == 1


def test_outcome_at_one_key_moves_a_key_that_shares_its_coarser_one() -> None:
    shard = new_shard(POOLED)
    before = shard.decide(_request(0, HEAT, explain=True)).reply.per_arm
    reply = _decided(shard, 1, PUT)
    shard.outcome(outcome_request(reply, 1.15))

    after = shard.decide(_request(2, HEAT, explain=True)).reply.per_arm

    assert before is not None
    assert after is not None
    assert after[reply.action_id]["mean"] > before[reply.action_id]["mean"]
    # Its own numbers, which stand beside the pooled mean, saw nothing of it.
    assert after[reply.action_id]["credited"] == 0


@pytest.mark.parametrize(
    "keys",
    [(PUT[0],), PUT[:2], (PUT[0], PUT[1], FAR[2]), (PUT[0], PUT[2], PUT[1]), ("fine", "middle", "coarse"), ()],
)
def test_keys_that_are_not_of_one_state_are_refused_and_count_nowhere(keys: tuple[str, ...]) -> None:
    shard = new_shard(POOLED)

    with pytest.raises(ConfigError):
        shard.decide(_request(1, keys))

    assert shard.inspect("table") == {}


def test_coarsest_key_decides_which_shard_owns_a_chain() -> None:
    owner = ids.shard_of("table", PUT[-1], 4)
    shards = [PolicyShard(i, 4, SECRET) for i in range(4)]
    for shard in shards:
        shard.open_table("table", POOLED)

    _decided(shards[owner], 1, PUT)
    _decided(shards[owner], 2, HEAT)

    for shard in [shard for i, shard in enumerate(shards) if i != owner]:
        with pytest.raises(NotFoundError, match=f"ask shard {owner}"):
            _decided(shard, 3, PUT)


@pytest.mark.parametrize("elsewhere", [HEAT, FAR, chain(goal_type="put", plan=True)])
def test_open_id_with_another_chain_is_decided_as_if_it_had_never_been_open(elsewhere: tuple[str, ...]) -> None:
    # Both chains may count at one coarse key, so the first decision must not sway the second; and a fold must agree.
    plain, moved = new_shard(POOLED), new_shard(POOLED)
    journal: list[Event] = [Created(table="table", settings=POOLED)]
    journal += moved.decide(_request(1, PUT)).events

    handled = moved.decide(_request(1, elsewhere, explain=True))

    assert handled.reply.per_arm == plain.decide(_request(1, elsewhere, explain=True)).reply.per_arm
    assert handled.reply.action_id == _decided(plain, 1, elsewhere).action_id
    assert _taken(moved, PUT[2]) == _taken(plain, PUT[2])
    folded = PolicyShard(0, 1, SECRET)
    for event in (*journal, *handled.events):
        folded.apply(event)
    assert folded.dump("table") == moved.dump("table")


def test_refused_decide_with_another_chain_leaves_the_earlier_one_counted() -> None:
    shard = new_shard(POOLED)
    first = _decided(shard, 1, PUT)
    before = shard.dump("table")

    with pytest.raises(ConfigError):
        shard.decide(_request(1, HEAT, allowed=("nowhere",)))

    assert shard.dump("table") == before
    assert _decided(shard, 1, PUT) == first


def test_chain_of_a_lost_decision_is_recovered_from_its_token() -> None:
    dead, alive = new_shard(POOLED), new_shard(POOLED)
    reply = _decided(dead, 1, PUT)

    handled = alive.outcome(outcome_request(reply, 1.0))

    assert handled.reply.status == "recovered"
    (event,) = handled.events
    assert isinstance(event, Credited)
    assert event.recovered == RecoveredDecision(episode_id="e1", keys=PUT, action_id=reply.action_id)
    assert _taken(alive, PUT[0]) == _taken(alive, PUT[2]) == {reply.action_id: 1}


def test_token_with_another_number_of_keys_is_a_conflict() -> None:
    reply = _decided(new_shard(POOLED), 1, PUT)
    other = new_shard(dataclasses.replace(POOLED, pooling=("benchmark",)))

    with pytest.raises(ConflictError, match="3 keys, table 'table' counts at 2"):
        other.outcome(outcome_request(reply, 1.0))


def test_fold_refuses_a_recovered_chain_that_does_not_nest() -> None:
    event = Credited(
        table="table",
        decision_id="d",
        reward=1.0,
        position=0,
        num_decisions=1,
        cost=0.0,
        recovered=RecoveredDecision(episode_id="e", keys=(PUT[0], PUT[1], FAR[2]), action_id="noop"),
    )

    with pytest.raises(InvariantError, match=r"stands 'benchmark/1\|benchmark=house'"):
        new_shard(POOLED).apply(event)


def test_inspect_shows_every_level_as_the_rule_sees_it() -> None:
    shard = new_shard(POOLED)
    for n, keys in enumerate((PUT, PUT, HEAT, FAR)):
        shard.outcome(outcome_request(_decided(shard, n, keys), 1.0))

    shown = shard.inspect("table")

    assert set(shown) == {*PUT, *HEAT, *FAR}
    # At the coarsest key alone: the prior of Table 6 counts for two returns, one return of 1.0 came in.
    arm = next(iter(_taken(shard, FAR[2])))
    row = shown[FAR[2]][arm]
    assert row["mean"] == pytest.approx((2 * 0.5 + 1.0) / 3)
    assert (row["q"], row["credited"]) == (1.0, 1)
    # A finer key has its own numbers, and the mean that the coarser ones shrink.
    fine = shown[HEAT[0]][next(iter(_taken(shard, HEAT[0])))]
    assert (fine["q"], fine["credited"]) == (1.0, 1)
    assert fine["mean"] != row["mean"]
    assert fine["bonus"] == 0.0


def test_a_sampled_column_is_no_view_of_a_table() -> None:
    settings = dataclasses.replace(
        POOLED, rule="thompson", rule_parameters={"prior_strength": 2.0, "pool_strength": 8.0, "sigma": 0.5}
    )
    shard = new_shard(settings)
    per_arm = shard.decide(_request(1, PUT, explain=True)).reply.per_arm

    assert per_arm is not None
    assert "sample" in per_arm["noop"]
    assert shard.inspect("table")[PUT[0]]["noop"].keys() == {
        "q", "taken", "credited", "bonus", "score", "mean", "effective_count",
    }  # fmt: skip


# --- frozen ----------------------------------------------------------------------------------------------------------


def test_frozen_table_records_decisions_and_learns_nothing() -> None:
    shard = new_shard(dataclasses.replace(SETTINGS, frozen=True))
    first = decided(shard, 1)

    credited = shard.outcome(outcome_request(first, 1.0))
    cancelled = decided(shard, 2)
    shard.cancel(cancel_request(cancelled))

    assert (credited.reply.status, credited.reply.credit) == ("credited", 1.0)
    assert shard.outcome(outcome_request(first, 1.0)).reply.status == "duplicate"
    with pytest.raises(ConflictError, match="already cancelled"):
        shard.outcome(outcome_request(cancelled, 1.0))
    assert shard.inspect("table") == {}
    # Nothing was counted, so the same arm is due for ever.
    assert decided(shard, 3).action_id == first.action_id


def test_frozen_table_still_refuses_keys_of_another_shard() -> None:
    owner = ids.shard_of("table", "key", 4)
    settings = dataclasses.replace(SETTINGS, frozen=True)
    mine, other = PolicyShard(owner, 4, SECRET), PolicyShard((owner + 1) % 4, 4, SECRET)
    for shard in (mine, other):
        shard.open_table("table", settings)

    decided(mine, 1)
    decided(mine, 2)

    with pytest.raises(NotFoundError, match=f"ask shard {owner}"):
        decided(other, 3)


def test_fold_of_a_chain_checks_the_arm_that_the_coarse_counts_give() -> None:
    shard = new_shard(POOLED)
    journal: list[Event] = [Created(table="table", settings=POOLED)]
    for n in range(6):
        journal += shard.decide(_request(n, (PUT, HEAT, FAR)[n % 3])).events
    folded = PolicyShard(0, 1, SECRET)
    for event in journal[:-1]:
        folded.apply(event)
    last = journal[-1]
    assert isinstance(last, Decided)

    with pytest.raises(InvariantError, match="altered or lost"):
        folded.apply(dataclasses.replace(last, action_id="forget"))


def test_one_key_tables_take_any_text_as_their_key() -> None:
    shard = new_shard()
    decided(shard, 1, key="no schema at all")

    assert numbers(shard, key="no schema at all") == (1, 0)
    with pytest.raises(ConfigError, match="expected one key of 'paper/1'"):
        shard.decide(_request(2, PUT))
