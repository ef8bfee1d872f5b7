"""Plan templates: what a solved task leaves for the next one of its goal type (MC-9, MC-39, reading A-7).

Three parts: `extract` cuts a successful attempt down to the steps that mattered, `Rewriter` turns numbered things into
placeholders, `PlanIndex` keeps one template a goal type in the stream's file. Actions are stored as they were, so that
the form is a matter of reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from memcon.control.memory.rendering import one_line, render_plan
from memcon.control.progress import ProgressMatcher
from memcon.errors import DamagedFileError
from memcon.store import DAMAGE_REMEDY, StreamStore
from memcon.types import StepKind, Trajectory

__all__ = ["PlanChoice", "PlanForm", "PlanIndex", "PlanTemplate", "Rewriter", "extract"]

PlanForm = Literal["numbered", "bare"]
PlanChoice = Literal["shortest", "latest"]

# Steps that only look, by their first word, and the one that tidies up; the latter stays where the goal asks for it.
_LOOKING = frozenset({"look", "inventory", "examine", "check"})
_CLOSING = "close"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS plan_templates (goal_type TEXT PRIMARY KEY, source_goal TEXT NOT NULL,
                                           actions TEXT NOT NULL) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTemplate:
    """The steps of a solved task, as they were."""

    source_goal: str
    actions: tuple[str, ...]


class Rewriter:
    """Turns "<word> <number>" into a placeholder where `word` is in the vocabulary; all other text stays as it is."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        words = sorted({one_line(word).casefold() for word in vocabulary} - {""}, key=lambda word: (-len(word), word))
        spaced = (r"\s+".join(map(re.escape, word.split())) for word in words)
        # The longest word first: "coffee table 1" is no "table 1". Hyphens bind: "non-mug 1" is no mug.
        self._name = re.compile(rf"(?<![\w-])({'|'.join(spaced)})\s+(\d+)(?![\w-])", re.IGNORECASE) if words else None

    def names(self, text: str) -> list[str]:
        """Things named in `text`, such as "mug 1", in order, repeats included."""
        if self._name is None:
            return []
        return [f"{_category(match)} {int(match.group(2))}" for match in self._name.finditer(text)]

    def bare(self, text: str) -> str:
        """`text` with [category] for each name: the paper's form, which forgets which mug is which."""
        return self._name.sub(lambda match: f"[{_category(match)}]", text) if self._name else text

    def numbered(self, texts: Sequence[str]) -> list[str]:
        """`texts` with [category A] for each name; letters go by first appearance, one sequence a category."""
        letters: dict[str, str] = {}
        used: dict[str, int] = {}

        def placeholder(match: re.Match[str]) -> str:
            category = _category(match)
            name = f"{category} {int(match.group(2))}"
            if name not in letters:
                letters[name] = _letters(used.get(category, 0))
                used[category] = used.get(category, 0) + 1
            return f"[{category} {letters[name]}]"

        return [self._name.sub(placeholder, text) if self._name else text for text in texts]

    def render(self, template: PlanTemplate, form: PlanForm) -> str:
        """The text of `template` for a prompt.

        "numbered" starts with the source task's sentence under the same letters, so that roles can be read off; "bare"
        is the paper's list of steps alone.
        """
        if form == "bare":
            return "\n".join(f"{n}. {self.bare(action)}" for n, action in enumerate(template.actions, start=1))
        goal, *actions = self.numbered([one_line(template.source_goal), *template.actions])
        return render_plan(goal, actions)


def extract(trajectory: Trajectory, *, rewriter: Rewriter, matcher: ProgressMatcher) -> tuple[str, ...]:
    """The steps that mattered, in order, nothing cut off at the end; () when the task failed.

    Read backwards from the step that reached the goal: a step stays when it handles a thing of the goal or shares a
    named thing with a later step that stays; a visit stays when something was done there. Thoughts, refused actions,
    looking, and closing what the goal does not want closed go; so does a step that the next one undoes.
    """
    if not trajectory.success:
        return ()
    actions = [one_line(step.action) for step in trajectory.steps if step.kind is StepKind.ACTION and step.valid]
    if not actions:
        return ()
    return tuple(_Slice(trajectory.task.goal, actions, rewriter=rewriter, matcher=matcher).kept())


