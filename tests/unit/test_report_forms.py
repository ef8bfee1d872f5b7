"""The terminal and the HTML form."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from memcon.errors import StorageError
from memcon_platform.report import ReportData, axes, build, drawing, html, terminal, wording
from memcon_platform.report.comparisons import comparisons
from support.episodes import FakeCell, demo_cells, write_plan, write_run, write_stream

VOID = {"meta", "line", "rect", "circle", "polyline", "br"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    return build(write_run(tmp_path_factory.mktemp("runs") / "demo", demo_cells(16, (0, 1))))


def _printed(data: ReportData, width: int) -> str:
    out = StringIO()
    Console(file=out, width=width, no_color=True).print(terminal.render(data))
    return out.getvalue()


class _Tags(HTMLParser):
    """Fails on tags that do not nest; keeps attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_terminal_form_fits_its_width_and_cuts_no_number(data: ReportData, width: int) -> None:
    text = _printed(data, width)

    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text


def test_rows_are_single_lines_at_80_columns(data: ReportData) -> None:
    lines = [line.rstrip() for line in _printed(data, 80).splitlines()]

    for name in ("no memory", "fixed:retrieve_shallow", "fixed:retrieve_deep", "uniform", "ucb"):
        rows = [line for line in lines if re.match(rf"{re.escape(name)}  +\S", line)]
        # Once for success, once for cost.
        assert len(rows) >= 2, name
    assert any(re.search(r"fixed:\w+ +best ", line) for line in lines)
    assert any(re.search(r"uniform +random ", line) for line in lines)
    # Streams have a column of their own where rows differ in them, and tags letters.
    assert any(re.match(r"ucb, 1 table +learned S +4 ", line) for line in lines)
    assert any(line.startswith("S shared table: not the paper's protocol") for line in lines)


def test_rows_that_do_not_learn_have_a_line_each_against_no_memory(data: ReportData) -> None:
    lines = _printed(data, 80).splitlines()

    number, interval = r"[+-][\d.]+", r"\[.*?\]"
    for name in ("fixed:retrieve_shallow", "uniform"):
        told = [line for line in lines if re.match(rf"{name} +32 +{number}[* ] +{interval}.? +{number}[* ] +", line)]
        assert len(told) == 1, name
    assert not any(" last quarter" in line and "success minus no memory" in line for line in lines)


def test_a_learned_row_has_its_yardsticks_with_both_intervals_and_the_last_quarter(data: ReportData) -> None:
    text = "\n".join(line.rstrip() for line in _printed(data, 80).splitlines())

    block = re.search(r"^ucb minus\n(.*?)^ucb, 4 streams", text, re.MULTILINE | re.DOTALL)
    assert block
    numbers = r"\s+[\d,]+[† ] +[+-][\d.]+ +\[.*\] +\[.*\][‡ ]? +[+-][\d,]+"
    for other in (
        "no memory",
        "best static: plan_inject",
        "default static: retrieve_shallow",
        "random arm",
        "oracle, other seeds: goal type",
    ):
        told = other.replace(" ", r"\s+")
        assert re.search(rf"^{told}{numbers}\n  last quarter{numbers}", block[1], re.MULTILINE), other


def test_differences_over_a_part_of_the_tasks_and_over_one_stream_are_marked(data: ReportData) -> None:
    # Given 4 streams that share a table, of which no memory ran one.
    lines = [line.rstrip() for line in _printed(data, 80).splitlines()]

    first = lines.index("ucb, 4 streams, 1 table minus")
    marked = [line for line in lines[first:] if re.search(r" 16† ", line)]
    # No memory, best static, default static, random arm, oracle.
    assert len(marked) == 5
    for line in marked:
        found = re.search(r" 16† +[+-][\d.]+ +(\[.*?\]) +(\[.*?\])‡ +[+-][\d,]+$", line)
        assert found, line
        assert found[1] == found[2]
    text = " ".join(" ".join(lines).split())
    assert "† only the tasks that both rows ran." in text
    assert "‡ one stream only: both intervals are the same and say nothing about other seeds." in text


def test_a_last_quarter_without_a_pair_has_no_line(tmp_path: Path) -> None:
    # Given one task, which is in the first quarter of its stream.
    cells = [FakeCell(memory="empty", policy="none", num_tasks=1), FakeCell(num_tasks=1)]

    text = _printed(build(write_run(tmp_path / "run", cells)), 80)

    assert "ucb minus" in text
    assert "  last quarter" not in text


def test_a_run_of_whole_pairs_over_several_streams_has_no_marks(tmp_path: Path) -> None:
    cells = [FakeCell(memory="empty", policy="none", seed=seed) for seed in (0, 1)]
    cells += [FakeCell(seed=seed) for seed in (0, 1)]

    text = _printed(build(write_run(tmp_path / "run", cells)), 80)

    assert not {"†", "‡"} & set(text)
    assert "ucb minus" in text


def test_rows_that_end_alike_on_every_task_are_told_from_proof(tmp_path: Path) -> None:
    cells = [FakeCell(memory="empty", policy="none", success=(1.0, 1.0)), FakeCell(success=(1.0, 1.0))]

    text = _printed(build(write_run(tmp_path / "run", cells)), 80)

    assert "[0.0, 0.0]: no pair differs, those of other tasks may." in text


