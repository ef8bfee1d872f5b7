"""Plug-ins with one slip each, of the kind that authors make, and their tests: what a contract body must tell.

Not collected here: tests/e2e/test_contract_bodies.py installs this module as a package and runs it with plain pytest.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from memcon.clock import SystemClock
from memcon.learning.exploration import Choice, Rule
from memcon.learning.exploration.learned import LearnedConfig
from memcon.learning.q_table import KeyView
from memcon.policy_types import LearningSettings, OutcomeReply, OutcomeRequest
from memcon.protocols import (
    Benchmark,
    ChatModel,
    Clock,
    Completion,
    Durability,
    Embedder,
    Environment,
    EpisodeSink,
    MemoryReader,
    Message,
    PolicyClient,
    Retrieval,
    StepResult,
)
from memcon.registry import Plugin
from memcon.store import StreamStore
from memcon.testing import (
    AgentFrameworkContract,
    BenchmarkContract,
    ChatModelContract,
    EmbedderContract,
    EnvironmentContract,
    LearningRuleContract,
    MakeBackend,
    MemoryBackendContract,
)
from memcon.testing.chat_model import ScriptedModel
from memcon.testing.clock import ClockContract
from memcon.testing.embedder import FixedEmbedder
from memcon.testing.environment import ScriptedBenchmark, ScriptedEnvironment
from memcon.testing.memory import ToyBackend
from memcon.testing.policy import FakePolicyClient
from memcon.testing.policy_contract import PolicyClientContract
from memcon.testing.reader import MemoryReaderContract
from memcon.testing.sink import EpisodeSinkContract, ReadBack
from memcon.types import Episode, Insight, MemoryContext, Step, Task, Trajectory
from memcon_workers.frameworks.lobster import Lobster, LobsterConfig

# --- memory -----------------------------------------------------------------------------------------------------------


class Cached(ToyBackend):
    """Says that it is transactional, and keeps what it has in a list."""

    durability: Durability = "transactional"


class Committing(ToyBackend):
    """Commits what it wrote."""

    def __init__(self, store: StreamStore) -> None:
        super().__init__()
        self._store = store

    def record(self, trajectory: Trajectory) -> int:
        self._store.connection.commit()
        return super().record(trajectory)


class Talkative(ToyBackend):
    """Declares insight_k, and shows all of its insights."""

    capabilities = frozenset({"top_k", "insight_k"})

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        insights = tuple(Insight(insight_id=goal, score=1.0, text=f"do {goal}") for goal in self.goals)
        return replace(super().retrieve(query, **parameters), insights=insights)


class TestCached(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> MakeBackend:
        return lambda store: Cached()


class TestCommitting(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> MakeBackend:
        return Committing


class TestTalkative(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> MakeBackend:
        return lambda store: Talkative()


# --- benchmark and environment ----------------------------------------------------------------------------------------


class Peeking(ScriptedBenchmark):
    """Practises on its tasks."""

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        return self.tasks()[:per_type]


class Strict(ScriptedEnvironment):
    """Knows its actions, and no other text."""

    def step(self, action: str) -> StepResult:
        return {known: super(Strict, self).step for known in self.valid_actions()}[action](action)


class TestPeeking(BenchmarkContract):
    @pytest.fixture
    def source(self) -> Benchmark:
        return Peeking(["go to shelf 1"], ["look"])


class TestStrict(EnvironmentContract):
    @pytest.fixture
    def environment(self) -> Environment:
        return Strict()

    @pytest.fixture
    def task(self) -> Task:
        return ScriptedBenchmark(["go to shelf 1", "take mug 1"]).tasks()[0]


# --- model, framework, embedder ---------------------------------------------------------------------------------------


class Sharing(ScriptedModel):
    """Keeps the request in the object while it waits for the answer."""

    def __init__(self) -> None:
        super().__init__(lambda request: f"seen {len(request.text)} characters")
        self._asked: tuple[Message, ...] = ()

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        self._asked = tuple(messages)
        await asyncio.wait_for(asyncio.to_thread(len, messages), timeout=10)
        return await super().complete(self._asked, seed=seed)


class Cutting(Lobster):
    """Shows the first three items of a memory block."""

    async def run(self, *arguments: Any, memory: MemoryReader, **seeds: Any) -> Any:
        return await super().run(*arguments, memory=_FirstThree(memory), **seeds)


@dataclass(frozen=True)
class _FirstThree:
    memory: MemoryReader

    async def context(self, steps: Sequence[Step]) -> MemoryContext:
        block = await self.memory.context(steps)
        return replace(block, items=block.items[:3])


class Doubles(FixedEmbedder):
    """Forgets to round."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return super().embed(texts).astype(np.float64)


class TestSharing(ChatModelContract):
    @pytest.fixture
    def model(self) -> ChatModel:
        return Sharing()


