"""Fakes for tests of memory control: a small world, a scripted policy, a backend with maintenance hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memcon.learning import actions
from memcon.policy_types import (
    CancelRequest,
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)
from memcon.protocols import Benchmark, Durability, Environment, Retrieval
from memcon.store import StreamStore
from memcon.testing.memory import ToyBackend
from memcon.types import (
    Insight,
    MemoryItem,
    Operation,
    ProgressRules,
    Provenance,
    Step,
    StepKind,
    Task,
    Trajectory,
)

HOUSEHOLD_RULES = ProgressRules(
    take=r"take (?P<object>.+) from .+",
    release=r"(?:put|move) (?P<object>.+?) (?:in|on|in/on|to) .+",
    visit=r"go to (?P<place>.+)",
)


@dataclass
class SmallBenchmark:
    """A benchmark without an environment: names, rules and goal types only."""

    name: str = "small"
    provenance: Provenance = Provenance.SELF_MADE
    goal_types: tuple[str, ...] = ("put", "puttwo", "other")
    vocabulary: frozenset[str] = frozenset(
        {"mug", "plate", "pen", "book", "shelf", "drawer", "diningtable", "countertop", "fridge", "desklamp"}
    )
    progress_rules: ProgressRules = HOUSEHOLD_RULES
    single_object_types: Mapping[str, str] = field(default_factory=lambda: {"puttwo": "put"})
    has_step_budget: bool = True

    def tasks(self) -> Sequence[Task]:
        return ()

    def environment(self) -> Environment:
        raise NotImplementedError

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        return None

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        return ()

    def part_of(self, task: Task) -> Benchmark:
        return self


@dataclass
class SmallMix(SmallBenchmark):
    """A mix of benchmarks that share no word: only its parts know what an action means."""

    name: str = "mix"
    vocabulary: frozenset[str] = frozenset()
    progress_rules: ProgressRules = field(
        default_factory=lambda: ProgressRules(take="(?P<object>)", release="(?P<object>)", visit="(?P<place>)")
    )
    single_object_types: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[Benchmark, ...] = ()

    def part_of(self, task: Task) -> Benchmark:
        return next(part for part in self.parts if part.name == task.benchmark)


class ScriptedPolicy:
    """A PolicyClient that chooses the arms of a list, in turn; the last one again and again."""

    def __init__(self, *arms: str) -> None:
        self.arms = arms
        self.requests: list[DecideRequest] = []
        self.error: Exception | None = None

    async def open_table(self, table: str, settings: LearningSettings) -> None:
        pass

    async def import_table(self, request: TableImport) -> None:
        pass

    async def decide(self, request: DecideRequest) -> DecideReply:
        if self.error is not None:
            raise self.error
        self.requests.append(request)
        action_id = self.arms[min(len(self.requests), len(self.arms)) - 1]
        return DecideReply(
            decision_id=request.decision_id,
            token=f"token-{request.position}",
            action_id=action_id,
            propensity=0.5,
            tie_set=(action_id, "noop"),
            forced=True,
            table_version=7,
            shard=3,
            received=9,
            per_arm={action_id: {"q": 0.5}} if request.explain else None,
        )

    async def outcomes(self, requests: Sequence[OutcomeRequest]) -> Sequence[OutcomeReply]:
        raise NotImplementedError

    async def cancel(self, request: CancelRequest) -> bool:
        return False

    async def cancel_episode(self, table: str, episode_id: str) -> int:
        return 0

    async def close(self) -> None:
        pass


class HookedBackend:
    """A backend with both hooks; Consolidate adds a row to the stream's file, Forget raises after having done so."""

    name = "hooked"
    capabilities = frozenset({"top_k", "insight_k", "hop"})
    maintains = frozenset({Operation.CONSOLIDATE, Operation.FORGET})
    durability: Durability = "transactional"

    def __init__(self, store: StreamStore, *, blocking: bool = False) -> None:
        self.blocking = blocking
        self.store = store
        # A table of its own before any task, as a stream file of an earlier run would have.
        with store.maintenance():
            store.connection.execute("CREATE TABLE IF NOT EXISTS rules (text TEXT)")
        store.connection.execute("COMMIT")

    def rules(self) -> list[str]:
        return [row[0] for row in self.store.connection.execute("SELECT text FROM rules ORDER BY rowid")]

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        items = tuple(
            MemoryItem(item_id=f"item-{i}", source="hooked", score=0.5, text="abcd" * (i + 1))
            for i in range(parameters.get("top_k", 1))
        )
        insights = tuple(
            Insight(insight_id=f"insight-{i}", score=2.0, text="abcdefgh")
            for i in range(parameters.get("insight_k", 1))
        )
        return Retrieval(items=items, insights=insights, tokens=10)

    def record(self, trajectory: Trajectory) -> int:
        self.store.connection.execute("INSERT INTO rules VALUES (?)", (f"recorded {trajectory.task.goal}",))
        return 5

    def maintain(self, operation: Operation) -> int:
        self.store.connection.execute("INSERT INTO rules VALUES (?)", (operation.value,))
        if operation is Operation.FORGET:
            raise ZeroDivisionError("nothing to divide")
        return 100

    def size(self) -> int:
        return len(self.rules())


class PathGraphBackend(ToyBackend):
    """A graph of three nodes in a row; a retrieval finds the first, and with each hop one more."""

    capabilities = frozenset({"hop"})

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        found = ("near", "next", "far")[: 1 + parameters["hop"]]
        return Retrieval(items=tuple(MemoryItem(item_id=text, source="graph", score=1.0, text=text) for text in found))


def learning_settings(
    rule: str = "scripted", *, gamma: float = 0.9, action_set: str = "default", pooling: tuple[str, ...] = ()
) -> LearningSettings:
    """Settings over a set of arms, by default those of Table 7; a chain of keys starts at goal type and benchmark."""
    arms = actions.action_set(action_set)
    return LearningSettings(
        rule=rule,
        action_ids=arms.action_ids,
        priors=actions.priors(arms, warm_start=True),
        action_set=arms.name,
        fingerprint=actions.fingerprint(arms),
        gamma=gamma,
        key_schema="benchmark+goal_type" if pooling else "paper/1",
        pooling=pooling,
    )


def steps_of(*texts: str, refused: Sequence[str] = ()) -> tuple[Step, ...]:
    """Steps by action texts; "think: ..." is a thought."""
    return tuple(
        Step(
            index=index,
            kind=StepKind.THOUGHT if text.startswith("think: ") else StepKind.ACTION,
            action=text,
            observation="",
            valid=text not in refused,
            progress=0.0,
            prompt_tokens=1,
            completion_tokens=1,
        )
        for index, text in enumerate(texts)
    )
