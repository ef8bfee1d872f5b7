"""What the HTML form draws and tabulates of learned rows: gains, arms over time, contexts, heat maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from memcon_platform.report import drawing, heatmap, wording
from memcon_platform.report.data import GroupResult, Section
from memcon_platform.report.measures import ContextLevel, Gains, HeatMap, Success

__all__ = ["CONTEXTS", "LearnedRow", "Learning", "Split", "learning", "splits"]

# Contexts of one level that are shown; the JSON form has all.
CONTEXTS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Success of every row for each value of something."""

    title: str
    # Column heads, and of each row the success under each head.
    heads: tuple[str, ...]
    rows: tuple[tuple[GroupResult, tuple[Success | None, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRow:
    """A learned row with what is drawn of it."""

    group: GroupResult
    name: str
    gains: Gains | None
    levels: tuple[ContextLevel, ...]
    # Arms that were chosen in some context, in arm order.
    arms: tuple[str, ...]
    heat_map: HeatMap | None
    # None where no table was served.
    heat_drawing: Markup | None
    # Fields of the heat map have a bonus, or a shrunk mean.
    has_bonus: bool
    has_means: bool
    # Ends of the colour of the heat map.
    q_range: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """All learned rows of a section."""

    rows: tuple[LearnedRow, ...]
    # None where no row has a static arm beside it.
    gain_curves: Markup | None
    # Arm shares by quarter of the stream.
    arms_over_time: Markup | None


def learning(section: Section, looks: Mapping[str, drawing.Look], arm_colour: Callable[[str], int]) -> Learning | None:
    """What is told of the learned rows of a section; None without one.

    Args:
        section: rows that may be compared.
        looks: look of each row by the id of its first cell.
        arm_colour: colour of an arm.
    """
    if not section.learned:
        return None
    return Learning(
        rows=tuple(_row(section, group) for group in section.learned),
        gain_curves=_gain_curves(section, looks),
        arms_over_time=_arms_over_time(section, arm_colour),
    )


def splits(groups: Sequence[GroupResult]) -> tuple[Split, ...]:
    """Success by family and by pass over the task list, where there are several, and by goal type."""
    asked: list[tuple[str, str, Callable[[GroupResult], Mapping[str, Success]], int]] = [
        ("Success by family", "{}", lambda group: group.by_family, 2),
        ("Success by section of the stream", "pass {}", _by_section, 2),
        ("Success by goal type", "{}", lambda group: group.by_goal_type, 1),
    ]
    found = []
    for title, head, read, least in asked:
        values = sorted({value for group in groups for value in read(group)})
        if len(values) >= least:
            rows = tuple((group, tuple(read(group).get(value) for value in values)) for group in groups)
            found.append(Split(title=title, heads=tuple(head.format(value) for value in values), rows=rows))
    return tuple(found)


def _by_section(group: GroupResult) -> Mapping[str, Success]:
    return {str(section + 1): found for section, found in group.by_section.items()}


def _row(section: Section, group: GroupResult) -> LearnedRow:
    chosen = {arm for level in group.contexts for context in level.contexts for arm in context.by_arm}
    name, found = section.name(group), group.heat_map
    cells = [cell for heat_row in found.rows for cell in heat_row.cells] if found else []
    is_served = found is not None and not found.missing
    return LearnedRow(
        group=group,
        name=name,
        gains=group.gains,
        levels=group.contexts,
        arms=tuple(sorted(chosen, key=wording.arm_place)),
        heat_map=found,
        heat_drawing=heatmap.draw(found, f"State by arm, {name}") if found is not None and is_served else None,
        has_bonus=any(cell.bonus is not None for cell in cells),
        has_means=any(cell.mean is not None for cell in cells),
        q_range=heatmap.q_range(found) if found is not None else (0.0, 0.0),
    )


def _gain_curves(section: Section, looks: Mapping[str, drawing.Look]) -> Markup | None:
    lines = []
    for group in section.learned:
        known = [(place, one) for place, one in enumerate(group.gains.quarters if group.gains else ()) if one]
        if known:
            points = [(100 * one.interval.low, 100 * one.mean, 100 * one.interval.high) for _, one in known]
            lines.append(
                drawing.Gain(
                    label=section.name(group),
                    quarters=tuple(place for place, _ in known),
                    points=tuple(points),
                    look=looks[group.cell_ids[0]],
                )
            )
    title = "Success minus that of the best static arm by quarter of the stream, percent points"
    return drawing.gain_curves(lines, title) if lines else None


def _arms_over_time(section: Section, arm_colour: Callable[[str], int]) -> Markup | None:
    rows = []
    for group in section.learned:
        if group.decisions is None:
            continue
        arms = sorted(group.decisions.arms, key=lambda arm: wording.arm_place(arm.action_id))
        for quarter in range(4):
            segments = [
                drawing.Segment(label=arm.action_id, share=arm.by_quarter[quarter], colour=arm_colour(arm.action_id))
                for arm in arms
            ]
            name = f"{section.name(group)}, " if quarter == 0 else ""
            rows.append((f"{name}quarter {quarter + 1}", segments))
    return drawing.stacked(rows, "Share of decisions that each arm got, by quarter of the stream") if rows else None
