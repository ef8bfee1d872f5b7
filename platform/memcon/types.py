"""The values that every part exchanges. Frozen, slotted, keyword-only; no behaviour beyond views of their own fields.

Field names are the column names of the Parquet tables and the keys of the JSON forms (`memcon.codec`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "ActionSet",
    "Decision",
    "Episode",
    "Insight",
    "MemoryAction",
    "MemoryContext",
    "MemoryItem",
    "Operation",
    "Outcome",
    "OutcomeClass",
    "ProgressRules",
    "Provenance",
    "StateFeatures",
    "Step",
    "StepKind",
    "Task",
    "TokenUsage",
    "Trajectory",
    "Trial",
    "Trigger",
]


class Provenance(StrEnum):
    """Where a benchmark's tasks come from; stands in every result row."""

    OFFICIAL = "official"
    SELF_MADE = "self-made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem to solve."""

    task_id: str
    benchmark: str
    goal: str
    # Benchmark-supplied (MC-11); "other" when nothing fits.
    goal_type: str
    # JSON-able; only the benchmark that made it reads it.
    payload: Mapping[str, Any] = field(default_factory=dict)
    # Step horizon T_max of Eq. 5, in environment steps.
    max_steps: int
    provenance: Provenance


class StepKind(StrEnum):
    """What the agent emitted."""

    ACTION = "action"
    THOUGHT = "thought"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn of the agent inside an attempt."""

    # 0-based over actions and thoughts of the attempt.
    index: int
    kind: StepKind
    # The agent's text: the action as sent to the environment, or the thought.
    action: str
    # What came back, one line; "" for a thought.
    observation: str
    # The environment accepted the action (it had its effect).
    valid: bool
    # Benchmark's own progress, 0..1, after this step.
    progress: float
    prompt_tokens: int
    completion_tokens: int
    # Seconds in the model and in the environment; clock columns, outside byte-equality.
    model_s: float = 0.0
    environment_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A finished attempt as memory sees it."""

    task: Task
    first_observation: str
    steps: tuple[Step, ...]
    success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRules:
    """Regular expressions over actions that show held objects and visited places (MC-5, MC-6).

    Each is matched in full, ignoring case, against the text of a *valid* action. `take` and `release` need a group
    `object`; `visit` needs a group `place`.
    """

    take: str
    release: str
    visit: str


