"""The HTML form: one self-contained file, no scripts, readable in light and dark and without its drawings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from memcon.files import replace_file
from memcon_platform.report import drawing, wording
from memcon_platform.report.comparisons import Comparison, comparisons
from memcon_platform.report.conventions import LEARNED_FROM
from memcon_platform.report.data import GroupResult, ReportData, Section
from memcon_platform.report.grouping import LEARNED, NO_MEMORY
from memcon_platform.report.html_learning import CONTEXTS, Learning, Split, learning, splits
from memcon_platform.report.statistics import Interval

__all__ = ["render", "write"]

# Colours of CSS classes f0..f9 and l0..l9, and line patterns p0..p2.
_COLOURS = 10
_PATTERNS = 3
# Colour of rows without memory.
_GREY = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """A section with its drawings; keys and bars by the id of a group's first cell."""

    section: Section
    # The sign of each row in legends.
    keys: Mapping[str, Markup]
    bars: Mapping[str, Markup]
    compared: tuple[Comparison, ...]
    footnotes: tuple[str, ...]
    forest: Markup | None
    curves: Markup
    arms: Markup | None
    arm_legend: tuple[tuple[str, int], ...]
    scatter: Markup
    # Headroom in words, what was chosen, and whether learning can show.
    headrooms: tuple[tuple[str, str, bool], ...]
    # ("Success by goal type", value -> its column head, ...): what success is told apart by.
    splits: tuple[Split, ...]
    learning: Learning | None


def write(data: ReportData, path: Path) -> Path:
    """Write the report to `path` and return it; an earlier one is replaced whole.

    Raises:
        StorageError: the place cannot be written.
    """
    replace_file(path, render(data))
    return path


def render(data: ReportData) -> str:
    """The HTML text of the report; equal data give equal text."""
    # Templates are escaped by default: labels come from configs, error texts from plug-ins.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("memcon_platform.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    template = environment.get_template("report.html.j2")
    return template.render(
        data=data,
        say=wording,
        sections=[_drawn(section) for section in data.sections],
        provenance=[(key, _text(value)) for key, value in _origins(data)],
        keys={name: drawing.forest_key(name) for name in ("thick", "thin")},
        learned=LEARNED,
        no_memory=NO_MEMORY,
        learned_from=LEARNED_FROM,
        max_contexts=CONTEXTS,
        planned=sum(cell.planned for cell in data.cells),
        found=sum(cell.found for cell in data.cells),
        done=sum(cell.status == "done" for cell in data.cells),
    )


def _drawn(section: Section) -> _Drawn:
    groups, compared = section.groups, comparisons(section)
    looks = _looks(groups)
    top = max((100 * g.success.interval.high for g in groups if g.success.interval), default=100.0) or 100.0
    lines = [_line(section.name(g), g, looks[g.cell_ids[0]]) for g in groups]
    return _Drawn(
        section=section,
        keys={cell_id: drawing.line_key(look) for cell_id, look in looks.items()},
        bars={g.cell_ids[0]: drawing.interval_bar(_bar(g), top) for g in groups if g.success.interval},
        compared=compared,
        footnotes=wording.footnotes(compared),
        forest=_forest(section, compared),
        curves=drawing.curves(lines, f"Success over the stream, {section.title}", x_label="share of the stream"),
        arms=_arms(section),
        arm_legend=tuple((action_id, _arm_colour(action_id)) for action_id in _arm_ids(groups)),
        scatter=_scatter(section, looks),
        headrooms=tuple(
            (wording.of_memory(section, found) + wording.headroom(found), wording.choices(found), found.is_enough)
            for found in section.headrooms
        ),
        splits=splits(groups),
        learning=learning(section, looks, _arm_colour),
    )


def _looks(groups: Sequence[GroupResult]) -> dict[str, drawing.Look]:
    """Look of each group by the id of its first cell; grey and dashes are kept for no memory."""
    with_memory = [group for group in groups if group.role != NO_MEMORY]
    looks = {
        group.cell_ids[0]: drawing.Look(colour=place % (_COLOURS - 1), pattern=place // (_COLOURS - 1) % _PATTERNS)
        for place, group in enumerate(with_memory)
    }
    grey = drawing.Look(colour=_GREY, dashed=True)
    return {group.cell_ids[0]: looks.get(group.cell_ids[0], grey) for group in groups}


def _bar(group: GroupResult) -> drawing.Bar:
    found = group.success
    low, high = (found.interval.low, found.interval.high) if found.interval else (0.0, 0.0)
    return drawing.Bar(
        label=group.label,
        value=100 * (found.rate or 0.0),
        low=100 * low,
        high=100 * high,
        strong=group.role == LEARNED,
    )


def _forest(section: Section, compared: Sequence[Comparison]) -> Markup | None:
    rows = [
        drawing.Difference(
            of=section.name(one.group),
            label=f"minus {one.subtrahend}",
            value=100 * one.difference.mean,
            thick=_percent_points(one.difference.interval_these_seeds),
            thin=_percent_points(one.difference.interval),
            strong=one.group.role == LEARNED,
        )
        for one in compared
        if one.difference
    ]
    return drawing.forest(rows, "Paired differences of success, percent points") if rows else None


def _percent_points(interval: Interval) -> tuple[float, float]:
    return 100 * interval.low, 100 * interval.high


def _line(name: str, group: GroupResult, look: drawing.Look) -> drawing.Line:
    points = tuple((p.position, None if p.rate is None else 100 * p.rate) for p in group.curve)
    return drawing.Line(
        label=name,
        points=points,
        look=look,
        strong=group.role == LEARNED,
    )


def _arm_ids(groups: Sequence[GroupResult]) -> list[str]:
    chosen = {arm.action_id for group in groups if group.decisions for arm in group.decisions.arms}
    return sorted(chosen, key=wording.arm_place)


def _arm_colour(action_id: str) -> int:
    return wording.arm_place(action_id)[0] % _COLOURS


def _arms(section: Section) -> Markup | None:
    rows = []
    for group in section.groups:
        if group.decisions is None:
            continue
        arms = sorted(group.decisions.arms, key=lambda arm: wording.arm_place(arm.action_id))
        segments = [
            drawing.Segment(label=arm.action_id, share=arm.share, colour=_arm_colour(arm.action_id)) for arm in arms
        ]
        rows.append((section.name(group), segments))
    return drawing.stacked(rows, "Share of decisions that each arm got") if rows else None


def _scatter(section: Section, looks: Mapping[str, drawing.Look]) -> Markup:
    points = []
    for group in section.groups:
        rate, interval = 100 * (group.success.rate or 0.0), group.success.interval
        low, high = _percent_points(interval) if interval else (rate, rate)
        points.append(
            drawing.Point(
                label=section.name(group),
                x=group.tokens.injected,
                y=rate,
                low=low,
                high=high,
                colour=looks[group.cell_ids[0]].colour,
                strong=group.role == LEARNED,
            )
        )
    title, x_label = "Success against injected tokens", "tokens a task that memory put into prompts"
    return drawing.scatter(points, title, x_label=x_label, y_label="success %")


def _origins(data: ReportData) -> list[tuple[str, Any]]:
    """What the numbers come from, by name: provenance of the run, each backbone as it was set, and its ids."""
    backbones = [(f"backbone {label}", settings) for label, known in data.backbones.items() for settings in known]
    answered = [(f"model ids reported, {label}", ", ".join(known)) for label, known in data.model_ids.items()]
    return [*data.provenance.items(), *backbones, *answered]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
