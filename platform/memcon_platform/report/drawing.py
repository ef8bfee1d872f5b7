"""Inline SVG of the HTML report: marks and axes as text, colours by CSS class, so that light and dark come from CSS.

Every drawing has a title for screen readers, and its numbers stand in a table beside it. Knows no report types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

__all__ = [
    "Bar",
    "Difference",
    "Line",
    "Point",
    "Segment",
    "curves",
    "forest",
    "forest_key",
    "interval_bar",
    "scatter",
    "stacked",
]

_WIDTH = 860
_ROW = 26
# Room for row labels, pixels, and the most that long ones get; width of one letter of them at 12 px.
_LABEL = 290
_WIDEST_LABEL = 390
_LETTER = 6.6


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
    colour: int
    strong: bool = False
    dashed: bool = False


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
    colour: int
    strong: bool = False


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
    """Differences with both intervals, one row each, around a line at zero."""
    ends = [end for row in rows for end in (*row.thick, *row.thin)]
    ticks = _ticks(min(0.0, *ends), max(0.0, *ends))
    label = max(_LABEL, min(_WIDEST_LABEL, 14 + _LETTER * max(len(row.label) for row in rows)))
    scale = _Scale(low=ticks[0], high=ticks[-1], start=label, end=_WIDTH - 60)
    bottom = _ROW * len(rows) + 8
    parts = [_grid_x(scale, ticks, bottom, signed=True)]
    parts.append(f'<line class="zero" x1="{scale(0):.1f}" y1="0" x2="{scale(0):.1f}" y2="{bottom}"/>')
    for place, row in enumerate(rows):
        parts.append(_difference(row, scale, _ROW * place + _ROW / 2 + 4))
    return _svg(parts, bottom + 26, title)


def forest_key(name: str) -> Markup:
    """The sign of the "thick" or the "thin" interval, for a legend."""
    scale = _Scale(low=0, high=1, start=1, end=33)
    parts = {"thick": _thick(scale, (0, 1), 8, "plain"), "thin": _thin(scale, (0, 1), 8, "plain")}
    return Markup(
        f'<svg class="key-line" viewBox="0 0 34 16" width="34" height="16" aria-hidden="true">{parts[name]}</svg>'
    )


def _difference(row: Difference, scale: _Scale, y: float) -> str:
    kind = "strong" if row.strong else "plain"
    value = f'<text class="value" x="{_WIDTH - 4}" y="{y + 4}" text-anchor="end">{row.value:+.1f}</text>'
    dot = f'<circle class="dot {kind}" cx="{scale(row.value):.1f}" cy="{y}" r="5"/>'
    intervals = _thin(scale, row.thin, y, kind) + _thick(scale, row.thick, y, kind)
    return _row_label(row.label, y, end=scale.start - 10, strong=row.strong) + intervals + dot + value


def _thick(scale: _Scale, ends: tuple[float, float], y: float, kind: str) -> str:
    low, high = map(scale, ends)
    return f'<line class="thick {kind}" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>'


def _thin(scale: _Scale, ends: tuple[float, float], y: float, kind: str) -> str:
    low, high = map(scale, ends)
    path = f"M{low:.1f} {y - 5}v10M{low:.1f} {y}H{high:.1f}M{high:.1f} {y - 5}v10"
    return f'<path class="whisker {kind}" d="{path}"/>'


def curves(lines: Sequence[Line], title: str, *, x_label: str) -> Markup:
    """Curves over the stream with a percent axis from 0."""
    values = [y for line in lines for _, y in line.points if y is not None]
    ticks = _ticks(0.0, max(values, default=1.0))
    across = _Scale(low=0, high=1, start=46, end=_WIDTH - 24)
    up = _Scale(low=0, high=ticks[-1], start=250, end=12)
    parts = [_grid_y(up, ticks, across)]
    parts += [_tick(across(share), 268, f"{share * 100:.0f} %") for share in (0, 0.25, 0.5, 0.75, 1)]
    parts.append(_tick(_WIDTH / 2, 286, x_label))
    for line in lines:
        known = [(across(x), up(y)) for x, y in line.points if y is not None]
        kind = f"curve l{line.colour}" + (" heavy" if line.strong else "") + (" dashed" if line.dashed else "")
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
        parts.append(f'<polyline class="{kind}" points="{path}"><title>{escape(line.label)}</title></polyline>')
        parts += [f'<circle class="f{line.colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in known]
    return _svg(parts, 292, title)


def stacked(rows: Sequence[tuple[str, Sequence[Segment]]], title: str) -> Markup:
    """Shares of a whole, one bar a row."""
    scale = _Scale(low=0, high=1, start=_LABEL, end=_WIDTH - 10)
    parts = []
    for row, (label, segments) in enumerate(rows):
        y, at = _ROW * row + 4, 0.0
        parts.append(_row_label(label, y + 9, end=_LABEL - 10, strong=False))
        for segment in segments:
            left, right = scale(at), scale(at + segment.share)
            at += segment.share
            place = f'x="{left:.1f}" y="{y}" width="{max(0.0, right - left):.1f}" height="18"'
            title_of = f"<title>{escape(segment.label)}: {segment.share * 100:.1f} %</title>"
            parts.append(f'<rect class="f{segment.colour} part" {place}>{title_of}</rect>')
            if right - left > 26:
                middle = (left + right) / 2
                parts.append(f'<text class="onbar" x="{middle:.1f}" y="{y + 13}">{segment.share * 100:.0f}</text>')
    return _svg(parts, _ROW * len(rows) + 6, title)


def scatter(points: Sequence[Point], title: str, *, x_label: str, y_label: str) -> Markup:
    """Marks with numbers that the legend beside the drawing explains."""
    x_ticks = _ticks(0.0, max((point.x for point in points), default=1.0))
    y_ticks = _ticks(0.0, max((point.y for point in points), default=1.0))
    across = _Scale(low=0, high=x_ticks[-1], start=46, end=_WIDTH - 30)
    up = _Scale(low=0, high=y_ticks[-1], start=250, end=30)
    parts = [_grid_y(up, y_ticks, across), f'<text class="tick" x="4" y="10">{escape(y_label)}</text>']
    parts += [_tick(across(tick), 268, f"{tick:,.0f}") for tick in x_ticks]
    parts.append(_tick(_WIDTH / 2, 286, x_label))
    for point in points:
        x, y = across(point.x), up(point.y)
        radius = 11 if point.strong else 9
        parts.append(f'<circle class="f{point.colour} mark" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">')
        parts.append(f"<title>{escape(point.label)}: {point.x:,.0f} tokens, {point.y:.1f} %</title></circle>")
    # Numbers last: no mark covers one.
    for number, point in enumerate(points, start=1):
        parts.append(f'<text class="onbar" x="{across(point.x):.1f}" y="{up(point.y) + 4:.1f}">{number}</text>')
    return _svg(parts, 292, title)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Linear map of [low, high] to pixels [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + share * (self.end - self.start)


def _ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers from at most `low` to at least `high`."""
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * count >= span)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * i for i in range(first, max(last, first + 1) + 1)]