class Operation(StrEnum):
    """Memory operations (MC-12)."""

    RETRIEVE = "retrieve"
    PLAN_INJECT = "plan_inject"
    RE_RETRIEVE = "re_retrieve"
    CONSOLIDATE = "consolidate"
    FORGET = "forget"
    NOOP = "noop"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAction:
    """An arm: an operation with its parameters (paper Table 7). None = the operation has no such parameter."""

    action_id: str
    op: Operation
    top_k: int | None = None
    insight_k: int | None = None
    hop: int | None = None
    query_suffix: str = ""
    # May be chosen only while the agent is stuck (action set `compact`).
    only_when_stuck: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSet:
    """A named, ordered set of arms. Identity is the ids and parameters, never the position (MC-13)."""

    name: str
    actions: tuple[MemoryAction, ...]
    # Priors by arm id where they differ from those of the operation (Table 6).
    priors: Mapping[str, float] = field(default_factory=dict)

    @property
    def action_ids(self) -> tuple[str, ...]:
        """Ids in arm order."""
        return tuple(action.action_id for action in self.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFeatures:
    """The raw signals of MC-1, before discretisation; logged, so that another key can be computed later."""

    goal_type: str
    # Environment steps taken so far (thoughts do not count).
    step: int
    is_stuck: bool
    # Objects held now.
    objects_held: int
    # Distinct places visited so far.
    locations_visited: int
    # Items in the memory backend.
    memory_size: int
    plan_available: bool
    # 1-based place of the task in its stream (MC-8).
    task_number: int
    # Benchmark of the task: the family of its goal type in a mix.
    benchmark: str = ""
    # Who acts on what: a hash of framework, backbone and memory, for tables that several of them share.
    setup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """One retrieved piece of experience."""

    item_id: str
    # Index it came from, such as "success" or "failure".
    source: str
    # Similarity to the query, rounded to 6 decimals (architecture: task protocol).
    score: float
    # What the prompt shows.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """One learned natural-language rule."""

    insight_id: str
    score: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContext:
    """What memory puts into the prompt. The empty context is `MemoryContext()`."""

    items: tuple[MemoryItem, ...] = ()
    insights: tuple[Insight, ...] = ()
    plan: str = ""
    hint: str = ""

    @property
    def is_empty(self) -> bool:
        """Nothing would be rendered."""
        return not (self.items or self.insights or self.plan or self.hint)


class Trigger(StrEnum):
    """Why a decision was taken (reading A-1)."""

    START = "start"
    PHASE = "phase"
    STUCK = "stuck"
    EVERY_STEP = "every_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One chosen arm, with all that an off-policy estimator or a debugger needs (consistency.md section 1)."""

    decision_id: str
    episode_id: str
    # 0-based place inside the episode.
    position: int
    trigger: Trigger
    # Key text (memcon.learning.state_key) and the raw signals behind it.
    state_key: str
    features: StateFeatures
    action_id: str
    # Probability with which the logging policy chose the arm; None for a fallback.
    propensity: float | None
    # Arm ids that could be chosen; masked arms with their reasons.
    allowed: tuple[str, ...]
    masked: Mapping[str, str] = field(default_factory=dict)
    # Arms that shared the best score.
    tie_set: tuple[str, ...] = ()
    # The arm was an unvisited arm of its key (infinite bonus, MC-27).
    forced: bool = False
    is_fallback: bool = False
    # A memory block of an earlier decision stayed in the prompt; False where there was none to keep.
    context_kept: bool = False
    # Why the arm did less than it says: "unsupported", "no_plan", "plan_off", "hook_failed",
    # "backend_failed", or "".
    degraded: str = ""
    # Class name and text of an exception inside a maintain hook (MC-19), or "".
    hook_error: str = ""
    # Retrieved item ids, in prompt order.
    item_ids: tuple[str, ...] = ()
    # Estimated tokens of the block that this decision put into the prompt, by source (MC-42).
    tokens_items: int = 0
    tokens_insights: int = 0
    tokens_plan: int = 0
    tokens_hint: int = 0
    # Discounted return credited by the owner, gamma^(n-j-1) r - cost; None when cancelled.
    credit: float | None = None
    # Identity of the policy table.
    policy: str
    table: str
    # Owner's view; outside byte-equality.
    table_version: int = 0
    shard: int = 0
    received: int = 0
    # Seconds from the request of the decision to the finished memory block; a clock column.
    latency_s: float = 0.0
    # Per-arm q, taken, credited, bonus, score and probability, when asked for.
    per_arm: Mapping[str, Mapping[str, float]] | None = None


class OutcomeClass(StrEnum):
    """What a task ended with. `truncated` (step limit) is a failure for reward and success rate."""

    SUCCESS = "success"
    FAILURE = "failure"
    TRUNCATED = "truncated"
    UNEVALUABLE = "unevaluable"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens by purpose (HX-4)."""

    agent_prompt: int = 0
    agent_completion: int = 0
    memory_read: int = 0
    memory_write: int = 0
    # Of Consolidate and Forget, apart (MC-21).
    memory_maintenance: int = 0
    judge: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one task ended."""

    outcome_class: OutcomeClass
    # Benchmark's own score, 0..1.
    score: float
    # Environment steps (thoughts do not count).
    num_steps: int
    tokens: TokenUsage = TokenUsage()
    # Seconds; a clock column.
    duration_s: float = 0.0
    # Boundary that failed and its message, for `unevaluable`.
    error_boundary: str = ""
    error: str = ""

    @property
    def success(self) -> bool:
        """The environment's own success signal (MC-24)."""
        return self.outcome_class is OutcomeClass.SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One arm played on one task, beside the other arms and on the same memory: a cell of an outcome matrix."""

    action_id: str
    outcome_class: OutcomeClass
    score: float
    num_steps: int
    # Eq. 5; None for `unevaluable`.
    reward: float | None
    # Estimated tokens that the arm put into the prompt (MC-42), and those of all prompts.
    tokens_injected: int
    tokens_agent_prompt: int
    # As in `Decision`.
    degraded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One finished task of a stream: the unit that is committed, exported and replayed."""

    run: str
    cell: str
    stream: int
    # 0-based place in the stream.
    ordinal: int
    # Passes over the task list (sections) before this one.
    section: int
    task: Task
    episode_id: str
    # Claim of the stream file under which it ran; outside byte-equality.
    epoch: int
    seed: int
    first_observation: str
    steps: tuple[Step, ...]
    decisions: tuple[Decision, ...]
    outcome: Outcome
    # Eq. 5; None for `unevaluable`.
    reward: float | None
    # Items in the memory backend after the task was recorded.
    memory_size: int
    # Wall time at start, seconds since the epoch; a clock column.
    started_at: float = 0.0
    # Scheduled maintenance after this task: operation -> "" or "ErrorClass: text" of a hook that failed.
    maintenance: Mapping[str, str] = field(default_factory=dict)
    # Every arm on this task, in arm order, when the policy is `every_arm`; the episode itself is the drawn one.
    trials: tuple[Trial, ...] = ()
    # Distinct ids that the model's provider reported in this task, in order of first use (HX-3); None for a task of a
    # memcon that kept none.
    model_ids: tuple[str, ...] | None = None
