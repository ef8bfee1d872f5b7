"""A scripted environment, its benchmark, and a short way to act.

The bodies are `memcon.testing.environment_contract` and `memcon.testing.benchmark_contract`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memcon.errors import MemconError
from memcon.protocols import Benchmark, Environment, Observation, StepResult
from memcon.types import ProgressRules, Provenance, Task

__all__ = ["ScriptedBenchmark", "ScriptedEnvironment", "play"]


def play(environment: Environment, actions: Sequence[str]) -> list[StepResult]:
    """Results of `actions`, up to the end of the episode."""
    results: list[StepResult] = []
    for action in actions:
        results.append(environment.step(action))
        if results[-1].done:
            break
    return results


class ScriptedEnvironment:
    """A fake: the task is solved by the actions of `payload["script"]` in their order; each shows a fixed line."""

    blocking = False

    def __init__(self) -> None:
        self._script: Sequence[str] | None = None
        self._position = 0

    def reset(self, task: Task, seed: int) -> Observation:
        """Start at the first action of the script."""
        del seed
        if not isinstance(task.payload.get("script"), list | tuple):
            raise MemconError(f"scripted environment: task '{task.task_id}' has no script in its payload")
        self._script, self._position = list(task.payload["script"]), 0
        return Observation(text="You are at the start.")

    def step(self, action: str) -> StepResult:
        """Go on when `action` is the next one of the script."""
        script = self._running()
        valid = " ".join(action.lower().split()) == script[self._position]
        self._position += valid
        done = self._position == len(script)
        text = f"You did part {self._position}." if valid else "Nothing happens."
        return StepResult(observation=text, valid=valid, done=done, success=done, progress=self._position / len(script))

    def valid_actions(self) -> Sequence[str]:
        """The next action of the script."""
        if self._script is not None and self._position == len(self._script):
            return []
        return [self._running()[self._position]]

    def close(self) -> None:
        """Forget the script."""
        self._script = None

    def _running(self) -> Sequence[str]:
        if self._script is None or self._position == len(self._script):
            raise MemconError("scripted environment: no episode runs; call reset first")
        return self._script


class ScriptedBenchmark:
    """A fake: one task a script, goal type "put"."""

    name = "scripted"
    provenance = Provenance.SELF_MADE
    goal_types: tuple[str, ...] = ("put", "other")
    vocabulary = frozenset({"mug", "shelf"})
    progress_rules = ProgressRules(
        take=r"take (?P<object>[a-z]+ \d+).*", release=r"move (?P<object>[a-z]+ \d+).*", visit=r"go to (?P<place>.+)"
    )
    has_step_budget = True

    def __init__(self, *scripts: Sequence[str]) -> None:
        self.single_object_types: Mapping[str, str] = {}
        self._scripts = [list(script) for script in scripts]

    def tasks(self) -> Sequence[Task]:
        """One task a script."""
        return [
            Task(
                task_id=f"{self.name}-{number}",
                benchmark=self.name,
                goal=f"do script {number}.",
                goal_type="put",
                payload={"script": script},
                max_steps=30,
                provenance=self.provenance,
            )
            for number, script in enumerate(self._scripts)
        ]

    def environment(self) -> Environment:
        """A fresh scripted environment."""
        return ScriptedEnvironment()

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """None: there are no scripts but those of the tasks."""
        del per_type
        return ()

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """The script."""
        return list(task.payload["script"])

    def part_of(self, task: Task) -> Benchmark:
        """This benchmark."""
        del task
        return self
