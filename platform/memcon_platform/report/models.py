"""Which models answered, by the ids that their providers reported (HX-3), and where one cell heard several of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memcon_platform.report.data import CellResult
from memcon_platform.report.samples import CellSample

__all__ = ["mixtures", "reported_ids"]

# Cells that a sentence names.
_NAMED = 3


def reported_ids(sample: CellSample) -> tuple[str, ...]:
    """Distinct ids that the tasks of a cell report, in order of first use; none from tasks that kept none."""
    kept = (reported for reported in sample.episodes["model_ids"] if reported is not None)
    return tuple(dict.fromkeys(str(one) for reported in kept for one in reported))


def mixtures(cells: Sequence[CellResult]) -> Iterator[str]:
    """Sentences on backbones that were more than one model, in one cell or from cell to cell."""
    by_backbone: dict[str, list[CellResult]] = {}
    for cell in cells:
        by_backbone.setdefault(cell.labels["backbone"], []).append(cell)
    for backbone, found in by_backbone.items():
        known = dict.fromkeys(one for cell in found for one in cell.model_ids)
        mixed = [cell for cell in found if len(cell.model_ids) > 1]
        if mixed:
            told = "; ".join(f"{cell.group}, seed {cell.seed}: {', '.join(cell.model_ids)}" for cell in mixed[:_NAMED])
            more = f"; and {len(mixed) - _NAMED} more" if len(mixed) > _NAMED else ""
            yield (
                f"Backbone '{backbone}': more than one model answered inside {len(mixed)} of {len(found)} cells "
                f"({told}{more}); the numbers of such a cell are those of a mixture."
            )
        elif len(known) > 1:
            yield (
                f"Backbone '{backbone}': not every cell was answered by the same model ({', '.join(known)}); rows of "
                "it differ in the model too."
            )
