"""Earlier runs that a cell starts from: where they are, and which of their cells is meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from memcon.errors import ConfigError, NotFoundError, UnknownNameError
from memcon_platform.config import has_plan, read_plan
from memcon_platform.config.plan import Cell, RunPlan
from memcon_platform.objects import is_uri
from memcon_platform.run_store.places import run_in_store
from memcon_platform.run_store.reader_copy import fetched_run
from memcon_platform.sweep.run_folder import refuse_driven

__all__ = ["earlier_cell", "earlier_plan"]

# Cells that an error tells of.
_SHOWN = 3


def earlier_plan(plan: RunPlan, run: str) -> RunPlan:
    """The plan of `run`: a folder, a URI, or the name alone of a run, which is looked for beside this one first.

    A run in an object store is fetched, once it is at rest.

    Raises:
        ConfigError: `run` is this very run.
        LockedError: it is being driven.
        NotFoundError: no run there.
        MemconError: its plan cannot be read, or its object store not be used.
    """
    given, beside = Path(run), plan.root / run
    is_name = given.name == run
    run_dir = beside if is_name and (has_plan(beside) or not has_plan(given)) else given
    uri = run_in_store(run) if is_uri(run) else f"{plan.root_uri}/{run}" if plan.root_uri and is_name else None
    if plan.uri == uri is not None or run_dir.resolve() == plan.run_dir.resolve():
        raise ConfigError(f"start_from: '{run}' is this run itself; name an earlier one")
    if uri is not None:
        try:
            return read_plan(fetched_run(uri, at_rest=True))
        except NotFoundError:
            # A run beside this one may never have been published.
            if is_uri(run):
                raise
    refuse_driven(run_dir)
    return read_plan(run_dir)


def earlier_cell(
    plan: RunPlan,
    wanted: str | None,
    difference: Callable[[Cell], str],
    *,
    source: Callable[[Cell], str],
    seed: int,
    doing: str,
    key: str,
) -> Cell:
    """The cell `wanted` of the earlier `plan`, or its only cell without a `difference` to the one that starts from it.

    Args:
        plan: the earlier run.
        wanted: a cell id.
        difference: how a cell of the earlier run does not fit, or "".
        source: names what would be taken from a cell; cells that give the same are one candidate, the first of them.
        seed: of several that fit, the only one of this seed is taken.
        doing: begins the message of an error.
        key: the config key that would name a cell.

    Raises:
        UnknownNameError: no such cell.
        ConfigError: it does not fit; or none fits, or several do: names them.
    """
    if wanted is not None:
        found = {cell.cell_id: cell for cell in plan.cells}.get(wanted)
        if found is None:
            raise UnknownNameError(f"cell of run '{plan.run}'", wanted, [cell.cell_id for cell in plan.cells])
        if problem := difference(found):
            raise ConfigError(f"{doing}: cell {wanted} of run '{plan.run}' does not fit: {problem}")
        return found
    differences = {cell.cell_id: difference(cell) for cell in plan.cells}
    fitting = _distinct([cell for cell in plan.cells if not differences[cell.cell_id]], source)
    paired = [cell for cell in fitting if cell.seed == seed]
    for candidates in (paired, fitting):
        if len(candidates) == 1:
            return candidates[0]
    if fitting:
        listed = ", ".join(f"{cell.cell_id} ({cell.label})" for cell in fitting[:_SHOWN])
        raise ConfigError(
            f"{doing}: {len(fitting)} cells of run '{plan.run}' fit; give {key}, one of: {listed}{_more(len(fitting))}"
        )
    # The nearest first: the fewest words of difference.
    nearest = sorted(plan.cells, key=lambda cell: len(differences[cell.cell_id]))
    shown = "; ".join(f"{cell.cell_id}: {differences[cell.cell_id]}" for cell in nearest[:_SHOWN])
    raise ConfigError(
        f"{doing}: no cell of run '{plan.run}' fits ({shown}{_more(len(plan.cells))}); take these settings, name "
        "another run, or leave start_from out"
    )


def _distinct(cells: Sequence[Cell], source: Callable[[Cell], str]) -> list[Cell]:
    """The first cell of each that gives the same."""
    found: dict[str, Cell] = {}
    for cell in cells:
        found.setdefault(source(cell), cell)
    return list(found.values())


def _more(count: int) -> str:
    return f"; and {count - _SHOWN} more cells" if count > _SHOWN else ""
