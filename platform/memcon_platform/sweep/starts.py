"""What a run takes over from earlier runs (`start_from`), checked before anything of it is written or started.

Tables are folded from the earlier run's journals and imported through the policy's client; memories are copied by the
worker that claims a stream. What was taken stands in the run's starts.json, for reports and later launches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from memcon import codec
from memcon.errors import ConfigError, ConflictError, DamagedFileError, SchemaVersionError, StorageError
from memcon.files import replace_file
from memcon.policy_types import TableImport
from memcon_platform.assembly import learning_settings, table_name
from memcon_platform.config.plan import Cell, MemoryStart, RunPlan, TableStart
from memcon_platform.sweep.earlier import earlier_cell, earlier_plan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.status import StreamStatus, stream_path, stream_status
from memcon_platform.sweep.warm_tables import (
    EarlierTables,
    cell_difference,
    cell_fingerprint,
    fingerprint_id,
    shards_filled,
    sharers_difference,
)

__all__ = [
    "STARTS_FILE",
    "Prepared",
    "Starts",
    "WarmMemory",
    "WarmTable",
    "prepare_starts",
    "read_starts",
    "write_starts",
]

STARTS_FILE = "starts.json"
_SCHEMA_VERSION = 1
# Of a source that is not as it was when this run took a part of what it takes.
_GONE_ON = "put that run back as it was, or start a new one under another name (run=NAME)"
_REMEDY = "restore it from a copy, or remove it: only reports lose what it says"
# What two cells must have in common for the memory of one to serve the other, and, where no cell is named, besides.
_SAME_MEMORY = ("benchmark", "memory", "embedder")
_SAME_AGENT = ("framework", "backbone")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmTable:
    """A table of this run that began with the numbers of an earlier one."""

    table: str
    source_run: str
    source_cell: str
    source_table: str
    # Decisions and outcomes of each (key, arm) counted at most this often; None = all.
    cap: int | None
    frozen: bool
    # Of goal types, arms, reward, agent, backend and keys.
    fingerprint: str
    # Last event that was read of each of the earlier run's journals, by shard.
    events: tuple[int, ...]

    @property
    def source(self) -> str:
        """One line for the journal; the same whenever the same command is given."""
        return (
            f"run {self.source_run}, cell {self.source_cell}, table {self.source_table}, "
            f"cap {self.cap or 'none'}, fingerprint {self.fingerprint}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmMemory:
    """A cell of this run whose streams began with the memory of an earlier one's."""

    cell: str
    source_run: str
    source_cell: str
    frozen: bool
    # Ended tasks of each stream of the source cell that was copied from, by stream; empty: not known.
    ended: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """Where a run's tables and memories come from."""

    tables: tuple[WarmTable, ...] = ()
    memories: tuple[WarmMemory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a launch has to carry over before its streams begin."""

    starts: Starts = Starts()
    imports: tuple[TableImport, ...] = ()
    # Stream file that each stream whose memory is not filled copies it from, and the tasks that it has ended.
    memory_files: Mapping[StreamName, Path] = field(default_factory=lambda: MappingProxyType({}))
    memory_ended: Mapping[StreamName, int] = field(default_factory=lambda: MappingProxyType({}))


def prepare_starts(plan: RunPlan, found: Mapping[StreamName, tuple[StreamStatus, int]]) -> Prepared:
    """Find and check all that the cells of `plan` start from; nothing is written.

    What an earlier launch took over is not asked for again: a table that is filled or that some stream has begun to
    learn in, and the memory of a stream that is filled. What is still to be taken must come from the source as that
    launch found it, so that a run never starts from two states of another one.

    Raises:
        ConfigError: a cell is not named and none or several fit, or the one that is named does not.
        ConflictError: the source is not as it was when this run took a part of what it takes.
        NotFoundError, DamagedFileError, LockedError, StorageError: the earlier run cannot be read.
    """
    before = read_starts(plan.run_dir)
    fresh, begun = _warm_tables(plan)
    filled = shards_filled(plan, fresh)
    if not (begun or any(filled.values()) or _any_filled_memory(plan, found)):
        # An earlier launch ended before it took anything.
        before = Starts()
    tables = {warm.table: warm for warm in before.tables}
    memories = {warm.cell: warm for warm in before.memories}
    imports: list[TableImport] = []
    copies: dict[StreamName, tuple[Path, int]] = {}
    journals: dict[Path, EarlierTables] = {}
    for table, (cell, stream, start) in fresh.items():
        if filled[table] < plan.settings.policy_server.shards:
            tables[table], request = _table(plan, cell, stream, start, known=tables.get(table), journals=journals)
            imports.append(request)
    for cell in plan.cells:
        start_memory, streams = cell.start_from.memory, _to_fill(cell, found)
        if start_memory is not None and streams:
            memories[cell.cell_id], more = _memory(plan, cell, start_memory, memories.get(cell.cell_id), streams)
            copies |= more
    return Prepared(
        starts=Starts(tables=tuple(tables.values()), memories=tuple(memories.values())),
        imports=tuple(imports),
        memory_files={name: path for name, (path, _) in copies.items()},
        memory_ended={name: num_ended for name, (_, num_ended) in copies.items()},
    )


def read_starts(run_dir: Path) -> Starts:
    """What the run in `run_dir` has taken over; nothing when it says nothing.

    Raises:
        DamagedFileError: starts.json is not what `write_starts` writes.
        SchemaVersionError: another schema version wrote it.
        StorageError: it cannot be read.
    """
    path = run_dir / STARTS_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        version = record.pop("schema_version")
        if version != _SCHEMA_VERSION:
            raise SchemaVersionError(path, version, _SCHEMA_VERSION)
        return codec.decode(Starts, record)
    except FileNotFoundError:
        return Starts()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; check permissions") from error
    except (ValueError, KeyError, AttributeError, TypeError, codec.CodecError) as error:
        raise DamagedFileError(path, str(error), _REMEDY) from error


def write_starts(run_dir: Path, starts: Starts) -> None:
    """Write starts.json, if there is anything to say.

    Raises:
        StorageError: the folder cannot be written.
    """
    if starts != Starts():
        record = {"schema_version": _SCHEMA_VERSION, **codec.encode(starts)}
        replace_file(run_dir / STARTS_FILE, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


# --- tables ----------------------------------------------------------------------------------------------------------


def _warm_tables(plan: RunPlan) -> tuple[dict[str, tuple[Cell, int, TableStart]], set[str]]:
    """Tables that start warm: those that no stream has been claimed for, with their first cell and stream; the others.

    Tables are filled before the first stream of a launch is claimed.

    Raises:
        ConfigError: cells of one table start from different tables, or a cell without a table starts from one.
    """
    warm: dict[str, tuple[Cell, int, TableStart]] = {}
    begun: set[str] = set()
    starts: dict[str, TableStart | None] = {}
    for table, cell, stream in _learning_streams(plan):
        start = cell.start_from.policy
        if starts.setdefault(table, start) != start:
            raise ConfigError(
                f"the cells of table '{table}' start from different tables ('{cell.label}' among them); give all of "
                "them the same start_from.policy"
            )
        if start is not None:
            warm.setdefault(table, (cell, stream, start))
            if stream_path(plan.run_dir, cell.cell_id, stream).exists():
                begun.add(table)
    return {table: place for table, place in warm.items() if table not in begun}, begun


def _learning_streams(plan: RunPlan) -> Iterator[tuple[str, Cell, int]]:
    for cell in plan.cells:
        if learning_settings(cell) is not None:
            for stream in range(cell.streams):
                yield table_name(cell, stream), cell, stream
        elif cell.start_from.policy is not None:
            raise ConfigError(
                f"cell '{cell.label}': start_from.policy, but policy '{cell.policy.name}' keeps no table; remove it"
            )


def _table(
    plan: RunPlan,
    cell: Cell,
    stream: int,
    start: TableStart,
    *,
    known: WarmTable | None,
    journals: dict[Path, EarlierTables],
) -> tuple[WarmTable, TableImport]:
    """Where a table comes from, and what fills it; `known` is what an earlier launch has said of it."""
    doing = f"cell '{cell.label}' starts from the table of an earlier run"
    earlier = earlier_plan(plan, start.run)
    source = earlier_cell(
        earlier,
        start.cell or (known.source_cell if known is not None else None),
        lambda other: cell_difference(other, cell),
        source=lambda other: table_name(other, 0),
        seed=cell.seed,
        doing=doing,
        key="start_from.policy.cell",
    )
    source_table = _source_table(plan, cell, stream, doing=doing, earlier=earlier, source=source)
    folder = earlier.run_dir.resolve()
    if folder not in journals:
        journals[folder] = EarlierTables(earlier)
    read = journals[folder]
    if known is not None and known.events != read.last_events:
        raise ConflictError(
            f"{doing}: run '{earlier.run}' has gone on since this run took its table (its journals ended at event "
            f"{_listed(known.events)}, now at {_listed(read.last_events)}); {_GONE_ON}"
        )
    warm = known or WarmTable(
        table=table_name(cell, stream),
        source_run=earlier.run,
        source_cell=source.cell_id,
        source_table=source_table,
        cap=start.cap,
        frozen=start.frozen,
        fingerprint=fingerprint_id(cell_fingerprint(cell)),
        events=read.last_events,
    )
    return warm, TableImport(table=warm.table, source=warm.source, numbers=read.numbers(source_table, cap=start.cap))


def _source_table(plan: RunPlan, cell: Cell, stream: int, *, doing: str, earlier: RunPlan, source: Cell) -> str:
    """The table of cell `source` that the one of `cell` and `stream` starts from."""
    names = list(dict.fromkeys(table_name(source, index) for index in range(source.streams)))
    if cell.table_scope != "stream" and len(names) > 1:
        raise ConfigError(
            f"{doing}: cell {source.cell_id} of run '{earlier.run}' has {len(names)} tables (table_scope: stream), and "
            "this cell has one; take table_scope: stream, or a run whose streams shared their table"
        )
    found = names[stream % len(names)]
    if difference := sharers_difference(_sharers(earlier, source), _sharers(plan, cell)):
        raise ConfigError(f"{doing}: table '{found}' of run '{earlier.run}' does not fit ({difference})")
    return found


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _sharers(plan: RunPlan, cell: Cell) -> list[Cell]:
    """The cells that learn in the table of `cell`, itself among them."""
    if cell.table_scope in {"cell", "stream"}:
        return [cell]
    return [other for other in plan.cells if other.table_scope == cell.table_scope and learning_settings(other)]


# --- memories --------------------------------------------------------------------------------------------------------


def _to_fill(cell: Cell, found: Mapping[StreamName, tuple[StreamStatus, int]]) -> list[int]:
    """Streams of `cell` whose memory is not filled; one with an ended task was."""
    statuses = {stream: found[cell.cell_id, stream][0] for stream in range(cell.streams)}
    return [stream for stream, status in statuses.items() if not status.is_seeded and status.num_ended == 0]


def _any_filled_memory(plan: RunPlan, found: Mapping[StreamName, tuple[StreamStatus, int]]) -> bool:
    cells = [cell for cell in plan.cells if cell.start_from.memory is not None]
    return any(len(_to_fill(cell, found)) < cell.streams for cell in cells)


def _memory(
    plan: RunPlan, cell: Cell, start: MemoryStart, known: WarmMemory | None, streams: list[int]
) -> tuple[WarmMemory, dict[StreamName, tuple[Path, int]]]:
    """Where the memory of `cell` comes from, and the file for each of its `streams` with the tasks that it has ended.

    `known` is what an earlier launch has said of it: it has chosen, and the earlier run may have got more cells since.
    """
    doing = f"cell '{cell.label}' starts from the memory of an earlier run"
    earlier = earlier_plan(plan, start.run)
    same = _SAME_MEMORY if start.cell is not None else (*_SAME_MEMORY, *_SAME_AGENT)
    source = earlier_cell(
        earlier,
        start.cell or (known.source_cell if known is not None else None),
        lambda other: _memory_difference(other, cell, same, seed=start.cell is None),
        source=lambda other: other.cell_id,
        seed=cell.seed,
        doing=doing,
        key="start_from.memory.cell",
    )
    ended: dict[int, int] = {}
    files = {}
    for stream in streams:
        index = stream % source.streams
        if index not in ended:
            ended[index] = _ended(earlier, source, index, doing)
        if known is not None and known.ended and known.ended[index] != ended[index]:
            raise ConflictError(
                f"{doing}: run '{earlier.run}' has gone on since this run took its memory (stream {index} of cell "
                f"{source.cell_id} had ended {known.ended[index]} tasks, now {ended[index]}); {_GONE_ON}"
            )
        files[cell.cell_id, stream] = stream_path(earlier.run_dir.resolve(), source.cell_id, index), ended[index]
    warm = known or WarmMemory(
        cell=cell.cell_id,
        source_run=earlier.run,
        source_cell=source.cell_id,
        frozen=start.frozen,
        # What others were filled with is not known where starts.json was removed.
        ended=tuple(ended[index] for index in sorted(ended)) if len(streams) == cell.streams else (),
    )
    return warm, files


def _ended(earlier: RunPlan, source: Cell, stream: int, doing: str) -> int:
    """Ended tasks of a stream whose memory is taken.

    Raises:
        ConfigError: it has ended none.
    """
    num_ended = stream_status(earlier.run_dir, source.cell_id, stream).num_ended
    if num_ended == 0:
        path = stream_path(earlier.run_dir.resolve(), source.cell_id, stream)
        raise ConfigError(f"{doing}: stream {stream} of cell {source.cell_id} has ended no task ({path}); run it first")
    return num_ended


def _memory_difference(other: Cell, cell: Cell, axes: tuple[str, ...], *, seed: bool) -> str:
    """How the memory of `other` cannot serve `cell`, or ""."""
    differing = [
        f"{axis}: recorded {_told(other, axis)}, asked {_told(cell, axis)}"
        for axis in axes
        if _told(other, axis) != _told(cell, axis)
    ]
    if seed and other.seed != cell.seed:
        differing.append(f"seed: recorded {other.seed}, asked {cell.seed}")
    return "; ".join(differing)


def _told(cell: Cell, axis: str) -> str:
    entry = getattr(cell, axis)
    return f"{entry.name} {codec.encode_json(entry.parameters)}" if entry.parameters else str(entry.name)
