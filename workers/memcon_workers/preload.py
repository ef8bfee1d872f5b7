"""Preload: what a memory holds before the first task of a stream, by practice on tasks that the stream never meets.

Two sources: the benchmark's own solutions, stepped through its environment, or what the agent makes of the tasks
without memory. Seeds come from the tree, so all streams of one (seed, benchmark, agent) begin with the same memory.
Owns the attempts; what a memory makes of them is the controller's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from memcon import codec
from memcon.control.memory.rendering import one_line
from memcon.control.settings import PreloadSettings
from memcon.errors import Boundary, BoundaryError, ConfigError, UnavailableError, boundary
from memcon.protocols import Benchmark
from memcon.seeds import SeedTree
from memcon.types import MemoryContext, Step, StepKind, Task, Trajectory
from memcon_workers.episode import Player
from memcon_workers.frameworks.world import World
from memcon_workers.spec import StreamSpec
from memcon_workers.stream import root_seeds

__all__ = ["PracticeBook"]

_log = logging.getLogger(__name__)

# Sets of attempts that are kept for the streams to come, about a megabyte each. Cells that differ by memory or
# policy alone come one seed after the other: a study's benchmarks, sources and seeds must all have room.
_KEPT = 32

_NO_PRELOAD = "take `preload` off the memory, or take another benchmark"


class NoMemory:
    """The reader of a memory that brings nothing."""

    async def context(self, steps: Sequence[Step]) -> MemoryContext:
        """The empty block."""
        return MemoryContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """What practice works with."""

    benchmark: Benchmark
    player: Player
    # Place of all preloads in the tree of seeds.
    seeds: SeedTree


class PracticeBook:
    """Attempts of this process, made once for all streams that begin with the same."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, tuple[Trajectory, ...]] = OrderedDict()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def attempts(self, spec: StreamSpec, benchmark: Benchmark, player: Player) -> tuple[Trajectory, ...]:
        """The attempts that `spec.preload` asks for, in the benchmark's order; none without it.

        Attempt n takes its seeds from the place ("preload", n) below the root of the cell's seeds.

        Raises:
            ConfigError: the benchmark has no practice tasks, no reference plan, or one that does not solve its task.
            UnavailableError: a task could not be played to its end; no part of the preload is used.
        """
        if spec.preload is None:
            return ()
        page = _page(spec, spec.preload)
        async with self._locks[page]:
            if page not in self._made:
                desk = _Desk(benchmark=benchmark, player=player, seeds=root_seeds(spec).child("preload"))
                self._made[page] = await _practise(spec.preload, desk)
            self._made.move_to_end(page)
            found = self._made[page]
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
        return found


def _page(spec: StreamSpec, preload: PreloadSettings) -> str:
    """All that decides the attempts of a preload."""
    parts: list[object] = [spec.seed, spec.benchmark, preload]
    if preload.source == "attempts":
        parts += [spec.framework, spec.backbone, spec.task_time_limit_s]
    return "\n".join([codec.encode_json(part) for part in parts])


async def _practise(preload: PreloadSettings, desk: _Desk) -> tuple[Trajectory, ...]:
    name = desk.benchmark.name
    with boundary(Boundary.ENVIRONMENT, "practice_tasks"):
        tasks = desk.benchmark.practice_tasks(preload.per_type)
    if not tasks:
        raise ConfigError(f"preload: benchmark '{name}' has no practice tasks; {_NO_PRELOAD}")
    attempt = _follow if preload.source == "reference_plans" else _try
    made = tuple([await attempt(desk, task, number) for number, task in enumerate(tasks)])
    _log.debug(
        "preload.made",
        extra={
            "benchmark": name,
            "source": preload.source,
            "attempts": len(made),
            "successes": sum(trajectory.success for trajectory in made),
            "tokens": sum(step.prompt_tokens + step.completion_tokens for one in made for step in one.steps),
        },
    )
    return made


async def _follow(desk: _Desk, task: Task, number: int) -> Trajectory:
    """The reference plan of `task`, step by step; no model speaks, so no step costs a token."""
    name = desk.benchmark.name
    with boundary(Boundary.ENVIRONMENT, "reference_plan"):
        plan = desk.benchmark.reference_plan(task)
    if plan is None:
        raise ConfigError(
            f"preload: benchmark '{name}' has no reference plan for practice task '{task.task_id}'; "
            f"set source: attempts, or {_NO_PRELOAD}"
        )
    world = World(desk.player.environment, clock=desk.player.clock)
    steps: list[Step] = []
    done = success = False
    try:
        first = await world.reset(task, _seed(desk, number, "environment"))
        for action in plan:
            if done:
                break
            result = await world.step(action)
            done, success = result.done, result.success
            steps.append(
                Step(
                    index=len(steps),
                    kind=StepKind.ACTION,
                    action=action,
                    observation=one_line(result.observation),
                    valid=result.valid,
                    progress=result.progress,
                    prompt_tokens=0,
                    completion_tokens=0,
                )
            )
    except BoundaryError as error:
        raise _unplayed(name, task, str(error)) from error
    if not success:
        raise ConfigError(
            f"preload: the reference plan of practice task '{task.task_id}' does not solve it ({len(steps)} of "
            f"{len(plan)} actions taken); this is an error of benchmark '{name}'; set source: attempts meanwhile"
        )
    return Trajectory(task=task, first_observation=first, steps=tuple(steps), success=True)


async def _try(desk: _Desk, task: Task, number: int) -> Trajectory:
    """What the agent makes of `task` without memory; a failure teaches as well as a success."""
    attempt = await desk.player.play(
        task,
        NoMemory(),
        environment_seed=_seed(desk, number, "environment"),
        agent_seed=_seed(desk, number, "agent"),
    )
    run = attempt.run
    if run is None:
        # Going on without it would give streams of one cell different memories.
        raise _unplayed(desk.benchmark.name, task, attempt.outcome.error)
    return Trajectory(task=task, first_observation=run.first_observation, steps=run.steps, success=run.success)


def _seed(desk: _Desk, number: int, component: str) -> int:
    return desk.seeds.child(number, component).value()


def _unplayed(benchmark: str, task: Task, problem: str) -> UnavailableError:
    return UnavailableError(
        f"preload: practice task '{task.task_id}' of benchmark '{benchmark}' could not be played: {problem}; "
        "run the same command again"
    )
