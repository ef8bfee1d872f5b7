"""The numbers of a tabular policy: per (key, arm) q, taken, credited and the sum of squared returns.

Owns the counts and the one update rule; knows neither decisions nor exploration. A decision counts at every key of its
chain (reading A-31), so that a coarse key's counts are the sums of its finer ones. Not thread-safe: one writer a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from memcon.errors import InvariantError
from memcon.policy_types import LearningSettings

__all__ = ["KeyView", "Numbers", "QTable"]

_DUMP_VERSION = 1

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


class _Row:
    """One key's numbers, as lists in arm order."""

    __slots__ = ("credited", "q", "squares", "taken")

    def __init__(self, priors: tuple[float, ...]) -> None:
        # The prior equals Q before the first update (MC-28).
        self.q = list(priors)
        self.taken = [0] * len(priors)
        self.credited = [0] * len(priors)
        self.squares = [0.0] * len(priors)


class QTable:
    """Action values of one table. When it is frozen, nothing but `load` changes them."""

    __slots__ = ("_alpha", "_arms", "_cap", "_frozen", "_index", "_priors", "_rows")

    def __init__(self, settings: LearningSettings) -> None:
        self._arms = settings.action_ids
        self._index = {arm: i for i, arm in enumerate(settings.action_ids)}
        self._priors = tuple(float(prior) for prior in settings.priors)
        # None = the mean of the returns, whose count stops at the cap.
        self._alpha = settings.alpha if settings.estimator == "ema" else None
        self._cap = settings.count_cap
        self._frozen = settings.frozen
        self._rows: dict[str, _Row] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self) -> Iterator[str]:
        """Keys that have numbers of their own, of all levels, sorted."""
        return iter(sorted(self._rows))

    def views(self, keys: tuple[str, ...]) -> tuple[KeyView, ...]:
        """The numbers at each key of a chain; priors and zeros for a key never met, which stays unmet."""
        return (self._view(keys[0]),) if len(keys) == 1 else tuple([self._view(key) for key in keys])

    def _view(self, key: str) -> KeyView:
        row = self._rows.get(key) or _Row(self._priors)
        return KeyView(
            action_ids=self._arms,
            priors=self._priors,
            q=tuple(row.q),
            taken=tuple(row.taken),
            credited=tuple(row.credited),
        )

    def take(self, keys: tuple[str, ...], arm: str) -> None:
        """Count a decision for `arm` at each key of its chain (when it is taken, not when it is credited)."""
        if self._frozen:
            return
        i = self._index[arm]
        for key in keys:
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = _Row(self._priors)
            row.taken[i] += 1

    def take_back(self, keys: tuple[str, ...], arm: str) -> None:
        """Undo one `take` of a decision that was never credited.

        Raises:
            InvariantError: there is no such decision; nothing is changed.
        """
        if self._frozen:
            return
        i = self._index[arm]
        for row in self._open_rows(keys, arm, "taking back"):
            row.taken[i] -= 1

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
        i = self._index[arm]
        for row in self._open_rows(keys, arm, "crediting"):
            row.credited[i] += 1
            row.squares[i] += target * target
            if self._alpha is not None:
                step = self._alpha
            elif self._cap is None or row.credited[i] <= self._cap:
                step = 1.0 / row.credited[i]
            else:
                step = 1.0 / (self._cap + 1)
                row.squares[i] *= self._cap / (self._cap + 1)
            row.q[i] = row.q[i] + step * (target - row.q[i])

    def _open_rows(self, keys: tuple[str, ...], arm: str, doing: str) -> list[_Row]:
        """The rows of `keys`, each with an open decision for `arm`."""
        i, rows = self._index[arm], []
        for key in keys:
            row = self._rows.get(key)
            if row is None or row.taken[i] <= row.credited[i]:
                raise InvariantError(f"{doing} a decision for '{arm}' at '{key}': none is open")
            rows.append(row)
        return rows

    def load(self, numbers: Numbers) -> None:
        """Take over the numbers of another table; arms that they leave out keep their priors, uncounted.

        Raises:
            InvariantError: a key has numbers already; nothing is changed.
        """
        for key in numbers:
            if key in self._rows:
                raise InvariantError(f"importing numbers at '{key}': the key has numbers already")
        for key, arms in numbers.items():
            row = self._rows[key] = _Row(self._priors)
            for arm, cell in arms.items():
                i = self._index[arm]
                row.q[i], row.squares[i] = float.fromhex(str(cell["q"])), float.fromhex(str(cell["squares"]))
                row.taken[i], row.credited[i] = int(cell["taken"]), int(cell["credited"])

    def dump(self) -> dict[str, Any]:
        """All numbers as JSON-able values; floats as `float.hex`, so that equal text means equal bits."""
        return {
            "schema_version": _DUMP_VERSION,
            "keys": {
                key: {
                    arm: {
                        "q": row.q[i].hex(),
                        "taken": row.taken[i],
                        "credited": row.credited[i],
                        "squares": row.squares[i].hex(),
                    }
                    for i, arm in enumerate(self._arms)
                }
                for key, row in sorted(self._rows.items())
            },
        }
