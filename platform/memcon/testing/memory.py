"""Fake memories, and short ways to make attempts and commits; the body of the port is `memory_contract`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memcon.protocols import Durability, MemoryBackend, Retrieval
from memcon.store import StreamStore
from memcon.types import (
    Episode,
    MemoryItem,
    Operation,
    Outcome,
    OutcomeClass,
    Provenance,
    Step,
    StepKind,
    Task,
    Trajectory,
)

__all__ = ["SpyBackend", "ToyBackend", "commit", "episode_of", "task_of", "trajectory_of"]


def task_of(goal: str, *, goal_type: str = "put", max_steps: int = 30) -> Task:
    """A task that names its goal and nothing else of interest."""
    return Task(
        task_id=f"task: {goal}",
        benchmark="test",
        goal=goal,
        goal_type=goal_type,
        max_steps=max_steps,
        provenance=Provenance.SELF_MADE,
    )


def trajectory_of(
    task: Task | str, actions: Sequence[str], *, success: bool = True, refused: Sequence[str] = ()
) -> Trajectory:
    """An attempt by action texts; "think: ..." is a thought, actions in `refused` have no effect."""
    steps = tuple(
        Step(
            index=index,
            kind=StepKind.THOUGHT if action.startswith("think: ") else StepKind.ACTION,
            action=action,
            observation="" if action.startswith("think: ") else f"You see what comes of '{action}'.",
            valid=action not in refused and not action.startswith("think: "),
            progress=0.0,
            prompt_tokens=1,
            completion_tokens=1,
        )
        for index, action in enumerate(actions)
    )
    return Trajectory(
        task=task_of(task) if isinstance(task, str) else task,
        first_observation="You are in the middle of a room.",
        steps=steps,
        success=success,
    )


def episode_of(ordinal: int, *, outcome_class: OutcomeClass = OutcomeClass.SUCCESS) -> Episode:
    """An episode without steps and decisions."""
    return Episode(
        run="run",
        cell="cell",
        stream=0,
        ordinal=ordinal,
        section=0,
        task=task_of(f"goal {ordinal}"),
        episode_id=f"episode-{ordinal}",
        epoch=1,
        seed=0,
        first_observation="",
        steps=(),
        decisions=(),
        outcome=Outcome(outcome_class=outcome_class, score=0.0, num_steps=0),
        reward=None,
        memory_size=0,
    )


def commit(store: StreamStore, write: Callable[[], object]) -> None:
    """Run the next task of `store`, which does nothing but `write` at its end."""
    ordinal = store.num_ended
    store.begin(ordinal, store.epoch)

    def make() -> Episode:
        write()
        return episode_of(ordinal)

    store.end(make, ())


class ToyBackend:
    """The shortest backend that does something: gives back the latest attempts, keeps them in memory only."""

    name = "toy"
    capabilities = frozenset({"top_k"})
    maintains: frozenset[Operation] = frozenset()
    durability: Durability = "none"
    blocking = False

    def __init__(self) -> None:
        self.goals: list[str] = []

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        latest = list(enumerate(self.goals))[::-1][: parameters.get("top_k", 1)]
        return Retrieval(items=tuple(MemoryItem(item_id=str(i), source="toy", score=0, text=g) for i, g in latest))

    def record(self, trajectory: Trajectory) -> int:
        self.goals.append(trajectory.task.goal)
        return 0

    def maintain(self, operation: Operation) -> int:
        raise TypeError(operation)

    def size(self) -> int:
        return len(self.goals)


class SpyBackend:
    """Passes everything on to `inner` and keeps the calls: (method, argument, parameters)."""

    def __init__(self, inner: MemoryBackend, *, blocking: bool = False) -> None:
        self.inner = inner
        self.name = inner.name
        self.capabilities, self.maintains = inner.capabilities, inner.maintains
        self.durability = inner.durability
        self.blocking = blocking
        self.calls: list[tuple[str, object, dict[str, int]]] = []

    def named(self, method: str) -> list[tuple[object, dict[str, int]]]:
        """Argument and parameters of each call of `method`."""
        return [(argument, parameters) for name, argument, parameters in self.calls if name == method]

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        self.calls.append(("retrieve", query, parameters))
        return self.inner.retrieve(query, **parameters)

    def record(self, trajectory: Trajectory) -> int:
        self.calls.append(("record", trajectory, {}))
        return self.inner.record(trajectory)

    def maintain(self, operation: Operation) -> int:
        self.calls.append(("maintain", operation, {}))
        return self.inner.maintain(operation)

    def size(self) -> int:
        self.calls.append(("size", None, {}))
        return self.inner.size()
