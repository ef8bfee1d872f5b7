"""The numbers of a tabular policy: per (key, arm) q, taken, credited and the sum of squared returns.

Owns the counts and the one update rule (`memcon.learning.kernel`); knows neither decisions nor exploration. A decision
counts at every key of its chain (reading A-31), so that a coarse key's counts are the sums of its finer ones. Not
thread-safe: one writer a table.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memcon.errors import InvariantError
from memcon.learning import kernel
from memcon.policy_types import LearningSettings

__all__ = ["KeyView", "Numbers", "QTable"]

_DUMP_VERSION = 1
# Rows at first; doubled whenever they are used up.
_FIRST_ROWS = 64
# q, taken, credited, squares.
_PLANES = 4
_FLOAT_BYTES = 8

# Key -> arm -> {"q": float.hex, "taken": int, "credited": int, "squares": float.hex}.
Numbers: TypeAlias = Mapping[str, Mapping[str, Mapping[str, str | int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    """One key's numbers at one moment, arm by arm in arm order: what a learning rule sees."""

    action_ids: tuple[str, ...]
    priors: tuple[float, ...]
    # float64, shape (num_arms,)
    q: tuple[float, ...]
    # N_a of Eq. 6: decisions taken, open ones included.
    taken: tuple[int, ...]
    # Decisions with an outcome; never above `taken`.
    credited: tuple[int, ...]


