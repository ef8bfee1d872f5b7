"""Scales, grids and labels that all drawings of a report share. Text only: colours come by CSS class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

__all__ = [
    "HEAVY_LETTER",
    "LETTER",
    "ROW",
    "WIDTH",
    "Scale",
    "grid_x",
    "grid_y",
    "row_label",
    "svg",
    "tick_text",
    "ticks_of",
]

# Pixels of a drawing and of a row in it; width of one letter of a row's label at 12 px, and in bold, in a wide font.
WIDTH = 860
ROW = 26
LETTER = 7.0
HEAVY_LETTER = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Linear map of [low, high] to pixels [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of `value`."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + share * (self.end - self.start)


def ticks_of(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers from at most `low` to at least `high`."""
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * count >= span)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * i for i in range(first, max(last, first + 1) + 1)]


def grid_x(scale: Scale, ticks: Sequence[float], bottom: float, *, signed: bool) -> str:
    """Vertical lines at `ticks` down to `bottom`, with their numbers below."""
    parts = []
    for tick in ticks:
        text = f"{tick:+g}" if signed and tick else f"{tick:g}"
        parts.append(f'<line class="grid" x1="{scale(tick):.1f}" y1="0" x2="{scale(tick):.1f}" y2="{bottom}"/>')
        parts.append(tick_text(scale(tick), bottom + 16, text))
    return "".join(parts)


def grid_y(scale: Scale, ticks: Sequence[float], across: Scale, *, signed: bool = False) -> str:
    """Horizontal lines at `ticks`, with their numbers to the left."""
    parts = []
    for tick in ticks:
        y, text = scale(tick), f"{tick:+g}" if signed and tick else f"{tick:g}"
        parts.append(f'<line class="grid" x1="{across.start:.1f}" y1="{y:.1f}" x2="{across.end:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{across.start - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    return "".join(parts)


def row_label(label: str, y: float, *, end: float, strong: bool) -> str:
    """The name of a row, ending at `end`; a long one is cut and whole in its title."""
    room = int((end - 4) / (HEAVY_LETTER if strong else LETTER))
    shown = label if len(label) <= room else label[: room - 1] + "…"
    kind = "label heavy" if strong else "label"
    place = f'x="{end:.1f}" y="{y + 4}" text-anchor="end"'
    return f'<text class="{kind}" {place}>{escape(shown)}<title>{escape(label)}</title></text>'


def tick_text(x: float, y: float, text: str) -> str:
    """A small text around `x`."""
    return f'<text class="tick" x="{x:.1f}" y="{y:g}" text-anchor="middle">{escape(text)}</text>'


def svg(parts: Sequence[str], height: float, title: str, *, width: float = WIDTH) -> Markup:
    """A drawing with its title, which a screen reader speaks."""
    return Markup(
        f'<svg class="chart" role="img" viewBox="0 0 {width:.0f} {height:.0f}" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )
