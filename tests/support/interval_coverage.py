"""How often the report's two intervals cover what they are for, and how wide they are, beside other ways to resample.

Run `python tests/support/interval_coverage.py [EXPERIMENTS]`. An experiment is a table of paired differences of success
(-1, 0, 1) of streams x tasks: mean 0.05, plus an effect of the stream, plus an effect of the task, plus noise of the
outcomes themselves. There are two truths: the mean over the populations of streams and tasks ("other seeds too"), and
the mean over the population of tasks under the very streams of the experiment ("these seeds").
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray

from memcon.seeds import SeedTree
from memcon_platform.report import statistics
from memcon_platform.report.statistics import LEVEL, Interval, mean_interval, these_seeds_interval

Matrix = NDArray[np.float64]

TRUTH = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A population of experiments; standard deviations are those of the effects."""

    # Learned tables; each has one stream, or `streams_a_table` that share its effect.
    streams: int
    tasks: int
    stream_sd: float
    streams_a_table: int = 1
    task_sd: float = 0.15
    # Share of pairs that differ by chance alone; 0.14 gives a residual standard deviation of about 0.4.
    discordant: float = 0.14

    def __str__(self) -> str:
        shared = f" of {self.streams_a_table}" if self.streams_a_table > 1 else ""
        return f"{self.streams}{shared} x {self.tasks}, stream sd {self.stream_sd:g}, task sd {self.task_sd:g}"


