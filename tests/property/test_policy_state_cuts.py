"""A history cut anywhere: what goes on from the state gives the bits and the replies of what never stopped."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import pytest

from memcon.errors import ConflictError
from memcon.learning.events import Event, decode_event, encode_event
from memcon.learning.exploration import UcbConfig, UniformConfig
from memcon.learning.exploration.thompson import PooledConfig
from memcon.learning.shard import Handled, PolicyShard
from memcon.policy_types import DecideReply, DecideRequest
from memcon.seeds import Generator, SeedTree
from memcon.testing.policy import cancel_request, outcome_request
from support.key_chains import POOLED, chain
from support.shards import SECRET

# Small bounds, so that ends are forgotten again and again.
RULES = (
    UcbConfig().learning_settings(),
    dataclasses.replace(UcbConfig(estimator="mean", c=0.2).learning_settings(), closed_kept=4),
    dataclasses.replace(UniformConfig(exploration_floor=0.2).learning_settings(), closed_kept=1),
    dataclasses.replace(POOLED, closed_kept=6),
    dataclasses.replace(PooledConfig(count_cap=2, exploration_floor=0.1).learning_settings(), closed_kept=3),
)
NUM_HISTORIES = 100
NUM_COMMANDS = 80
TABLE = "t"

# What a command gives, a refusal included.
Answer: TypeAlias = tuple[Any, tuple[Event, ...]] | str


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """Something that a shard is asked; the same for every shard that is asked it."""

    ask: Callable[[PolicyShard], Handled[Any]]
    decide: DecideRequest | None = None

    def answer(self, shard: PolicyShard) -> Answer:
        try:
            handled = self.ask(shard)
        except ConflictError as refusal:
            return str(refusal)
        return handled.reply, handled.events


@dataclasses.dataclass(slots=True)
class History:
    """A shard that lived through random commands, and its state in the middle."""

    shard: PolicyShard
    commands: list[Command]
    answers: list[Answer]
    cut: int
    state_at_cut: dict[str, Any]


def lived(seed: int) -> History:
    chance = SeedTree(("cuts", seed)).generator()
    settings = RULES[seed % len(RULES)]
    chains: list[tuple[str, ...]] = [("a",), ("b",), ("c",)]
    if settings.pooling:
        chains = [chain(f"b{i}", "put", plan=bool(i % 2), settings=settings) for i in range(3)]
    history = History(PolicyShard(0, 1, SECRET), [], [], chance.randint(0, NUM_COMMANDS), {})
    replies: dict[str, tuple[DecideRequest, DecideReply]] = {}
    command = Command(lambda owner: owner.open_table(TABLE, settings))
    for number in range(NUM_COMMANDS + 1):
        answer = command.answer(history.shard)
        history.commands.append(command)
        history.answers.append(answer)
        if number == history.cut:
            history.state_at_cut = history.shard.state()
        if command.decide is not None and not isinstance(answer, str):
            replies[command.decide.decision_id] = (command.decide, answer[0])
        command = _command(chance, chains, settings.action_ids, replies)
    return history


def _command(
    chance: Generator,
    chains: list[tuple[str, ...]],
    arms: tuple[str, ...],
    replies: dict[str, tuple[DecideRequest, DecideReply]],
) -> Command:
    kind = chance.choices(("decide", "outcome", "expire", "cancel", "episode", "freeze"), (9, 6, 3, 2, 1, 1))[0]
    if kind == "episode":
        episode_id = str(chance.randint(0, 9))
        return Command(lambda owner: owner.cancel_episode(TABLE, episode_id))
    if kind == "freeze":
        frozen = chance.random() < 0.5
        return Command(lambda owner: owner.freeze_table(TABLE, frozen))
    if kind == "decide" or not replies:
        return _decide(chance, chains, arms)
    request, reply = replies[chance.choice(list(replies))]
    if kind == "expire":
        default = chance.choice((None, None, 1 / 3))
        return Command(lambda owner: owner.expire(TABLE, reply.decision_id, default))
    if kind == "cancel":
        return Command(lambda owner: owner.cancel(cancel_request(reply)))
    outcome = outcome_request(
        reply, chance.choice((1.15, -0.5, 1 / 3)), position=request.position, num_decisions=request.position + 1
    )
    return Command(lambda owner: owner.outcome(outcome))


def _decide(chance: Generator, chains: list[tuple[str, ...]], arms: tuple[str, ...]) -> Command:
    episode, position = chance.randint(0, 9), chance.randint(0, 2)
    request = DecideRequest(
        table=TABLE,
        decision_id=f"{episode}/{position}",
        episode_id=str(episode),
        position=position,
        keys=chance.choice(chains),
        draw=chance.getrandbits(64),
        allowed=tuple(arm for arm in arms if chance.random() < 0.5) or None,
        explain=chance.random() < 0.5,
    )
    return Command(lambda owner: owner.decide(request), request)


def _text(shard: PolicyShard) -> str:
    return json.dumps(shard.dump(TABLE), allow_nan=False)


@pytest.mark.parametrize("block", range(2))
def test_shard_goes_on_from_any_cut_as_if_it_had_never_stopped(block: int) -> None:
    num_refused = num_forgotten = 0
    for seed in range(block * NUM_HISTORIES // 2, (block + 1) * NUM_HISTORIES // 2):
        history = lived(seed)

        again = PolicyShard(0, 1, SECRET)
        again.load(msgspec.msgpack.decode(msgspec.msgpack.encode(history.state_at_cut)))

        assert again.state() == history.state_at_cut
        after = history.cut + 1
        assert [command.answer(again) for command in history.commands[after:]] == history.answers[after:]
        assert _text(again) == _text(history.shard)
        assert again.state() == history.shard.state()
        num_refused += sum(isinstance(answer, str) for answer in history.answers)
        num_forgotten += again.counts(TABLE)["closed"] == again.settings(TABLE).closed_kept

    # The histories are no easy ones.
    assert num_refused > NUM_HISTORIES
    assert num_forgotten > NUM_HISTORIES // 5


@pytest.mark.parametrize("block", range(2))
def test_fold_of_the_events_gives_the_same_state_as_the_life_in_order_too(block: int) -> None:
    for seed in range(block * NUM_HISTORIES // 2, (block + 1) * NUM_HISTORIES // 2):
        history = lived(seed)
        folded = PolicyShard(0, 1, SECRET)

        for answer in history.answers:
            for event in () if isinstance(answer, str) else answer[1]:
                # Through the text form, as from a journal file.
                folded.apply(decode_event(*encode_event(event)))

        assert folded.state() == history.shard.state()
        assert _text(folded) == _text(history.shard)
