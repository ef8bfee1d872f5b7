"""How often the report's interval covers the truth, and how wide it is, beside other ways to resample.

Run `python tests/support/interval_coverage.py [EXPERIMENTS]`. An experiment is a table of paired differences of success
(-1, 0, 1) of streams x tasks: mean 0.05, plus an effect of the stream, plus an effect of the task, plus noise of the
outcomes themselves. The truth is the mean over the populations of streams and tasks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray

from memcon.seeds import SeedTree
from memcon_platform.report import statistics
from memcon_platform.report.statistics import LEVEL, mean_interval

Matrix = NDArray[np.float64]

TRUTH = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A population of experiments; standard deviations are those of the effects."""

    streams: int
    tasks: int
    stream_sd: float
    task_sd: float = 0.15
    # Share of pairs that differ by chance alone; 0.14 gives a residual standard deviation of about 0.4.
    discordant: float = 0.14

    def __str__(self) -> str:
        return f"{self.streams} x {self.tasks}, stream sd {self.stream_sd:g}, task sd {self.task_sd:g}"


SETTINGS = (
    Setting(streams=5, tasks=134, stream_sd=0.03, task_sd=0.1),
    Setting(streams=5, tasks=134, stream_sd=0.03),
    Setting(streams=5, tasks=134, stream_sd=0.03, task_sd=0.2),
    Setting(streams=5, tasks=134, stream_sd=0.0),
    Setting(streams=5, tasks=134, stream_sd=0.08),
    Setting(streams=3, tasks=134, stream_sd=0.03),
    Setting(streams=2, tasks=40, stream_sd=0.03),
)


def experiments(setting: Setting, count: int) -> Iterator[Matrix]:
    """Tables of differences, each of shape (streams, tasks)."""
    for number in range(count):
        generator = SeedTree(("interval coverage", str(setting), number)).generator()
        by_stream = [[generator.gauss(0, setting.stream_sd)] for _ in range(setting.streams)]
        by_task = [generator.gauss(0, setting.task_sd) for _ in range(setting.tasks)]
        chance = np.clip(TRUTH + np.array(by_stream) + np.array(by_task), -1, 1)
        either = np.maximum(setting.discordant, np.abs(chance))
        drawn = np.array([generator.random() for _ in range(chance.size)]).reshape(chance.shape)
        yield (drawn < (either + chance) / 2) * 1.0 - (drawn > 1 - (either - chance) / 2) * 1.0


def corrected(values: Matrix) -> tuple[float, float]:
    """The report's interval."""
    found = mean_interval(values)
    assert found is not None
    return found.low, found.high


def pigeonhole(values: Matrix) -> tuple[float, float]:
    """Percentiles of the two-way bootstrap as they are."""
    return _percentiles(statistics._resampled_means(values))


def tasks_only(values: Matrix) -> tuple[float, float]:
    """Tasks resampled, all streams of a task together."""
    return _percentiles(statistics._resampled_means(values.mean(axis=0, keepdims=True)))


def streams_only(values: Matrix) -> tuple[float, float]:
    """Streams resampled, all their tasks together."""
    return _percentiles(statistics._resampled_means(values.mean(axis=1, keepdims=True)))


def single_outcomes(values: Matrix) -> tuple[float, float]:
    """(stream, task) pairs resampled as if independent."""
    return _percentiles(statistics._resampled_means(values.reshape(1, -1)))


def few_clusters(values: Matrix) -> tuple[float, float]:
    """Two-way cluster variance with t at (fewest clusters - 1) degrees of freedom."""
    half = statistics._t(min(values.shape) - 1) * math.sqrt(statistics._variance(values)[0])
    return float(values.mean() - half), float(values.mean() + half)


METHODS: dict[str, Callable[[Matrix], tuple[float, float]]] = {
    "the report's interval": corrected,
    "two-way, uncorrected": pigeonhole,
    "tasks only": tasks_only,
    "streams only": streams_only,
    "single outcomes": single_outcomes,
    "two-way variance, t of fewest clusters": few_clusters,
}


def coverage(
    setting: Setting, count: int, method: Callable[[Matrix], tuple[float, float]] = corrected
) -> tuple[float, float]:
    """Share of `count` experiments whose interval holds the truth, and the mean width."""
    found = np.array([method(values) for values in experiments(setting, count)])
    return float(((found[:, 0] <= TRUTH) & (found[:, 1] >= TRUTH)).mean()), float((found[:, 1] - found[:, 0]).mean())


def _percentiles(means: Matrix) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def main(count: int) -> None:
    """Print the table."""
    for setting in SETTINGS:
        ideal = 2 * 1.96 * float(np.std([values.mean() for values in experiments(setting, count)]))
        click.echo(f"{setting}: width by the true spread {100 * ideal:.1f} points")
        for name, method in METHODS.items():
            share, width = coverage(setting, count, method)
            click.echo(f"  {name:40} covers {100 * share:5.1f} %, mean width {100 * width:5.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
