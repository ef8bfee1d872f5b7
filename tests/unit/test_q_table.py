"""Counts and the update rule (MC-29, MC-31, MC-32; readings A-5 and A-31)."""

from __future__ import annotations

import dataclasses
import json

import pytest

from memcon.errors import InvariantError
from memcon.learning.exploration import UcbConfig
from memcon.learning.q_table import QTable

K = ("k",)
CHAIN = ("fine", "middle", "coarse")
EMA = UcbConfig().learning_settings()
MEAN = UcbConfig(estimator="mean").learning_settings()
CAPPED = UcbConfig(estimator="capped_mean", count_cap=3).learning_settings()


def _credited(table: QTable, targets: list[float]) -> float:
    for target in targets:
        table.take(K, "noop")
        table.credit(K, "noop", target)
    return table.views(K)[0].q[8]


def test_unmet_key_shows_priors_and_stays_unmet() -> None:
    table = QTable(EMA)

    (view,) = table.views(K)

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
        table.take(K, "noop")

    table.credit(K, "noop", 1.0)
    table.credit(K, "noop", 0.5)

    assert table.views(K)[0].q[8] == 0.75


def test_order_matters_within_a_pair_under_ema() -> None:
    assert _credited(QTable(EMA), [1.0, -1.0]) != _credited(QTable(EMA), [-1.0, 1.0])


def test_taken_and_credited_never_go_below_each_other() -> None:
    table = QTable(EMA)
    table.take(K, "noop")
    table.credit(K, "noop", 1.0)

    with pytest.raises(InvariantError, match="noop"):
        table.credit(K, "noop", 1.0)
    with pytest.raises(InvariantError, match="noop"):
        table.take_back(K, "noop")
    with pytest.raises(InvariantError, match="other"):
        table.take_back(("other",), "noop")


def test_dump_keeps_every_bit_by_arm_id() -> None:
    table = QTable(EMA)
    q = _credited(table, [1 / 3, 2 / 7])
    table.take(K, "forget")

    row = json.loads(json.dumps(table.dump()))["keys"]["k"]

    squares = (1 / 3) * (1 / 3) + (2 / 7) * (2 / 7)
    assert row["noop"] == {"q": q.hex(), "taken": 2, "credited": 2, "squares": squares.hex()}
    assert (row["forget"]["taken"], row["forget"]["credited"]) == (1, 0)


# --- the capped mean -------------------------------------------------------------------------------------------------


def test_capped_mean_is_the_sum_over_the_count_cut_to_the_cap() -> None:
    # As printed for the preset: n += 1, S += G; if n > N: S *= N / n, n = N. The squares alike.
    table, n, total, squares = QTable(CAPPED), 0, 0.0, 0.0
    for target in (1.0, -0.5, 0.3, 0.7, 1.15, -0.5, 0.9):
        n, total, squares = n + 1, total + target, squares + target * target
        if n > 3:
            n, total, squares = 3, total * 3 / n, squares * 3 / n
        q = _credited(table, [target])

        assert q == pytest.approx(total / n, abs=1e-12)
        dumped = table.dump()["keys"]["k"]["noop"]
        assert float.fromhex(dumped["squares"]) == pytest.approx(squares, abs=1e-12)

    # The true number of outcomes stays known.
    assert table.views(K)[0].credited[8] == 7


def test_capped_mean_is_the_mean_up_to_its_cap() -> None:
    assert _credited(QTable(CAPPED), [1.0, -0.5, 0.3]) == _credited(QTable(MEAN), [1.0, -0.5, 0.3])


# --- chains ----------------------------------------------------------------------------------------------------------


def test_decision_counts_and_is_credited_at_every_key_of_its_chain() -> None:
    table = QTable(MEAN)
    for chain, target in ((CHAIN, 1.0), (("other", "middle", "coarse"), 0.0)):
        table.take(chain, "noop")
        table.credit(chain, "noop", target)
    table.take(CHAIN, "forget")

    fine, middle, coarse = table.views(CHAIN)

    assert (fine.q[8], middle.q[8], coarse.q[8]) == (1.0, 0.5, 0.5)
    assert (fine.taken[8], middle.taken[8], coarse.taken[8]) == (1, 2, 2)
    assert (fine.taken[6], coarse.taken[6], coarse.credited[6]) == (1, 1, 0)


def test_take_back_undoes_a_take_at_every_key() -> None:
    table = QTable(EMA)
    table.take(CHAIN, "noop")
    table.credit(CHAIN, "noop", 1.0)
    before = json.dumps(table.dump())

    table.take(CHAIN, "noop")
    table.take_back(CHAIN, "noop")

    assert json.dumps(table.dump()) == before


def test_refused_change_of_a_chain_changes_none_of_its_keys() -> None:
    table = QTable(EMA)
    table.take(("fine",), "noop")
    before = table.dump()

    with pytest.raises(InvariantError, match="'coarse'"):
        table.credit(("fine", "coarse"), "noop", 1.0)
    with pytest.raises(InvariantError, match="'coarse'"):
        table.take_back(("fine", "coarse"), "noop")

    assert table.dump() == before


# --- frozen and imported ---------------------------------------------------------------------------------------------


def test_frozen_table_takes_numbers_over_and_changes_them_no_more() -> None:
    source = QTable(MEAN)
    _credited(source, [1 / 3, 1.0])
    table = QTable(dataclasses.replace(MEAN, frozen=True))
    table.load(source.dump()["keys"])

    table.take(K, "noop")
    table.credit(K, "noop", -1.0)
    table.take_back(K, "noop")
    table.take(("new",), "noop")

    assert table.dump() == source.dump()


def test_loaded_numbers_are_dumped_as_they_came_and_go_on_from_there() -> None:
    source, table = QTable(MEAN), QTable(MEAN)
    _credited(source, [1 / 3, 2 / 7])
    table.load({"k": {"noop": source.dump()["keys"]["k"]["noop"]}})

    assert table.dump() == source.dump()
    assert _credited(table, [0.9]) == _credited(source, [0.9])


def test_numbers_are_never_loaded_over_others() -> None:
    source, table = QTable(MEAN), QTable(MEAN)
    _credited(source, [1.0])
    source.take(("new",), "noop")
    table.take(K, "noop")
    before = table.dump()

    with pytest.raises(InvariantError, match="'k'"):
        table.load(source.dump()["keys"])

    assert table.dump() == before
