"""Parts of a mix: their settings, their shares of the list, and a benchmark as it looks from inside a mix."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from memcon import codec, registry
from memcon.checks import in_range
from memcon.errors import ConfigError
from memcon.protocols import Benchmark, Environment
from memcon.types import Task
from memcon_workers.benchmarks.dispatching import DispatchingEnvironment, Route

__all__ = ["Part", "PartConfig", "dealt", "read_parts", "shares"]

# Weights that were rounded to six places still count as a whole.
_TOLERANCE = 1e-6
_OWN_KEYS = ("name", "weight", "practice_per_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartConfig:
    """One entry of `parts`, checked."""

    name: str
    weight: float
    # Practice tasks of a goal type at most; None = as many as are asked for.
    practice_per_type: int | None
    # The benchmark's own config.
    config: Any


def read_parts(
    parts: Sequence[Mapping[str, Any]], *, num_tasks: int, task_seed: int, whole: str
) -> Sequence[PartConfig]:
    """The entries of `parts`, checked; `whole` is the name that no part may have.

    Raises:
        ConfigError: as `MixConfig` says; names the part.
        UnknownNameError: a part is no registered benchmark.
    """
    if not parts:
        raise ConfigError("parts = []: expected at least one part, such as {name: household, weight: 1}")
    weights = [_weight(entry, f"parts[{number}]") for number, entry in enumerate(parts)]
    total = math.fsum(weights)
    if abs(total - 1.0) > _TOLERANCE:
        listed = ", ".join(f"{entry['name']} {weight:g}" for entry, weight in zip(parts, weights, strict=True))
        raise ConfigError(f"parts: the weights sum to {total:g} ({listed}); expected 1; mend the weights")
    counts = shares(weights, num_tasks)
    found = []
    for number, (entry, count) in enumerate(zip(parts, counts, strict=True)):
        where = f"parts[{number}] '{entry['name']}'"
        if entry["name"] == whole:
            raise ConfigError(f"{where}: a part of a mix cannot be a mix; list its parts here instead")
        if count == 0:
            raise ConfigError(
                f"{where}: weight {entry['weight']:g} of {num_tasks} tasks gives it none; raise num_tasks or its weight"
            )
        found.append(_part(entry, count, task_seed=task_seed, where=where))
    _refuse_twins(found)
    return found


def shares(weights: Sequence[float], total: int) -> list[int]:
    """`total` shared out by `weights`, by the largest remainder; at a tie the earlier one gets the task."""
    # The decimal text of a float is what its writer meant: 0.29 of 100 is 29, not 28.999999999999996.
    exact = [Fraction(str(weight)) for weight in weights]
    quotas = [weight * total / sum(exact) for weight in exact]
    counts = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(counts)), key=lambda place: (counts[place] - quotas[place], place))
    for place in by_remainder[: total - sum(counts)]:
        counts[place] += 1
    return counts


def dealt(counts: Sequence[int]) -> list[int]:
    """Places 0 .. len(counts) - 1, place p counts[p] times, each next one the place furthest behind its share."""
    total = sum(counts)
    given = [0] * len(counts)
    turns = []
    for number in range(1, total + 1):
        # Integers only: a float tie would hang on rounding. The earlier place wins a tie.
        behind = max(range(len(counts)), key=lambda place: (counts[place] * number - given[place] * total, -place))
        given[behind] += 1
        turns.append(behind)
    return turns


class Part:
    """A benchmark inside a mix: the first tasks of its list, goal types prefixed where another benchmark has them."""

    def __init__(
        self, source: Benchmark, *, num_tasks: int, practice_per_type: int | None, prefixed: frozenset[str]
    ) -> None:
        """`prefixed`: goal types that get the prefix "<benchmark>:"."""
        self.source, self.num_tasks = source, num_tasks
        self._practice_per_type, self._prefixed = practice_per_type, prefixed
        self._own_types = {self._shown(kind): kind for kind in source.goal_types}
        self.name = source.name
        self.provenance = source.provenance
        self.goal_types: tuple[str, ...] = tuple(self._own_types)
        self.vocabulary = source.vocabulary
        self.progress_rules = source.progress_rules
        self.single_object_types: Mapping[str, str] = {
            self._shown(double): self._shown(single) for double, single in source.single_object_types.items()
        }
        self.has_step_budget = source.has_step_budget

    def tasks(self) -> Sequence[Task]:
        """The part's share.

        Raises:
            ConfigError: the benchmark has fewer tasks.
        """
        tasks = self.source.tasks()
        if len(tasks) < self.num_tasks:
            raise ConfigError(
                f"benchmark mix: part '{self.name}' has {len(tasks)} tasks, its weight asks for {self.num_tasks}; "
                "lower its weight or num_tasks"
            )
        return self._all_shown(tasks[: self.num_tasks])

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """The benchmark's practice tasks, within the part's own bound."""
        bound = per_type if self._practice_per_type is None else min(per_type, self._practice_per_type)
        return self._all_shown(self.source.practice_tasks(bound)) if bound else ()

    def environment(self) -> Environment:
        """A fresh environment of the benchmark."""
        return DispatchingEnvironment(
            lambda task: Route(key="", benchmark=self.source, task=self.own(task)), num_keys=1
        )

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """That of the benchmark."""
        return self.source.reference_plan(self.own(task))

    def part_of(self, task: Task) -> Benchmark:
        """This part, or the part of it that made `task`."""
        inner = self.source.part_of(self.own(task))
        if inner is self.source:
            return self
        if self._prefixed.isdisjoint(inner.goal_types):
            return inner
        return Part(inner, num_tasks=len(inner.tasks()), practice_per_type=None, prefixed=self._prefixed)

    def own(self, task: Task) -> Task:
        """`task` as the benchmark itself knows it."""
        own = self._own_types.get(task.goal_type, task.goal_type)
        return task if own == task.goal_type else replace(task, goal_type=own)

    def _all_shown(self, tasks: Iterable[Task]) -> Sequence[Task]:
        return tuple(
            replace(task, goal_type=self._shown(task.goal_type)) if task.goal_type in self._prefixed else task
            for task in tasks
        )

    def _shown(self, kind: str) -> str:
        return f"{self.source.name}:{kind}" if kind in self._prefixed else kind


def _weight(entry: Mapping[str, Any], where: str) -> float:
    if not isinstance(entry.get("name"), str) or "weight" not in entry:
        raise ConfigError(
            f"{where} = {dict(entry)}: expected name and weight, such as {{name: household, weight: 0.5}}"
        )
    weight: float = entry["weight"]
    in_range(f"{where} '{entry['name']}': weight", weight, 0.0, 1.0)
    return weight


def _part(entry: Mapping[str, Any], count: int, *, task_seed: int, where: str) -> PartConfig:
    parameters = {key: value for key, value in entry.items() if key not in _OWN_KEYS}
    if "num_tasks" in parameters:
        raise ConfigError(f"{where}: num_tasks follows from the weight ({count}); leave it out")
    practice = entry.get("practice_per_type")
    if practice is not None:
        in_range(f"{where}: practice_per_type", practice, 0)
    known = {one.name for one in dataclasses.fields(registry.plugin("benchmark", entry["name"]).config)}
    filled = {key: value for key, value in (("num_tasks", count), ("task_seed", task_seed)) if key in known}
    return PartConfig(
        name=entry["name"],
        weight=entry["weight"],
        practice_per_type=practice,
        config=registry.configure("benchmark", entry["name"], {**filled, **parameters}, where=where),
    )


def _refuse_twins(parts: Sequence[PartConfig]) -> None:
    """Refuse a benchmark that stands twice with equal settings, whatever its weights."""
    seen: dict[str, int] = {}
    for number, part in enumerate(parts):
        settings = {key: value for key, value in codec.encode(part.config).items() if key != "num_tasks"}
        first = seen.setdefault(codec.encode_json([part.name, settings]), number)
        if first != number:
            raise ConfigError(
                f"parts[{first}] and parts[{number}] are both '{part.name}' with equal settings; "
                "make one part of them, or change one, such as its task_seed"
            )
