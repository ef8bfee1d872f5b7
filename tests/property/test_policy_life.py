"""Whatever order decides, outcomes and cancels come in: counts agree at every key, and the fold gives the same bits."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memcon import ids
from memcon.errors import ConflictError, NotFoundError
from memcon.learning import state_key, transfer
from memcon.learning.events import Created, EpisodeClosed, Event, Imported, SettingsChanged, decode_event, encode_event
from memcon.learning.exploration import UcbConfig, UniformConfig
from memcon.learning.exploration.thompson import PooledConfig
from memcon.learning.shard import Handled, PolicyShard
from memcon.policy_types import DecideReply, DecideRequest, LearningSettings, OutcomeRequest, TableImport
from memcon.seeds import Generator, SeedTree
from memcon.testing.policy import cancel_request
from support.key_chains import POOLED, chain

SECRET = b"a secret of the tests"
RULES = (
    UcbConfig().learning_settings(),
    UcbConfig(estimator="mean", c=0.2, warm_start=False).learning_settings(),
    UniformConfig().learning_settings(),
    # Chains of three and of two keys: a finite bonus, and draws from a mean whose count stops early.
    POOLED,
    PooledConfig(count_cap=2, exploration_floor=0.1).learning_settings(),
    dataclasses.replace(POOLED, frozen=True),
)
ONE_KEY = tuple((key,) for key in "abcdef")
# Benchmark, goal type and whether there is a plan: chains that share none, the coarsest, or all but the finest key.
PLACES = (("x", "put", True), ("x", "put", False), ("x", "heat", False), ("y", "put", False), ("z", "find", True))
NUM_SHARDS = 4
# State -> status of an outcome that is taken, and the state after it.
TAKEN = {
    "open": ("credited", "credited"),
    "credited": ("duplicate", "credited"),
    "expired": ("late", "credited"),
    "defaulted": ("not_applied", "recorded"),
    "recorded": ("duplicate", "recorded"),
}


def chains_of(table_settings: LearningSettings) -> tuple[tuple[str, ...], ...]:
    if not table_settings.pooling:
        return ONE_KEY
    return tuple(chain(*place[:2], plan=place[2], settings=table_settings) for place in PLACES)


class _World:
    """Shards that live through random commands; keeps what each journaled and its own book of decisions."""

    def __init__(self, table_settings: LearningSettings, num_shards: int, warm: TableImport | None) -> None:
        self.settings = table_settings
        self.num_shards = num_shards
        self.shards = [PolicyShard(i, num_shards, SECRET) for i in range(num_shards)]
        self.journals: list[list[Event]] = [[] for _ in self.shards]
        self.replies: dict[str, tuple[DecideRequest, DecideReply]] = {}
        # decision id -> "open", "credited", "cancelled", "expired", "defaulted", or "recorded" (its outcome came later)
        self.states: dict[str, str] = {}
        self.closed_episodes: set[str] = set()
        self.statuses: set[str] = set()
        for i, shard in enumerate(self.shards):
            self.journals[i].extend(shard.open_table("t", table_settings).events)
            if warm is not None:
                self.journals[i].extend(shard.import_table(warm).events)

    def owner(self, key: str) -> int:
        return ids.shard_of("t", key, self.num_shards)

    def decide(self, request: DecideRequest) -> None:
        i = self.owner(request.keys[-1])
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
        i = self.owner(request.keys[-1])
        try:
            handled = self.shards[i].outcome(outcome)
        except ConflictError:
            gone = request.episode_id in self.closed_episodes
            assert self.states[decision_id] in {"credited", "cancelled", "recorded", *({"expired"} if gone else ())}
            return
        self.journals[i].extend(handled.events)
        status, after = TAKEN[self.states[decision_id]]
        assert handled.reply.status == status
        self.statuses.add(status)
        self.states[decision_id] = after

    def cancel(self, decision_id: str) -> None:
        request, reply = self.replies[decision_id]
        i = self.owner(request.keys[-1])
        try:
            handled = self.shards[i].cancel(cancel_request(reply))
        except ConflictError:
            assert self.states[decision_id] == "credited"
            return
        self.journals[i].extend(handled.events)
        assert handled.reply == (self.states[decision_id] == "open")
        if handled.reply:
            self.states[decision_id] = "cancelled"

    def expire(self, decision_id: str, default_reward: float | None) -> None:
        i = self.owner(self.replies[decision_id][0].keys[-1])
        handled = self.shards[i].expire("t", decision_id, default_reward)
        self.journals[i].extend(handled.events)
        assert handled.reply == (self.states[decision_id] == "open")
        if handled.reply:
            self.states[decision_id] = "expired" if default_reward is None else "defaulted"

    def cancel_episode(self, episode_id: str) -> None:
        for i, shard in enumerate(self.shards):
            handled: Handled[int] = shard.cancel_episode("t", episode_id)
            self.journals[i].extend(handled.events)
        self.closed_episodes.add(episode_id)
        for decision_id, (request, _) in self.replies.items():
            if request.episode_id == episode_id and self.states[decision_id] == "open":
                self.states[decision_id] = "cancelled"

    def check_counts(self) -> None:
        taken: Counter[tuple[str, str]] = Counter()
        credited: Counter[tuple[str, str]] = Counter()
        for decision_id, (request, reply) in self.replies.items():
            for key in () if self.settings.frozen else request.keys:
                taken[key, reply.action_id] += self.states[decision_id] not in {"cancelled", "expired"}
                credited[key, reply.action_id] += self.states[decision_id] in {"credited", "defaulted", "recorded"}
        seen = {
            (key, arm): (row["taken"], row["credited"])
            for shard in self.shards
            for key, arms in shard.inspect("t").items()
            for arm, row in arms.items()
        }
        assert seen == dict.fromkeys(seen, (0, 0)) | {at: (taken[at], credited[at]) for at in taken}

    def check_sums(self) -> None:
        """The counts at a coarse key are the sums over its finer keys."""
        levels = state_key.chain_schemas(self.settings)
        for shard in self.shards:
            table = shard.inspect("t")
            for finer, coarser in pairwise(levels):
                sums: Counter[tuple[str, str, str]] = Counter()
                shown: Counter[tuple[str, str, str]] = Counter()
                for key, arms in table.items():
                    schema = state_key.schema_of(key)
                    for arm, row in arms.items():
                        for name in ("taken", "credited"):
                            if schema == finer:
                                sums[state_key.project(key, coarser), arm, name] += int(row[name] or 0)
                            elif schema == coarser:
                                shown[key, arm, name] += int(row[name] or 0)
                assert sums == shown


def _chain_of(
    decision_id: str, chains: tuple[tuple[str, ...], ...], *, moves: bool, chance: Generator
) -> tuple[str, ...]:
    """A decision keeps its keys; with `moves` it may come again with others."""
    return chance.choice(chains) if moves else chains[ids.draw64(decision_id) % len(chains)]


@cache
def _warmth(rule: int) -> TableImport:
    """What another life of such a table, under the same keys, would leave."""
    table_settings = RULES[rule]
    learned = _live(RULES.index(POOLED), num_shards=1, moves=False).shards[0].dump("t")["numbers"]["keys"]
    known = {
        state_key.project(key, schema): {arm: cell for arm, cell in arms.items() if arm in table_settings.action_ids}
        for schema in state_key.chain_schemas(table_settings)
        for key, arms in learned.items()
        if state_key.schema_of(key) == schema
    }
    return TableImport(table="t", source="another life", numbers=transfer.capped(known, 3))


def _live(seed: int, *, num_shards: int, moves: bool, num_commands: int = 120, warm: bool = False) -> _World:
    chance = SeedTree(("life", seed)).generator()
    rule = seed % len(RULES)
    world = _World(RULES[rule], num_shards, _warmth(rule) if warm and RULES[rule].pooling else None)
    arms, chains = world.settings.action_ids, chains_of(world.settings)
    for _ in range(num_commands):
        episode, position = chance.randint(0, 11), chance.randint(0, 3)
        decision_id = f"{episode}/{position}"
        kind = chance.choices(("decide", "outcome", "cancel", "episode", "expire"), (10, 6, 1, 1, 2))[0]
        if kind == "decide":
            allowed = tuple(arm for arm in arms if chance.random() < 0.5) or None
            keys = _chain_of(decision_id, chains, moves=moves, chance=chance)
            world.decide(
                DecideRequest(
                    table="t",
                    decision_id=decision_id,
                    episode_id=str(episode),
                    position=position,
                    keys=keys,
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
            elif kind == "expire":
                world.expire(decision_id, chance.choice((None, None, 0.25)))
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
    statuses: set[str] = set()
    for seed in range(block * 100, block * 100 + 100):
        world = _live(seed, num_shards=1, moves=True)

        world.check_counts()
        if world.settings.pooling:
            world.check_sums()
        statuses |= world.statuses

    # The histories do reach every way in which an outcome is taken.
    assert statuses == {status for status, _ in TAKEN.values()}


@pytest.mark.parametrize("block", range(2))
def test_fold_of_the_journal_is_the_live_table_bit_for_bit(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        world = _live(seed, num_shards=1, moves=True)

        folded = _fold(world.journals[0], 0, 1)

        assert _text(folded) == _text(world.shards[0])


def test_fold_gives_the_same_bits_for_any_number_of_shards_and_any_merge_of_their_journals() -> None:
    for seed in range(100):
        world = _live(seed, num_shards=NUM_SHARDS, moves=False, warm=seed % 2 == 0)
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
        world = _live(seed, num_shards=1, moves=False, warm=seed % 2 == 0)
        split: list[list[Event]] = [[] for _ in range(NUM_SHARDS)]
        for event in world.journals[0]:
            for i in range(NUM_SHARDS):
                split[i].extend(_share_of(event, i, world.settings))

        folded = [_fold(journal, i, NUM_SHARDS).dump("t") for i, journal in enumerate(split)]

        assert _merged(folded) == _merged([world.shards[0].dump("t")])


def _share_of(event: Event, shard: int, table_settings: LearningSettings) -> list[Event]:
    """What of an event belongs into the journal of `shard`."""
    if isinstance(event, Created | SettingsChanged | EpisodeClosed):
        return [event]
    if isinstance(event, Imported):
        owning = transfer.owning_keys(table_settings, event.numbers)
        mine = {key: arms for key, arms in event.numbers.items() if ids.shard_of("t", owning[key], NUM_SHARDS) == shard}
        return [dataclasses.replace(event, numbers=mine)]
    chains = chains_of(table_settings)
    keys = chains[ids.draw64(event.decision_id) % len(chains)]
    return [event] if ids.shard_of("t", keys[-1], NUM_SHARDS) == shard else []


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
