"""Who owns a journal at this moment: asked before somebody else claims it, since a claim ends the owner."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path

import sqlalchemy as sa

from memcon_policy_server.journal.schema import meta
from memcon_policy_server.journal.sqlite_engine import Store

__all__ = ["live_owner"]


def live_owner(path: Path) -> int | None:
    """Id of the process that claimed the journal at `path` last, if it is alive and another than this one.

    None as well where that cannot be told for certain: another process has its id by now, or it is on another machine.

    Raises:
        MemconError: the journal cannot be read.
    """
    with closing(Store(path, read_only=True)) as store, store.reading("read the owner of") as connection:
        owner = str(connection.execute(sa.select(meta.c.owner)).scalar_one())
    pid_text, _, start = owner.partition(":")
    if not (start and pid_text.isdecimal()) or int(pid_text) == os.getpid():
        return None
    with suppress(OSError):
        # As `owner_process` writes it: the 22nd field, counted behind the name, which may hold blanks.
        stat = Path(f"/proc/{pid_text}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        # A zombie has ended; nobody has asked for its code yet.
        if stat[19] == start and stat[0] != "Z":
            return int(pid_text)
    return None
