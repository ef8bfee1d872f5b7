"""The working copy of a run in an object store: the folder in which this machine drives it.

It is brought up to date before a launch where another machine has gone on, and is never overwritten where it holds
what the store has not.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memcon.errors import ConflictError, DamagedFileError, StorageError
from memcon.files import replace_file
from memcon_platform.mirror import Manifest, fetch_run, unpublished
from memcon_platform.mirror.synced import load, rebased
from memcon_platform.objects import ObjectStore

__all__ = ["WorkingCopy", "may_go", "open_working_copy"]

# Hidden, so that it is never published: a copy of the folder elsewhere is another working copy.
_STATE_FILE = ".working_copy.json"


@dataclass(slots=True, kw_only=True)
class WorkingCopy:
    """A working copy, as the file beside its data says."""

    folder: Path
    # Random; names the copy in the run's lock, over all launches.
    name: str
    # It was being fetched, and what a fetched run needs before it goes on may not have been done: nobody's work.
    is_raw: bool = False

    def save(self) -> None:
        """Write the file.

        Raises:
            StorageError: the folder cannot be written.
        """
        replace_file(self.folder / _STATE_FILE, json.dumps({"name": self.name, "is_raw": self.is_raw}))

    def bring_up_to_date(self, store: ObjectStore, there: Manifest | None, say: Callable[[str], None]) -> None:
        """Fetch what the folder has not of the run as its manifest `there` says: what others did, and what was lost.

        Raises:
            ConflictError: so it is, and the folder holds work of its own; nothing was written.
            MemconError: the store cannot be used, or the folder cannot be written.
        """
        synced = load(self.folder, store.uri)
        if there is None:
            if synced.manifest is not None:
                say(f"{store.uri} holds no run any more: it is published anew from {self.folder}")
            return
        is_behind = rebased(synced, there).manifest != there.digest
        lacking = [key for key in there.files if not (may_go(key) or (self.folder / key).exists())]
        if not is_behind and not lacking:
            return
        # What an earlier fetch wrote before it was cut short is no work of this folder, and what is lost is none.
        changed = [] if self.is_raw else unpublished(self.folder, store.uri)
        if own := [key for key in changed if (self.folder / key).exists()]:
            problem = (
                f"{store.uri} has gone on elsewhere (generation {there.generation})"
                if is_behind
                else f"{self.folder} has lost {len(lacking)} files that {store.uri} has, such as {lacking[0]}"
            )
            raise ConflictError(
                f"{problem}, and {self.folder} holds {len(own)} files that were never published, {own[0]} first; "
                "nothing was written: to go on from the store, move that folder away; to keep its work, publish it "
                "under another name (run=NAME)"
            )
        say(f"fetching {store.uri} into {self.folder} ({len(there.files)} files)")
        self.is_raw = True
        self.save()
        fetch_run(store, self.folder)

    @property
    def is_gone(self) -> bool:
        """Somebody has removed or emptied the folder."""
        return not (self.folder / _STATE_FILE).exists()

    def refuse_gone(self) -> None:
        """Refuse to publish from a folder that somebody has emptied.

        Raises:
            DamagedFileError: so it is.
        """
        if self.is_gone:
            raise DamagedFileError(
                self.folder,
                "the working copy was removed or emptied while its run went on",
                "nothing more is published; move away what is left of it, then run the same command again to go on "
                "from what was published",
            )

    def is_ready(self) -> None:
        """What a fetched run needs has been done."""
        if self.is_raw:
            self.is_raw = False
            self.save()


def may_go(key: str) -> bool:
    """Whether a launch removes such files of a run itself: whatever else is not there was lost."""
    return key.endswith((".error", "report.html"))


def open_working_copy(folder: Path) -> WorkingCopy:
    """The working copy in `folder`; a new one gets its name.

    Raises:
        DamagedFileError: its file cannot be read.
        StorageError: the folder cannot be written.
    """
    path = folder / _STATE_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return WorkingCopy(folder=folder, name=str(record["name"]), is_raw=bool(record["is_raw"]))
    except FileNotFoundError:
        copy = WorkingCopy(folder=folder, name=secrets.token_hex(8))
        copy.save()
        return copy
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; check permissions") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(path, str(error), "remove it; then run `memcon data unlock` on the run's URI") from error
