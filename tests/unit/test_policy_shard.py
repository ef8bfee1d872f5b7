"""Tables and decides of a shard (architecture: "Rules")."""

from __future__ import annotations

import dataclasses
import math

import pytest

from memcon import ids
from memcon.errors import ConfigError, ConflictError, NotFoundError
from memcon.learning import actions
from memcon.learning.events import Cancelled, Created, Decided
from memcon.learning.exploration import FixedConfig
from memcon.learning.shard import PolicyShard
from memcon.policy_types import LearningSettings
from memcon.testing.policy import decide_request, outcome_request
from support.shards import SECRET, SETTINGS, decided, new_shard, numbers


def test_table_is_created_once() -> None:
    shard = PolicyShard(0, 1, SECRET)

    assert shard.open_table("table", SETTINGS).events == (Created(table="table", settings=SETTINGS),)
    assert shard.open_table("table", SETTINGS).events == ()
    assert shard.tables() == ["table"]


def test_table_is_refused_under_another_action_set() -> None:
    shard = new_shard()
    other = dataclasses.replace(SETTINGS, fingerprint="0" * 16)

    with pytest.raises(ConflictError, match=f"fingerprint: recorded {SETTINGS.fingerprint}, asked 0000"):
        shard.open_table("table", other)
    assert SETTINGS.fingerprint == actions.fingerprint(actions.action_set("default"))


@pytest.mark.parametrize(
    "settings",
    [
        dataclasses.replace(SETTINGS, estimator="median"),
        dataclasses.replace(SETTINGS, alpha=math.nan),
        dataclasses.replace(SETTINGS, gamma=1.1),
        dataclasses.replace(SETTINGS, action_ids=(), priors=()),
        dataclasses.replace(SETTINGS, action_ids=("a", "a"), priors=(0.0, 0.0)),
        dataclasses.replace(SETTINGS, priors=(0.0,)),
        dataclasses.replace(SETTINGS, priors=(math.nan,) * 9),
        dataclasses.replace(SETTINGS, schema_version=2),
        dataclasses.replace(SETTINGS, rule="ubc"),
    ],
)
def test_table_with_impossible_settings_is_refused(settings: LearningSettings) -> None:
    shard = PolicyShard(0, 1, SECRET)

    with pytest.raises(ConfigError):
        shard.open_table("table", settings)
    assert shard.tables() == []


def test_table_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="name"):
        PolicyShard(0, 1, SECRET).open_table("", SETTINGS)


@pytest.mark.parametrize(
    ("shard", "num_shards", "secret"), [(1, 1, SECRET), (-1, 1, SECRET), (0, 0, SECRET), (0, 1, b"short")]
)
def test_shard_outside_its_range_or_without_secret_is_refused(shard: int, num_shards: int, secret: bytes) -> None:
    with pytest.raises(ConfigError):
        PolicyShard(shard, num_shards, secret)


def test_decide_counts_when_it_is_taken() -> None:
    shard = new_shard()

    handled = shard.decide(decide_request(1))

    assert numbers(shard) == (1, 0)
    assert handled.events == (
        Decided(
            table="table",
            decision_id="decision-1",
            episode_id="episode-1",
            position=0,
            keys=("key",),
            draw=0,
            allowed=None,
            action_id="retrieve_shallow",
        ),
    )


def test_decide_again_gives_the_same_answer_and_no_event() -> None:
    shard = new_shard()
    first = decided(shard)
    decided(shard, 2)

    again = shard.decide(decide_request(1))

    assert again.reply == first
    assert again.events == ()
    assert numbers(shard) == (1, 0)


def test_open_decisions_at_one_key_share_its_text() -> None:
    shard = new_shard()
    decided(shard, 1, "a key")
    again = PolicyShard(0, 1, SECRET)
    again.load(shard.state())

    for known in (shard, again):
        # As over a wire: the same text, and not the same object.
        texts = ["".join(["a ", "key"]) for _ in range(2)]
        events = [known.decide(decide_request(n, key=text)).events[0] for n, text in enumerate(texts, start=2)]
        kept = [event.keys[0] for event in events if isinstance(event, Decided)]
        assert kept == texts
        assert kept[0] is kept[1]


