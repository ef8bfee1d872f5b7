"""Decisions and episodes that have ended, as far as a table remembers them: how they ended, and the bound on them.

Owns what is kept of an ended decision and when it is forgotten; what an ending does to the numbers, and what a request
may still do to it, are elsewhere (`memcon.learning.table`, `memcon.learning.life`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from memcon import ids
from memcon.errors import InvariantError

__all__ = ["CREDITED", "DEFAULTED", "EXPIRED", "ClosedDecision", "ClosedDecisions", "Terms", "choice_mark"]

CREDITED = "credited"
CANCELLED = "cancelled"
EXPIRED = "expired"
DEFAULTED = "defaulted"

# (reward, num_decisions, cost) of an outcome.
Terms: TypeAlias = tuple[float, int, float]
# How one is kept: (state, reward, num_decisions, cost), (state,), (state, mark, counted), or (state, default reward,
# mark) and, once its outcome came, its terms. A flat tuple of numbers and texts is taken off the collector's lists: a
# million dataclass instances made each of its full passes slow.
_Kept: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedDecision:
    """How a decision ended."""

    # "credited", "cancelled", "expired" (no outcome came in time) or "defaulted" (expired, and learned the default).
    state: str
    # Of the outcome that was recorded; None = none was.
    terms: Terms | None = None
    # What a defaulted one learned.
    default_reward: float | None = None
    # `choice_mark` of an expired or defaulted one.
    mark: int = 0
    # The count of an expired one still stands in the numbers, since the table was frozen when it expired.
    counted: bool = False


def choice_mark(keys: tuple[str, ...], action_id: str) -> int:
    """64 bits that tell a choice from another one under the same id; a key may be long, and a million are kept."""
    return ids.draw64("choice", *keys, action_id)


class ClosedDecisions:
    """The last `kept` decisions and the last `kept` cancelled episodes of one table, in the order of their ends.

    None keeps all. A decision that is forgotten is an unknown id from then on: an outcome of it with a valid token is
    credited once more, so the bound must be far above what a client may still repeat.
    """

    __slots__ = ("_decisions", "_episodes", "_kept", "_oldest", "_oldest_episodes", "_renewed")

    def __init__(self, kept: int | None) -> None:
        self._kept = kept
        # In the order of the ends; dicts, so that this is one look-up.
        self._decisions: dict[str, _Kept] = {}
        self._episodes: dict[str, None] = {}
        # The same order once more under a bound: the first key of a dict is found behind the holes of all that were
        # deleted before it, which cost 35 us an end at 50,000 remembered ones and up to 4 ms at a million.
        self._oldest: deque[str] = deque()
        self._oldest_episodes: deque[str] = deque()
        # Those that ended a second time, whose first place in `_oldest` is void.
        self._renewed: set[str] = set()

    def __contains__(self, decision_id: str) -> bool:
        return decision_id in self._decisions

    def __len__(self) -> int:
        return len(self._decisions)

    def has_ended(self, decision_id: str, episode_id: str) -> bool:
        """The decision has ended, or its episode was cancelled."""
        return decision_id in self._decisions or episode_id in self._episodes

    def get(self, decision_id: str) -> ClosedDecision | None:
        """How the decision under this id ended; None = it did not, or it is forgotten."""
        kept = self._decisions.get(decision_id)
        return None if kept is None else _shown(kept)

    def credit(self, decision_id: str, terms: Terms) -> None:
        """It got an outcome that was learned."""
        self._keep(decision_id, (CREDITED, *terms))

    def cancel(self, decision_id: str) -> None:
        """It was taken back."""
        self._keep(decision_id, (CANCELLED,))

    def expire(self, decision_id: str, mark: int, *, counted: bool) -> None:
        """It got no outcome in time; one may still come."""
        self._keep(decision_id, (EXPIRED, mark, counted))

    def default(self, decision_id: str, mark: int, *, default_reward: float, terms: Terms | None = None) -> None:
        """It learned the default instead; `terms` are of the outcome that came afterwards."""
        self._keep(decision_id, (DEFAULTED, default_reward, mark, *(terms or ())))

    def _keep(self, decision_id: str, kept: _Kept) -> None:
        # One that ends a second time (late) is young again: its outcome may be repeated.
        again = self._decisions.pop(decision_id, None) is not None
        self._decisions[decision_id] = kept
        if self._kept is None:
            return
        self._oldest.append(decision_id)
        if again:
            self._renewed.add(decision_id)
        while len(self._decisions) > self._kept:
            oldest = self._oldest.popleft()
            if oldest in self._renewed:
                self._renewed.discard(oldest)
            else:
                del self._decisions[oldest]

    def has_episode(self, episode_id: str) -> bool:
        """The episode was cancelled."""
        return episode_id in self._episodes

    def close_episode(self, episode_id: str) -> None:
        """The episode was cancelled; again is without effect."""
        if self._kept is not None and episode_id not in self._episodes:
            self._oldest_episodes.append(episode_id)
        self._episodes[episode_id] = None
        if self._kept is not None and len(self._episodes) > self._kept:
            del self._episodes[self._oldest_episodes.popleft()]

    # --- views of the whole --------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """All as JSON-able values, sorted; floats as `float.hex`."""
        return {
            "closed": {name: _dumped(_shown(self._decisions[name])) for name in sorted(self._decisions)},
            "closed_episodes": sorted(self._episodes),
        }

    def state(self) -> dict[str, Any]:
        """All in order, as values that msgpack takes: copies of containers only, since a loop waits for it."""
        return {
            "ids": list(self._decisions),
            "ends": list(self._decisions.values()),
            "episodes": list(self._episodes),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave.

        Raises:
            InvariantError: an end has no known form.
            KeyError, TypeError, ValueError: it is no such state.
        """
        ends = [_checked(tuple(end)) for end in state["ends"]]
        self._decisions = dict(zip(_texts(state["ids"]), ends, strict=True))
        self._episodes = dict.fromkeys(_texts(state["episodes"]))
        if self._kept is not None:
            self._oldest, self._oldest_episodes = deque(self._decisions), deque(self._episodes)


