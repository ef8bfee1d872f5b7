"""Inline SVG of the HTML report: marks and axes as text, colours by CSS class, so that light and dark come from CSS.

Every drawing has a title for screen readers, and its numbers stand in a table beside it. Knows no report types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from memcon_platform.report.axes import (
    HEAVY_LETTER,
    LETTER,
    ROW,
    WIDTH,
    Scale,
    grid_x,
    grid_y,
    row_label,
    svg,
    tick_text,
    ticks_of,
)

__all__ = [
    "Bar",
    "Difference",
    "Gain",
    "Line",
    "Look",
    "Point",
    "Segment",
    "curves",
    "forest",
    "forest_key",
    "gain_curves",
    "interval_bar",
    "line_key",
    "scatter",
    "stacked",
]

# Room for row labels, pixels, and the most that long ones get.
_LABEL = 290
_WIDEST_LABEL = 420
# Pixels below which a mark of the scatter hides another one's number.
_NEAR = 13
# Height of a name above its differences.
_HEADING = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What tells a row's line from others: there are more rows than colours."""

    # CSS classes c0..c9 of colours, p0..p2 of line patterns.
    colour: int
    pattern: int = 0
    dashed: bool = False

    @property
    def kind(self) -> str:
        """CSS classes of its line."""
        return f"l{self.colour} p{self.pattern}{' dashed' if self.dashed else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A value with its interval, all in percent points."""

    label: str
    value: float
    low: float
    high: float
    # Drawn in the accent colour.
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A value with two intervals, all in percent points."""

    # What it is of, which stands once above the differences of the same; and what is subtracted.
    of: str
    label: str
    value: float
    # Drawn thick; and thin with end marks.
    thick: tuple[float, float]
    thin: tuple[float, float]
    # Drawn in the accent colour.
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve; x in 0..1, y in percent, None where there is no value."""

    label: str
    points: tuple[tuple[float, float | None], ...]
    look: Look
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a stacked bar; share in 0..1."""

    label: str
    share: float
    colour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A labelled mark."""

    label: str
    x: float
    y: float
    # Interval of y.
    low: float
    high: float
    colour: int
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Differences by quarter of the stream, in percent points."""

    label: str
    # Quarters that have a value, 0..3, and (low, value, high) of each.
    quarters: tuple[int, ...]
    points: tuple[tuple[float, float, float], ...]
    look: Look


def interval_bar(bar: Bar, top: float) -> Markup:
    """A small bar from 0 to `top` percent with its interval, for a table cell."""

    def x(value: float) -> float:
        return 120 * max(0.0, min(value, top)) / top

    kind = "strong" if bar.strong else "plain"
    return Markup(
        f'<svg class="cellbar" viewBox="0 0 124 16" width="124" height="16" aria-hidden="true">'
        f'<line class="axis" x1="0" y1="15.5" x2="124" y2="15.5"/>'
        f'<rect class="bar {kind}" x="0" y="4" width="{x(bar.value):.1f}" height="8" rx="2"/>'
        f'<line class="whisker" x1="{x(bar.low):.1f}" y1="8" x2="{x(bar.high):.1f}" y2="8"/></svg>'
    )


def forest(rows: Sequence[Difference], title: str) -> Markup:
    """Differences with both intervals, a line each below the name of what they are of, around a line at zero."""
    ends = [end for row in rows for end in (*row.thick, *row.thin)]
    ticks = ticks_of(min(0.0, *ends), max(0.0, *ends))
    room = _label_room([row.label for row in rows], [row.of for row in rows])
    scale = Scale(low=ticks[0], high=ticks[-1], start=room, end=WIDTH - 60)
    bottom = ROW * len(rows) + _HEADING * sum(_begins(rows, place) for place in range(len(rows))) + 8
    parts = [grid_x(scale, ticks, bottom, signed=True)]
    parts.append(f'<line class="zero" x1="{scale(0):.1f}" y1="0" x2="{scale(0):.1f}" y2="{bottom}"/>')
    y = ROW / 2 + 4
    for place, row in enumerate(rows):
        if _begins(rows, place):
            parts.append(row_label(row.of, y, end=scale.start - 10, strong=True))
            y += _HEADING
        parts.append(_difference(row, scale, y))
        y += ROW
    return svg(parts, bottom + 26, title)


def _begins(rows: Sequence[Difference], place: int) -> bool:
    """Another row's differences begin at `place`."""
    return place == 0 or rows[place - 1].of != rows[place].of


