"""Properties of plans: identity follows content alone, files lose nothing, and no input gives a traceback."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from memcon.errors import ConfigError
from memcon_platform.config import RunPlan, load, read_plan, reconcile, write_plan
from support.config_plugins import GRID, toy_plugins

ENTRIES: dict[str, list[Any]] = {
    "benchmark": ["toy", {"name": "toy", "num_tasks": 4}],
    "framework": ["runner", {"name": "runner", "history_window": "all"}, {"name": "runner", "limits": {"thoughts": 1}}],
    "backbone": ["parrot", {"name": "parrot", "temperature": 0.5}],
    "memory": ["notes"],
    "policy": [
        "none",
        "uniform",
        "fixed:noop",
        "ucb",
        {"name": "ucb", "c": 0.3},
        {"name": "ucb", "control": {"plan_injection": False}},
    ],
    "seed": [0, 1, 2**63 - 1],
}
AXES = st.fixed_dictionaries(
    {
        axis: st.permutations(values).flatmap(lambda v: st.integers(1, len(v)).map(lambda n: v[:n]))
        for axis, values in ENTRIES.items()
    }
)
DOCUMENTS = st.fixed_dictionaries(
    {"axes": AXES},
    optional={
        "streams": st.integers(1, 4),
        "split": st.sampled_from(["replicate", "partition"]),
        "table_scope": st.sampled_from(["cell", "stream"]),
        "limit": st.integers(4, 9),
        "control": st.just({"decision_points": "every_step"}),
        "embedder": st.sampled_from(["wordllama", "hashing"]),
    },
)


@pytest.fixture(autouse=True, scope="module")
def _plugins() -> Iterator[None]:
    with toy_plugins():
        yield


def plan_of(document: dict[str, Any], *overrides: str) -> RunPlan:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trial.yaml"
        path.write_text(OmegaConf.to_yaml(OmegaConf.create(document)), encoding="utf-8")
        return load(path, overrides)


def ids_of(plan: RunPlan) -> set[str]:
    return {cell.cell_id for cell in plan.cells}


@given(DOCUMENTS)
@settings(max_examples=40, deadline=None)
def test_cells_are_distinct_and_as_many_as_the_product(document: dict[str, Any]) -> None:
    plan = plan_of(document)

    size = 1
    for values in document["axes"].values():
        size *= len(values)
    assert len(ids_of(plan)) == len(plan.cells) == size


@given(DOCUMENTS, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_ids_do_not_depend_on_the_order_of_keys_and_entries(document: dict[str, Any], shuffle: Any) -> None:
    axes = [(axis, shuffle.sample(values, len(values))) for axis, values in document["axes"].items()]
    shuffle.shuffle(axes)

    assert ids_of(plan_of(document)) == ids_of(plan_of({**document, "axes": dict(axes)}))


@given(DOCUMENTS)
@settings(max_examples=30, deadline=None)
def test_defaults_spelt_out_change_no_id(document: dict[str, Any]) -> None:
    spelt = {
        "streams": 1,
        "split": "replicate",
        "table_scope": "cell",
        "embedder": "wordllama",
        "control": {},
        "limit": None,
    }
    spelt |= {"reward": {"failure_penalty": 0.5}, "workers": 7, "streams_per_worker": 2, "run": "other"}

    assert ids_of(plan_of(document)) == ids_of(plan_of({**spelt, **document}))


@given(DOCUMENTS)
@settings(max_examples=30, deadline=None)
def test_plans_survive_their_file_and_continue(document: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_of({**document, "root": folder})
        write_plan(plan.run_dir, plan, wall_time_s=0.0)

        assert read_plan(plan.run_dir) == plan
        assert reconcile(read_plan(plan.run_dir), plan) == plan


KEYS = [
    "axes",
    "axes.policy",
    "axes.policy.0",
    "axes.seed",
    "axes.framework.0.limits",
    "include",
    "include.0",
    "exclude",
    "control",
    "control.explain",
    "reward.failure_penalty",
    "streams",
    "split",
    "table_scope",
    "limit",
    "run",
    "root",
    "workers",
    "policy_server",
    "policy_server.shards",
    "tracking.uri",
    "embedder",
    "nonsense",
]
VALUES = [
    "[ucb]",
    "[{name: ucb}]",
    "{name: ucb, c: .nan}",
    "[[1]]",
    "{a: {b: 1}}",
    "-1",
    ".inf",
    "1e400",
    "~",
    "true",
    "${run}",
    "${",
    "???",
    "fixed:",
    ":",
    "[fixed:a:b]",
    "{1: 2}",
    "2020-01-01",
    "!!x y",
    "&a [*a]",
    "&a {b: *a}",
    "${limit}",
    "${oc.env:HOME}",
    "{name: {a: 1}}",
    "[none, ~]",
    "''",
    "[[[[]]]]",
    "%",
    "@",
    "`",
]


@given(
    st.lists(
        st.tuples(st.sampled_from(KEYS), st.one_of(st.text(max_size=12), st.sampled_from(VALUES))),
        min_size=1,
        max_size=3,
    )
)
@settings(max_examples=300, deadline=None)
def test_no_override_gives_anything_but_a_plan_or_one_clear_line(overrides: list[tuple[str, str]]) -> None:
    try:
        plan = plan_of({"axes": GRID}, *(f"{key}={value}" for key, value in overrides))
    except ConfigError:
        return
    assert plan.cells
