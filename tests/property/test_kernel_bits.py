"""The arithmetic of a row: the same bits in plain Python and compiled, and the choices of the general way."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcon.learning import kernel
from memcon.learning.exploration import FixedConfig, UcbConfig, UniformConfig, build_rule
from memcon.learning.exploration.bayes_ucb import BayesUcbConfig
from memcon.learning.exploration.greedy import EpsilonGreedyConfig, GreedyConfig
from memcon.learning.exploration.learned import LearnedConfig
from memcon.learning.exploration.quick import quick_rule
from memcon.learning.exploration.thompson import PooledConfig, ThompsonConfig
from memcon.learning.q_table import QTable
from memcon.policy_types import LearningSettings

ARMS = ("retrieve_shallow", "retrieve_medium", "plan_inject", "noop", "forget")
KEYS = ("a", "b", "c")
# (key, arm, returns in order; None = taken back), few distinct values, so that exact ties do occur.
STEPS = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from(ARMS),
    st.sampled_from((-0.5, 1.0, 1.15)) | st.floats(-1e6, 1e6) | st.none(),
    st.booleans(),
)
HISTORY = st.lists(STEPS, max_size=80)
ALLOWED = st.lists(st.sampled_from(ARMS), min_size=1, unique=True).map(
    lambda asked: tuple(arm for arm in ARMS if arm in asked)
)
DRAW = st.integers(0, 2**64 - 1)


def _settings(config: LearnedConfig, **changed: object) -> LearningSettings:
    own = dataclasses.replace(config.learning_settings(), action_ids=ARMS, priors=(0.5, 0.5, 0.3, -0.2, -0.1))
    return dataclasses.replace(own, **changed)  # type: ignore[arg-type]


QUICK = [
    _settings(UcbConfig()),
    _settings(UcbConfig(c=0.0, warm_start=False), priors=(0.0,) * 5),
    _settings(UcbConfig(estimator="mean")),
    _settings(UcbConfig(exploration_floor=0.3)),
    _settings(UcbConfig(), frozen=True),
    _settings(GreedyConfig()),
    _settings(GreedyConfig(estimator="mean", prior_strength=2.0)),
    _settings(GreedyConfig(estimator="capped_mean", count_cap=3, prior_strength=1.5)),
    _settings(EpsilonGreedyConfig(epsilon=0.5, exploration_floor=0.2)),
]
GENERAL = [
    _settings(FixedConfig(action_id="noop")),
    _settings(UniformConfig()),
    _settings(BayesUcbConfig()),
    _settings(ThompsonConfig()),
    _settings(PooledConfig()),
    _settings(GreedyConfig(estimator="mean", state_key="benchmark+goal_type", pooling=("benchmark",))),
]
COMPILED = pytest.param(kernel.compiled, id="compiled")
FORMS = [pytest.param(kernel.plain, id="plain"), COMPILED]


def _form(make: Callable[[], kernel.Kernels | None]) -> kernel.Kernels:
    form = make()
    if form is None:
        pytest.skip("numba is not installed; run: pip install 'memcon[fast]'")
    return form


def _played(
    settings: LearningSettings, history: list[tuple[str, str, float | None, bool]], form: kernel.Kernels
) -> QTable:
    # Whatever the rule makes of a frozen table, it has learned before.
    table = QTable(dataclasses.replace(settings, frozen=False), kernels=form)
    for key, arm, target, ends in history:
        table.take((key,), arm)
        if not ends:
            continue
        if target is None:
            table.take_back((key,), arm)
        else:
            table.credit((key,), arm, target)
    return table


def test_compiled_arithmetic_is_there_where_the_extra_is() -> None:
    assert _form(kernel.compiled).is_compiled
    assert kernel.kernels() is kernel.compiled()


@pytest.mark.parametrize("settings", QUICK)
@given(history=HISTORY, allowed=ALLOWED)
def test_compiled_and_plain_tables_have_the_same_bits_and_the_same_best_arms(
    settings: LearningSettings, history: list[tuple[str, str, float | None, bool]], allowed: tuple[str, ...]
) -> None:
    plain, compiled = (_played(settings, history, _form(form)) for form in (kernel.plain, kernel.compiled))

    assert plain.state() == compiled.state()
    mask = sum(1 << ARMS.index(arm) for arm in allowed)
    rule = build_rule(settings)
    while not hasattr(rule, "at_one_key"):
        rule = rule.rule  # type: ignore[attr-defined]
    selection = rule.at_one_key()
    for key in (*KEYS, "never met"):
        found = [
            table.select(selection)(
                table.shared, table.starts.get(key, 0), len(ARMS), mask, selection.first, selection.second
            )
            for table in (plain, compiled)
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize("settings", QUICK)
@pytest.mark.parametrize("form", FORMS)
@given(history=HISTORY, allowed=ALLOWED, draw=DRAW)
def test_the_quick_way_chooses_as_the_rule_does(
    settings: LearningSettings,
    form: Callable[[], kernel.Kernels | None],
    history: list[tuple[str, str, float | None, bool]],
    allowed: tuple[str, ...],
    draw: int,
) -> None:
    table, rule = _played(settings, history, _form(form)), build_rule(settings)
    quick = quick_rule(rule, settings, table)
    assert quick is not None

    for key in (*KEYS, "never met"):
        for arms in (settings.action_ids, allowed):
            general = rule.choose(table.views((key,)), allowed=arms, draw=draw)
            assert quick.choose(key, arms, draw)[0] == dataclasses.replace(general, columns={})
            assert quick.choose_from(table.rows((key,)), arms, draw) == dataclasses.replace(general, columns={})


@pytest.mark.parametrize("settings", GENERAL, ids=lambda settings: settings.rule)
def test_rules_of_chains_and_samples_have_no_quick_way(settings: LearningSettings) -> None:
    assert quick_rule(build_rule(settings), settings, QTable(settings)) is None


def test_more_arms_than_a_mask_has_bits_go_the_general_way() -> None:
    arms = tuple(f"arm {i}" for i in range(kernel.MOST_ARMS + 1))
    most, more = (
        dataclasses.replace(UcbConfig().learning_settings(), action_ids=some, priors=(0.0,) * len(some))
        for some in (arms[:-1], arms)
    )
    table = QTable(most)
    quick = quick_rule(build_rule(most), most, table)
    assert quick is not None
    for arm in arms[:-2]:
        table.take(("k",), arm)
    assert quick.choose("k", arms[:-1], 0)[0].action_id == arms[-2]
    assert quick_rule(build_rule(more), more, QTable(more)) is None


@pytest.mark.parametrize("form", FORMS)
def test_a_table_that_grows_keeps_its_numbers(form: Callable[[], kernel.Kernels | None]) -> None:
    settings = _settings(UcbConfig())
    table = QTable(settings, kernels=_form(form))
    quick = quick_rule(build_rule(settings), settings, table)
    assert quick is not None
    for number in range(1_000):
        table.take((f"key {number}",), ARMS[number % 5])
        table.credit((f"key {number}",), ARMS[number % 5], float(number))

    for number in range(1_000):
        view = table.views((f"key {number}",))[0]
        expected = tuple(
            prior + 0.15 * (number - prior) if i == number % 5 else prior for i, prior in enumerate(settings.priors)
        )
        assert view.q == expected
        assert sum(view.taken) == sum(view.credited) == 1
        # The first arm by prior that was not visited: the selection reads the grown cells.
        assert quick.choose(f"key {number}", ARMS, 0)[0].action_id == ARMS[1 if number % 5 == 0 else 0]
    assert len(table) == 1_000


@pytest.mark.parametrize("rest", [0, 1, 63, 64, 65, 400])
def test_a_state_is_the_table(rest: int) -> None:
    settings = _settings(UcbConfig(estimator="mean"))
    table, again = QTable(settings), QTable(settings)
    quick = quick_rule(build_rule(settings), settings, again)
    assert quick is not None
    for number in range(rest):
        table.take((f"{number}",), "noop")
        table.credit((f"{number}",), "noop", number / 7)

    again.load_state(table.state())

    assert again.dump() == table.dump()
    assert list(again.starts) == list(table.starts)
    # Both go on alike, and a rule that was built before sees the loaded keys.
    for one in (table, again):
        one.take(("new",), "noop")
        one.take(("0",), "forget")
    assert again.state() == table.state()
    assert quick.choose("0", ("noop", "forget"), 0)[0].forced == (rest == 0)


def test_the_logarithm_of_a_count_is_the_same() -> None:
    # The one function of a row that no standard fixes to the last bit.
    numba = pytest.importorskip("numba")
    log = numba.njit("float64(float64)")(lambda n: math.log(n))  # noqa: PLW0108 - a Python function to compile

    assert all(log(float(n)) == math.log(n) for n in (*range(1, 20_000), 10**6, 10**9 + 7, 2**53 - 1))


@pytest.mark.parametrize(
    "trouble",
    [
        RuntimeError("cannot cache function 'ucb': no locator available for file 'kernel.py'"),
        OSError(28, "No space left on device"),
        EOFError("Ran out of input"),
    ],
    ids=["nowhere to write", "full disk", "torn file"],
)
def test_without_a_cache_that_can_be_used_numba_compiles_in_memory(
    trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    class Numba:
        @staticmethod
        def njit(_signature: str, *, cache: bool = False) -> Callable[[object], object]:
            asked.append(cache)
            if cache:
                raise trouble
            return lambda function: SimpleNamespace(get_overload=lambda _signature: function)

    monkeypatch.setitem(sys.modules, "numba", Numba)
    found = kernel.compiled.__wrapped__()

    assert found is not None
    assert found.credit is kernel.credit
    assert asked == [True, False] * 4


def test_without_numba_the_plain_functions_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert kernel.compiled.__wrapped__() is None


def test_a_numba_that_does_not_work_is_named_and_the_plain_functions_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Numba:
        @staticmethod
        def njit(_signature: str, *, cache: bool = False) -> Callable[[object], object]:
            raise OSError(f"its compiler does not load (cache={cache})")

    monkeypatch.setitem(sys.modules, "numba", Numba)
    assert kernel.compiled.__wrapped__() is None
    assert caplog.messages == ["kernel.not_compiled"]


def test_importing_the_library_loads_no_compiler() -> None:
    script = "import sys, memcon.learning.shard, memcon.learning.kernel; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