def _label_room(labels: Sequence[str], heavy: Sequence[str] = ()) -> float:
    widths = [*(LETTER * len(label) for label in labels), *(HEAVY_LETTER * len(label) for label in heavy)]
    return max(_LABEL, min(_WIDEST_LABEL, 14 + max(widths)))


def forest_key(name: str) -> Markup:
    """The sign of the "thick" or the "thin" interval, for a legend."""
    scale = Scale(low=0, high=1, start=1, end=33)
    parts = {"thick": _thick(scale, (0, 1), 8, "plain"), "thin": _thin(scale, (0, 1), 8, "plain")}
    return Markup(
        f'<svg class="key-line" viewBox="0 0 34 16" width="34" height="16" aria-hidden="true">{parts[name]}</svg>'
    )


def line_key(look: Look) -> Markup:
    """The sign of a row's line, for a legend."""
    line = f'<line class="curve {look.kind}" x1="1" y1="6" x2="37" y2="6"/>'
    dot = f'<circle class="f{look.colour}" cx="19" cy="6" r="2.6"/>'
    box = 'viewBox="0 0 38 12" width="38" height="12" aria-hidden="true"'
    return Markup(f'<svg class="key-row" {box}>{line}{dot}</svg>')


def _difference(row: Difference, scale: Scale, y: float) -> str:
    kind = "strong" if row.strong else "plain"
    value = f'<text class="value" x="{WIDTH - 4}" y="{y + 4}" text-anchor="end">{row.value:+.1f}</text>'
    dot = f'<circle class="dot {kind}" cx="{scale(row.value):.1f}" cy="{y}" r="5"/>'
    intervals = _thin(scale, row.thin, y, kind) + _thick(scale, row.thick, y, kind)
    return row_label(row.label, y, end=scale.start - 10, strong=False) + intervals + dot + value


def _thick(scale: Scale, ends: tuple[float, float], y: float, kind: str) -> str:
    low, high = map(scale, ends)
    return f'<line class="thick {kind}" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>'


def _thin(scale: Scale, ends: tuple[float, float], y: float, kind: str) -> str:
    low, high = map(scale, ends)
    path = f"M{low:.1f} {y - 5}v10M{low:.1f} {y}H{high:.1f}M{high:.1f} {y - 5}v10"
    return f'<path class="whisker {kind}" d="{path}"/>'


