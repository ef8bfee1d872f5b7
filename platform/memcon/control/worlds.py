"""What a benchmark tells about its tasks, made ready once: in a mix, each task is asked of the part that made it."""

from __future__ import annotations

from dataclasses import dataclass

from memcon.control.plans import Rewriter
from memcon.control.progress import ProgressMatcher
from memcon.protocols import Benchmark
from memcon.types import Task

__all__ = ["World", "Worlds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The rules and words of one benchmark."""

    benchmark: Benchmark
    matcher: ProgressMatcher
    rewriter: Rewriter


class Worlds:
    """The worlds of a benchmark, or of the parts of a mix."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark
        self._known: dict[tuple[str, ...], World] = {}

    def of(self, task: Task) -> World:
        """The world of `task`.

        Raises:
            ConfigError: its benchmark's progress rules are no regular expressions, or lack a group.
        """
        part = self._benchmark.part_of(task)
        # Parts may share a name, and a mix may make them anew at each call.
        key = (part.name, *part.goal_types)
        world = self._known.get(key)
        if world is None or world.benchmark is not part:
            world = World(
                benchmark=part, matcher=ProgressMatcher(part.progress_rules), rewriter=Rewriter(part.vocabulary)
            )
            self._known[key] = world
        return world