class QTable:
    """Action values of one table. When it is frozen, nothing but what loads them changes them.

    Args:
        settings: Of the table.
        kernels: The form of the arithmetic; None = compiled where numba is installed.
    """

    __slots__ = (
        "_alpha",
        "_arms",
        "_cap",
        "_credit",
        "_frozen",
        "_kernels",
        "_num_arms",
        "_place",
        "_priors",
        "_size",
        "_texts",
        "cells",
        "seen",
        "shared",
        "starts",
    )

    def __init__(self, settings: LearningSettings, *, kernels: kernel.Kernels | None = None) -> None:
        self._arms = settings.action_ids
        self._num_arms = len(self._arms)
        self._size = _PLANES * self._num_arms
        # What a rule sees of a row: as many of its first cells, all but the squares.
        self.seen = (_PLANES - 1) * self._num_arms
        self._place = {arm: i for i, arm in enumerate(settings.action_ids)}
        self._priors = tuple(float(prior) for prior in settings.priors)
        # A step below 0 = the mean of the returns, whose count stops at the cap; a cap below 0 = it never does.
        self._alpha = float(settings.alpha) if settings.estimator == "ema" else -1.0
        self._cap = -1.0 if settings.count_cap is None else float(settings.count_cap)
        self._frozen = settings.frozen
        self._kernels = kernels or kernel.kernels()
        self._credit = self._kernels.credit
        # Key -> the first cell of its row, to be read only. Row 0 is that of a key never met.
        self.starts: dict[str, int] = {}
        # The key of each row.
        self._texts = [""]
        self._allocate(np.zeros((_FIRST_ROWS, _PLANES, self._num_arms), dtype=np.float64))
        # The prior equals Q before the first update (MC-28).
        for i, prior in enumerate(self._priors):
            self.cells[i] = prior

    def _allocate(self, buffer: NDArray[np.float64]) -> None:
        """Take `buffer`, float64 of shape (capacity, 4, num_arms), for the rows."""
        flat = buffer.reshape(-1)
        # Python reads and writes single cells through a memoryview faster than through an array. Not typed as one: its
        # stub knows bytes only. To be read only by others; another one once the table has grown, as `shared`.
        self.cells: Any = flat.data
        # What the kernels work on.
        self.shared: Any = flat if self._kernels.is_compiled else self.cells

    def __contains__(self, key: str) -> bool:
        return key in self.starts

    def __len__(self) -> int:
        return len(self.starts)

    def keys(self) -> Iterator[str]:
        """Keys that have numbers of their own, of all levels, sorted."""
        return iter(sorted(self.starts))

    def freeze(self, frozen: bool) -> None:
        """From now on nothing that happens changes the numbers, or it does again."""
        self._frozen = frozen

    # --- reading -------------------------------------------------------------------------------------------------

    def own(self, keys: tuple[str, ...]) -> tuple[str, ...] | None:
        """`keys` in this table's own texts, for whoever keeps them; None unless each has numbers of its own."""
        if len(keys) == 1:
            at = self.starts.get(keys[0])
            # The chain is made anew: a list of them is one more miss of the caches among a million keys.
            return None if at is None else (self._texts[at // self._size],)
        return keys if keys and all(key in self.starts for key in keys) else None

    def rows(self, keys: tuple[str, ...]) -> bytes:
        """q, taken and credited at each key as they are now: float64, shape (len(keys), 3, num_arms), native order.

        Priors and zeros for a key never met, which stays unmet.
        """
        starts = [self.starts.get(key, 0) for key in keys]
        return b"".join([self.cells[at : at + self.seen].tobytes() for at in starts])

    def with_row(self, row: bytes) -> Any:
        """Cells for a kernel in which what `rows` gave for one key stands at `num_arms`, behind the priors."""
        cells = np.empty(self._num_arms + self.seen)
        cells[: self._num_arms] = self._priors
        cells[self._num_arms :] = np.frombuffer(row)
        return cells if self._kernels.is_compiled else cells.data

    def views_of(self, rows: bytes) -> tuple[KeyView, ...]:
        """What `rows` gave, as a rule sees it."""
        cells: list[Any] = memoryview(rows).cast("d").tolist()
        return tuple([self._view(cells[at : at + self.seen]) for at in range(0, len(cells), self.seen)])

    def _view(self, cells: list[float]) -> KeyView:
        n = self._num_arms
        return KeyView(
            action_ids=self._arms,
            priors=self._priors,
            q=tuple(cells[:n]),
            taken=tuple(map(int, cells[n : 2 * n])),
            credited=tuple(map(int, cells[2 * n :])),
        )

    def views(self, keys: tuple[str, ...]) -> tuple[KeyView, ...]:
        """The numbers at each key of a chain; priors and zeros for a key never met, which stays unmet."""
        return self.views_of(self.rows(keys))

    def select(self, selection: kernel.Selection) -> kernel.Select:
        """The function of `selection`, for the cells in `shared`."""
        return self._kernels.selections[selection.name]

    # --- changing ------------------------------------------------------------------------------------------------

    def take(self, keys: tuple[str, ...], arm: str) -> None:
        """Count a decision for `arm` at each key of its chain (when it is taken, not when it is credited)."""
        if self._frozen:
            return
        place = self._num_arms + self._place[arm]
        for key in keys:
            at = self.starts.get(key)
            if at is None:
                at = self._new_row(key)
            self.cells[at + place] += 1.0

    def take_back(self, keys: tuple[str, ...], arm: str) -> None:
        """Undo one `take` of a decision that was never credited.

        Raises:
            InvariantError: there is no such decision; nothing is changed.
        """
        if self._frozen:
            return
        place = self._num_arms + self._place[arm]
        for at in self._open_rows(keys, arm, "taking back"):
            self.cells[at + place] -= 1.0

    def credit(self, keys: tuple[str, ...], arm: str, target: float) -> None:
        """Move q of each key towards the return `target`: q + step * (target - q) (Eq. 7, Eq. 16).

        The step is alpha ("ema"), 1/credited ("mean"), or 1/min(credited, count_cap + 1) ("capped_mean", ours: what
        was learned before weighs as count_cap returns at most). Under the means, the sum of squares has the weights of
        q: squares / min(credited, count_cap) is the mean square.

        Raises:
            InvariantError: more outcomes than decisions; nothing is changed.
        """
        if self._frozen:
            return
        place = self._place[arm]
        if len(keys) == 1:
            at = self.starts.get(keys[0], 0)
            # Row 0 has no decision.
            if not self._credit(self.shared, at + place, self._num_arms, target, self._alpha, self._cap):
                raise InvariantError(f"crediting a decision for '{arm}' at '{keys[0]}': none is open")
            return
        for at in self._open_rows(keys, arm, "crediting"):
            self._credit(self.shared, at + place, self._num_arms, target, self._alpha, self._cap)

    def _open_rows(self, keys: tuple[str, ...], arm: str, doing: str) -> list[int]:
        """The first cells of the rows of `keys`, each with an open decision for `arm`."""
        place, starts = self._num_arms + self._place[arm], []
        for key in keys:
            at = self.starts.get(key)
            if at is None or self.cells[at + place] <= self.cells[at + place + self._num_arms]:
                raise InvariantError(f"{doing} a decision for '{arm}' at '{key}': none is open")
            starts.append(at)
        return starts

    def _new_row(self, key: str) -> int:
        """Give `key` a row: priors and zeros."""
        at = (len(self.starts) + 1) * self._size
        if at == len(self.cells):
            self._grow(2 * at)
        self.cells[at : at + self._size] = self.cells[: self._size]
        self.starts[key] = at
        self._texts.append(key)
        return at

    def _grow(self, num_cells: int) -> None:
        # Not zeroed: a new row is written whole. Also, numpy asks for huge pages here and not for zeros, which saves a
        # walk through the page table at each row that is in no cache.
        grown = np.empty((num_cells // self._size, _PLANES, self._num_arms), dtype=np.float64)
        used = np.frombuffer(self.cells, dtype=np.float64)
        grown.reshape(-1)[: len(used)] = used
        self._allocate(grown)

    # --- as a whole ----------------------------------------------------------------------------------------------

    def load(self, numbers: Numbers) -> None:
        """Take over the numbers of another table; arms that they leave out keep their priors, uncounted.

        Raises:
            InvariantError: a key has numbers already; nothing is changed.
        """
        self.load_rows(list(numbers), self.rows_of(numbers))

    def rows_of(self, numbers: Numbers) -> bytes:
        """`numbers` as `load_rows` takes them, native float64. Slow and changes nothing: good for another thread."""
        n, rows = self._num_arms, array("d")
        unmet = [*self._priors, *[0.0] * (self._size - n)]
        for arms in numbers.values():
            row = unmet.copy()
            for arm, cell in arms.items():
                i = self._place[arm]
                row[i] = float.fromhex(str(cell["q"]))
                row[i + n] = float(cell["taken"])
                row[i + 2 * n] = float(cell["credited"])
                row[i + 3 * n] = float.fromhex(str(cell["squares"]))
            rows.extend(row)
        return rows.tobytes()

    def load_rows(self, keys: Sequence[str], rows: bytes) -> None:
        """Take over the `rows` of `keys`, in their order.

        Raises:
            InvariantError: a key has numbers already; nothing is changed.
        """
        for key in keys:
            if key in self.starts:
                raise InvariantError(f"importing numbers at '{key}': the key has numbers already")
        first = (len(self.starts) + 1) * self._size
        used = first + len(keys) * self._size
        if used > len(self.cells):
            self._grow(2 * used)
        self.cells[first:used] = memoryview(rows).cast("d")
        # The same dict: a selector has it.
        self.starts.update({key: first + number * self._size for number, key in enumerate(keys)})
        self._texts.extend(keys)

    def state(self) -> dict[str, Any]:
        """Everything, as values that msgpack takes: the keys, oldest first, and their rows as native float64 bytes."""
        used = (len(self.starts) + 1) * self._size
        return {"keys": list(self.starts), "rows": self.cells[self._size : used].tobytes()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave, in a table without numbers.

        Raises:
            InvariantError: the table has numbers already, or the rows are not those of the keys.
        """
        keys, rows = state["keys"], state["rows"]
        if self.starts or len(rows) != len(keys) * self._size * _FLOAT_BYTES:
            raise InvariantError(
                f"restoring {len(keys)} keys from {len(rows)} bytes into a table with {len(self.starts)} keys and "
                f"{self._num_arms} arms: expected an empty table and {self._size * _FLOAT_BYTES} bytes a key"
            )
        self.load_rows(keys, rows)

    def totals(self, keys: Sequence[str] | None = None) -> tuple[int, int]:
        """Sums of taken and of credited over all arms at `keys`; None = at all keys."""
        rows = np.frombuffer(self.cells, dtype=np.float64).reshape(-1, _PLANES, self._num_arms)
        # Row 0 is that of a key never met.
        own = slice(1, len(self.starts) + 1) if keys is None else [self.starts[key] // self._size for key in keys]
        taken, credited = rows[own, 1:3].sum(axis=(0, 2))
        return int(taken), int(credited)

    def dump(self, keys: Collection[str] | None = None) -> dict[str, Any]:
        """The numbers at `keys`, None = all, as JSON-able values; floats as `float.hex`: equal text is equal bits."""
        named = self.keys() if keys is None else sorted(keys)
        return {"schema_version": _DUMP_VERSION, "keys": {key: self._dump_row(key) for key in named}}

    def _dump_row(self, key: str) -> dict[str, dict[str, str | int]]:
        at, n = self.starts[key], self._num_arms
        cells = self.cells[at : at + self._size].tolist()
        return {
            arm: {
                "q": cells[i].hex(),
                "taken": int(cells[i + n]),
                "credited": int(cells[i + 2 * n]),
                "squares": cells[i + 3 * n].hex(),
            }
            for i, arm in enumerate(self._arms)
        }
