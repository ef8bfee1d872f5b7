"""Whatever order decides, outcomes and cancels come in: counts agree, and the fold gives the same bits."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memcon import ids
from memcon.errors import ConflictError, NotFoundError
from memcon.learning.events import Created, EpisodeClosed, Event, decode_event, encode_event
from memcon.learning.exploration import UcbConfig, UniformConfig
from memcon.learning.shard import Handled, PolicyShard
from memcon.policy_types import DecideReply, DecideRequest, LearningSettings, OutcomeRequest
from memcon.seeds import Generator, SeedTree

SECRET = b"a secret of the tests"
RULES = (
    UcbConfig().learning_settings(),
    UcbConfig(estimator="mean", c=0.2, warm_start=False).learning_settings(),
    UniformConfig().learning_settings(),
)
KEYS = ("a", "b", "c", "d", "e", "f")
NUM_SHARDS = 4


class _World:
    """Shards that live through random commands; keeps what each journaled and its own book of decisions."""

    def __init__(self, table_settings: LearningSettings, num_shards: int) -> None:
        self.settings = table_settings
        self.num_shards = num_shards
        self.shards = [PolicyShard(i, num_shards, SECRET) for i in range(num_shards)]
        self.journals: list[list[Event]] = [[] for _ in self.shards]
        self.replies: dict[str, tuple[DecideRequest, DecideReply]] = {}
        # decision id -> "open", "credited" or "cancelled"
        self.states: dict[str, str] = {}
        for i, shard in enumerate(self.shards):
            self.journals[i].extend(shard.open_table("t", table_settings).events)

    def owner(self, key: str) -> int:
        return ids.shard_of("t", key, self.num_shards)

    def decide(self, request: DecideRequest) -> None:
        i = self.owner(request.keys[0])
        try:
            handled = self.shards[i].decide(request)
        except ConflictError:
            return
        self.journals[i].extend(handled.events)
        known = self.replies.get(request.decision_id)
        if known is not None and known[0].keys == request.keys and self.states[request.decision_id] == "open":
            assert handled.reply == known[1]
            assert not handled.events
        self.replies[request.decision_id] = (request, handled.reply)
        self.states[request.decision_id] = "open"

    def outcome(self, decision_id: str, reward: float, num_decisions: int) -> None:
        request, reply = self.replies[decision_id]
        outcome = OutcomeRequest(
            decision_id=decision_id,
            token=reply.token,
            reward=reward,
            position=request.position,
            num_decisions=request.position + num_decisions,
        )
        i = self.owner(request.keys[0])
        try:
            handled = self.shards[i].outcome(outcome)
        except ConflictError:
            assert self.states[decision_id] != "open"
            return
        self.journals[i].extend(handled.events)
        assert handled.reply.status == ("credited" if self.states[decision_id] == "open" else "duplicate")
        self.states[decision_id] = "credited"

    def cancel(self, decision_id: str) -> None:
        i = self.owner(self.replies[decision_id][0].keys[0])
        try:
            handled = self.shards[i].cancel("t", decision_id)
        except ConflictError:
            assert self.states[decision_id] == "credited"
            return
        self.journals[i].extend(handled.events)
        self.states[decision_id] = "cancelled"

    def cancel_episode(self, episode_id: str) -> None:
        for i, shard in enumerate(self.shards):
            handled: Handled[int] = shard.cancel_episode("t", episode_id)
            self.journals[i].extend(handled.events)
        for decision_id, (request, _) in self.replies.items():
            if request.episode_id == episode_id and self.states[decision_id] == "open":
                self.states[decision_id] = "cancelled"

    def check_counts(self) -> None:
        taken: Counter[tuple[str, str]] = Counter()
        credited: Counter[tuple[str, str]] = Counter()
        for decision_id, (request, reply) in self.replies.items():
            taken[request.keys[0], reply.action_id] += self.states[decision_id] != "cancelled"
            credited[request.keys[0], reply.action_id] += self.states[decision_id] == "credited"
        for shard in self.shards:
            for key, arms in shard.inspect("t").items():
                for arm, row in arms.items():
                    assert (row["taken"], row["credited"]) == (taken[key, arm], credited[key, arm])


def _key_of(decision_id: str, *, moves: bool, chance: Generator) -> str:
    """A decision keeps its key; with `moves` it may come again with another one."""
    return chance.choice(KEYS) if moves else KEYS[ids.draw64(decision_id) % len(KEYS)]


def _live(seed: int, *, num_shards: int, moves: bool, num_commands: int = 120) -> _World:
    chance = SeedTree(("life", seed)).generator()
    world = _World(RULES[seed % len(RULES)], num_shards)
    arms = world.settings.action_ids
    for _ in range(num_commands):
        episode, position = chance.randint(0, 11), chance.randint(0, 3)
        decision_id = f"{episode}/{position}"
        kind = chance.choices(("decide", "outcome", "cancel", "episode"), (10, 6, 1, 1))[0]
        if kind == "decide":
            allowed = tuple(arm for arm in arms if chance.random() < 0.5) or None
            key = _key_of(decision_id, moves=moves, chance=chance)
            world.decide(
                DecideRequest(
                    table="t",
                    decision_id=decision_id,
                    episode_id=str(episode),
                    position=position,
                    keys=(key,),
                    draw=chance.getrandbits(64),
                    allowed=allowed,
                    explain=True,
                )
            )
        elif kind == "episode":
            world.cancel_episode(str(episode))
        elif decision_id in world.replies:
            if kind == "outcome":
                world.outcome(decision_id, chance.choice((1.15, -0.5, 1 / 3)), chance.randint(1, 2))
            else:
                world.cancel(decision_id)
    return world


def _fold(events: list[Event], shard: int, num_shards: int) -> PolicyShard:
    folded = PolicyShard(shard, num_shards, SECRET)
    for event in events:
        # Through the text form, as from a journal file.
        folded.apply(decode_event(*encode_event(event)))
    return folded


def _text(shard: PolicyShard) -> str:
    return json.dumps(shard.dump("t"), allow_nan=False)


def _merged(dumps: list[dict[str, Any]]) -> dict[str, Any]:
    """What one shard would show if it owned everything that `dumps` own."""
    merged: dict[str, Any] = json.loads(json.dumps(dumps[0]))
    for dump in dumps[1:]:
        merged["numbers"]["keys"] |= dump["numbers"]["keys"]
        merged["open"] |= dump["open"]
        merged["closed"] |= dump["closed"]
        merged["closed_episodes"] = sorted({*merged["closed_episodes"], *dump["closed_episodes"]})
    return merged


@pytest.mark.parametrize("block", range(4))
def test_counts_agree_with_the_book_after_any_order_of_commands(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        _live(seed, num_shards=1, moves=True).check_counts()


@pytest.mark.parametrize("block", range(2))
def test_fold_of_the_journal_is_the_live_table_bit_for_bit(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        world = _live(seed, num_shards=1, moves=True)

        folded = _fold(world.journals[0], 0, 1)

        assert _text(folded) == _text(world.shards[0])


def test_fold_gives_the_same_bits_for_any_number_of_shards_and_any_merge_of_their_journals() -> None:
    for seed in range(100):
        world = _live(seed, num_shards=NUM_SHARDS, moves=False)
        chance = SeedTree(("merge", seed)).generator()
        live = _merged([shard.dump("t") for shard in world.shards])

        # Each shard folds its own; one shard folds them all, in an order that only keeps each journal's own.
        apart = [_fold(journal, i, NUM_SHARDS).dump("t") for i, journal in enumerate(world.journals)]
        together = _fold(_shuffled_merge(world.journals, chance), 0, 1).dump("t")

        assert apart == [shard.dump("t") for shard in world.shards]
        assert _merged(apart) == live
        assert _merged([together]) == live


def test_journal_of_one_shard_splits_into_four_with_the_same_bits() -> None:
    for seed in range(100):
        world = _live(seed, num_shards=1, moves=False)
        split: list[list[Event]] = [[] for _ in range(NUM_SHARDS)]
        for event in world.journals[0]:
            everywhere = isinstance(event, Created | EpisodeClosed)
            owners = range(NUM_SHARDS) if everywhere else [_owner_of(event)]
            for i in owners:
                split[i].append(event)

        folded = [_fold(journal, i, NUM_SHARDS).dump("t") for i, journal in enumerate(split)]

        assert _merged(folded) == _merged([world.shards[0].dump("t")])


def _owner_of(event: Event) -> int:
    assert not isinstance(event, Created | EpisodeClosed)
    return ids.shard_of("t", KEYS[ids.draw64(event.decision_id) % len(KEYS)], NUM_SHARDS)


def _shuffled_merge(journals: list[list[Event]], chance: Generator) -> list[Event]:
    places = [i for i, journal in enumerate(journals) for _ in journal]
    chance.shuffle(places)
    iterators = [iter(journal) for journal in journals]
    return [next(iterators[i]) for i in places]


@given(st.text(), st.text(), st.floats(allow_nan=False, allow_infinity=False, width=64))
@settings(max_examples=200, deadline=None)
def test_tables_and_ids_may_hold_any_text(table: str, decision: str, reward: float) -> None:
    shard = PolicyShard(0, 1, SECRET)
    name, decision_id = "t" + table, "d" + decision
    journal = [*shard.open_table(name, RULES[0]).events]
    request = DecideRequest(
        table=name, decision_id=decision_id, episode_id=decision_id, position=0, keys=(table + "k",), draw=0
    )
    handled = shard.decide(request)
    journal.extend(handled.events)
    outcome = OutcomeRequest(
        decision_id=decision_id,
        token=handled.reply.token,
        reward=max(-1e6, min(1e6, reward)),
        position=0,
        num_decisions=1,
    )
    journal.extend(shard.outcome(outcome).events)

    assert _fold(journal, 0, 1).dump(name) == shard.dump(name)
    with pytest.raises(NotFoundError):
        shard.dump(name + "x")
