"""ItemIndex: exact nearest-text search over the items of one source, kept in the stream's file.

Owns its rows and their copy in memory (a float32 matrix that grows by doubling); never commits. A rollback of the file
makes it read its rows again, so that memory is never ahead of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memcon.errors import ConfigError, DamagedFileError
from memcon.protocols import Embedder
from memcon.store import DAMAGE_REMEDY, StreamStore
from memcon.types import MemoryItem

__all__ = ["SCORE_DECIMALS", "ItemIndex"]

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


@dataclass(frozen=True, slots=True)
class _Row:
    query_text: str
    text: str


class ItemIndex:
    """Items under `source`, found by the similarity of the text that they are filed under.

    Raises:
        DamagedFileError: a row is not what was written.
        ConfigError: the rows were embedded by another embedder.
    """

    def __init__(self, store: StreamStore, embedder: Embedder, *, source: str) -> None:
        self._store, self._embedder, self._source = store, embedder, source
        self._load()

    def __len__(self) -> int:
        self._catch_up()
        return len(self._rows)

    def add(self, query_text: str, text: str) -> str:
        """File `text` under `query_text`; returns the item's id. Written with the task's commit."""
        self._catch_up()
        vector = self._embedder.embed([query_text])[0]
        place = len(self._rows)
        with self._store.storage_errors():
            self._store.connection.execute(_SCHEMA)
            self._store.connection.execute(
                "INSERT INTO memory_items VALUES (?, ?, ?, ?, ?, ?)",
                (self._source, place, query_text, text, _to_bytes(vector), self._embedder.name),
            )
        self._append(query_text, text, vector)
        return self._item_id(place)

    def search(self, query: str, top_k: int) -> tuple[MemoryItem, ...]:
        """The `top_k` most similar items, best first.

        Ties go to an item filed under exactly `query`, then to the older one.
        """
        self._catch_up()
        if top_k <= 0 or not self._rows:
            return ()
        scores = self._scores(self._embedder.embed([query])[0])
        exact = np.fromiter((row.query_text != query for row in self._rows), dtype=bool, count=len(self._rows))
        # The last key rules; lexsort is stable, so older items come first.
        best = np.lexsort((exact, -scores))[:top_k]
        return tuple(self._item(int(place), float(scores[place])) for place in best)

    def _item(self, place: int, score: float) -> MemoryItem:
        return MemoryItem(item_id=self._item_id(place), source=self._source, score=score, text=self._rows[place].text)

    def _item_id(self, place: int) -> str:
        return f"{self._source}-{place}"

    def _scores(self, query: NDArray[np.float32]) -> NDArray[np.float64]:
        """Cosine of `query` with every item, rounded; float64, shape (num_items,)."""
        wide = query.astype(np.float64)
        scores = np.empty(len(self._rows), dtype=np.float64)
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
        self._rows: list[_Row] = []
        self._matrix = np.zeros((_FIRST_CAPACITY, self._embedder.dim), dtype=np.float32)
        with self._store.storage_errors():
            has_table = self._store.connection.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'memory_items'"
            ).fetchone()
            if has_table is None:
                return
            rows = self._store.connection.execute(
                "SELECT place, query_text, text, vector, embedder FROM memory_items WHERE source = ? ORDER BY place",
                (self._source,),
            ).fetchall()
        for place, query_text, text, vector, embedder in rows:
            self._check_embedder(embedder)
            if place != len(self._rows):
                raise self._damaged(place, f"item {len(self._rows)} is missing")
            if not (isinstance(query_text, str) and isinstance(text, str)):
                raise self._damaged(place, "its text is no text")
            self._append(query_text, text, self._from_bytes(vector, place))

    def _append(self, query_text: str, text: str, vector: NDArray[np.float32]) -> None:
        if len(self._rows) == len(self._matrix):
            self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
        self._matrix[len(self._rows)] = vector
        self._rows.append(_Row(query_text, text))

    def _check_embedder(self, embedder: object) -> None:
        if embedder != self._embedder.name:
            raise ConfigError(
                f"{self._store.path}: items were embedded by {embedder!r}, not {self._embedder.name!r}; "
                "take that embedder, or start the stream anew"
            )

    def _from_bytes(self, blob: object, place: int) -> NDArray[np.float32]:
        if not isinstance(blob, bytes) or len(blob) != 4 * self._embedder.dim:
            raise self._damaged(place, f"its vector does not have {self._embedder.dim} numbers")
        vector = np.frombuffer(blob, dtype="<f4").astype(np.float32)
        if not np.isfinite(vector).all():
            raise self._damaged(place, "its vector is not finite")
        return vector

    def _damaged(self, place: int, problem: str) -> DamagedFileError:
        return DamagedFileError(self._store.path, f"memory item {self._source}-{place}: {problem}", DAMAGE_REMEDY)


def _to_bytes(vector: NDArray[np.float32]) -> bytes:
    return vector.astype("<f4").tobytes()
