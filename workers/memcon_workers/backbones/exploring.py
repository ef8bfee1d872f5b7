"""The imitator's own experience inside one attempt: what it tried, what each kind of action revealed, where it was.

Folded anew from the prompt's history at every call; nothing is kept between calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memcon_workers.backbones.goals import Goal, Role, Signature, open_goal, signature
from memcon_workers.backbones.names import ParsedAction, named_things, parse_action

__all__ = ["History", "explore", "fold"]

# Handling what the goal does not name; handling the last action's things again (repeating or undoing it).
IRRELEVANT = -0.6
SAME_THINGS = -0.8
# Pull of an action, more when all its names are in view, times the yield of its kind.
BASE_PULL = 0.6
IN_VIEW_PULL = 1.5
YIELD_PRIOR = 0.5


@dataclass(slots=True, kw_only=True)
class History:
    """Counts over the own steps of one attempt."""

    goal: Goal
    trace_decay: float
    observation: str
    in_view: frozenset[str] = frozenset()
    last: ParsedAction | None = None
    steps: list[Signature] = field(default_factory=list)
    # Action text -> (visit trace, step of the last use); the trace decays by `trace_decay` a step.
    _trace: dict[str, tuple[float, int]] = field(default_factory=dict)
    # Action texts with one name: their traces are forgotten after a goal-relevant manipulation.
    _visits: set[str] = field(default_factory=set)
    _uses: dict[str, int] = field(default_factory=dict)
    _reveals: dict[str, int] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _tried: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._look(self.observation)

    def add(self, text: str, observation: str) -> None:
        """Fold in one own step and what it showed."""
        action = parse_action(text)
        step = signature(open_goal(self.goal, self.observation), action)
        tried = (self.observation, action.text)
        self._tried[tried] = self._tried.get(tried, 0) + 1
        self.steps.append(step)
        self._remember(action, step)
        self._uses[action.skeleton] = self._uses.get(action.skeleton, 0) + 1
        if self._look(observation):
            self._reveals[action.skeleton] = self._reveals.get(action.skeleton, 0) + 1
        self.last, self.observation = action, observation

    def expected_yield(self, skeleton: str) -> float:
        """How often this kind of action has shown new names."""
        return (YIELD_PRIOR + self._reveals.get(skeleton, 0)) / (YIELD_PRIOR + self._uses.get(skeleton, 0))

    def times_tried(self, action: ParsedAction) -> int:
        """Uses of `action` while the observation was the present one."""
        return self._tried.get((self.observation, action.text), 0)

    def visit_trace(self, action: ParsedAction) -> float:
        """Decayed number of uses of `action`."""
        found = self._trace.get(action.text)
        return 0.0 if found is None else found[0] * self.trace_decay ** (len(self.steps) - found[1])

    def _look(self, observation: str) -> bool:
        """Take in an observation; True when it names a thing for the first time."""
        self.in_view = named_things(observation)
        if self.in_view <= self._seen:
            return False
        self._seen |= self.in_view
        return True

    def _remember(self, action: ParsedAction, step: Signature) -> None:
        self._trace[action.text] = (self.visit_trace(action) + 1.0, len(self.steps))
        if len(action.names) == 1:
            self._visits.add(action.text)
        elif action.names and step.roles[0] is Role.GOAL:
            for text in self._visits:
                del self._trace[text]
            self._visits.clear()


def fold(goal: Goal, first_observation: str, pairs: Sequence[tuple[str, str]], *, trace_decay: float) -> History:
    """The history of all `pairs` of (action, observation)."""
    history = History(goal=goal, trace_decay=trace_decay, observation=first_observation)
    for action, observation in pairs:
        history.add(action, observation)
    return history


def explore(action: ParsedAction, step: Signature, history: History) -> float:
    """How much `action` is worth trying for its own sake (facts on the offline signal, section 5.7).

    Two readings are ours (measured in `imitator`): "the same set of names" is asked of all actions that have names, and
    an action without names has all its names in view.
    """
    value = 0.0
    if len(action.names) > 1:
        value += IRRELEVANT * (step.roles[0] is not Role.GOAL)
    if action.names and history.last is not None:
        value += SAME_THINGS * (action.identities == history.last.identities)
    if value:
        return value
    # What names nothing is always at hand: "look" and "inventory" are in view.
    return (BASE_PULL + IN_VIEW_PULL * (action.identities <= history.in_view)) * history.expected_yield(action.skeleton)
