"""Who owns a journal at this moment: asked before somebody else claims it, since a claim ends the owner."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from memcon_policy_server.journal.owner_process import living
from memcon_policy_server.journal.schema import meta
from memcon_policy_server.journal.sqlite_engine import Store

__all__ = ["live_owner"]


def live_owner(path: Path) -> int | None:
    """Id of the process that claimed the journal at `path` last, if it is alive and another than this one.

    None as well where that cannot be told for certain, and once the owner has closed the journal in order.

    Raises:
        MemconError: the journal cannot be read.
    """
    with closing(Store(path, read_only=True)) as store, store.reading("read the owner of") as connection:
        owner = str(connection.execute(sa.select(meta.c.owner)).scalar_one())
    return living(owner)
