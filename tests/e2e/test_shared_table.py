"""64 streams on one table: no task lost or doubled, and the table decides as if it had been asked one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from memcon.learning.events import Credited, Decided
from memcon_platform.trajectory import read_run
from support.journals import events_of
from support.sweeps import Sweep, record

STREAMS, TASKS = 64, 2
SETTINGS = (
    *(f"streams={STREAMS}", f"limit={TASKS}", "policy_server.shards=2", "streams_per_worker=32"),
    # Few keys: many streams meet at each.
    "axes.policy=[{name: ucb, state_key: goal_plan}]",
)


@pytest.mark.parametrize(
    "how", [("--local",), pytest.param(("workers=2",), marks=[pytest.mark.ray, pytest.mark.timeout(180)])]
)
def test_64_streams_share_one_table(tmp_path: Path, how: tuple[str, ...]) -> None:
    sweep = Sweep(tmp_path, "shared", *SETTINGS)

    sweep.finish(*how)

    run = read_run(sweep.run_dir)
    places = Counter(zip(run.episodes["stream"].to_pylist(), run.episodes["ordinal"].to_pylist(), strict=True))
    assert places == Counter((stream, ordinal) for stream in range(STREAMS) for ordinal in range(TASKS))
    assert set(run.episodes["outcome_class"].to_pylist()) <= {"success", "failure", "truncated"}
    events = events_of(sweep.run_dir / "policy", num_shards=2)
    first_arms: defaultdict[str, list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event, Decided):
            first_arms[event.keys[0]].append(event.action_id)
    crowded = {key: arms for key, arms in first_arms.items() if len(arms) >= 9}
    assert len(crowded) >= 2
    for key, arms in crowded.items():
        assert len(set(arms[:9])) == 9, key
    decided = [event.decision_id for event in events if isinstance(event, Decided)]
    credited = [event.decision_id for event in events if isinstance(event, Credited)]
    assert len(set(decided)) == len(decided) == len(credited)
    assert set(credited) == set(decided) == set(run.decisions["decision_id"].to_pylist())
    assert record("replay", "verify", sweep.run_dir)["ok"]
