"""All events of a policy as Parquet in a folder of the caller's: a copy of the one export, which it brings up to date.

Not an export of its own: the journal knows one, and drops what that holds (`memcon_platform.trajectory.events`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from memcon.errors import ConfigError, DamagedFileError, StorageError
from memcon.files import replace_file
from memcon_platform.trajectory.events import export_events
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import journal_path, shards_in

__all__ = ["copy_events"]

# Beside the journals, as `memcon data export` has it.
EVENTS_FOLDER = "events"


def copy_events(directory: Path, destination: Path, say: Callable[[str], None]) -> tuple[int, int]:
    """Put all events of the policy folder `directory` into `destination`; returns how many files, and how many new.

    May run beside live owners. A file that is there already is written anew.

    Raises:
        ConfigError: `destination` is the folder of the export itself.
        DamagedFileError: the export lacks the first events of a shard: it was moved or removed.
        MemconError: a journal is damaged, or a place cannot be read or written.
    """
    source = directory / EVENTS_FOLDER
    if destination.resolve() == source.resolve():
        raise ConfigError(f"{destination} is the policy's own export; run `memcon data export`, or give another folder")
    say("bringing the export up to date")
    exported = export_events(directory, source)
    files = sorted(source.glob("shard=*/events-*.parquet"))
    num_shards = shards_in(directory)
    for shard in range(num_shards):
        _check_first(directory, source, shard, num_shards)
    for number, path in enumerate(files, start=1):
        say(f"copying file {number} of {len(files)}")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}; mend its permissions") from error
        replace_file(destination / path.relative_to(source), content)
    return len(files), exported


def _check_first(directory: Path, source: Path, shard: int, num_shards: int) -> None:
    path = journal_path(directory, shard)
    with closing(SqliteJournal(path, shard=shard, num_shards=num_shards, read_only=True)) as journal:
        exported = journal.marks().exported_seq
    first = source / f"shard={shard}" / f"events-{1:012d}.parquet"
    if exported and not first.exists():
        raise DamagedFileError(
            source,
            f"it does not hold the first events of {path.name}, though they were exported",
            f"put {first.relative_to(directory)} back from where the export was moved to",
        )
