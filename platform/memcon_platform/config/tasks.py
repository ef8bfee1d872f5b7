"""How many tasks a benchmark gives, and how the streams of a cell share them."""

from __future__ import annotations

import functools
import json

from memcon import codec, registry
from memcon.errors import ConfigError, MemconError
from memcon_platform.config.plan import Entry

__all__ = ["horizons", "stream_sizes"]


def horizons(benchmark: Entry) -> tuple[int, ...]:
    """Step horizon of each task of `benchmark`; built once a process.

    Raises:
        ConfigError: the benchmark cannot be built, or has no task.
    """
    return _horizons(benchmark.name, codec.encode_json(benchmark.parameters))


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
def _horizons(name: str, parameters: str) -> tuple[int, ...]:
    plugin = registry.plugin("benchmark", name)
    config = registry.configure("benchmark", name, json.loads(parameters))
    try:
        tasks = plugin.build(config).tasks()
    except MemconError:
        raise
    except Exception as error:
        raise ConfigError(f"benchmark '{name}' cannot be built: {type(error).__name__}: {error}") from error
    if not tasks:
        raise ConfigError(f"benchmark '{name}' has no task")
    return tuple(task.max_steps for task in tasks)
