"""A report names the models that answered, and says where one cell heard several of them (HX-3)."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from memcon_platform.report import ReportData, build, html, terminal
from memcon_platform.report.json_form import to_json
from support.episodes import FakeCell, write_run

DATED = "gpt-4.1-mini-2025-04-14"


def printed(data: ReportData) -> str:
    shown = io.StringIO()
    Console(file=shown, width=80).print(terminal.render(data))
    return " ".join(shown.getvalue().split())


def report_of(folder: Path, *models: tuple[str, ...], backbone: str = "openai") -> ReportData:
    """A run with a cell for each of `models`, in seeds 0, 1, ..."""
    cells = [FakeCell(num_tasks=4, backbone=backbone, seed=seed, models=found) for seed, found in enumerate(models)]
    return build(write_run(folder, cells))


def test_the_ids_are_named_in_every_form(tmp_path: Path) -> None:
    data = report_of(tmp_path / "run", (DATED,), (DATED,))

    assert [cell["model_ids"] for cell in to_json(data)["cells"]] == [[DATED], [DATED]]
    assert f"Model ids that the provider reported: {DATED}." in printed(data)
    row = f'<th scope="row">model ids reported, openai</th><td class="text wrap"><code>{DATED}</code></td>'
    assert row in html.render(data)
    assert not any("model answered" in note for note in data.disclosures)


def test_each_backbone_is_told_with_its_own_ids(tmp_path: Path) -> None:
    cells = [
        FakeCell(num_tasks=4, backbone="openai", models=(DATED,)),
        FakeCell(num_tasks=4, backbone="local", models=("qwen", "qwen-b")),
        FakeCell(num_tasks=4, backbone="silent"),
    ]

    data = build(write_run(tmp_path / "run", cells))

    assert data.model_ids == {"openai": (DATED,), "local": ("qwen", "qwen-b")}
    assert f"Model ids that the provider reported: openai: {DATED}; local: qwen, qwen-b." in printed(data)
    assert "model ids reported, silent" not in html.render(data)


def test_a_cell_that_several_models_answered_is_disclosed(tmp_path: Path) -> None:
    data = report_of(tmp_path / "run", (DATED, "gpt-4.1-mini-2025-09-01"), (DATED,))

    (told,) = [note for note in data.disclosures if "model answered" in note]
    assert told == (
        "Backbone 'openai': more than one model answered inside 1 of 2 cells (metagpt ucb, seed 0: "
        f"{DATED}, gpt-4.1-mini-2025-09-01); the numbers of such a cell are those of a mixture."
    )
    assert told in printed(data)
    assert told in html.render(data).replace("&#39;", "'")
    assert told in to_json(data)["disclosures"]


def test_many_such_cells_are_counted(tmp_path: Path) -> None:
    data = report_of(tmp_path / "run", *[("a", "b")] * 5)

    (told,) = [note for note in data.disclosures if "model answered" in note]
    assert "inside 5 of 5 cells" in told
    assert told.count("a, b") == 3
    assert "; and 2 more)" in told


def test_cells_that_different_models_answered_are_disclosed(tmp_path: Path) -> None:
    data = report_of(tmp_path / "run", ("a",), ("b",))

    (told,) = [note for note in data.disclosures if "same model" in note]
    assert told == (
        "Backbone 'openai': not every cell was answered by the same model (a, b); rows of it differ in the model too."
    )


def test_a_run_that_kept_no_ids_says_nothing_of_them(tmp_path: Path) -> None:
    data = report_of(tmp_path / "run", ())

    assert data.model_ids == {}
    assert "Model ids" not in printed(data)
    assert "model ids reported" not in html.render(data)
