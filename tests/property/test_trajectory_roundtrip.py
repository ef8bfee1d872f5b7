"""Any text and any finite numbers survive the round trip through Parquet; a rewrite changes nothing."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memcon.types import OutcomeClass, Trial
from memcon_platform.trajectory import ParquetSink, compare, read_run
from support.episodes import FakeCell, make_decision, stream_episodes

CELL = FakeCell(num_tasks=3)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NUMBER = st.floats(allow_nan=False)
COUNT = st.integers(0, 2**31 - 1)
TRIAL = st.builds(
    Trial,
    action_id=TEXT,
    outcome_class=st.sampled_from(OutcomeClass),
    score=NUMBER,
    num_steps=COUNT,
    reward=st.none() | NUMBER,
    tokens_injected=COUNT,
    tokens_agent_prompt=COUNT,
    degraded=TEXT,
)


def _trial(row: dict[str, Any]) -> Trial:
    assert row["success"] == (row["outcome_class"] == "success")
    fields = {field.name: row[field.name] for field in dataclasses.fields(Trial)}
    return Trial(**{**fields, "outcome_class": OutcomeClass(row["outcome_class"])})


@settings(max_examples=30, deadline=None)
@given(
    goal=TEXT,
    error=TEXT,
    reward=st.none() | NUMBER,
    arms=st.dictionaries(TEXT, st.dictionaries(TEXT, NUMBER)),
    maintenance=st.dictionaries(TEXT, TEXT),
    trials=st.lists(TRIAL, max_size=4),
)
def test_what_is_written_is_read(
    goal: str,
    error: str,
    reward: float | None,
    arms: dict[str, dict[str, float]],
    maintenance: dict[str, str],
    trials: list[Trial],
) -> None:
    episode = stream_episodes(CELL, count=1)[0]
    episode = dataclasses.replace(
        episode,
        task=dataclasses.replace(episode.task, goal=goal),
        outcome=dataclasses.replace(episode.outcome, error=error),
        decisions=(make_decision(per_arm=arms, propensity=None),),
        reward=reward,
        maintenance=maintenance,
        trials=tuple(trials),
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a", "b"):
            ParquetSink(Path(folder) / name).write_block(CELL.cell_id, 0, 0, [episode])

        tables = read_run(Path(folder) / "a", tables=("decisions", "trials"))
        row = tables.episodes.to_pylist()[0]
        found = tables.decisions.to_pylist()[0]["per_arm"]

        assert (row["goal"], row["error"], row["reward"]) == (goal, error, reward)
        assert {arm: dict(values) for arm, values in found} == arms
        assert (dict(row["maintenance"]), row["num_trials"]) == (maintenance, len(trials))
        assert [_trial(row) for row in tables.trials.to_pylist()] == trials
        assert compare(Path(folder) / "a", Path(folder) / "b") == []
