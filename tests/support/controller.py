"""What tests of the controller share: backends by name, a controller over them, short ways through a task."""

from __future__ import annotations

from collections.abc import Callable

from memcon import ids
from memcon.clock import SystemClock
from memcon.control.controller import ControllerParts, ControlSettings, MemoryController, StreamPlace, TaskMemory
from memcon.control.memory.embedder_hashing import HashingConfig, HashingEmbedder
from memcon.control.memory.empty import EmptyMemory
from memcon.control.memory.metagpt import MetaGPTConfig, MetaGPTMemory
from memcon.learning.credit import RewardSettings
from memcon.protocols import MemoryBackend, PolicyClient
from memcon.store import StreamStore
from memcon.testing.memory import ToyBackend, episode_of, task_of, trajectory_of
from memcon.types import Episode, MemoryContext, Outcome, OutcomeClass, Task
from support.control import HookedBackend, SmallBenchmark, learning_settings, steps_of

TASK = task_of("put some mug on the shelf")
SUCCESS = Outcome(outcome_class=OutcomeClass.SUCCESS, score=1.0, num_steps=15)
UNEVALUABLE = Outcome(outcome_class=OutcomeClass.UNEVALUABLE, score=0.0, num_steps=0)
ATTEMPT = trajectory_of(TASK, ["go to shelf 3", "take mug 1 from shelf 3", "go to shelf 1", "put mug 1 on shelf 1"])
GO = tuple(f"go to shelf {n}" for n in range(1, 31))


BACKENDS: dict[str, Callable[[StreamStore], MemoryBackend]] = {
    "empty": lambda store: EmptyMemory(),
    "metagpt": lambda store: MetaGPTMemory(MetaGPTConfig(), store=store, embedder=HashingEmbedder(HashingConfig())),
    "toy": lambda store: ToyBackend(),
    "hooked": HookedBackend,
}


def controller_of(
    backend: MemoryBackend, store: StreamStore, policy: PolicyClient | None, **settings: object
) -> MemoryController:
    return MemoryController(
        ControllerParts(
            benchmark=SmallBenchmark(),
            backend=backend,
            store=store,
            policy=policy,
            learning=None if policy is None else learning_settings(),
            table="table",
            control=ControlSettings(**settings),  # type: ignore[arg-type]
            reward=RewardSettings(),
            clock=SystemClock(),
            place=StreamPlace(cell="cell", stream=2),
        )
    )


def begin(controller: MemoryController, task: Task = TASK, *, ordinal: int = 0) -> TaskMemory:
    return controller.begin(task, ordinal=ordinal, episode_id=ids.episode_id("cell", 2, ordinal, 1))


async def play(memory: TaskMemory, *texts: str) -> list[MemoryContext]:
    """The block before each model call of an attempt by action texts, and the one after it."""
    return [await memory.context(steps_of(*texts[:number])) for number in range(len(texts) + 1)]


def end(store: StreamStore, memory: TaskMemory, outcome: Outcome = SUCCESS) -> None:
    """End the next task as a stream does."""
    ordinal = store.num_ended
    store.begin(ordinal, store.epoch)
    end_begun(store, memory, outcome)


def end_begun(store: StreamStore, memory: TaskMemory, outcome: Outcome) -> None:
    finished = memory.finish(outcome)

    def make() -> Episode:
        memory.record(ATTEMPT, outcome)
        return episode_of(store.num_ended, outcome_class=outcome.outcome_class)

    store.end(make, finished.outcomes)
