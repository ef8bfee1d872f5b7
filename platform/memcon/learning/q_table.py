"""The numbers of a tabular policy: per (key, arm) q, taken, credited and the sum of squared returns.

Owns the counts and the one update rule; knows neither decisions nor exploration. Not thread-safe: one writer a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memcon.errors import InvariantError
from memcon.policy_types import LearningSettings

__all__ = ["KeyView", "QTable"]

_DUMP_VERSION = 1


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
    """Action values of one table."""

    __slots__ = ("_alpha", "_arms", "_index", "_priors", "_rows")

    def __init__(self, settings: LearningSettings) -> None:
        self._arms = settings.action_ids
        self._index = {arm: i for i, arm in enumerate(settings.action_ids)}
        self._priors = tuple(float(prior) for prior in settings.priors)
        # None = the mean of the returns.
        self._alpha = settings.alpha if settings.estimator == "ema" else None
        self._rows: dict[str, _Row] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self) -> Iterator[str]:
        """Keys that were ever decided at, sorted."""
        return iter(sorted(self._rows))

    def view(self, key: str) -> KeyView:
        """The numbers at `key`; priors and zeros for a key never met, which stays unmet."""
        row = self._rows.get(key) or _Row(self._priors)
        return KeyView(
            action_ids=self._arms,
            priors=self._priors,
            q=tuple(row.q),
            taken=tuple(row.taken),
            credited=tuple(row.credited),
        )

    def take(self, key: str, arm: str) -> None:
        """Count a decision for `arm` (it counts when it is taken, not when it is credited)."""
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row(self._priors)
        row.taken[self._index[arm]] += 1

    def take_back(self, key: str, arm: str) -> None:
        """Undo one `take` of a decision that was never credited.

        Raises:
            InvariantError: there is no such decision.
        """
        row, i = self._rows.get(key), self._index[arm]
        if row is None or row.taken[i] <= row.credited[i]:
            raise InvariantError(f"taking back a decision for '{arm}' at '{key}': none is open")
        row.taken[i] -= 1

    def credit(self, key: str, arm: str, target: float) -> None:
        """Move q towards the return `target`: q + step * (target - q), step = alpha or 1/credited (Eq. 7, Eq. 16).

        Raises:
            InvariantError: more outcomes than decisions.
        """
        row, i = self._rows.get(key), self._index[arm]
        if row is None or row.taken[i] <= row.credited[i]:
            raise InvariantError(f"crediting a decision for '{arm}' at '{key}': none is open")
        row.credited[i] += 1
        step = 1.0 / row.credited[i] if self._alpha is None else self._alpha
        row.q[i] = row.q[i] + step * (target - row.q[i])
        row.squares[i] += target * target

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
