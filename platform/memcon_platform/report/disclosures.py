"""What the numbers of a run can be no evidence of, by what played and what was played: for reports and for studies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from memcon import registry
from memcon.errors import MemconError
from memcon_platform.config import Cell, Entry

__all__ = ["disclosures"]

_IMITATOR = (
    "The backbone is the imitator: a rule program that copies steps out of its prompt, not a language model. How much "
    "memory helps or harms follows from its rules, which we chose. The numbers show that the pipeline works and how a "
    "learner behaves statistically; they are evidence neither for nor against published figures."
)


def disclosures(cells: Iterable[Cell], families: Collection[str]) -> tuple[str, ...]:
    """Sentences to be read before any number of `cells`.

    A benchmark may say of families of its tasks what they were built to show: `constructed`, family -> purpose. One
    without it has none that anybody constructed.

    Args:
        cells: of the run.
        families: those that have tasks in it, by `Task.benchmark`.
    """
    cells = list(cells)
    found = [_IMITATOR] if any(cell.backbone.name == "imitator" for cell in cells) else []
    return (*found, *_constructed([cell.benchmark for cell in cells], families))


def _constructed(entries: Iterable[Entry], families: Collection[str]) -> Iterator[str]:
    purposes: dict[str, str] = {}
    for entry in {entry.label: entry for entry in entries}.values():
        try:
            benchmark = registry.build("benchmark", entry.name, entry.parameters)
        except MemconError as error:
            yield f"Whether tasks of '{entry.label}' were constructed to show something cannot be told here: {error}."
            continue
        purposes |= getattr(benchmark, "constructed", {})
    told = [f"{family} ({purpose})" for family, purpose in purposes.items() if family in families]
    if told:
        yield (
            f"Constructed families, made to show what memory can do: {', '.join(told)}. They show a mechanism, not how "
            "often it occurs in real benchmarks."
        )
