"""verify: fold every journal of a run and hold the result against what was served and against the run's Parquet.

The chain of checksums finds a row that was altered by hand; the served tables and the trajectories, which other
processes wrote, find an alteration whose checksums were computed anew. Nothing is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memcon.errors import MemconError, NotFoundError
from memcon.learning.shard import PolicyShard
from memcon_platform.replay.cross_check import Ledger
from memcon_policy_server.fold import fold
from memcon_policy_server.journal import SqliteJournal
from memcon_policy_server.owner import served_tables
from memcon_policy_server.sharding import export_path, journal_path

__all__ = ["VerifyReport", "verify"]

# The fold signs nothing: any key of the right length serves.
_NO_SECRET = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a verification saw. It holds when `problems` is empty."""

    shards: int
    tables: int
    events: int
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
    problems: list[str] = field(default_factory=list)


def verify(run_dir: Path) -> VerifyReport:
    """Check all journals of the run in `run_dir`.

    Raises:
        NotFoundError: the folder holds no journal.
        MemconError: the run's Parquet files cannot be read.
    """
    directory = run_dir / "policy"
    num_shards = len(list(directory.glob("shard-*.sqlite")))
    if num_shards == 0:
        raise NotFoundError(f"{run_dir} has no policy journal (policy/shard-0.sqlite); give the folder of a run")
    findings, ledger, complete = _Findings(), Ledger(), True
    for shard in range(num_shards):
        try:
            complete &= _verify_shard(directory, shard, num_shards, findings=findings, ledger=ledger)
        except MemconError as error:
            findings.problems.append(str(error))
            complete = False
    findings.problems += ledger.differences(run_dir, complete=complete)
    return VerifyReport(
        shards=num_shards, tables=len(findings.tables), events=findings.events, problems=tuple(findings.problems)
    )


def _verify_shard(directory: Path, shard: int, num_shards: int, *, findings: _Findings, ledger: Ledger) -> bool:
    """Fold one journal; True when the served tables cover it to its end."""
    core = PolicyShard(shard, num_shards, _NO_SECRET)
    export = export_path(directory, shard)
    served, missing = _served(export)
    findings.problems += missing
    journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards, read_only=True)
    last_seq, folded = 0, served_tables(core, shard, num_shards, 0)
    try:
        for row, event in fold(journal, core):
            last_seq = row.seq
            findings.events += 1
            findings.tables.add(event.table)
            ledger.add(row, event, core)
            if served and row.seq == served.get("last_seq"):
                folded = served_tables(core, shard, num_shards, row.seq)
    finally:
        journal.close()
    if served and _text(served) != _text(folded):
        findings.problems.append(f"{export}: {_first_difference(served, folded, 'the served tables')}")
    return bool(served) and served.get("last_seq") == last_seq


def _served(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, [f"{path} does not exist: no launch of this run has ended yet; run its sweep command again"]
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
                return f"{inner} stands in {'the served tables' if key in served else 'the folded journal'} only"
            if _text(served[key]) != _text(folded[key]):
                return _first_difference(served[key], folded[key], inner)
    return f"{where}: served {_short(served)}, the journal folds to {_short(folded)}"


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= 80 else text[:77] + "..."
