"""Small plug-ins with every kind of parameter that a config can meet, and a registry that knows only them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pytest

from memcon import checks, registry
from memcon.errors import MissingExtraError
from memcon.protocols import Benchmark
from memcon.testing.environment import ScriptedBenchmark
from memcon.types import Task
from memcon_platform.config import tasks

GRID: Mapping[str, Any] = {
    "benchmark": ["toy"],
    "framework": ["runner"],
    "backbone": ["parrot"],
    "memory": ["notes"],
    "policy": ["fixed:retrieve_shallow", "ucb"],
    "seed": [0, 1],
}


@dataclass(slots=True, kw_only=True)
class ToyConfig:
    num_tasks: int = 10
    max_steps: int = 30

    def __post_init__(self) -> None:
        checks.in_range("num_tasks", self.num_tasks, 0)


@dataclass(slots=True, kw_only=True)
class Limits:
    thoughts: int = 3
    retries: int = 2


@dataclass(slots=True, kw_only=True)
class RunnerConfig:
    history_window: int | str = 7
    few_shot: int = 1
    list_actions: bool = False
    limits: Limits = field(default_factory=Limits)
    tools: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class LaterRunnerConfig(RunnerConfig):
    """The same framework a version later: one more option."""

    retries: int = 0


@dataclass(slots=True, kw_only=True)
class MovedRunnerConfig(RunnerConfig):
    """The same framework with another default."""

    few_shot: int = 2


@dataclass(slots=True, kw_only=True)
class ParrotConfig:
    temperature: float = 0.0

    def __post_init__(self) -> None:
        checks.in_range("temperature", self.temperature, 0.0, 2.0)


@dataclass(slots=True, kw_only=True)
class TunedConfig:
    """A backbone for which the paper may have tuned its policy."""

    profile: str | None = None


@dataclass(slots=True, kw_only=True)
class BareConfig:
    pass


class _Toy(ScriptedBenchmark):
    """Tasks of which nobody asks more than how many there are, and how long they may take."""

    def __init__(self, config: ToyConfig, num_tasks: int) -> None:
        super().__init__()
        self._task: Any = SimpleNamespace(max_steps=config.max_steps)
        self._num_tasks = num_tasks

    def tasks(self) -> Sequence[Task]:
        return [self._task] * self._num_tasks

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        # A list that leaves no problem over has nothing to practise on.
        return [self._task] * min(per_type, 100 - self._num_tasks)


def _toy(config: ToyConfig) -> Benchmark:
    return _Toy(config, config.num_tasks)


def _grown(config: ToyConfig) -> Benchmark:
    """The same settings, one task more."""
    return _Toy(config, config.num_tasks + 1)


def _broken(config: BareConfig) -> Any:
    raise ValueError("the world file has no goals")


def _absent(config: BareConfig) -> Any:
    raise MissingExtraError("alfworld", "alfworld")


TOY = registry.Plugin(config=ToyConfig, build=_toy)
GROWN_TOY = registry.Plugin(config=ToyConfig, build=_grown)
BROKEN = registry.Plugin(config=BareConfig, build=_broken)
ABSENT = registry.Plugin(config=BareConfig, build=_absent)
RUNNER = registry.Plugin(config=RunnerConfig, build=lambda config: config)
LATER_RUNNER = registry.Plugin(config=LaterRunnerConfig, build=lambda config: config)
MOVED_RUNNER = registry.Plugin(config=MovedRunnerConfig, build=lambda config: config)
PARROT = registry.Plugin(config=ParrotConfig, build=lambda config: config)
TUNED = registry.Plugin(config=TunedConfig, build=lambda config: config)
BARE = registry.Plugin(config=BareConfig, build=lambda config: config)

_HERE = "support.config_plugins"
_RULES = "memcon.learning.exploration"
_KNOWN = {
    "benchmark": {"toy": f"{_HERE}:TOY", "broken": f"{_HERE}:BROKEN", "absent": f"{_HERE}:ABSENT"},
    "framework": {"runner": f"{_HERE}:RUNNER"},
    "backbone": {"parrot": f"{_HERE}:PARROT", "tuned": f"{_HERE}:TUNED"},
    "memory": {"empty": f"{_HERE}:BARE", "notes": f"{_HERE}:BARE"},
    "embedder": {"wordllama": f"{_HERE}:BARE", "hashing": f"{_HERE}:BARE"},
    "policy": {name: f"{_RULES}:{name.upper()}" for name in ("fixed", "none", "ucb", "uniform")},
}


@contextmanager
def toy_plugins(*, runner: str = "RUNNER", toy: str = "TOY") -> Iterator[None]:
    """Only the plug-ins of this module and the learning rules are registered inside the block.

    `runner` and `toy` name the objects here that stand behind these names, to play another version of them.
    """
    replaced = {"framework": {"runner": f"{_HERE}:{runner}"}, "benchmark": {"toy": f"{_HERE}:{toy}"}}

    def known(kind: str) -> dict[str, EntryPoint]:
        values = _KNOWN[kind] | replaced.get(kind, {})
        return {name: EntryPoint(name, value, f"memcon.{kind}") for name, value in values.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_entry_points", known)
        caches = (tasks._horizons, tasks._has_practice)
        for cache in caches:
            cache.cache_clear()
        try:
            yield
        finally:
            for cache in caches:
                cache.cache_clear()
