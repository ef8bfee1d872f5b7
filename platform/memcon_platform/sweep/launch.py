"""One launch of a plan, from the lock on the run folder to the report: what `memcon sweep` does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from rich.console import Console

from memcon.clock import SystemClock
from memcon.errors import InvariantError
from memcon.policy_types import TableImport
from memcon_platform.assembly import stream_specs
from memcon_platform.config import has_plan, read_plan, reconcile, write_plan
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.interrupts import interrupts
from memcon_platform.sweep.losses import refuse_lost_journals
from memcon_platform.sweep.overview import statuses
from memcon_platform.sweep.pool import LocalPool, Pool
from memcon_platform.sweep.preflight import check_plugins, endpoints
from memcon_platform.sweep.progress import Progress, Snapshot
from memcon_platform.sweep.remains import streams_left, write_served_tables
from memcon_platform.sweep.run_folder import driving, policy_folder
from memcon_platform.sweep.runner import Observer, RunEnd, Runner
from memcon_platform.sweep.starts import prepare_starts, write_starts
from memcon_platform.sweep.status import StreamStatus
from memcon_platform.sweep.supervisor import Supervisor
from memcon_platform.sweep.turns import Turns, out_of_order
from memcon_platform.trajectory import SinkFactory
from memcon_policy_server.client.local import LocalClientFactory
from memcon_workers.spec import StreamSpec

__all__ = ["Launch", "launch", "open_local"]

# Worker deaths without an ended task that a stream survives beyond `task_restarts`: the task itself becomes
# `unevaluable` first, so only a death outside any task can reach this.
_SPARE_DEATHS = 2

OpenPool = Callable[[RunPlan], AbstractAsyncContextManager[Pool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a launch is carried out."""

    open_pool: OpenPool
    # Makes the observer of the plan as it was written; told whether the run goes on from an earlier launch.
    observe: Callable[[RunPlan, bool], Observer]
    console: Console


