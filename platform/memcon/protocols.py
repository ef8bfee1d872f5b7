"""The ports. One job each; every implementation, fakes included, passes the contract body in `memcon.testing`.

AgentFramework.run, ChatModel.complete and PolicyClient are async; Environment and MemoryBackend are sync and go
through a thread when they say `blocking`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from memcon.policy_types import (
    CancelRequest,
    DecideReply,
    DecideRequest,
    LearningSettings,
    OutcomeReply,
    OutcomeRequest,
    TableImport,
)
from memcon.types import (
    Episode,
    Insight,
    MemoryContext,
    MemoryItem,
    Operation,
    ProgressRules,
    Provenance,
    Step,
    Task,
    Trajectory,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "AgentFramework",
    "AgentRun",
    "Benchmark",
    "ChatModel",
    "Clock",
    "Completion",
    "Durability",
    "Embedder",
    "Environment",
    "EpisodeSink",
    "MemoryBackend",
    "MemoryReader",
    "Message",
    "Observation",
    "PolicyClient",
    "Retrieval",
    "StepResult",
]

Durability: TypeAlias = Literal["transactional", "snapshot", "none"]


class Clock(Protocol):
    """Time, for the shells and for clock columns."""

    def wall(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        ...


# --- environments ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What an environment shows after reset: one line of text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one action brought."""

    # One line of text.
    observation: str
    # The action was accepted and had its effect.
    valid: bool
    # The episode is over by the environment's own word.
    done: bool
    # The environment's own success signal (MC-24), never derived from `done` or a score.
    success: bool
    # 0..1, never falls within an episode.
    progress: float


class Environment(Protocol):
    """One world at a time. Not thread-safe; `reset` may be called again for the next task."""

    # Calls may take long or hold a lock: run them in a thread.
    blocking: bool

    def reset(self, task: Task, seed: int) -> Observation:
        """Start `task`; `seed` drives all chance of this episode."""
        ...

    def step(self, action: str) -> StepResult:
        """Carry out one action text. An unknown or refused action is a valid call with `valid=False`."""
        ...

    def valid_actions(self) -> Sequence[str]:
        """Admissible action texts in a stable order; computed only when asked."""
        ...

    def close(self) -> None:
        """Free what the environment holds; may be called twice."""
        ...


class Benchmark(Protocol):
    """A source of tasks and of the environment that plays them (architecture: TaskSource)."""

    name: str
    provenance: Provenance
    # All goal types that `tasks` can give, "other" included where it can occur.
    goal_types: tuple[str, ...]
    # Names whose numbered instances the plan rewriter turns into placeholders (MC-39), such as "mug", "countertop".
    vocabulary: frozenset[str]
    progress_rules: ProgressRules
    # Two-object goal type -> its single-object type (MC-40), such as {"puttwo": "put"}.
    single_object_types: Mapping[str, str]
    # The step budget enters the reward's efficiency term (reading A-4); False for one-shot question sets.
    has_step_budget: bool

    def tasks(self) -> Sequence[Task]:
        """All tasks in a fixed order that depends on the benchmark's own config only."""
        ...

    def environment(self) -> Environment:
        """A fresh environment for the tasks of this benchmark."""
        ...

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """Actions that solve `task`, or None when the benchmark has none."""
        ...

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """At most `per_type` tasks of each goal type that are none of `tasks`, in a fixed order.

        They fill a memory before a stream begins; empty when the benchmark has no other tasks.
        """
        ...

    def part_of(self, task: Task) -> Benchmark:
        """The benchmark that made `task`: itself, or a part of a mix."""
        ...


# --- models and frameworks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a model answered, with its usage."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    # The id that the provider reports (HX-3).
    model_id: str


class ChatModel(Protocol):
    """A backbone."""

    model_id: str
    # "provider" when the provider counts tokens, "characters/4" when they are estimated.
    token_source: str

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        """Answer `messages`; sampling settings are the model's own config, `seed` is the request's place in the tree.

        Raises:
            BoundaryError: the provider failed for good.
        """
        ...

    async def close(self) -> None:
        """Free connections; may be called twice."""
        ...


