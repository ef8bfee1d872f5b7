"""Counts and the update rule (MC-29, MC-31, MC-32; reading A-5)."""

from __future__ import annotations

import json

import pytest

from memcon.errors import InvariantError
from memcon.learning.exploration import UcbConfig
from memcon.learning.q_table import QTable

EMA = UcbConfig().learning_settings()
MEAN = UcbConfig(estimator="mean").learning_settings()


def _credited(table: QTable, targets: list[float]) -> float:
    for target in targets:
        table.take("k", "noop")
        table.credit("k", "noop", target)
    return table.view("k").q[8]


def test_unmet_key_shows_priors_and_stays_unmet() -> None:
    table = QTable(EMA)

    view = table.view("k")

    assert view.q == EMA.priors
    assert view.taken == view.credited == (0,) * 9
    assert len(table) == 0


def test_ema_starts_from_the_prior_and_applies_updates_in_order() -> None:
    expected = -0.2
    for target in (0.81, 0.9, 1.0):
        expected = expected + 0.15 * (target - expected)

    assert _credited(QTable(EMA), [0.81, 0.9, 1.0]) == expected


def test_mean_estimator_forgets_the_prior_at_the_first_update() -> None:
    assert _credited(QTable(MEAN), [0.5]) == pytest.approx(0.5, abs=1e-15)
    assert _credited(QTable(MEAN), [0.5, 1.0, -0.3]) == pytest.approx(0.4, abs=1e-15)


def test_mean_estimator_divides_by_outcomes_and_not_by_decisions() -> None:
    table = QTable(MEAN)
    for _ in range(4):
        table.take("k", "noop")

    table.credit("k", "noop", 1.0)
    table.credit("k", "noop", 0.5)

    assert table.view("k").q[8] == 0.75


def test_order_matters_within_a_pair_under_ema() -> None:
    assert _credited(QTable(EMA), [1.0, -1.0]) != _credited(QTable(EMA), [-1.0, 1.0])


def test_taken_and_credited_never_go_below_each_other() -> None:
    table = QTable(EMA)
    table.take("k", "noop")
    table.credit("k", "noop", 1.0)

    with pytest.raises(InvariantError, match="noop"):
        table.credit("k", "noop", 1.0)
    with pytest.raises(InvariantError, match="noop"):
        table.take_back("k", "noop")
    with pytest.raises(InvariantError, match="other"):
        table.take_back("other", "noop")


def test_dump_keeps_every_bit_by_arm_id() -> None:
    table = QTable(EMA)
    q = _credited(table, [1 / 3, 2 / 7])
    table.take("k", "forget")

    row = json.loads(json.dumps(table.dump()))["keys"]["k"]

    squares = (1 / 3) * (1 / 3) + (2 / 7) * (2 / 7)
    assert row["noop"] == {"q": q.hex(), "taken": 2, "credited": 2, "squares": squares.hex()}
    assert (row["forget"]["taken"], row["forget"]["credited"]) == (1, 0)
