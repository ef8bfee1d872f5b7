"""Intervals: what the two-way bootstrap promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from memcon.seeds import SeedTree
from memcon_platform.report.statistics import RESAMPLES, mean_interval, success_interval


def _coins(rows: int, columns: int, chance: float, place: str = "coins") -> NDArray[np.float64]:
    generator = SeedTree((place, rows, columns)).generator()
    return np.array([[float(generator.random() < chance) for _ in range(columns)] for _ in range(rows)])


def test_one_stream_gives_about_the_binomial_interval() -> None:
    values = _coins(1, 400, 0.3)
    rate = float(values.mean())

    interval = mean_interval(values)

    assert interval is not None
    half = 1.96 * math.sqrt(rate * (1 - rate) / 400)
    assert interval.low == pytest.approx(rate - half, abs=0.01)
    assert interval.high == pytest.approx(rate + half, abs=0.01)


def test_repeating_the_same_outcomes_under_more_seeds_is_no_new_evidence() -> None:
    once = _coins(1, 100, 0.4)

    one, five = mean_interval(once), mean_interval(np.repeat(once, 5, axis=0))

    assert one is not None
    assert five is not None
    assert five.high - five.low == pytest.approx(one.high - one.low, rel=0.1)


def test_seeds_that_disagree_widen_the_interval() -> None:
    tasks = 100
    agree = np.tile([0.0, 1.0], tasks // 2) * np.ones((4, 1))
    disagree = np.array([[0.0], [1.0], [0.0], [1.0]]) * np.ones((1, tasks))

    narrow, wide = mean_interval(agree), mean_interval(disagree)

    assert narrow is not None
    assert wide is not None
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


def test_absent_values_are_outside_the_mean() -> None:
    values = np.array([[1.0, math.nan, 0.0, 1.0], [math.nan, math.nan, 0.0, 1.0]])

    interval = mean_interval(values)

    assert interval is not None
    assert 0.0 <= interval.low <= 3 / 5 <= interval.high <= 1.0


def test_no_value_gives_no_interval() -> None:
    assert mean_interval(np.full((2, 3), math.nan)) is None
    assert mean_interval(np.empty((0, 0))) is None
    assert success_interval(np.empty((0, 0))) is None


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_equal_outcomes_still_have_a_width(outcome: float) -> None:
    interval = success_interval(np.full((3, 20), outcome))

    assert interval is not None
    assert interval.method == "wilson"
    # Wilson for 0 of 20: 0 .. z^2 / (20 + z^2)
    assert interval.high - interval.low == pytest.approx(3.8415 / 23.8415, abs=1e-4)


def test_the_same_data_give_the_same_bits() -> None:
    values = _coins(3, 50, 0.5)

    assert mean_interval(values) == mean_interval(values.copy())
    assert RESAMPLES == 2000


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    # Given 200 experiments of 4 streams and 60 tasks whose chances differ by task and by stream.
    covered = 0
    for experiment in range(200):
        generator = SeedTree(("coverage", experiment)).generator()
        stream = [generator.gauss(0, 0.05) for _ in range(4)]
        task = [generator.gauss(0, 0.2) for _ in range(60)]
        values = np.array([[float(generator.random() < min(1.0, max(0.0, 0.5 + s + t))) for t in task] for s in stream])
        interval = mean_interval(values)
        assert interval is not None
        covered += interval.low <= 0.5 <= interval.high

    # A percentile interval over few streams is a little off its level; far off would be a bug.
    assert 0.88 <= covered / 200 <= 1.0
