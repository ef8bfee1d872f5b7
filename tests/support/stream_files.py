"""Builders for tests of the stream file: an open file, outcomes, and notes that stand for what a backend writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memcon.policy_types import OutcomeRequest
from memcon.store import StreamStore
from memcon.types import Episode

__all__ = ["IDENTITY", "note", "noted", "notes", "opened", "outcome"]

IDENTITY = "cell/0"


@contextmanager
def opened(path: Path, identity: str = IDENTITY) -> Iterator[StreamStore]:
    """The stream file at `path`, closed at the end."""
    store = StreamStore(path, identity=identity)
    try:
        yield store
    finally:
        store.close()


def outcome(decision_id: str, position: int, reward: float = 1.0) -> OutcomeRequest:
    """The outcome of the last decision of a task."""
    return OutcomeRequest(
        decision_id=decision_id, token="token", reward=reward, position=position, num_decisions=position + 1
    )


def notes(store: StreamStore) -> list[str]:
    """What `note` wrote and a commit kept."""
    if not store.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'notes'").fetchone():
        return []
    return [row[0] for row in store.connection.execute("SELECT text FROM notes ORDER BY rowid")]


def note(store: StreamStore, text: str) -> None:
    """Write as a backend does: inside whatever transaction is open."""
    store.connection.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
    store.connection.execute("INSERT INTO notes VALUES (?)", (text,))


def noted(store: StreamStore, text: str, episode: Episode) -> Episode:
    """`episode`, after a note."""
    note(store, text)
    return episode