async def launch(plan: RunPlan, how: Launch) -> tuple[RunPlan, RunEnd]:
    """Run what is left of `plan`; returns the plan that the run folder now holds, and how the launch ended.

    Raises:
        LockedError: another process drives the run.
        ConfigError: the run exists with other cells, or what it starts from does not fit.
        ConflictError: what it still has to take over is not as it was when it took the rest.
        StorageError: the run folder cannot be written.
        DamagedFileError: a file of the run is damaged or missing; nothing was written.
        MemconError: a plug-in that its streams need cannot be used (`check_plugins`); nothing was written.
        Interrupted: Ctrl-C came during the start, or twice.
    """
    with driving(plan.run_dir):
        if has_plan(plan.run_dir):
            plan = reconcile(read_plan(plan.run_dir), plan)
        found = statuses(plan)
        refuse_lost_journals(plan, found)
        prepared = prepare_starts(plan, found)
        specs = stream_specs(plan, prepared.memory_files, prepared.memory_ended)
        names = streams_left(plan, found)
        # What only has to be written or delivered asks nothing of a plug-in.
        unplayed = [name for name in names if found[name][0].num_ended < found[name][1]]
        await check_plugins(plan, unplayed, how.console)
        write_plan(plan.run_dir, plan, wall_time_s=SystemClock().wall(), endpoints=endpoints(plan, unplayed))
        write_starts(plan.run_dir, prepared.starts)
        left = {name: specs[name] for name in names}
        observer = how.observe(plan, any(status.num_ended for status, _ in found.values()))
        if not left:
            await write_served_tables(plan)
            how.console.print("nothing is left to run: every task of the plan has ended", style="dim")
            return plan, RunEnd(stopped=False, failures={})
        for table in _out_of_order(specs, found, _turns(plan, specs)):
            how.console.print(
                f"table '{table}' learns on in another order than a fresh run would: streams that were added, or that "
                "failed earlier, are behind the others",
                style="yellow",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        return plan, await _run(plan, how, observer, left=left, found=found, imports=prepared.imports)


async def _run(
    plan: RunPlan,
    how: Launch,
    observer: Observer,
    *,
    left: Mapping[StreamName, StreamSpec],
    found: Mapping[StreamName, tuple[StreamStatus, int]],
    imports: Sequence[TableImport],
) -> RunEnd:
    how.console.print("starting workers and policy ...", style="dim")
    with interrupts() as phase:
        async with how.open_pool(plan) as pool:
            await _fill_tables(pool, left, imports)
            progress = Progress(how.console, SystemClock(), _snapshot(plan, left, found))
            supervisor = Supervisor(
                list(left),
                num_workers=plan.settings.workers,
                streams_per_worker=plan.settings.streams_per_worker,
                max_deaths=plan.settings.task_restarts + _SPARE_DEATHS,
                turns=_turns(plan, left),
            )
            ended = {name: found[name][0].num_ended for name in left}
            runner = Runner(
                plan.run_dir, left, ended, supervisor=supervisor, pool=pool, progress=progress, observer=observer
            )
            phase.to(runner.interrupt)
            try:
                return await runner.run()
            finally:
                # From here to the end only files are written: worth the few seconds, whatever the user presses.
                phase.to(lambda: how.console.print("closing: the policy writes its tables", style="dim"))
                progress.close()


async def _fill_tables(pool: Pool, specs: Mapping[StreamName, StreamSpec], imports: Sequence[TableImport]) -> None:
    """Let tables start from those of earlier runs, before any stream can decide in them."""
    if not imports:
        return
    settings = {spec.table: spec.learning for spec in specs.values() if spec.learning is not None}
    async with pool.policy() as client:
        for request in imports:
            if request.table not in settings:
                raise InvariantError(f"table '{request.table}' is to be filled, and none of its streams is left to run")
            await client.open_table(request.table, settings[request.table])
            await client.import_table(request)


def _turns(plan: RunPlan, specs: Mapping[StreamName, StreamSpec]) -> list[Turns]:
    """The bounded tables with their streams in the order of the plan."""
    bounds = {cell.cell_id: cell.max_open_episodes for cell in plan.cells}
    tables: dict[str, tuple[int, list[StreamName]]] = {}
    for name, spec in specs.items():
        bound = bounds[spec.cell]
        if spec.gated and bound is not None:
            tables.setdefault(spec.table, (bound, []))[1].append(name)
    return [Turns(streams, bound=bound) for bound, streams in tables.values()]


def _out_of_order(
    specs: Mapping[StreamName, StreamSpec], found: Mapping[StreamName, tuple[StreamStatus, int]], turns: Sequence[Turns]
) -> list[str]:
    """Exact tables whose order of tasks is no longer that of a fresh run of the plan."""
    return [
        specs[table.streams[0]].table
        for table in turns
        if table.exact and out_of_order([(found[name][0].num_ended, found[name][1]) for name in table.streams])
    ]


def _snapshot(
    plan: RunPlan, left: Mapping[StreamName, StreamSpec], found: Mapping[StreamName, tuple[StreamStatus, int]]
) -> Snapshot:
    return Snapshot(
        num_cells=len(plan.cells),
        num_tasks=sum(size for _, size in found.values()),
        cells_done=len({cell for cell, _ in found} - {cell for cell, _ in left}),
        tasks_before=sum(min(status.num_ended, size) for status, size in found.values()),
    )


@asynccontextmanager
async def open_local(plan: RunPlan) -> AsyncIterator[Pool]:
    """The pool of `--local`: this process, with the in-process policy over the run's journal."""
    make_client = LocalClientFactory(directory=policy_folder(plan), num_shards=plan.settings.policy_server.shards)
    pool = LocalPool(make_client, SinkFactory(run_dir=plan.run_dir.resolve()))
    try:
        yield pool
    finally:
        await pool.close()
