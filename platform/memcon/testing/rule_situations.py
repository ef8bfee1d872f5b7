"""What the tests of a learning rule are played on: the numbers of a table at some moments, and a small table's life."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memcon import codec, ids
from memcon.errors import ConfigError
from memcon.learning import state_key
from memcon.learning.events import Event
from memcon.learning.exploration.rule import build_rule
from memcon.learning.q_table import KeyView, QTable
from memcon.learning.shard import PolicyShard
from memcon.policy_types import DecideReply, DecideRequest, LearningSettings
from memcon.testing.policy import FakePolicyClient, cancel_request, outcome_request
from memcon.types import StateFeatures

__all__ = ["Life", "Situation", "choices", "choices_elsewhere", "fold", "live", "misfit", "situations", "surprise"]

_GAINS = (1.0, -0.5, 0.0, 0.25, 0.9)
_NUM_DECISIONS = 48
_ELSEWHERE = (
    "import sys; from memcon import codec; from memcon.policy_types import LearningSettings; "
    "from memcon.testing.rule_situations import choices; "
    "sys.stdout.write(choices(codec.decode_json(LearningSettings, sys.stdin.read())))"
)
_SECRET = b"secret of a learning rule's table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One moment at one chain of keys."""

    name: str
    views: tuple[KeyView, ...]
    # In arm order.
    allowed: tuple[str, ...]

    def draw(self, number: int) -> int:
        """The 64 bits of the decision `number` here."""
        return ids.draw64("contract", self.name, number)


def situations(settings: LearningSettings) -> list[Situation]:
    """Moments of a table with `settings`, from a new key to many decisions, some open; all arms, some, and one."""
    found = []
    for pulls in (0, 1, 4, 9, 30, 120):
        views = _table(settings, pulls).views(_chain(settings, 0))
        arms = settings.action_ids
        some = tuple([arm for arm in arms if ids.draw64("allowed", pulls, arm) % 2]) or arms[-1:]
        for allowed in (arms, some, (arms[pulls % len(arms)],)):
            name = f"after {pulls} decisions, {len(allowed)} of {len(arms)} arms allowed"
            found.append(Situation(name=name, views=views, allowed=allowed))
    return found


def _chain(settings: LearningSettings, state: int) -> tuple[str, ...]:
    """A chain of keys as long as the settings have it: states share their coarser keys."""
    return (f"key {state}", *[f"coarser key {level}" for level in range(len(settings.pooling))])


def _table(settings: LearningSettings, pulls: int) -> QTable:
    """Numbers after `pulls` decisions at two states; one in eight is open."""
    numbers = QTable(settings)
    for n in range(pulls):
        arm = settings.action_ids[ids.draw64("arm", pulls, n) % len(settings.action_ids)]
        keys = _chain(settings, ids.draw64("state", pulls, n) % 4 // 3)
        numbers.take(keys, arm)
        if ids.draw64("open", pulls, n) % 8:
            numbers.credit(keys, arm, _GAINS[ids.draw64("gain", pulls, n) % len(_GAINS)])
    return numbers


def surprise(count: int, trials: int, chance: float) -> float:
    """How unlikely `count` of `trials` is at `chance`: at least this often e-fold, by Chernoff's bound.

    The probability of a count as far out as this, to its side, is at most exp(-trials KL(count / trials, chance)).
    """
    share = count / trials
    parts = ((share, chance), (1.0 - share, 1.0 - chance))
    if any(seen > 0.0 and stated <= 0.0 for seen, stated in parts):
        return math.inf
    return trials * math.fsum(seen * math.log(seen / stated) for seen, stated in parts if seen > 0.0)


def choices(settings: LearningSettings) -> str:
    """What the rule that `settings` name chooses in every situation, a line a choice: JSON."""
    rule, lines = build_rule(settings), []
    for here in situations(settings):
        for number in range(4):
            try:
                choice = rule.choose(here.views, allowed=here.allowed, draw=here.draw(number))
            except ConfigError:
                continue
            lines.append(f"{here.name}: {json.dumps(codec.encode(choice))}")
    return "\n".join(lines)


def choices_elsewhere(settings: LearningSettings) -> str:
    """`choices` in another process, where texts have other hashes, and so sets of them another order.

    Raises:
        CalledProcessError: the rule cannot be imported there, or raises.
    """
    sees = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}  # noqa: TID251 - ours too
    command = [sys.executable, "-c", _ELSEWHERE]
    text = codec.encode_json(settings)
    return subprocess.run(command, input=text, env=sees, stdout=subprocess.PIPE, text=True, check=True).stdout