class MemoryReader(Protocol):
    """How a framework reads memory: the controller's side of one task."""

    async def context(self, steps: Sequence[Step]) -> MemoryContext:
        """The memory block for the next model call, given all steps so far (empty at task start).

        Called before every model call; most calls return the block that stands, without any decision.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """What a framework made of one task."""

    first_observation: str
    steps: tuple[Step, ...]
    # The environment ended the episode itself.
    done: bool
    success: bool
    # 0..1
    score: float


class AgentFramework(Protocol):
    """An agent loop: model calls and environment steps until done or `task.max_steps`."""

    async def run(
        self,
        task: Task,
        environment: Environment,
        model: ChatModel,
        *,
        memory: MemoryReader,
        environment_seed: int,
        agent_seed: int,
    ) -> AgentRun:
        """Play `task` once.

        The request seed of each model call is the child of `agent_seed` at the step's index.

        Raises:
            BoundaryError: environment, backbone, memory or policy failed; the task is `unevaluable`.
        """
        ...


# --- memory ----------------------------------------------------------------------------------------------------------


class Embedder(Protocol):
    """Text to unit vectors."""

    name: str
    dim: int

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, float32, shape (len(texts), dim); the zero vector for a text without any known token."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """What a backend found, best first."""

    items: tuple[MemoryItem, ...] = ()
    insights: tuple[Insight, ...] = ()
    # Tokens that the backend's own model calls cost (MC-21).
    tokens: int = 0


@runtime_checkable
class MemoryBackend(Protocol):
    """A memory store behind two methods (MC-37); it writes through the stream's store and never commits."""

    name: str
    # Parameters of `retrieve` that it understands, out of {"top_k", "insight_k", "hop", "failed_top_k"} (MC-15).
    capabilities: frozenset[str]
    # Maintenance operations it implements, out of {CONSOLIDATE, FORGET}.
    maintains: frozenset[Operation]
    durability: Durability
    blocking: bool

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        """Items for `query`; a parameter left out means the backend's own default (policy `none` gives none)."""
        ...

    def record(self, trajectory: Trajectory) -> int:
        """Store a finished attempt, exactly once a task; returns the tokens of its own model calls."""
        ...

    def maintain(self, operation: Operation) -> int:
        """Run a maintenance hook of `maintains`; returns the tokens of its own model calls."""
        ...

    def size(self) -> int:
        """Stored items; O(1)."""
        ...


# --- policy ----------------------------------------------------------------------------------------------------------


class PolicyClient(Protocol):
    """The policy as its callers see it: in-process or served, same contract."""

    async def open_table(self, table: str, settings: LearningSettings) -> None:
        """Create `table`, or check that it exists with equal settings.

        Raises:
            ConflictError: the table exists with other settings; the message names the difference.
        """
        ...

    async def import_table(self, request: TableImport) -> None:
        """Let the open table `request.table` start from the numbers of another one; safe to repeat.

        Raises:
            ConflictError: the table has decisions already, or started from another source.
            ConfigError: a key or an arm is none that the table can have.
            NotFoundError: no such table.
        """
        ...

    async def decide(self, request: DecideRequest) -> DecideReply:
        """Choose and count, once a decision id; the same id again gives the same answer.

        Raises:
            ConflictError: the episode was cancelled, or the id is closed.
            NotFoundError: no such table.
            UnavailableError: the owner did not answer within the client's patience.
        """
        ...

    async def outcomes(self, requests: Sequence[OutcomeRequest]) -> Sequence[OutcomeReply]:
        """Credit decisions; returns after all are durable. Safe to repeat.

        One that had expired is credited late; where its default outcome was learned, the outcome is recorded and not
        applied (`OutcomeReply.status`).

        Raises:
            ConflictError: another outcome is already recorded, or the decision or its episode was cancelled.
            NotFoundError: unknown id and no valid token.
            UnavailableError: as in `decide`; what was already credited stays credited.
        """
        ...

    async def cancel(self, request: CancelRequest) -> bool:
        """Take an open decision back durably; True if it was open. Safe to repeat.

        Without effect on one that is cancelled or expired, and on one that the owner does not know.

        Raises:
            ConflictError: it is credited already.
            NotFoundError: no valid token.
            UnavailableError: as in `decide`.
        """
        ...

    async def cancel_episode(self, table: str, episode_id: str) -> int:
        """Cancel the episode's open decisions at every shard and refuse later ones; returns how many were open."""
        ...

    async def close(self) -> None:
        """Free connections; may be called twice."""
        ...


# --- storage ---------------------------------------------------------------------------------------------------------


class EpisodeSink(Protocol):
    """Where finished episodes of a stream go."""

    def write_block(self, cell: str, stream: int, block: int, episodes: Sequence[Episode]) -> None:
        """Write block number `block` (50 ordinals) whole; a partial block is rewritten under its name.

        Raises:
            StorageError: the place cannot be written.
        """
        ...
