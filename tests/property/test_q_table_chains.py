"""Numbers that are kept at several keys: what must hold after any history (reading A-31)."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcon.learning import transfer
from memcon.learning.q_table import QTable
from memcon.policy_types import LearningSettings
from support.key_chains import POOLED, chain

ARMS = ("noop", "plan_inject", "retrieve_deep")
CHAINS = tuple(
    chain(benchmark, goal_type, plan=plan)
    for benchmark, goal_types in (("x", ("put", "heat")), ("y", ("find",)))
    for goal_type in goal_types
    for plan in (False, True)
)
TARGETS = st.floats(-1.5, 1.5)
# Chain, arm, and the return; None = still open.
HISTORY = st.lists(
    st.tuples(st.sampled_from(CHAINS), st.sampled_from(ARMS), st.none() | TARGETS), min_size=1, max_size=60
)
History = list[tuple[tuple[str, ...], str, float | None]]
ESTIMATORS = [
    POOLED,
    dataclasses.replace(POOLED, estimator="ema"),
    dataclasses.replace(POOLED, estimator="capped_mean", count_cap=2),
]


def _played(settings: LearningSettings, history: History) -> QTable:
    table = QTable(settings)
    for keys, arm, target in history:
        table.take(keys, arm)
        if target is not None:
            table.credit(keys, arm, target)
    return table


def _text(table: QTable) -> str:
    return json.dumps(table.dump())


@pytest.mark.parametrize("settings", ESTIMATORS)
@given(history=HISTORY, keys=st.sampled_from(CHAINS), arm=st.sampled_from(ARMS))
def test_take_back_undoes_take_at_every_level(
    settings: LearningSettings, history: History, keys: tuple[str, ...], arm: str
) -> None:
    table = _played(settings, history)
    before = [table.views(one) for one in CHAINS]

    table.take(keys, arm)
    assert all(now.taken != then.taken for now, then in zip(table.views(keys), before[CHAINS.index(keys)], strict=True))
    table.take_back(keys, arm)

    assert [table.views(one) for one in CHAINS] == before


@pytest.mark.parametrize("settings", ESTIMATORS)
@given(history=HISTORY)
def test_level_of_a_chain_is_what_a_table_of_that_key_alone_would_be(
    settings: LearningSettings, history: History
) -> None:
    # Order matters within a key only: no level sees what another one holds.
    table = _played(settings, history)

    for level in range(3):
        alone = _played(settings, [(keys[level : level + 1], arm, target) for keys, arm, target in history])
        for keys in CHAINS:
            assert table.views(keys)[level] == alone.views(keys[level : level + 1])[0]


@given(history=HISTORY)
def test_mean_of_a_coarse_key_is_the_weighted_mean_of_its_finer_keys(history: History) -> None:
    table = _played(POOLED, history)

    for benchmark in ("x", "y"):
        finest = [table.views(keys)[0] for keys in CHAINS if keys[-1] == f"benchmark/1|benchmark={benchmark}"]
        coarse = table.views((f"benchmark/1|benchmark={benchmark}",))[0]
        for i in range(len(POOLED.action_ids)):
            assert coarse.taken[i] == sum(view.taken[i] for view in finest)
            assert coarse.credited[i] == sum(view.credited[i] for view in finest)
            if coarse.credited[i]:
                total = math.fsum(view.credited[i] * view.q[i] for view in finest if view.credited[i])
                assert coarse.q[i] == pytest.approx(total / coarse.credited[i], abs=1e-9)


@pytest.mark.parametrize("settings", ESTIMATORS)
@given(history=HISTORY, later=HISTORY)
def test_frozen_numbers_stay_as_they_were_imported(
    settings: LearningSettings, history: History, later: History
) -> None:
    source = _played(settings, history)
    frozen = QTable(dataclasses.replace(settings, frozen=True))
    frozen.load(source.dump()["keys"])

    for keys, arm, target in later:
        frozen.take(keys, arm)
        if target is None:
            frozen.take_back(keys, arm)
        else:
            frozen.credit(keys, arm, target)

    assert _text(frozen) == _text(source)


@pytest.mark.parametrize("settings", ESTIMATORS)
@given(history=HISTORY, later=HISTORY)
def test_imported_table_goes_on_bit_for_bit_like_its_source(
    settings: LearningSettings, history: History, later: History
) -> None:
    source, warm = _played(settings, history), QTable(settings)
    numbers = json.loads(_text(source))["keys"]
    transfer.check_numbers(settings, numbers)

    warm.load(numbers)
    assert _text(warm) == _text(source)
    for table in (source, warm):
        for keys, arm, target in later:
            table.take(keys, arm)
            if target is not None:
                table.credit(keys, arm, target)

    assert _text(warm) == _text(source)


@pytest.mark.parametrize("settings", ESTIMATORS)
@given(history=HISTORY, cap=st.integers(1, 5))
def test_capped_numbers_are_possible_and_never_count_more(
    settings: LearningSettings, history: History, cap: int
) -> None:
    table = _played(settings, history)

    kept = transfer.capped(table.dump()["keys"], cap, count_cap=settings.count_cap)

    transfer.check_numbers(settings, kept)
    assert transfer.capped(kept, cap, count_cap=settings.count_cap) == kept
    warm = QTable(settings)
    warm.load(kept)
    for keys in CHAINS:
        for now, then in zip(warm.views(keys), table.views(keys), strict=True):
            assert now.credited == now.taken == tuple(min(n, cap) for n in then.credited)
            assert now.q == tuple(
                q if n else prior for q, n, prior in zip(then.q, then.credited, then.priors, strict=True)
            )
