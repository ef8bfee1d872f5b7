"""The household in ALFWorld's wording of observations and actions; closed receptacles hide what they hold."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memcon_workers.benchmarks.household.things import ENCLOSED, kind_of
from memcon_workers.benchmarks.strips import GroundAction, State

__all__ = ["HouseholdNarrator"]

_ACTIONS = {
    "go": "go to {0}",
    "open": "open {0}",
    "close": "close {0}",
    "take": "take {0} from {1}",
    "move": "move {0} to {1}",
    "clean": "clean {0} with {1}",
    "heat": "heat {0} with {1}",
    "cool": "cool {0} with {1}",
    "switch-on": "use {0}",
    "switch-off": "use {0}",
}
_TOLD = {
    "close": "You close the {0}.",
    "take": "You pick up the {0} from the {1}.",
    "move": "You move the {0} to the {1}.",
    "clean": "You clean the {0} using the {1}.",
    "heat": "You heat the {0} using the {1}.",
    "cool": "You cool the {0} using the {1}.",
    "switch-on": "You turn on the {0}.",
    "switch-off": "You turn off the {0}.",
}
# The older engine's wording of `move`.
_PUT = re.compile(r"put (?P<item>[a-z]+ \d+) (?:in/on|into|onto|in|on|to) (?P<place>[a-z]+ \d+)")


class HouseholdNarrator:
    """Tells what a robot in the room sees."""

    def __init__(self, receptacles: Sequence[str], things: Sequence[str]) -> None:
        """`things`: items and lamps; both in the order of showing."""
        self._receptacles = list(receptacles)
        # Built once: the state is asked for the same facts at every step.
        self._here = [(("robot-at", name), name) for name in receptacles]
        self._held = [(("holding", thing), thing) for thing in things]
        self._within = {
            name: [(fact, thing) for thing in things for fact in (("in", thing, name), ("stands-at", thing, name))]
            for name in receptacles
        }

    def action(self, action: GroundAction) -> str:
        """ALFWorld's wording of `action`."""
        return _ACTIONS[action.name].format(*action.arguments)

    def opening(self, state: State) -> str:
        """The furniture; what lies where is seen on the way."""
        del state
        return f"You are in the middle of a room. Looking quickly around you, you see {_listed(self._receptacles)}."

    def after(self, action: GroundAction, state: State) -> str:
        """What `action` brought."""
        place = action.arguments[0]
        if action.name == "go":
            return f"You arrive at {place}. {self._contents(place, state)}"
        if action.name == "open":
            return f"You open the {place}. The {place} is open. In it, you see {self._things(place, state)}."
        return _TOLD[action.name].format(*action.arguments)

    def questions(self, state: State) -> Sequence[str]:
        """Look, inventory and examine the receptacle here; examine the held item is answered, but not listed."""
        return ["look", "inventory", *(f"examine {name}" for name in self._place(state))]

    def answer(self, text: str, state: State, choices: Sequence[str]) -> str | None:
        """The answer to a listed question, or to examining the item in the hand."""
        del choices
        here, held = self._place(state), self._holding(state)
        if text == "look":
            return f"You are facing the {here[0]}. {self._contents(here[0], state)}" if here else self.opening(state)
        if text == "inventory":
            return f"You are carrying: {_listed(held)}." if held else "You are not carrying anything."
        name = text.removeprefix("examine ")
        if text == name or name not in {*here, *held}:
            return None
        return self._contents(name, state) if name in here else _described(name, state)

    def canonical(self, text: str) -> str:
        """`text` without a full stop, "put A in/on B" read as "move A to B"."""
        plain = text.removesuffix(".")
        found = _PUT.fullmatch(plain)
        return f"move {found['item']} to {found['place']}" if found else plain

    def _place(self, state: State) -> list[str]:
        return [name for fact, name in self._here if fact in state]

    def _holding(self, state: State) -> list[str]:
        return [thing for fact, thing in self._held if fact in state]

    def _things(self, place: str, state: State) -> str:
        return _listed([thing for fact, thing in self._within[place] if fact in state])

    def _contents(self, place: str, state: State) -> str:
        if kind_of(place) not in ENCLOSED:
            return f"On the {place}, you see {self._things(place, state)}."
        if ("closed", place) in state:
            return f"The {place} is closed."
        return f"The {place} is open. In it, you see {self._things(place, state)}."


def _listed(names: Sequence[str]) -> str:
    """Names with articles and commas: a mug 1, a pan 1, and a pot 2; "nothing" without names."""
    worded = [f"{'an' if name[0] in 'aeiou' else 'a'} {name}" for name in names]
    if len(worded) < 2:
        return worded[0] if worded else "nothing"
    return f"{', '.join(worded[:-1])}, and {worded[-1]}"


def _described(item: str, state: State) -> str:
    words = [word for word in ("clean", "hot", "cool") if (word, item) in state]
    if not words:
        return f"There's nothing special about {item}."
    return f"This is a {' and '.join(words)} {item}."
