"""How many tasks a benchmark gives, and how the streams of a cell share them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence

from memcon import codec, registry
from memcon.errors import ConfigError, MemconError
from memcon.protocols import Benchmark
from memcon.types import Task
from memcon_platform.config.plan import Entry

__all__ = ["has_practice", "horizons", "stream_sizes"]


def horizons(benchmark: Entry) -> tuple[int, ...]:
    """Step horizon of each task of `benchmark`; built once a process.

    Raises:
        ConfigError: the benchmark cannot be built, or has no task.
    """
    return _horizons(benchmark.name, codec.encode_json(benchmark.parameters))


def has_practice(benchmark: Entry) -> bool:
    """`benchmark` has tasks beside its own, which a memory can be filled with.

    Raises:
        ConfigError: the benchmark cannot be built.
    """
    return _has_practice(benchmark.name, codec.encode_json(benchmark.parameters))


def stream_sizes(total: int, *, streams: int, split: str) -> tuple[int, ...]:
    """Tasks of each stream: all of them ("replicate"), or every `streams`-th one ("partition").

    Raises:
        ConfigError: a partition would leave a stream without a task.
    """
    if split == "replicate":
        return (total,) * streams
    if total < streams:
        raise ConfigError(
            f"split 'partition' cannot share {total} tasks out over {streams} streams; "
            f"give streams <= {total}, or split: replicate"
        )
    return tuple(len(range(stream, total, streams)) for stream in range(streams))


@functools.cache
def _has_practice(name: str, parameters: str) -> bool:
    return bool(_asked(name, parameters, lambda benchmark: benchmark.practice_tasks(1)))


@functools.cache
def _horizons(name: str, parameters: str) -> tuple[int, ...]:
    tasks = _asked(name, parameters, lambda benchmark: benchmark.tasks())
    if not tasks:
        raise ConfigError(f"benchmark '{name}' has no task")
    return tuple(task.max_steps for task in tasks)


def _asked(name: str, parameters: str, question: Callable[[Benchmark], Sequence[Task]]) -> Sequence[Task]:
    benchmark = registry.build("benchmark", name, json.loads(parameters))
    try:
        return question(benchmark)
    except MemconError:
        raise
    except Exception as error:
        raise ConfigError(f"benchmark '{name}' cannot give its tasks: {type(error).__name__}: {error}") from error
