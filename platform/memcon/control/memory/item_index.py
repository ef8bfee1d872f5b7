"""ItemIndex: exact nearest-text search over the items of one or several sources, kept in the stream's file.

Owns its rows and their copy in memory (a float32 matrix that grows by doubling); never commits. A rollback of the file
makes it read its rows again, so that memory is never ahead of the file.

An item's id is its source and its place in the order in which items were filed. A place is given once: a removed item
leaves its place in a table of its own, so that ids stay unique, and a row that is missing without it is damage.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memcon import ids
from memcon.errors import ConfigError, DamagedFileError, InvariantError, MemconError
from memcon.protocols import Embedder
from memcon.store import DAMAGE_REMEDY, StreamStore
from memcon.types import MemoryItem

__all__ = ["SCORE_DECIMALS", "FiledItem", "ItemIndex"]

# Similarities are rounded, so that the store's size (which moves the last bits of a product) cannot flip a ranking.
SCORE_DECIMALS = 6
_FIRST_CAPACITY = 64
# Rows of the float64 copy that a search makes at a time.
_CHUNK = 4096

_SCHEMA = """
CREATE TABLE IF NOT EXISTS memory_items (source TEXT NOT NULL, place INTEGER NOT NULL, query_text TEXT NOT NULL,
                                         text TEXT NOT NULL, vector BLOB NOT NULL, embedder TEXT NOT NULL,
                                         PRIMARY KEY (source, place))
"""
_REMOVED_SCHEMA = """
CREATE TABLE IF NOT EXISTS memory_removed (source TEXT NOT NULL, place INTEGER NOT NULL,
                                           PRIMARY KEY (source, place)) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledItem:
    """One item as it was filed."""

    source: str
    # 0-based place in the order of filing, never given twice in an index.
    place: int
    query_text: str
    text: str

    @property
    def item_id(self) -> str:
        """Stable for the life of the stream."""
        return f"{self.source}-{self.place}"