def _shown(kept: _Kept) -> ClosedDecision:
    state = kept[0]
    if state == CREDITED:
        return ClosedDecision(state=state, terms=(kept[1], kept[2], kept[3]))
    if state == EXPIRED:
        return ClosedDecision(state=state, mark=kept[1], counted=kept[2])
    if state == DEFAULTED:
        terms = (kept[3], kept[4], kept[5]) if len(kept) > 3 else None
        return ClosedDecision(state=state, default_reward=kept[1], mark=kept[2], terms=terms)
    return ClosedDecision(state=state)


# State -> type of each value that is kept beside it.
_FORMS: dict[str, tuple[tuple[type, ...], ...]] = {
    CREDITED: ((float, int, float),),
    CANCELLED: ((),),
    EXPIRED: ((int, bool),),
    DEFAULTED: ((float, int), (float, int, float, int, float)),
}


def _checked(kept: _Kept) -> _Kept:
    if tuple(map(type, kept[1:])) not in _FORMS[kept[0]]:
        raise InvariantError(f"the state of a table: {kept!r} is no end of a decision")
    return kept


def _texts(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in values]


def _dumped(closed: ClosedDecision) -> Any:
    terms = None if closed.terms is None else [closed.terms[0].hex(), closed.terms[1], closed.terms[2].hex()]
    if closed.state == EXPIRED:
        return {"state": EXPIRED, "mark": f"{closed.mark:016x}", "counted": closed.counted}
    if closed.state == DEFAULTED:
        reward = None if closed.default_reward is None else closed.default_reward.hex()
        return {"state": DEFAULTED, "mark": f"{closed.mark:016x}", "default_reward": reward, "recorded": terms}
    return closed.state if terms is None else terms