def _grid_x(scale: _Scale, ticks: Sequence[float], bottom: float, *, signed: bool) -> str:
    parts = []
    for tick in ticks:
        text = f"{tick:+g}" if signed and tick else f"{tick:g}"
        parts.append(f'<line class="grid" x1="{scale(tick):.1f}" y1="0" x2="{scale(tick):.1f}" y2="{bottom}"/>')
        parts.append(_tick(scale(tick), bottom + 16, text))
    return "".join(parts)


def _grid_y(scale: _Scale, ticks: Sequence[float], across: _Scale) -> str:
    parts = []
    for tick in ticks:
        y = scale(tick)
        parts.append(f'<line class="grid" x1="{across.start:.1f}" y1="{y:.1f}" x2="{across.end:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{across.start - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    return "".join(parts)


def _row_label(label: str, y: float, *, end: float, strong: bool) -> str:
    room = int((end - 4) / _LETTER)
    shown = label if len(label) <= room else label[: room - 1] + "…"
    kind = "label heavy" if strong else "label"
    place = f'x="{end:.1f}" y="{y + 4}" text-anchor="end"'
    return f'<text class="{kind}" {place}>{escape(shown)}<title>{escape(label)}</title></text>'


def _tick(x: float, y: float, text: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:g}" text-anchor="middle">{escape(text)}</text>'


def _svg(parts: Sequence[str], height: float, title: str) -> Markup:
    return Markup(
        f'<svg class="chart" role="img" viewBox="0 0 {_WIDTH} {height:.0f}" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