class ItemIndex:
    """Items under `sources`, found together by the similarity of the text that they are filed under.

    Raises:
        DamagedFileError: a row is not what was written.
        ConfigError: the rows were embedded by another embedder, or filed in other indexes.
    """

    def __init__(self, store: StreamStore, embedder: Embedder, *, sources: tuple[str, ...]) -> None:
        self._store, self._embedder, self._sources = store, embedder, sources
        self._items: list[FiledItem] = []
        # float32, shape (capacity, dim): row i belongs to item i.
        self._matrix = np.zeros((0, embedder.dim), dtype=np.float32)
        self._next_place = 0
        self._load()

    def __len__(self) -> int:
        self._catch_up()
        return len(self._items)

    def items(self) -> tuple[FiledItem, ...]:
        """All items, oldest first."""
        self._catch_up()
        return tuple(self._items)

    def add(self, source: str, query_text: str, text: str) -> str:
        """File `text` under `query_text`; returns the item's id. Written with the task's commit.

        Raises:
            InvariantError: `source` is none of the index's.
            StorageError: the disk refuses.
        """
        if source not in self._sources:
            raise InvariantError(f"an index over {', '.join(self._sources)} cannot file under '{source}'")
        self._catch_up()
        vector = self._embedder.embed([query_text])[0]
        item = FiledItem(source=source, place=self._next_place, query_text=query_text, text=text)
        with self._store.storage_errors():
            self._store.connection.execute(_SCHEMA)
            self._store.connection.execute(
                "INSERT INTO memory_items VALUES (?, ?, ?, ?, ?, ?)",
                (source, item.place, query_text, text, _to_bytes(vector), self._embedder.name),
            )
        self._append(item, vector)
        self._next_place += 1
        return item.item_id

    def remove(self, places: Collection[int]) -> None:
        """Take the items at `places` out of file and index, in the same commit; other places are left as they are.

        Raises:
            StorageError: the disk refuses.
        """
        self._catch_up()
        gone = [item for item in self._items if item.place in places]
        if not gone:
            return
        keys = [(item.source, item.place) for item in gone]
        with self._store.storage_errors():
            self._store.connection.execute(_REMOVED_SCHEMA)
            self._store.connection.executemany("INSERT INTO memory_removed VALUES (?, ?)", keys)
            self._store.connection.executemany("DELETE FROM memory_items WHERE source = ? AND place = ?", keys)
        kept = [row for row, item in enumerate(self._items) if item.place not in places]
        self._matrix[: len(kept)] = self._matrix[kept]
        self._items = [self._items[row] for row in kept]

    def search(self, query: str, top_k: int) -> tuple[MemoryItem, ...]:
        """The `top_k` most similar items, best first.

        Ties go to an item filed under exactly `query`, then to the older one.
        """
        self._catch_up()
        if top_k <= 0 or not self._items:
            return ()
        scores = self._scores(self._embedder.embed([query])[0])
        exact = np.fromiter((item.query_text != query for item in self._items), dtype=bool, count=len(self._items))
        # The last key rules; lexsort is stable, so older items come first.
        best = np.lexsort((exact, -scores))[:top_k]
        return tuple(self._found(int(row), float(scores[row])) for row in best)

    def draw(self, query: str, top_k: int) -> tuple[MemoryItem, ...]:
        """`top_k` items drawn by a keyed hash of `query` and item, with score 0: the same for the same store."""
        self._catch_up()
        rows = sorted(range(len(self._items)), key=lambda row: ids.draw64("draw item", query, self._items[row].item_id))
        return tuple(self._found(row, 0.0) for row in rows[: max(0, top_k)])

    def _found(self, row: int, score: float) -> MemoryItem:
        item = self._items[row]
        return MemoryItem(item_id=item.item_id, source=item.source, score=score, text=item.text)

    def _scores(self, query: NDArray[np.float32]) -> NDArray[np.float64]:
        """Cosine of `query` with every item, rounded; float64, shape (num_items,)."""
        wide = query.astype(np.float64)
        scores = np.empty(len(self._items), dtype=np.float64)
        for start in range(0, len(scores), _CHUNK):
            stop = min(start + _CHUNK, len(scores))
            # Products in float64 leave an error of 1e-16, far below the rounding; in float32 it would be 1e-7.
            scores[start:stop] = self._matrix[start:stop].astype(np.float64) @ wide
        # Adding 0 turns -0.0 into 0.0.
        return np.round(scores, SCORE_DECIMALS) + 0.0

    # --- rows --------------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        if self._rollbacks != self._store.rollbacks:
            self._load()

    def _load(self) -> None:
        self._rollbacks = self._store.rollbacks
        self._items = []
        self._matrix = np.zeros((_FIRST_CAPACITY, self._embedder.dim), dtype=np.float32)
        self._next_place = 0
        marks = ", ".join("?" * len(self._sources))
        removed = {row[0] for row in self._read("memory_removed", "place", f"source IN ({marks})", self._sources)}
        columns = "source, place, query_text, text, vector, embedder"
        for source, place, query_text, text, vector, embedder in self._read(
            "memory_items", columns, f"source IN ({marks}) ORDER BY place, source", self._sources
        ):
            self._check_embedder(embedder)
            self._skip(removed)
            if place != self._next_place:
                raise self._misplaced(place)
            if not (isinstance(query_text, str) and isinstance(text, str)):
                raise self._damaged(f"{source}-{place}", "its text is no text")
            item = FiledItem(source=source, place=place, query_text=query_text, text=text)
            self._append(item, self._from_bytes(vector, item))
            self._next_place += 1
        self._skip(removed)
        if removed:
            raise self._misplaced(min(removed))

    def _skip(self, removed: set[int]) -> None:
        """Go on over the places that removed items left."""
        while self._next_place in removed:
            removed.remove(self._next_place)
            self._next_place += 1

    def _read(self, table: str, columns: str, condition: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """Rows of one of the index's tables; none when it was never written."""
        with self._store.storage_errors():
            has_table = self._store.connection.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
            ).fetchone()
            if has_table is None:
                return []
            return self._store.connection.execute(f"SELECT {columns} FROM {table} WHERE {condition}", values).fetchall()

    def _append(self, item: FiledItem, vector: NDArray[np.float32]) -> None:
        if len(self._items) == len(self._matrix):
            self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
        self._matrix[len(self._items)] = vector
        self._items.append(item)

    def _check_embedder(self, embedder: object) -> None:
        if embedder != self._embedder.name:
            raise ConfigError(
                f"{self._store.path}: items were embedded by {embedder!r}, not {self._embedder.name!r}; "
                "take that embedder, or start the stream anew"
            )

    def _from_bytes(self, blob: object, item: FiledItem) -> NDArray[np.float32]:
        if not isinstance(blob, bytes) or len(blob) != 4 * self._embedder.dim:
            raise self._damaged(item.item_id, f"its vector does not have {self._embedder.dim} numbers")
        vector = np.frombuffer(blob, dtype="<f4").astype(np.float32)
        if not np.isfinite(vector).all():
            raise self._damaged(item.item_id, "its vector is not finite")
        return vector

    def _misplaced(self, place: int) -> MemconError:
        """Why nothing can stand at `place` when `_next_place` is the next one: another arrangement, or damage."""
        first = min(place, self._next_place)
        holders = [
            row[0]
            for table in ("memory_items", "memory_removed")
            for row in self._read(table, "source", "place = ?", (first,))
        ]
        # A place given twice here was given in several indexes; one that is missing here was given to another source.
        if len(set(holders)) > 1 or (place > self._next_place and holders):
            return ConfigError(
                f"{self._store.path}: its items were not filed in one index over {', '.join(self._sources)}; "
                "take the memory settings that it was made with"
            )
        sources = "/".join(self._sources)
        if place < self._next_place:
            return self._damaged(f"{sources}-{place}", "it was removed and is still there")
        return self._damaged(f"{sources}-{place}", f"item {self._next_place} is missing")

    def _damaged(self, item_id: str, problem: str) -> DamagedFileError:
        return DamagedFileError(self._store.path, f"memory item {item_id}: {problem}", DAMAGE_REMEDY)


def _to_bytes(vector: NDArray[np.float32]) -> bytes:
    return vector.astype("<f4").tobytes()