class _Slice:
    """Backward slice of one attempt's actions."""

    def __init__(self, goal: str, actions: list[str], *, rewriter: Rewriter, matcher: ProgressMatcher) -> None:
        self._goal, self._actions, self._matcher = goal.casefold(), actions, matcher
        self._goal_names = frozenset(rewriter.names(goal))
        self._names = [frozenset(rewriter.names(action)) for action in actions]
        self._visits = [matcher.visited(action) for action in actions]
        # Only a world whose visits name places has places; there, a place is no thing that one handles.
        self._places = frozenset(place for place in self._visits if place)

    def kept(self) -> list[str]:
        """Actions that stay, in order."""
        needed: frozenset[int] = frozenset()
        steps = self._relevant(needed)
        # What is taken to clear the way must be put down again: the hand that holds it can do nothing else.
        while (putting_down := self._putting_down(steps)) - needed:
            needed |= putting_down
            steps = self._relevant(needed)
        return [self._actions[place] for place in self._with_visits(self._without_undone(steps))]

    def _relevant(self, needed: frozenset[int]) -> list[int]:
        """Indices of the steps that stay, `needed` among them; of the visits only one that itself reached the goal."""
        last = len(self._actions) - 1
        wanted = set(self._goal_names | self._names[last])
        found = [last]
        for step in range(last - 1, -1, -1):
            if self._visits[step] or self._is_idle(self._actions[step]):
                continue
            handled = self._handled(step)
            if handled and step not in needed and not (handled & wanted or self._in_goal(handled)):
                continue
            wanted |= self._names[step]
            found.append(step)
        return found[::-1]

    def _putting_down(self, steps: list[int]) -> frozenset[int]:
        """For each object that `steps` take: where it was let go next."""
        found: set[int] = set()
        for step in steps:
            taken = self._matcher.taken(self._actions[step])
            if taken is not None:
                later = range(step + 1, len(self._actions))
                found.update(islice((at for at in later if self._matcher.released(self._actions[at]) == taken), 1))
        return frozenset(found)

    def _handled(self, step: int) -> frozenset[str]:
        """Things that decide whether the step matters: for taking and letting go not the place where it is done."""
        names = self._names[step]
        action = self._actions[step]
        if self._matcher.taken(action) or self._matcher.released(action):
            return names - self._places or names
        return names

    def _in_goal(self, names: frozenset[str]) -> bool:
        """A name's kind stands in a goal that has no numbered name of that kind, such as "mug" in "a clean mug"."""
        numbered = {name.rpartition(" ")[0] for name in self._goal_names}
        kinds = {name.rpartition(" ")[0] for name in names - self._places} - numbered
        return any(re.search(rf"(?<![\w-]){re.escape(kind)}s?(?![\w-])", self._goal) for kind in kinds)

    def _is_idle(self, action: str) -> bool:
        verb = action.split(" ", 1)[0].casefold()
        return verb in _LOOKING or (verb == _CLOSING and not re.search(r"\bclose", self._goal))

    def _without_undone(self, steps: list[int]) -> list[int]:
        """Without a take that the next step undoes, or the reverse, of the same things; the last step stays."""
        stack: list[int] = []
        for step in steps:
            if stack and step != steps[-1] and self._undoes(stack[-1], step):
                stack.pop()
            else:
                stack.append(step)
        return stack

    def _undoes(self, first: int, second: int) -> bool:
        before, after = self._actions[first], self._actions[second]
        reverse = (self._matcher.taken(before) and self._matcher.released(after)) or (
            self._matcher.released(before) and self._matcher.taken(after)
        )
        return bool(reverse) and self._names[first] == self._names[second]

    def _with_visits(self, done: list[int]) -> list[int]:
        """`done` with the visits that led to each of its steps."""
        found: list[int] = []
        start, here = 0, None
        for step in done:
            stop = step + 1 if self._visits[step] else step
            way = self._way([visit for visit in range(start, stop) if self._visits[visit]])
            if [self._visits[visit] for visit in way] != [here] or self._visits[step]:
                found += way
                here = self._visits[way[-1]] if way else here
            found += [] if self._visits[step] else [step]
            start = step + 1
        return found

    def _way(self, visits: list[int]) -> list[int]:
        """Of visits in a row, those that are needed to arrive at the last one.

        An action that names only its goal gets there from anywhere; one that names its start as well needs each leg,
        but no round trip.
        """
        if not visits or len(self._names[visits[-1]]) < 2:
            return visits[-1:]
        way: list[int] = []
        for visit in visits:
            arrived = self._visits[visit]
            way.append(visit)
            # Back at the start of an earlier leg: the legs since then led nowhere.
            starts = (
                place for place, leg in enumerate(way) if arrived in self._names[leg] and arrived != self._visits[leg]
            )
            del way[next(starts, len(way)) :]
        return way


class PlanIndex:
    """One template a goal type, in the stream's file; writes belong to the commit of the task's end."""

    def __init__(self, store: StreamStore, *, choice: PlanChoice) -> None:
        self._store, self._choice = store, choice
        self._load()

    def get(self, goal_type: str) -> PlanTemplate | None:
        """The template of `goal_type`."""
        self._catch_up()
        return self._templates.get(goal_type)

    def offer(self, goal_type: str, template: PlanTemplate) -> bool:
        """Keep `template` if it is the better one (A-7); returns whether it was kept.

        "shortest": fewer steps, ties keep the older; "latest": always.
        """
        present = self.get(goal_type)
        shorter = present is None or len(template.actions) < len(present.actions)
        if not template.actions or (self._choice == "shortest" and not shorter):
            return False
        with self._store.storage_errors():
            self._store.connection.execute(_SCHEMA)
            self._store.connection.execute(
                "INSERT OR REPLACE INTO plan_templates VALUES (?, ?, ?)",
                (goal_type, template.source_goal, json.dumps(template.actions, ensure_ascii=False)),
            )
        self._templates[goal_type] = template
        return True

    def _catch_up(self) -> None:
        if self._rollbacks != self._store.rollbacks:
            self._load()

    def _load(self) -> None:
        self._rollbacks = self._store.rollbacks
        self._templates: dict[str, PlanTemplate] = {}
        with self._store.storage_errors():
            has_table = self._store.connection.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'plan_templates'"
            ).fetchone()
            rows = (
                self._store.connection.execute("SELECT goal_type, source_goal, actions FROM plan_templates").fetchall()
                if has_table
                else []
            )
        for goal_type, source_goal, actions in rows:
            self._templates[goal_type] = PlanTemplate(source_goal=source_goal, actions=self._decode(goal_type, actions))

    def _decode(self, goal_type: str, text: str) -> tuple[str, ...]:
        try:
            actions = json.loads(text)
        except ValueError:
            actions = None
        if not isinstance(actions, list) or not actions or not all(isinstance(action, str) for action in actions):
            raise DamagedFileError(
                self._store.path, f"plan template of goal type '{goal_type}' is no list of steps", DAMAGE_REMEDY
            )
        return tuple(actions)


def _category(match: re.Match[str]) -> str:
    return one_line(match.group(1)).casefold()


def _letters(number: int) -> str:
    """A, B, ... Z, AA, AB, ... for 0, 1, ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