def misfit(found: Sequence[tuple[dict[str, int], dict[str, float]]]) -> float:
    """How far counts lie from their chances over all of `found`, in standard deviations; 0.0 without any chance.

    The likelihood ratio G = 2 sum(count ln(count / expected)) of all together is about chi-squared with as many degrees
    of freedom as there are arms with a chance, less one each; by Wilson and Hilferty its cube root is about normal. It
    finds what each single count hides: a share that is wrong by a tenth everywhere.
    """
    ratio, freedom = 0.0, 0
    for counts, chances in found:
        trials = sum(counts.values())
        ratio += 2.0 * math.fsum(n * math.log(n / (trials * chances[arm])) for arm, n in counts.items() if n)
        freedom += sum(chance > 0.0 for chance in chances.values()) - 1
    if not freedom:
        return 0.0
    spread = 2.0 / (9.0 * freedom)
    return (math.cbrt(ratio / freedom) - 1.0 + spread) / math.sqrt(spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What a table of a few states came to."""

    # Arm of each decision, and the whole answer.
    chosen: tuple[str, ...]
    replies: tuple[DecideReply, ...]
    # The numbers that each decision was made from, finest key first.
    views: tuple[tuple[KeyView, ...], ...]
    # What a shard journaled, in order, and the whole state of the table at each shard, as JSON.
    events: tuple[tuple[Event, ...], ...]
    dumps: tuple[str, ...]
    # Key -> its numbers, over all shards, as JSON.
    numbers: str

    @staticmethod
    def draw(number: int) -> int:
        """The 64 bits of the decision `number`."""
        return ids.draw64("contract", "life", number)


async def live(settings: LearningSettings, *, num_shards: int = 1, batch: int = 1) -> Life:
    """Play decisions at several states: some are credited, `batch` outcomes a request, some cancelled, some left open.

    Raises:
        MemconError: the rule cannot be built from its settings, or chose what it may not choose.
    """
    client = FakePolicyClient(num_shards, secret=_SECRET)
    await client.open_table("table", settings)
    beside = QTable(settings)
    replies: list[DecideReply] = []
    views: list[tuple[KeyView, ...]] = []
    waiting = []
    for n in range(_NUM_DECISIONS):
        request = _request(settings, n)
        views.append(beside.views(request.keys))
        reply = await client.decide(request)
        beside.take(request.keys, reply.action_id)
        replies.append(reply)
        fate = ids.draw64("fate", n) % 8
        gain = _GAINS[ids.draw64("gain", n) % len(_GAINS)]
        if fate == 0:
            await client.cancel(cancel_request(reply))
            beside.take_back(request.keys, reply.action_id)
        elif fate < 7:
            waiting.append((outcome_request(reply, gain), request.keys, reply.action_id, gain))
        # Outcomes come at the same moments whatever the size of a request.
        if n % 6 == 5:
            for begin in range(0, len(waiting), batch):
                await client.outcomes([row[0] for row in waiting[begin : begin + batch]])
            for _, keys, arm, gain in waiting:
                beside.credit(keys, arm, gain)
            waiting = []
    dumps = [shard.dump("table") for shard in client.shards]
    numbers = {key: row for dump in dumps for key, row in dump["numbers"]["keys"].items()}
    return Life(
        chosen=tuple([reply.action_id for reply in replies]),
        replies=tuple(replies),
        views=tuple(views),
        events=tuple([tuple(events) for events in client.events]),
        dumps=tuple([json.dumps(dump, sort_keys=True) for dump in dumps]),
        numbers=json.dumps(numbers, sort_keys=True),
    )


def fold(events: Sequence[Event]) -> str:
    """The state of the table that a restarted owner folds from `events`, as JSON; a decide is chosen again.

    Raises:
        InvariantError: the rule chooses otherwise now.
    """
    shard = PolicyShard(0, 1, _SECRET)
    for event in events:
        shard.apply(event)
    return json.dumps(shard.dump("table"), sort_keys=True)


def _request(settings: LearningSettings, number: int) -> DecideRequest:
    features = StateFeatures(
        goal_type=("put", "heat", "clean")[ids.draw64("goal", number) % 3],
        step=0,
        is_stuck=False,
        objects_held=0,
        locations_visited=0,
        memory_size=0,
        plan_available=bool(ids.draw64("plan", number) % 2),
        task_number=1,
    )
    request = DecideRequest(
        table="table",
        decision_id=f"decision-{number}",
        episode_id=f"episode-{number}",
        position=0,
        keys=state_key.key_chain(settings, features),
        draw=Life.draw(number),
    )
    return replace(request, explain=True) if number % 2 else request
