"""The small world and the fixed memory that frameworks are played in; their contract is `framework_contract`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memcon.protocols import AgentFramework, AgentRun, ChatModel, MemoryReader, Observation, StepResult
from memcon.types import MemoryContext, Provenance, Step, Task

__all__ = ["FixedMemory", "Switches", "play", "switch_task"]


def switch_task(*, num_switches: int = 3, max_steps: int = 10) -> Task:
    """A task of `Switches`: press switch 1 to switch n in this order."""
    return Task(
        task_id=f"switches-{num_switches}",
        benchmark="switches",
        goal="press all switches in order.",
        goal_type="press",
        payload={"num_switches": num_switches},
        max_steps=max_steps,
        provenance=Provenance.SELF_MADE,
    )


class Switches:
    """A row of switches that must be pressed in order; a wrong one is refused. Records every call."""

    def __init__(self, *, blocking: bool = False) -> None:
        self.blocking = blocking
        self.calls: list[str] = []
        self.seed: int | None = None
        self._size = 0
        self._pressed = 0

    def reset(self, task: Task, seed: int) -> Observation:
        self.calls.append("reset")
        self.seed = seed
        self._size = int(task.payload["num_switches"])
        self._pressed = 0
        return Observation(text=f"You see {self._size} switches.")

    def step(self, action: str) -> StepResult:
        self.calls.append(f"step {action}")
        if action == "break":
            raise OSError("the world broke")
        valid = action == f"press switch {self._pressed + 1}"
        self._pressed += valid
        done = self._pressed == self._size
        text = f"Switch {self._pressed} is on." if valid else "Nothing happens."
        return StepResult(
            observation=text, valid=valid, done=done, success=done, progress=self._pressed / max(1, self._size)
        )

    def valid_actions(self) -> Sequence[str]:
        self.calls.append("valid_actions")
        return [f"press switch {number}" for number in range(1, self._size + 1)]

    def close(self) -> None:
        self.calls.append("close")


@dataclass(slots=True)
class FixedMemory:
    """A `MemoryReader` that always shows one context and records what steps it was given."""

    shown: MemoryContext = field(default_factory=MemoryContext)
    seen: list[tuple[Step, ...]] = field(default_factory=list)

    async def context(self, steps: Sequence[Step]) -> MemoryContext:
        self.seen.append(tuple(steps))
        return self.shown


async def play(
    framework: AgentFramework,
    model: ChatModel,
    *,
    task: Task | None = None,
    environment: Switches | None = None,
    memory: MemoryReader | None = None,
) -> AgentRun:
    """One run of `framework` in `Switches`, with seeds 3 (environment) and 5 (agent)."""
    return await framework.run(
        task or switch_task(),
        environment or Switches(),
        model,
        memory=memory or FixedMemory(),
        environment_seed=3,
        agent_seed=5,
    )
