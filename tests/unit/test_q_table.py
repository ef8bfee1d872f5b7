"""Counts and the update rule (MC-29, MC-31, MC-32; reading A-5)."""

from __future__ import annotations

import dataclasses
import json

import pytest

from memcon.errors import InvariantError, SchemaVersionError
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


def test_dump_and_load_keep_every_bit_by_arm_id() -> None:
    table = QTable(EMA)
    _credited(table, [1 / 3, 2 / 7])
    table.take("another", "forget")
    turned = dataclasses.replace(EMA, action_ids=EMA.action_ids[::-1], priors=EMA.priors[::-1])

    record = json.loads(json.dumps(table.dump()))

    assert QTable.load(EMA, record).dump() == table.dump()
    assert QTable.load(turned, record).view("k").q[0] == table.view("k").q[8]


def test_load_refuses_other_arms_impossible_counts_and_other_versions() -> None:
    table = QTable(EMA)
    table.take("k", "noop")
    fewer = dataclasses.replace(EMA, action_ids=EMA.action_ids[1:], priors=EMA.priors[1:])
    wrong = table.dump()
    wrong["keys"]["k"]["noop"]["credited"] = 2

    with pytest.raises(InvariantError, match="action set"):
        QTable.load(fewer, table.dump())
    with pytest.raises(InvariantError, match="credited 2"):
        QTable.load(EMA, wrong)
    with pytest.raises(SchemaVersionError):
        QTable.load(EMA, {**table.dump(), "schema_version": 2})
