"""What a worker is told: one stream of one cell, as plain data that pickles and prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memcon.control.settings import ControlSettings, PreloadSettings
from memcon.learning.credit import RewardSettings
from memcon.policy_types import LearningSettings

__all__ = ["PluginSpec", "StreamError", "StreamReady", "StreamResult", "StreamSpec", "TaskEnded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSpec:
    """A plug-in by name, with the parameters over its defaults."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """All that decides what a stream does; nothing in it depends on which worker runs it."""

    run: str
    cell: str
    # 0-based stream of the cell, and how many the cell has.
    stream: int
    num_streams: int
    # "replicate": every stream runs all tasks in its own order; "partition": the streams share the tasks out.
    split: str
    # Value of the seed axis.
    seed: int
    # First N tasks of the benchmark; None = all.
    limit: int | None
    benchmark: PluginSpec
    framework: PluginSpec
    backbone: PluginSpec
    memory: PluginSpec
    embedder: PluginSpec
    # None for the policy `none`.
    learning: LearningSettings | None
    table: str
    control: ControlSettings
    reward: RewardSettings
    # File of the stream's store.
    store_path: str
    # Worker deaths inside one task before it is `unevaluable`.
    task_restarts: int
    # Wall-time limit of one task in seconds; None = no limit.
    task_time_limit_s: float | None
    # What the memory holds before the first task; None = nothing.
    preload: PreloadSettings | None = None
    # Stream file of an earlier run whose memory this stream starts from, and whether nothing is added to it (RO-15).
    memory_from: str | None = None
    # Ended tasks that the file must show when it is copied; None = any.
    memory_from_ended: int | None = None
    memory_frozen: bool = False
    # Action set whose arms are all played on each task (policy `every_arm`); None = a policy decides.
    trial_set: str | None = None
    # Every task waits until it is granted (`max_open_episodes`).
    gated: bool = False
    # Hash of framework, backbone and memory (`StateFeatures.setup`).
    setup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A task of a stream is committed: what progress and tracking need."""

    cell: str
    stream: int
    ordinal: int
    outcome_class: str
    score: float
    reward: float | None
    num_steps: int
    agent_prompt_tokens: int
    agent_completion_tokens: int
    memory_tokens: int
    num_decisions: int
    num_forced: int
    memory_size: int
    # Seconds.
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReady:
    """A gated stream is claimed, its outcomes are delivered, and it waits for its next task to be granted."""

    cell: str
    stream: int
    num_ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """How a stream left the worker."""

    cell: str
    stream: int
    num_ended: int
    num_tasks: int
    # Seconds from the claim to now without filling a fresh memory, and of these inside model and environment; for the
    # bench.
    elapsed_s: float
    model_s: float
    environment_s: float
    # Environment steps and thoughts of the tasks that ended here.
    num_steps: int

    @property
    def done(self) -> bool:
        """No task is left."""
        return self.num_ended == self.num_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamError:
    """A stream cannot go on; what it had ended is kept."""

    cell: str
    stream: int
    # One line: what failed and what to do.
    message: str
