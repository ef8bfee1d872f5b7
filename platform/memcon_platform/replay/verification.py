"""verify: fold every journal of a run and hold the result against what was served and against the run's Parquet.

The chain of checksums finds a row that was altered by hand; the served tables, the latest snapshot and the trajectories
find an alteration whose checksums were computed anew. The fold of a journal that was compacted begins with the base
that stands for the dropped events. Nothing is written.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memcon.errors import MemconError
from memcon.learning.shard import PolicyShard
from memcon_platform.replay.cross_check import Ledger
from memcon_policy_server.journal.fold import fold, load_snapshot, unsigned_shard
from memcon_policy_server.journal.folder_lock import folding
from memcon_policy_server.journal.snapshot import Snapshot, read_snapshot
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.owner.exports import served_tables
from memcon_policy_server.sharding import export_path, journal_path, shards_in, snapshot_path

__all__ = ["VerifyReport", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a verification saw. It holds when `problems` is empty."""

    shards: int
    tables: int
    events: int
    # Events that were compacted away, in all journals: a base stands for them, and they were not folded again.
    compacted: int
    # One line each; names the journal, the event and its decision where one is to blame.
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """The journal, the served tables and the trajectories say the same."""
        return not self.problems


@dataclass(slots=True, kw_only=True)
class _Findings:
    tables: set[str] = field(default_factory=set)
    events: int = 0
    compacted: int = 0
    problems: list[str] = field(default_factory=list)


def verify(run_dir: Path) -> VerifyReport:
    """Check all journals of the run in `run_dir`, or of the served policy whose folder it is.

    Raises:
        NotFoundError: the folder holds no journal.
        MemconError: the run's Parquet files cannot be read.
    """
    directory = run_dir / "policy" if (run_dir / "policy").is_dir() else run_dir
    num_shards = shards_in(directory)
    findings, ledger, complete = _Findings(), Ledger(), True
    for shard in range(num_shards):
        try:
            complete &= _verify_shard(directory, shard, num_shards, findings=findings, ledger=ledger)
        except MemconError as error:
            findings.problems.append(str(error))
            complete = False
    findings.problems += ledger.differences(run_dir, complete=complete)
    return VerifyReport(
        shards=num_shards,
        tables=len(findings.tables),
        events=findings.events,
        compacted=findings.compacted,
        problems=tuple(findings.problems),
    )


def _verify_shard(directory: Path, shard: int, num_shards: int, *, findings: _Findings, ledger: Ledger) -> bool:
    """Fold one journal; True when all its events are there and the served tables cover them to their end."""
    core = unsigned_shard(shard, num_shards)
    export = export_path(directory, shard)
    served, missing = _served(export)
    findings.problems += missing
    snapshot = _snapshot(snapshot_path(directory, shard), findings)
    journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards, read_only=True)
    with closing(journal), folding(directory):
        base_seq = last_seq = load_snapshot(journal, core, latest=False)
        findings.compacted += base_seq
        findings.tables.update(core.tables())
        folded = served_tables(core, shard, num_shards, base_seq)
        for row, event in fold(journal, core, after=base_seq):
            last_seq = row.seq
            findings.events += 1
            findings.tables.add(event.table)
            ledger.add(row, event, core)
            if served and row.seq == served.get("last_seq"):
                folded = served_tables(core, shard, num_shards, row.seq)
            if snapshot is not None and row.seq == snapshot.seq:
                findings.problems += _snapshot_differences(core, snapshot, directory)
    # Tables that were served before what was compacted away have nothing left to be held against.
    if served and served.get("last_seq", 0) >= base_seq and _text(served) != _text(folded):
        findings.problems.append(f"{export}: {_first_difference(served, folded, 'the served tables')}")
    return bool(served) and served.get("last_seq") == last_seq and base_seq == 0


def _snapshot(path: Path, findings: _Findings) -> Snapshot | None:
    try:
        return read_snapshot(path)
    except MemconError as error:
        findings.problems.append(str(error))
        return None


def _snapshot_differences(core: PolicyShard, snapshot: Snapshot, directory: Path) -> list[str]:
    """The first difference between `core` and the snapshot of the same event, as one line; empty when there is none."""
    loaded = unsigned_shard(snapshot.shard, snapshot.num_shards)
    loaded.load(snapshot.state)
    shown, folded = (
        served_tables(shard, snapshot.shard, snapshot.num_shards, snapshot.seq) for shard in (loaded, core)
    )
    if _text(shown) == _text(folded):
        return []
    difference = _first_difference(shown, folded, "the snapshot")
    return [f"{snapshot_path(directory, snapshot.shard)}: {difference}; move it away, the journal is the truth"]


def _served(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, [f"{path} does not exist: no launch has ended yet; run the same command again"]
    except (OSError, ValueError) as error:
        return {}, [f"{path} cannot be read: {error}"]
    return (content, []) if isinstance(content, dict) else ({}, [f"{path} holds no tables"])


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _first_difference(served: Any, folded: Any, where: str) -> str:
    """Where the two first differ, as one sentence."""
    if isinstance(served, dict) and isinstance(folded, dict):
        for key in sorted(served.keys() | folded.keys()):
            inner = f"{where} > {key}"
            if key not in folded or key not in served:
                return f"{inner} stands {'there' if key in served else 'in the folded journal'} only"
            if _text(served[key]) != _text(folded[key]):
                return _first_difference(served[key], folded[key], inner)
    return f"{where}: {_short(served)} there, the journal folds to {_short(folded)}"


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= 80 else text[:77] + "..."