def test_visits_of_another_key_leave_the_choice_unchanged() -> None:
    alone, beside = new_shard(), new_shard()
    for n in range(30):
        decided(beside, 100 + n, key="busy")

    for n in range(25):
        assert decided(alone, n).action_id == decided(beside, n).action_id


def test_explained_values_tell_open_decisions_from_credited_ones() -> None:
    shard = new_shard()
    shard.outcome(outcome_request(decided(shard), 1.0))
    decided(shard, 2)

    explained = shard.decide(dataclasses.replace(decide_request(3), explain=True)).reply.per_arm

    assert explained is not None
    assert {arm: (row["taken"], row["credited"]) for arm, row in explained.items() if row["taken"]} == {
        "retrieve_shallow": (1.0, 1.0),
        "retrieve_medium": (1.0, 0.0),
    }
    assert explained["retrieve_deep"]["probability"] == 1.0


def test_open_id_with_another_key_cancels_the_earlier_decision() -> None:
    shard = new_shard()
    earlier = decided(shard)

    handled = shard.decide(decide_request(1, key="elsewhere"))

    assert [type(event) for event in handled.events] == [Cancelled, Decided]
    assert numbers(shard) == (0, 0)
    assert numbers(shard, key="elsewhere") == (1, 0)
    with pytest.raises(ConflictError, match="another key"):
        shard.outcome(outcome_request(earlier, 1.0))
    assert shard.outcome(outcome_request(handled.reply, 1.0)).reply.status == "credited"


def test_refused_decide_of_an_open_id_leaves_the_earlier_one_open() -> None:
    shard = new_shard()
    first = decided(shard)
    bad = dataclasses.replace(decide_request(1, key="elsewhere"), allowed=("nowhere",))

    with pytest.raises(ConfigError):
        shard.decide(bad)

    assert shard.decide(decide_request(1)).reply == first


@pytest.mark.parametrize("change", [{"episode_id": "other"}, {"position": 1}])
def test_open_id_from_another_place_is_a_conflict(change: dict[str, str | int]) -> None:
    shard = new_shard()
    decided(shard)

    with pytest.raises(ConflictError, match="decision-1"):
        shard.decide(dataclasses.replace(decide_request(1), **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"keys": ()},
        {"keys": ("",)},
        {"keys": ("fine", "coarse")},
        {"draw": -1},
        {"draw": 2**64},
        {"allowed": ()},
        {"allowed": ("noop", "nope")},
        {"decision_id": ""},
        {"episode_id": ""},
        {"position": -1},
    ],
)
def test_malformed_decide_is_refused_and_changes_nothing(change: dict[str, object]) -> None:
    shard = new_shard()
    before = shard.dump("table")

    with pytest.raises(ConfigError):
        shard.decide(dataclasses.replace(decide_request(1), **change))  # type: ignore[arg-type]

    assert shard.dump("table") == before


def test_fixed_arm_that_is_masked_is_refused_and_counts_nothing() -> None:
    shard = new_shard(FixedConfig(action_id="forget").learning_settings())

    with pytest.raises(ConfigError, match="masked"):
        shard.decide(dataclasses.replace(decide_request(1), allowed=("noop",)))
    assert shard.inspect("table") == {}


def test_key_of_another_shard_is_refused_with_its_owner() -> None:
    owner = ids.shard_of("table", "key", 4)
    shard = PolicyShard((owner + 1) % 4, 4, SECRET)
    shard.open_table("table", SETTINGS)

    with pytest.raises(NotFoundError, match=f"ask shard {owner}"):
        shard.decide(decide_request(1))
    assert shard.inspect("table") == {}