def test_the_plot_shows_both_intervals_of_each_difference(data: ReportData) -> None:
    text = html.render(data)

    section = data.sections[0]
    plot = re.search(r'<svg class="chart"[^>]*aria-label="Paired differences.*?</svg>', text)
    assert plot
    compared = comparisons(section)
    assert len(re.findall(r'<line class="thick ', plot[0])) == len(compared) == 14
    assert len(re.findall(r'<path class="whisker ', plot[0])) == len(compared)
    assert text.count(wording.THESE_SEEDS) == text.count('<svg class="key-line"') / 2
    assert text.count('<th scope="col">These seeds</th><th scope="col">Other seeds too</th>') == len(data.sections)
    for one in compared:
        assert one.difference
        for found in (one.difference, one.difference.last_quarter):
            assert f"<td>{wording.these_seeds(found)}</td><td>{wording.other_seeds(found)}" in text


def test_a_drawn_interval_ends_where_its_numbers_say() -> None:
    row = drawing.Difference(of="a", label="minus b", value=5.0, thick=(0.0, 10.0), thin=(-10.0, 20.0))

    text = drawing.forest([row], "title")

    # Ticks -10 .. 20 over pixels 290 .. 800.
    assert '<line class="thick plain" x1="460.0" y1="37.0" x2="630.0" y2="37.0"/>' in text
    assert 'd="M290.0 32.0v10M290.0 37.0H800.0M800.0 32.0v10"' in text


def test_several_memories_have_headings_of_their_own(tmp_path: Path) -> None:
    cells = [FakeCell(memory="empty", policy="none"), FakeCell(), FakeCell(memory="other")]

    lines = _printed(build(write_run(tmp_path / "run", cells)), 80).splitlines()

    lines = [line.rstrip() for line in lines]
    first = lines.index("metagpt")
    assert lines[first + 1].startswith("ucb ")
    assert lines[first + 2] == "other"


def test_colour_adds_nothing_but_colour(data: ReportData) -> None:
    out = StringIO()
    Console(file=out, width=80, force_terminal=True, color_system="standard").print(terminal.render(data))

    assert re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()) == _printed(data, 80)


def test_the_terminal_form_names_what_a_reader_must_know(data: ReportData) -> None:
    text = " ".join(_printed(data, 100).split())

    assert "Run demo: 19 of 19 cells done" in text
    assert "self-made tasks, backbone imitator" in text
    assert "not a language model" in text
    assert "reported, not arranged" in text
    assert "95 % bootstrap interval, 2,000 resamples" in text
    assert f"These seeds: for {wording.THESE_SEEDS}. Other seeds too, and success: for {wording.OTHER_SEEDS}." in text


def test_the_html_form_nests_and_needs_nothing_from_outside(data: ReportData) -> None:
    text = html.render(data)
    tags = _Tags()
    tags.feed(text)

    assert tags.open == []
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "link", "iframe", "img"}
    assert not [value for _, attributes in tags.seen for value in attributes.values() if value and "//" in value]
    assert "@import" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text


def test_tables_and_drawings_can_be_read_without_seeing_them(data: ReportData) -> None:
    text = html.render(data)
    tags = _Tags()
    tags.feed(text)

    tables = [tag for tag, _ in tags.seen if tag == "table"]
    captions = [tag for tag, _ in tags.seen if tag == "caption"]
    assert len(tables) == len(captions)
    assert all(attributes.get("scope") in {"col", "row"} for tag, attributes in tags.seen if tag == "th")
    drawings = [attributes for tag, attributes in tags.seen if tag == "svg"]
    assert all(found.get("aria-label") or found.get("aria-hidden") for found in drawings)


def test_names_from_configs_cannot_inject_markup(tmp_path: Path) -> None:
    evil = FakeCell(num_tasks=4, policy="<script>alert(1)</script>")
    text = html.render(build(write_run(tmp_path / "run", [evil])))

    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_equal_data_give_equal_html(data: ReportData) -> None:
    assert html.render(data) == html.render(data)
    assert not re.search(r"\bnan\b|\binf\b", html.render(data))


def test_what_numbers_are_no_evidence_of_comes_first_and_other_notes_below_the_first_table(data: ReportData) -> None:
    text = html.render(data)

    places = [
        text.index("not a language model"),
        text.index("<h2"),
        text.index("<caption"),
        text.index("The best static arm is chosen with hindsight"),
        text.index("<h3>Paired differences"),
    ]
    assert places == sorted(places)
    assert text.count("The best static arm is chosen with hindsight, after") == 1


def test_a_run_without_rows_still_has_its_notes(tmp_path: Path) -> None:
    text = html.render(build(write_run(tmp_path / "run", [FakeCell(policy="every_arm", num_tasks=4)])))

    assert "an outcome matrix, which stands in no row" in text


def test_an_unfinished_run_is_drawn(tmp_path: Path) -> None:
    cells = demo_cells(8, (0,))
    write_plan(tmp_path, cells)
    write_stream(tmp_path, cells[0], count=1)

    data = build(tmp_path)

    assert "The run is not finished" in html.render(data)
    assert "The run is not finished" in _printed(data, 100).replace("\n", " ")


def test_the_file_is_replaced_whole(data: ReportData, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.html"

    assert html.write(data, path) == path
    html.write(data, path)

    assert [item.name for item in path.parent.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_is_a_storage_error(data: ReportData, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match=r"cannot write .*report\.html"):
        html.write(data, tmp_path / "file" / "report.html")


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1e-9), (-3.2, 41), (0, 100), (-100, -1), (0, 123456)])
def test_axes_have_few_round_ticks_that_span_the_values(low: float, high: float) -> None:
    ticks = axes.ticks_of(min(low, 0), max(high, 0))

    assert ticks[0] <= low + 1e-9
    assert ticks[-1] >= high - 1e-9
    assert 2 <= len(ticks) <= 8