SETTINGS = (
    Setting(streams=5, tasks=134, stream_sd=0.03, task_sd=0.1),
    Setting(streams=5, tasks=134, stream_sd=0.03),
    Setting(streams=5, tasks=134, stream_sd=0.03, task_sd=0.2),
    Setting(streams=5, tasks=134, stream_sd=0.0),
    Setting(streams=5, tasks=134, stream_sd=0.08),
    Setting(streams=3, tasks=134, stream_sd=0.03),
    Setting(streams=2, tasks=40, stream_sd=0.03),
    Setting(streams=5, tasks=134, stream_sd=0.03, streams_a_table=8),
    Setting(streams=3, tasks=134, stream_sd=0.03, streams_a_table=8),
    Setting(streams=2, tasks=134, stream_sd=0.0, streams_a_table=8),
    Setting(streams=2, tasks=134, stream_sd=0.03, streams_a_table=8),
    Setting(streams=2, tasks=134, stream_sd=0.05, streams_a_table=8),
    Setting(streams=2, tasks=134, stream_sd=0.02, streams_a_table=64),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A table of differences and what its mean would be over all tasks."""

    # -1, 0 or 1, shape (streams, tasks)
    values: Matrix
    # Table of each stream.
    tables: tuple[int, ...]
    # For the streams of this table; TRUTH over all streams.
    these_seeds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Shares of experiments whose interval holds each truth, and the mean width."""

    these_seeds: float
    other_seeds: float
    width: float


def experiments(setting: Setting, count: int) -> Iterator[Experiment]:
    """The first `count` experiments of a setting."""
    for number in range(count):
        generator = SeedTree(("interval coverage", str(setting), number)).generator()
        by_stream = np.array([[generator.gauss(0, setting.stream_sd)] for _ in range(setting.streams)])
        by_task = [generator.gauss(0, setting.task_sd) for _ in range(setting.tasks)]
        by_stream = np.repeat(by_stream, setting.streams_a_table, axis=0)
        chance = np.clip(TRUTH + by_stream + np.array(by_task), -1, 1)
        either = np.maximum(setting.discordant, np.abs(chance))
        drawn = np.array([generator.random() for _ in range(chance.size)]).reshape(chance.shape)
        values = (drawn < (either + chance) / 2) * 1.0 - (drawn > 1 - (either - chance) / 2) * 1.0
        tables = tuple(table for table in range(setting.streams) for _ in range(setting.streams_a_table))
        yield Experiment(values=values, tables=tables, these_seeds=TRUTH + float(by_stream.mean()))


def other_seeds_too(table: Experiment) -> tuple[float, float]:
    """The report's interval for a population of seeds and tasks, streams of a learned table taken as one."""
    return _ends(mean_interval(table.values, tables=table.tables))


def by_stream(table: Experiment) -> tuple[float, float]:
    """The same with every stream taken for a repetition."""
    return _ends(mean_interval(table.values))


def these_seeds(table: Experiment) -> tuple[float, float]:
    """The report's interval for the streams as they ran."""
    return _ends(these_seeds_interval(table.values))


def pigeonhole(values: Matrix) -> tuple[float, float]:
    """Percentiles of the two-way bootstrap as they are."""
    return _percentiles(values)


def tasks_only(values: Matrix) -> tuple[float, float]:
    """Percentiles with tasks resampled, all streams of a task together."""
    return _percentiles(values.mean(axis=0, keepdims=True))


def streams_only(values: Matrix) -> tuple[float, float]:
    """Percentiles with streams resampled, all their tasks together."""
    return _percentiles(values.mean(axis=1, keepdims=True))


def single_outcomes(values: Matrix) -> tuple[float, float]:
    """Percentiles with (stream, task) pairs resampled as if independent."""
    return _percentiles(values.reshape(1, -1))


def few_clusters(values: Matrix) -> tuple[float, float]:
    """Two-way cluster variance with t at (fewest clusters - 1) degrees of freedom."""
    variance = statistics._variances(values, np.ones_like(values)).of_mean
    half = statistics.t_quantile(min(values.shape) - 1) * math.sqrt(variance)
    return float(values.mean() - half), float(values.mean() + half)


Method = Callable[[Experiment], tuple[float, float]]


def _of_values(method: Callable[[Matrix], tuple[float, float]]) -> Method:
    return lambda table: method(table.values)


def one_quantile(table: Experiment) -> tuple[float, float]:
    """Over tables that join streams, with one Student's t at Satterthwaite's degrees of freedom for all parts."""
    found = statistics._variances(*statistics._by_table(table.values, table.tables))
    half = found.reach(joined=False)
    return float(table.values.mean() - half), float(table.values.mean() + half)


METHODS: dict[str, Method] = {
    "these seeds": these_seeds,
    "other seeds too": other_seeds_too,
    "streams repeat": by_stream,
    "one t for all": one_quantile,
    "tasks, unscaled": _of_values(tasks_only),
    "two-way, unscaled": _of_values(pigeonhole),
    "streams only": _of_values(streams_only),
    "single outcomes": _of_values(single_outcomes),
    "t of fewest - 1": _of_values(few_clusters),
}


def coverage(setting: Setting, count: int, methods: Mapping[str, Method] = METHODS) -> dict[str, Covered]:
    """What each of `methods` covers in `count` experiments."""
    tables = list(experiments(setting, count))
    truths = np.array([table.these_seeds for table in tables])
    found = {name: np.array([method(table) for table in tables]) for name, method in methods.items()}
    return {
        name: Covered(
            these_seeds=float(((ends[:, 0] <= truths) & (truths <= ends[:, 1])).mean()),
            other_seeds=float(((ends[:, 0] <= TRUTH) & (ends[:, 1] >= TRUTH)).mean()),
            width=float((ends[:, 1] - ends[:, 0]).mean()),
        )
        for name, ends in found.items()
    }


def ideal_widths(setting: Setting, count: int) -> tuple[float, float]:
    """Widths by the true spread of the mean around the truth of these seeds, and around that of all."""
    found = [(table.values.mean() - table.these_seeds, table.values.mean()) for table in experiments(setting, count)]
    own, every = 2 * 1.96 * np.std(np.array(found), axis=0)
    return float(own), float(every)


def _ends(found: Interval | None) -> tuple[float, float]:
    assert found is not None
    return found.low, found.high


def _percentiles(values: Matrix) -> tuple[float, float]:
    means = statistics._resampled_means(values, np.ones_like(values))
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def main(count: int) -> None:
    """Print the table."""
    for setting in SETTINGS:
        own, every = ideal_widths(setting, count)
        click.echo(f"{setting}: by the true spread {100 * own:.1f} points for these seeds, {100 * every:.1f} for all")
        for name, found in coverage(setting, count).items():
            shares = f"these seeds {100 * found.these_seeds:5.1f} %, other seeds {100 * found.other_seeds:5.1f} %"
            click.echo(f"  {name:17} covers {shares}, mean width {100 * found.width:5.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