class TestCutting(AgentFrameworkContract):
    @pytest.fixture
    def framework(self) -> Cutting:
        return Cutting(LobsterConfig(history_window="all"), clock=SystemClock())


class TestDoubles(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> Embedder:
        return Doubles(dict.fromkeys(self.TEXTS, (1.0, 0.0)), dim=2)


# --- learning rules ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Drawing:
    """Draws each allowed arm alike, but for a share that the first one gets."""

    favour: float
    # It states what it does.
    honest: bool = True
    # It counts in itself how often it was asked, and goes by that.
    asked: int | None = None
    # It takes the arms in the order of a set.
    unordered: bool = False

    def choose(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...], draw: int) -> Choice:
        if self.asked is not None:
            self.asked += 1
            draw = 1000 * self.asked
        if self.unordered:
            allowed = tuple(set(allowed))
        first = draw % 1000 < 1000 * self.favour
        arm = allowed[0] if first else allowed[draw // 1000 % len(allowed)]
        return Choice(action_id=arm, tie_set=allowed, forced=False)

    def probabilities(self, views: tuple[KeyView, ...], *, allowed: tuple[str, ...]) -> tuple[float, ...]:
        favour = self.favour if self.honest else 0.0
        even = (1.0 - favour) / len(allowed)
        return tuple(
            [(even if arm in allowed else 0.0) + (favour if arm == allowed[0] else 0.0) for arm in views[0].action_ids]
        )


@dataclass(slots=True, kw_only=True)
class _FavourConfig(LearnedConfig):
    own: ClassVar[tuple[str, ...]] = ("favour",)

    favour: float = 0.5


@dataclass(slots=True, kw_only=True)
class LyingConfig(_FavourConfig):
    """Leaves its favourite out of the chances, and takes any number for its share."""

    rule: ClassVar[str] = "lying"

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        return _Drawing(favour=float(settings.rule_parameters.get("favour", 0.0)), honest=False)


@dataclass(slots=True, kw_only=True)
class UnorderedConfig(_FavourConfig):
    """Another one in every process."""

    rule: ClassVar[str] = "unordered"

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        return _Drawing(favour=0.0, unordered=True)


@dataclass(slots=True, kw_only=True)
class CountingConfig(_FavourConfig):
    """Remembers how often it was asked; its name is none that is installed."""

    rule: ClassVar[str] = "uncounted"

    @staticmethod
    def build(settings: LearningSettings) -> Rule:
        return _Drawing(favour=0.0, asked=0)


LYING = Plugin(config=LyingConfig, build=LyingConfig.build, summary="misstates its chances")
UNORDERED = Plugin(config=UnorderedConfig, build=UnorderedConfig.build, summary="goes by the order of a set")
COUNTING = Plugin(config=CountingConfig, build=CountingConfig.build, summary="has a memory of its own")


class TestLying(LearningRuleContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return LYING


class TestUnordered(LearningRuleContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return UNORDERED


class TestCounting(LearningRuleContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return COUNTING


# --- the other ports --------------------------------------------------------------------------------------------------


class Eager(FakePolicyClient):
    """Tells every outcome as credited."""

    async def outcomes(self, requests: Sequence[OutcomeRequest]) -> Sequence[OutcomeReply]:
        return [replace(reply, status="credited") for reply in await super().outcomes(requests)]


@dataclass
class Appending:
    """Adds to a block that is there."""

    rows: list[Episode] = field(default_factory=list)

    def write_block(self, cell: str, stream: int, block: int, episodes: Sequence[Episode]) -> None:
        del cell, stream, block
        self.rows += episodes


class Late:
    """Has nothing to say before the first step."""

    async def context(self, steps: Sequence[Step]) -> MemoryContext:
        return MemoryContext() if steps else None  # type: ignore[return-value]


class Backwards(SystemClock):
    """Counts down."""

    def monotonic(self) -> float:
        return -math.fabs(super().monotonic())


class TestEager(PolicyClientContract):
    @pytest.fixture
    def client(self) -> PolicyClient:
        return Eager()


class TestAppending(EpisodeSinkContract):
    @pytest.fixture
    def sink(self) -> EpisodeSink:
        return Appending()

    @pytest.fixture
    def read_back(self, sink: Appending) -> ReadBack:
        def read(cell: str, stream: int) -> list[int]:
            return [row.ordinal for row in sink.rows if (row.cell, row.stream) == (cell, stream)]

        return read


class TestLate(MemoryReaderContract):
    @pytest.fixture
    def reader(self) -> MemoryReader:
        return Late()


class TestBackwards(ClockContract):
    @pytest.fixture
    def clock(self) -> Clock:
        return Backwards()


# --- nothing is given -------------------------------------------------------------------------------------------------


class TestNothingGiven(ChatModelContract):
    pass
