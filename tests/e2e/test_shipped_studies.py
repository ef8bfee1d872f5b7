"""Each shipped study runs, in its smallest form, and prints what it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.shell import memcon

STUDIES = Path(__file__).resolve().parents[2] / "configs" / "studies"


@pytest.mark.parametrize("config", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_study_runs_with_a_limit(config: Path, tmp_path: Path) -> None:
    small = (
        "--local",
        "--limit",
        "1",
        f"root={tmp_path}",
        "study.streams=1",
        "study.groups=[1]",
        "tracking.enabled=false",
    )

    ran = memcon("study", "run", str(config), *small)

    assert (ran.code, ran.err) == (0, "")
    assert f"Run {config.stem}: " in ran.out
    assert ", 0 not evaluable" in ran.out