def curves(lines: Sequence[Line], title: str, *, x_label: str) -> Markup:
    """Curves over the stream with a percent axis from 0."""
    values = [y for line in lines for _, y in line.points if y is not None]
    ticks = ticks_of(0.0, max(values, default=1.0))
    across = Scale(low=0, high=1, start=46, end=WIDTH - 24)
    up = Scale(low=0, high=ticks[-1], start=250, end=12)
    parts = [grid_y(up, ticks, across)]
    parts += [tick_text(across(share), 268, f"{share * 100:.0f} %") for share in (0, 0.25, 0.5, 0.75, 1)]
    parts.append(tick_text(WIDTH / 2, 286, x_label))
    for line in lines:
        known = [(across(x), up(y)) for x, y in line.points if y is not None]
        kind = f"curve {line.look.kind}" + (" heavy" if line.strong else "")
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
        parts.append(f'<polyline class="{kind}" points="{path}"><title>{escape(line.label)}</title></polyline>')
        parts += [f'<circle class="f{line.look.colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in known]
    return svg(parts, 292, title)


def stacked(rows: Sequence[tuple[str, Sequence[Segment]]], title: str) -> Markup:
    """Shares of a whole, one bar a row."""
    room = _label_room([label for label, _ in rows])
    scale = Scale(low=0, high=1, start=room, end=WIDTH - 10)
    parts = []
    for row, (label, segments) in enumerate(rows):
        y, at = ROW * row + 4, 0.0
        parts.append(row_label(label, y + 9, end=room - 10, strong=False))
        for segment in segments:
            left, right = scale(at), scale(at + segment.share)
            at += segment.share
            place = f'x="{left:.1f}" y="{y}" width="{max(0.0, right - left):.1f}" height="18"'
            title_of = f"<title>{escape(segment.label)}: {segment.share * 100:.1f} %</title>"
            parts.append(f'<rect class="f{segment.colour} part" {place}>{title_of}</rect>')
            if right - left > 26:
                middle = (left + right) / 2
                parts.append(f'<text class="onbar" x="{middle:.1f}" y="{y + 13}">{segment.share * 100:.0f}</text>')
    return svg(parts, ROW * len(rows) + 6, title)


def scatter(points: Sequence[Point], title: str, *, x_label: str, y_label: str) -> Markup:
    """Marks with their intervals, and numbers that the legend beside the drawing explains."""
    x_ticks = ticks_of(0.0, max((point.x for point in points), default=1.0))
    y_ticks = ticks_of(0.0, max((max(point.y, point.high) for point in points), default=1.0))
    across = Scale(low=0, high=x_ticks[-1], start=46, end=WIDTH - 30)
    up = Scale(low=0, high=y_ticks[-1], start=310, end=30)
    parts = [grid_y(up, y_ticks, across), f'<text class="tick" x="4" y="10">{escape(y_label)}</text>']
    parts += [tick_text(across(tick), 328, f"{tick:,.0f}") for tick in x_ticks]
    parts.append(tick_text(WIDTH / 2, 346, x_label))
    parts += [_upright(across(point.x), up(point.low), up(point.high), point.colour) for point in points]
    for point in points:
        place = f'cx="{across(point.x):.1f}" cy="{up(point.y):.1f}" r="{11 if point.strong else 9}"'
        told = f"{escape(point.label)}: {point.x:,.0f} tokens, {point.y:.1f} % [{point.low:.1f}, {point.high:.1f}]"
        parts.append(f'<circle class="f{point.colour} mark" {place}><title>{told}</title></circle>')
    # Numbers last: no mark covers one. Marks that would hide each other share their numbers.
    for x, y, shared in _shared([(across(point.x), up(point.y)) for point in points]):
        parts.append(_numbers(shared, x, y + 4, left=x > across.start + 60))
    return svg(parts, 352, title)


def _shared(places: Sequence[tuple[float, float]]) -> list[tuple[float, float, list[int]]]:
    """Places that are further apart than a mark's radius, with the numbers, from 1, of all that are near to each."""
    found: list[tuple[float, float, list[int]]] = []
    for number, (x, y) in enumerate(places, start=1):
        near = next((shared for left, top, shared in found if math.hypot(left - x, top - y) < _NEAR), None)
        if near is None:
            found.append((x, y, [number]))
        else:
            near.append(number)
    return found


def _numbers(numbers: Sequence[int], x: float, y: float, *, left: bool) -> str:
    """The numbers of marks in one place: on the mark, or beside it when they are several."""
    text = ", ".join(map(str, numbers))
    if len(numbers) == 1:
        return f'<text class="onbar" x="{x:.1f}" y="{y:.1f}">{text}</text>'
    side = f'x="{x - 15:.1f}" text-anchor="end"' if left else f'x="{x + 15:.1f}"'
    return f'<text class="label" {side} y="{y:.1f}">{text}</text>'


def gain_curves(lines: Sequence[Gain], title: str) -> Markup:
    """Differences by quarter of the stream with their intervals, around a line at zero."""
    ends = [end for line in lines for low, _, high in line.points for end in (low, high)]
    ticks = ticks_of(min(0.0, *ends), max(0.0, *ends))
    across = Scale(low=0, high=4, start=46, end=WIDTH - 24)
    up = Scale(low=ticks[0], high=ticks[-1], start=250, end=12)
    parts = [grid_y(up, ticks, across, signed=True)]
    parts.append(f'<line class="zero" x1="{across.start}" y1="{up(0):.1f}" x2="{across.end}" y2="{up(0):.1f}"/>')
    parts += [tick_text(across(quarter + 0.5), 268, f"quarter {quarter + 1}") for quarter in range(4)]
    for place, line in enumerate(lines):
        # Side by side, so that no interval hides another.
        shift = (place - (len(lines) - 1) / 2) * min(14.0, 120 / len(lines))
        marks = [(across(x + 0.5) + shift, point) for x, point in zip(line.quarters, line.points, strict=True)]
        path = " ".join(f"{x:.1f},{up(value):.1f}" for x, (_, value, _) in marks)
        parts.append(
            f'<polyline class="curve {line.look.kind}" points="{path}"><title>{escape(line.label)}</title></polyline>'
        )
        parts += [_upright(x, up(low), up(high), line.look.colour) for x, (low, _, high) in marks]
        parts += [
            f'<circle class="f{line.look.colour}" cx="{x:.1f}" cy="{up(value):.1f}" r="4"/>'
            for x, (_, value, _) in marks
        ]
    return svg(parts, 280, title)


def _upright(x: float, low: float, high: float, colour: int) -> str:
    path = f"M{x - 4:.1f} {low:.1f}h8M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {high:.1f}h8"
    return f'<path class="upright l{colour}" d="{path}"/>'
