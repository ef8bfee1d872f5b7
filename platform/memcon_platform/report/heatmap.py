"""The state x arm heat map as inline SVG: q as colour and number, below it how often the arm was taken, its bonus."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from memcon_platform.report import wording
from memcon_platform.report.axes import WIDTH, row_label, svg, tick_text
from memcon_platform.report.measures import HeatCell, HeatMap, HeatRow

__all__ = ["draw", "q_range"]

_LABEL = 290
_ROW = 34
_HEAD = 34
_LEVEL = 22
# The strongest colour still lets the text on it be read, in light and in dark.
_FAINTEST, _STRONGEST = 0.04, 0.5


def draw(found: HeatMap, title: str) -> Markup:
    """The heat map of a table that was served; arms from left to right in arm order, keys as in `found`."""
    has_means = any(cell.mean is not None for row in found.rows for cell in row.cells)
    column = max(100.0 if has_means else 62.0, (WIDTH - _LABEL) / max(1, len(found.arms)))
    parts = [_head(arm, _LABEL + column * (place + 0.5)) for place, arm in enumerate(found.arms)]
    lowest, highest = q_range(found)
    y, schema = float(_HEAD), ""
    for row in found.rows:
        if row.schema != schema:
            schema = row.schema
            parts.append(f'<text class="tick" x="4" y="{y + 15:.0f}">{escape(_level(row))}</text>')
            y += _LEVEL
        parts.append(row_label(wording.key_values(row.key), y + _ROW / 2, end=_LABEL - 8, strong=False))
        best = _best(row)
        for place, cell in enumerate(row.cells):
            share = (cell.q - lowest) / (highest - lowest) if highest > lowest else 0.5
            text = _cell(cell, share, _LABEL + column * place, y, column, is_best=place == best)
            parts.append(f"<g><title>{escape(found.arms[place])} at {escape(row.key)}</title>{text}</g>")
        y += _ROW
    return svg(parts, y + 4, title, width=_LABEL + column * len(found.arms))


def q_range(found: HeatMap) -> tuple[float, float]:
    """Lowest and highest q of an arm that was taken: the ends of the colour."""
    known = [cell.q for row in found.rows for cell in row.cells if cell.taken]
    return (min(known), max(known)) if known else (0.0, 0.0)


def _best(row: HeatRow) -> int | None:
    """The taken arm with the highest shrunk mean, or q where the rule has none; the first of equals."""
    known = {place: cell.q if cell.mean is None else cell.mean for place, cell in enumerate(row.cells) if cell.taken}
    return max(known, key=known.__getitem__, default=None)


def _head(arm: str, x: float) -> str:
    first, _, rest = arm.partition("_")
    lines = [first, rest] if rest else ["", first]
    return "".join(tick_text(x, 12 + 13 * place, line) for place, line in enumerate(lines) if line)


def _level(row: HeatRow) -> str:
    names: Sequence[str] = [part.partition("=")[0] for part in row.key.split("|")[1:]]
    return f"{row.schema}: {' / '.join(names)}"


def _cell(cell: HeatCell, share: float, x: float, y: float, width: float, *, is_best: bool) -> str:
    box = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 2:.1f}" height="{_ROW - 2}" rx="3"'
    middle = x + width / 2
    if not cell.taken:
        # Its q is the prior that it began with; a rule that pools has a mean of it from the coarser keys.
        return f'<rect class="heat never" {box}/>' + tick_text(middle, y + 21, _mean(cell) or _text(cell.q))
    opacity = _FAINTEST + (_STRONGEST - _FAINTEST) * share
    beside = _mean(cell) if cell.bonus is None else f"{cell.bonus:+.2f}"
    return (
        f'<rect class="heat{" best" if is_best else ""}" {box} fill-opacity="{opacity:.2f}"/>'
        f'<text class="q" x="{middle:.1f}" y="{y + 15:.1f}">{_text(cell.q)}</text>'
        f'<text class="small" x="{middle:.1f}" y="{y + 28:.1f}">{cell.taken:,} {beside}</text>'
    )


def _mean(cell: HeatCell) -> str:
    if cell.mean is None:
        return ""
    return f"m {_text(cell.mean)}" + ("" if cell.deviation is None else f"±{cell.deviation:.2f}")


def _text(value: float) -> str:
    # Adding 0 turns a rounded "-0.00" into "0.00".
    return f"{round(value, 2) + 0.0:.2f}"
