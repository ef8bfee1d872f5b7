"""An outcome matrix from a real sweep: what is read is what was played, and stopping and resuming changes no number."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from rich.console import Console

from memcon.errors import NotFoundError
from memcon.learning.credit import RewardSettings
from memcon_platform.config.plan import RunPlan
from memcon_platform.study import reading
from memcon_platform.study.exact_replay import replay
from memcon_platform.study.findings import findings
from memcon_platform.study.matrix import OutcomeMatrix
from memcon_platform.study.matrix_plan import Study, study_of
from memcon_platform.study.reading import read_matrix
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_platform.trajectory import RunTables, read_run
from memcon_workers.spec import TaskEnded

CONFIG = """
run: tiny
axes:
  benchmark: [{name: mix, num_tasks: 8, parts: [{name: household, weight: 0.5}, {name: audit, weight: 0.5}]}]
  framework: [{name: lobster, history_window: all, few_shot: 0, list_actions: true, loop_stop: false}]
  backbone: [imitator]
  memory: [metagpt]
  policy: [ucb, {name: ucb, reward: {efficiency_weight: 1.0}}]
  seed: [0, 1]
embedder: hashing
tracking: {enabled: false}
workers: 1
streams_per_worker: 1
study: {streams: 2, groups: [1, 2, 9]}
control: {unsupported_arms: mask}
"""


class _Observer:
    """Counts ended tasks, and asks for a stop after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self._left = stop_after

    def task_ended(self, _task: TaskEnded) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                signal.raise_signal(signal.SIGINT)

    def cell_ended(self, _cell: str) -> None:
        return


def played(plan: RunPlan, stop_after: int | None = None) -> bool:
    """Launch the plan in this process; whether it ran to its end."""
    observer = _Observer(stop_after)
    how = Launch(open_pool=open_local, observe=lambda _plan, _resumed: observer, console=Console(quiet=True))
    _, end = asyncio.run(launch(plan, how))
    assert not end.failures
    return not end.stopped


def asked(root: Path) -> Study:
    config = root / "tiny.yaml"
    config.write_text(CONFIG)
    return study_of(config, [f"root={root / 'runs'}"])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = asked(tmp_path_factory.mktemp("study"))
    assert played(study.plan)
    return study


@pytest.fixture(scope="module")
def matrix(study: Study) -> OutcomeMatrix:
    (arena,) = study.arenas
    return read_matrix(study.plan.run_dir, arena.cells)


def test_the_matrix_has_every_arm_of_every_task_of_every_stream(matrix: OutcomeMatrix) -> None:
    assert matrix.success.shape == (4, 8, 9)
    assert matrix.units == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert matrix.families == ("audit", "household")
    assert (matrix.task_number == np.arange(1, 9)).all()
    assert not np.isnan(matrix.success).any()
    # Household has a step budget, a one-shot question has none.
    assert (matrix.has_step_budget == (matrix.benchmark == "household")).all()
    assert matrix.setup


def test_arms_that_are_the_same_on_one_task_have_the_same_outcome(matrix: OutcomeMatrix) -> None:
    noop, consolidate = matrix.arm("noop"), matrix.arm("consolidate")
    assert (matrix.success[:, :, noop] == matrix.success[:, :, consolidate]).all()
    assert (matrix.tokens[:, :, noop] == 0).all()
    # The first task of a stream meets an empty memory.
    assert (matrix.success[:, 0].max(axis=1) == matrix.success[:, 0].min(axis=1)).all()
    assert (matrix.memory_size[:, 0] == 0).all()
    assert (matrix.memory_size[:, 7] == 7).all()


def test_policies_that_mask_what_the_memory_lacks_are_replayed_without_it(study: Study, matrix: OutcomeMatrix) -> None:
    assert matrix.unsupported == {"consolidate", "forget"}
    (arena,) = study.arenas
    found = replay(matrix, arena.learners[0], group=4)
    chosen = {matrix.action_ids[arm] for arm in np.unique(found.picks)}
    assert len(chosen) > 3
    assert not chosen & matrix.unsupported


def test_a_task_that_failed_takes_no_mark_from_an_arm(
    study: Study, matrix: OutcomeMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a task of which nothing could be evaluated, so that its trials are not marked either.
    def with_a_failure(*args: Any, **options: Any) -> RunTables:
        tables = read_run(*args, **options)
        rows = [
            {**row, "outcome_class": "unevaluable", "degraded": ""}
            if (row["stream"], row["ordinal"]) == (1, 2)
            else row
            for row in tables.trials.to_pylist()
        ]
        return dataclasses.replace(tables, trials=pa.Table.from_pylist(rows, schema=tables.trials.schema))

    monkeypatch.setattr(reading, "read_run", with_a_failure)
    (arena,) = study.arenas
    found = read_matrix(study.plan.run_dir, arena.cells)
    assert int(np.isnan(found.success).any(axis=2).sum()) == 2
    assert found.unsupported == matrix.unsupported


def test_all_streams_have_the_same_tasks_in_orders_of_their_own(study: Study, matrix: OutcomeMatrix) -> None:
    assert len(matrix.task_ids) == 8
    assert (np.sort(matrix.task, axis=1) == np.arange(8)).all()
    assert len({tuple(row) for row in matrix.task.tolist()}) > 1
    rows = {cell.cell_id: i * 2 for i, cell in enumerate(study.arenas[0].cells)}
    for episode in read_run(study.plan.run_dir, tables=("episodes",)).episodes.to_pylist():
        place = rows[episode["cell"]] + episode["stream"], episode["ordinal"]
        assert matrix.task_ids[matrix.task[place]] == episode["task_id"]


def test_rewards_are_those_of_the_sweep(study: Study, matrix: OutcomeMatrix) -> None:
    trials = read_run(study.plan.run_dir, tables=("trials",)).trials
    (arena,) = study.arenas
    rows = {cell.cell_id: i * 2 for i, cell in enumerate(arena.cells)}
    rewards = matrix.rewards(arena.cells[0].reward)
    assert trials.num_rows == matrix.success.size
    for trial in trials.to_pylist():
        place = rows[trial["cell"]] + trial["stream"], trial["ordinal"], matrix.arm(trial["action_id"])
        assert rewards[place] == trial["reward"]


def test_the_episode_of_a_task_is_one_of_its_trials(study: Study, matrix: OutcomeMatrix) -> None:
    tables = read_run(study.plan.run_dir, tables=("decisions",))
    arms = {(d["cell"], d["stream"], d["ordinal"]): d["action_id"] for d in tables.decisions.to_pylist()}
    (arena,) = study.arenas
    rows = {cell.cell_id: i * 2 for i, cell in enumerate(arena.cells)}
    assert len(arms) == 32
    assert len(set(arms.values())) > 3
    for episode in tables.episodes.to_pylist():
        arm = matrix.arm(arms[episode["cell"], episode["stream"], episode["ordinal"]])
        place = rows[episode["cell"]] + episode["stream"], episode["ordinal"], arm
        assert matrix.success[place] == episode["success"]
        assert matrix.num_steps[place] == episode["num_steps"]


def test_findings_have_a_row_for_each_learner_and_group(study: Study, matrix: OutcomeMatrix) -> None:
    (arena,) = study.arenas
    found = findings(matrix, arena, study.groups, RewardSettings())
    assert [(result.policy, result.group, result.tables) for result in found.learners] == [
        ("ucb", 1, 4),
        ("ucb reward.efficiency_weight=1.0", 1, 4),
        ("ucb", 2, 2),
        ("ucb reward.efficiency_weight=1.0", 2, 2),
    ]
    assert "9 streams a table: not replayed" in found.notes[0]
    # The paper's key: eight tasks of a stream are all first visits.
    assert found.learners[0].forced_share == 1.0


def test_stopping_and_resuming_changes_no_number(study: Study, matrix: OutcomeMatrix, tmp_path: Path) -> None:
    again = asked(tmp_path)
    (arena,) = again.arenas
    assert not played(again.plan, stop_after=5)
    with pytest.raises(NotFoundError, match=r"lacks 2\d of 32 tasks"):
        read_matrix(again.plan.run_dir, arena.cells)
    assert played(again.plan)
    resumed = read_matrix(again.plan.run_dir, arena.cells)
    assert (resumed.success == matrix.success).all()
    assert (resumed.tokens == matrix.tokens).all()
    for one, other in zip(arena.learners, study.arenas[0].learners, strict=True):
        assert (replay(resumed, one, group=2).picks == replay(matrix, other, group=2).picks).all()
