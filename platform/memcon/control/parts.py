"""What memory control of a stream is put together from."""

from __future__ import annotations

from dataclasses import dataclass

from memcon.control.settings import ControlSettings
from memcon.learning.credit import RewardSettings
from memcon.policy_types import LearningSettings
from memcon.protocols import Benchmark, Clock, MemoryBackend, PolicyClient
from memcon.store import StreamStore

__all__ = ["ControllerParts", "StreamPlace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlace:
    """The stream whose memory this is; part of every draw's place."""

    cell: str
    stream: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerParts:
    """What a controller works with. `policy` and `learning` are None together: the policies `none` and `every_arm`."""

    benchmark: Benchmark
    backend: MemoryBackend
    store: StreamStore
    policy: PolicyClient | None
    learning: LearningSettings | None
    table: str
    control: ControlSettings
    reward: RewardSettings
    clock: Clock
    place: StreamPlace
    # Who acts on what (`StateFeatures.setup`).
    setup: str = ""
    # Nothing that a task does changes the memory (RO-15): attempts and plans are not kept, maintenance is no arm.
    memory_frozen: bool = False
