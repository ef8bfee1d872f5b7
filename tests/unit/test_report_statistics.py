"""Intervals: what the corrected two-way bootstrap promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from memcon.seeds import SeedTree
from memcon_platform.report.statistics import (
    RESAMPLES,
    TASKS_ONLY,
    TWO_WAY,
    Interval,
    _outcome_variance,
    mean_interval,
    standard_error,
    success_interval,
    t_quantile,
    these_seeds_interval,
)
from support.interval_coverage import METHODS, Setting, by_stream, coverage, pigeonhole

UNSCALED = "two-way, unscaled"


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

    interval = success_interval(values)

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


def test_single_outcomes_are_not_counted_three_times() -> None:
    # Given 5 x 134 independent coins: the binomial interval is right, resampling both ways would be 1.7 times as wide.
    values = _coins(5, 134, 0.3)
    half = 1.96 * math.sqrt(0.3 * 0.7 / 670)

    interval = mean_interval(values)

    assert interval is not None
    assert (interval.high - interval.low) / 2 == pytest.approx(half, rel=0.25)
    low, high = pigeonhole(values)
    assert (high - low) / 2 > 1.4 * half


def test_one_pair_that_differs_does_not_make_a_difference() -> None:
    values = np.zeros((2, 40))
    values[1, 7] = -1.0

    interval = mean_interval(values)

    assert interval is not None
    assert interval.low < -1 / 80 < 0 < interval.high


def test_two_streams_that_disagree_leave_everything_open() -> None:
    interval = success_interval(np.array([[0.0] * 30 + [1.0] * 2, [1.0] * 30 + [0.0] * 2]))

    assert interval == Interval(low=0.0, high=1.0, method=TWO_WAY)


def test_one_stream_says_that_only_tasks_were_resampled() -> None:
    one, two = mean_interval(_coins(1, 30, 0.5)), mean_interval(_coins(2, 30, 0.5))

    assert one is not None
    assert two is not None
    assert (one.method, two.method) == (TASKS_ONLY, TWO_WAY)


def test_the_noise_of_outcomes_is_what_streams_and_tasks_leave_over() -> None:
    # Given a full table, against the analysis of variance written out; then with values absent, against least squares.
    values = _coins(4, 20, 0.4)
    deviations = values - values.mean()
    rest = deviations - deviations.mean(axis=1, keepdims=True) - deviations.mean(axis=0, keepdims=True)

    variance, freedom = _outcome_variance(deviations, np.ones_like(values))

    assert freedom == 3 * 19
    assert variance == pytest.approx((rest**2).sum() / freedom / 80)

    present = _coins(4, 20, 0.7, "present") > 0
    design = np.array(
        [[float(i == r) for i in range(4)] + [float(j == c) for j in range(20)] for r, c in np.argwhere(present)]
    )
    known = values[present] - values[present].mean()
    effects = np.linalg.lstsq(design, known, rcond=None)[0]

    variance, freedom = _outcome_variance(
        np.where(present, values - values[present].mean(), 0.0), present.astype(np.float64)
    )

    assert freedom == len(known) - np.linalg.matrix_rank(design)
    assert variance == pytest.approx(((known - design @ effects) ** 2).sum() / freedom / len(known))


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (10, 2.22814), (133, 1.97796), (10_000, 1.9602)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: float, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, rel=1e-4)


def test_seeds_that_disagree_leave_these_seeds_sure_and_others_open() -> None:
    # Given three seeds that each change every task alike.
    values = np.array([[0.1], [0.5], [0.9]]) * np.ones((1, 40)) + 0.2 * (_coins(3, 40, 0.5) - 0.5)

    these, others = these_seeds_interval(values), mean_interval(values)

    assert these is not None
    assert others is not None
    assert these.high - these.low < 0.05
    assert others.high - others.low > 0.8


def test_these_seeds_resample_tasks_with_all_their_streams() -> None:
    # Given a task whose streams agree, the interval is that of the tasks' means, whatever the streams' own levels.
    values = np.repeat(_coins(1, 60, 0.4), 3, axis=0)

    these, means = these_seeds_interval(values), mean_interval(values[:1])

    assert these is not None
    assert means is not None
    assert (these.low, these.high) == pytest.approx((means.low, means.high))
    assert these_seeds_interval(values + np.array([[-0.3], [0.0], [0.3]])) == these


def test_a_task_with_more_pairs_weighs_more_in_these_seeds() -> None:
    values = np.array([[1.0, 0.0, 0.0, 1.0], [1.0, math.nan, math.nan, math.nan]])

    interval = these_seeds_interval(values, least=0.0)

    assert interval is not None
    assert interval.low <= 3 / 5 <= interval.high


@pytest.mark.parametrize("tasks", [1, 2, 30])
def test_over_one_stream_both_intervals_are_the_same_and_say_so(tasks: int) -> None:
    values = _coins(1, tasks, 0.5)

    these, others = these_seeds_interval(values), mean_interval(values)

    assert these is not None
    assert these == others
    assert these.method == TASKS_ONLY


@pytest.mark.parametrize("streams", [1, 4])
def test_one_task_says_nothing_about_others(streams: int) -> None:
    values = _coins(streams, 1, 0.5)

    for interval in (these_seeds_interval(values), mean_interval(values)):
        assert interval is not None
        assert (interval.low, interval.high) == (-1.0, 1.0)


def test_no_value_gives_no_interval_of_these_seeds() -> None:
    assert these_seeds_interval(np.full((2, 3), math.nan)) is None


@pytest.mark.parametrize("stream_sd", [0.0, 0.03, 0.08])
def test_the_intervals_cover_their_truths_about_as_often_as_they_say(stream_sd: float) -> None:
    # The whole table: `python tests/support/interval_coverage.py`.
    setting = Setting(streams=5, tasks=60, stream_sd=stream_sd)

    found = coverage(setting, 200, {name: METHODS[name] for name in ("these seeds", "other seeds too", UNSCALED)})

    these, others = found["these seeds"], found["other seeds too"]
    assert 0.91 <= these.these_seeds <= 0.99
    assert 0.91 <= others.other_seeds <= 0.99
    if stream_sd == 0.0:
        assert others.width < 0.95 * found[UNSCALED].width
    if stream_sd == 0.08:
        # What it does not speak for it does not cover.
        assert these.other_seeds < 0.85


def test_streams_that_repeat_their_table_add_nothing() -> None:
    once = _coins(4, 30, 0.5)
    streams, tables = np.repeat(once, 3, axis=0), [table for table in range(4) for _ in range(3)]

    one, three = mean_interval(once), mean_interval(streams, tables=tables)

    assert one is not None
    assert three is not None
    # Never narrower; each part of the variance has a Student's t of its own where tables join streams.
    assert three.low <= one.low < one.high <= three.high
    five = mean_interval(np.repeat(once, 5, axis=0), tables=[table for table in range(4) for _ in range(5)])
    assert five is not None
    assert (five.low, five.high) == pytest.approx((three.low, three.high))
    assert three.method == TWO_WAY
    assert standard_error(streams, tables=tables) == pytest.approx(standard_error(once))


def test_a_table_a_stream_changes_nothing() -> None:
    values = _coins(4, 30, 0.5)
    values[2, 5:9] = math.nan

    assert mean_interval(values, tables=[7, 3, 5, 1]) == mean_interval(values)


def test_one_table_says_nothing_about_others() -> None:
    values = _coins(4, 30, 0.5)

    found = mean_interval(values, tables=[0] * 4)

    assert found == these_seeds_interval(values)
    assert found is not None
    assert found.method == TASKS_ONLY


def test_tables_of_unequal_size_weigh_by_their_values() -> None:
    # Given one table of three streams and one of one: the mean is over outcomes, the spread between the two tables.
    values = np.array([[0.5] * 20] * 3 + [[0.1] * 20])

    interval = mean_interval(values, tables=[0, 0, 0, 1])

    assert interval is not None
    # Two tables leave everything open around 0.4; the mean of the tables' means would be 0.3.
    assert interval.high == 1.0
    assert interval.low < -0.2
    sums = (60 * 0.1, 20 * -0.3)
    assert standard_error(values, tables=[0, 0, 0, 1]) == pytest.approx(math.sqrt(2 * sum(d * d for d in sums)) / 80)


def test_the_standard_error_is_that_of_the_analysis_of_variance() -> None:
    # Given a full table of 6 streams in 3 tables: means of each table and task, their rows, columns and rest.
    values = _coins(6, 25, 0.4) + np.repeat([[0.0], [0.3], [0.9]], 2, axis=0) + np.linspace(0.0, 2.0, 25)
    cells = values.reshape(3, 2, 25).mean(axis=1)
    deviations = cells - cells.mean()
    rows, columns = deviations.mean(axis=1), deviations.mean(axis=0)
    rest = deviations - rows[:, np.newaxis] - columns

    by_table = (rows**2).sum() / (3 * 2)
    by_task = (columns**2).sum() / (25 * 24)
    noise = (rest**2).sum() / (2 * 24) / 75
    assert min(by_table, by_task) > noise

    found = standard_error(values, tables=[0, 0, 1, 1, 2, 2])

    assert found == pytest.approx(math.sqrt(by_table + by_task - noise))


def test_one_task_has_no_standard_error() -> None:
    assert standard_error(_coins(3, 1, 0.5)) is None
    assert standard_error(np.full((2, 3), math.nan)) is None


def test_intervals_over_shared_tables_cover_what_streams_taken_for_repetitions_do_not() -> None:
    setting = Setting(streams=5, tasks=40, stream_sd=0.12, streams_a_table=4)

    found = coverage(setting, 150, {"by table": METHODS["other seeds too"], "by stream": by_stream})

    assert 0.91 <= found["by table"].other_seeds <= 0.99
    assert found["by stream"].other_seeds < 0.85


@pytest.mark.parametrize(("tables", "stream_sd"), [(2, 0.05), (3, 0.05)])
def test_few_shared_tables_cover_other_seeds_as_often_as_they_say(tables: int, stream_sd: float) -> None:
    setting = Setting(streams=tables, tasks=134, stream_sd=stream_sd, streams_a_table=8)

    found = coverage(setting, 200, {name: METHODS[name] for name in ("other seeds too", "one t for all")})

    # Of 200 at 95 %, 92 % are two standard errors less.
    assert found["other seeds too"].other_seeds >= 0.92
    if tables == 2:
        # Two tables that happen to be close would pass for proof that all are.
        assert found["one t for all"].other_seeds < 0.92


def test_two_shared_tables_that_alone_vary_are_students_interval_of_two_values() -> None:
    values = np.repeat([[0.0], [0.02]], 8, axis=0) * np.ones((1, 30)) + 1e-9 * _coins(16, 30, 0.5)

    found = mean_interval(values, tables=[0] * 8 + [1] * 8)

    assert found is not None
    # Half the distance of the two is the standard error; t = 12.7 at one degree of freedom.
    assert standard_error(values, tables=[0] * 8 + [1] * 8) == pytest.approx(0.01, rel=1e-4)
    assert (found.high - found.low) / 2 == pytest.approx(12.7062 * 0.01, rel=1e-3)
