"""Memory `notebook`: whole attempts as items, and rules drawn from them as insights; no model calls.

A rule says that in tasks of some form one action came after another, and how many attempts with this step succeeded.
Forms leave numbers out: "fern 2" and "fern 5" are alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memcon import checks
from memcon.control.memory.item_index import ItemIndex
from memcon.control.memory.rendering import one_line, render_trajectory
from memcon.protocols import Durability, Embedder, Retrieval
from memcon.registry import Plugin
from memcon.store import StreamStore
from memcon.types import Insight, Operation, StepKind, Trajectory

__all__ = ["PLUGIN", "NotebookConfig", "NotebookMemory"]

_SUCCESS, _FAILURE = "success", "failure"
_NUMBER = re.compile(r"\d+")
# As similarities are rounded in `ItemIndex`: the last bits of a product must not decide a ranking.
_DECIMALS = 6

_TABLE = "notebook_rules"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS {_TABLE} (goal_form TEXT NOT NULL, after_form TEXT NOT NULL, do_form TEXT NOT NULL,
                                     goal TEXT NOT NULL, after TEXT NOT NULL, do TEXT NOT NULL,
                                     won INTEGER NOT NULL, tried INTEGER NOT NULL,
                                     PRIMARY KEY (goal_form, after_form, do_form))
"""
_COUNT = f"""
INSERT INTO {_TABLE} VALUES (?, ?, ?, ?, ?, ?, ?, 1)
ON CONFLICT DO UPDATE SET won = won + excluded.won, tried = tried + 1
"""


@dataclass(slots=True, kw_only=True)
class NotebookConfig:
    """What a retrieval brings when the caller does not say (policy `none`)."""

    # Whole attempts.
    top_k: int = 1
    # Rules.
    insight_k: int = 3
    # Attempts behind a rule before it is shown.
    min_tried: int = 1

    def __post_init__(self) -> None:
        checks.in_range("top_k", self.top_k, 0, 1000)
        checks.in_range("insight_k", self.insight_k, 0, 1000)
        checks.in_range("min_tried", self.min_tried, 1)

    @property
    def maintains(self) -> frozenset[Operation]:
        """Maintenance that a memory of this config can do: asked before a run begins."""
        return frozenset({Operation.FORGET})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One row, in the words of the attempt that first showed it."""

    goal: str
    after: str
    do: str
    won: int
    tried: int

    @property
    def score(self) -> float:
        """Share of the attempts that succeeded, with one of each kind added: 0.5 says nothing."""
        return (self.won + 1) / (self.tried + 2)

    @property
    def text(self) -> str:
        """The sentence that a prompt shows."""
        advice = "do" if self.score >= 0.5 else "do not"
        return (
            f'In tasks like "{self.goal}": after "{self.after}" {advice} "{self.do}"; '
            f"{self.won} of {self.tried} attempts with this step succeeded."
        )


class NotebookMemory:
    """A `MemoryBackend` whose items and rules lie in the stream's file."""

    name = "notebook"
    capabilities = frozenset({"top_k", "insight_k"})
    durability: Durability = "transactional"
    blocking = False

    def __init__(self, config: NotebookConfig, *, store: StreamStore, embedder: Embedder) -> None:
        self._config, self._store, self._embedder = config, store, embedder
        self.maintains = config.maintains
        self._index = ItemIndex(store, embedder, sources=(_SUCCESS, _FAILURE))

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        """The nearest attempts, and the rules of the nearest tasks that tell most."""
        if undeclared := sorted(set(parameters) - self.capabilities):
            raise TypeError(f"memory 'notebook' declares {sorted(self.capabilities)}, got {undeclared}")
        return Retrieval(
            items=self._index.search(query, parameters.get("top_k", self._config.top_k)),
            insights=self._insights(query, parameters.get("insight_k", self._config.insight_k)),
        )

    def record(self, trajectory: Trajectory) -> int:
        """File the attempt and count its steps; written with the task's commit, costs no tokens."""
        goal = trajectory.task.goal
        self._index.add(_SUCCESS if trajectory.success else _FAILURE, goal, render_trajectory(trajectory))
        with self._store.storage_errors():
            self._store.connection.execute(_SCHEMA)
            self._store.connection.executemany(_COUNT, _counted(trajectory))
        return 0

    def maintain(self, operation: Operation) -> int:
        """Forget the rules that tell nothing (half of their attempts succeeded); costs no tokens."""
        if operation not in self.maintains:
            raise TypeError(f"memory 'notebook' maintains {sorted(self.maintains)}, got {operation.value}")
        if self._has_rules():
            with self._store.storage_errors():
                self._store.connection.execute(f"DELETE FROM {_TABLE} WHERE 2 * won = tried")
        return 0

    def size(self) -> int:
        """Stored attempts."""
        return len(self._index)

    def _insights(self, query: str, insight_k: int) -> tuple[Insight, ...]:
        """The `insight_k` rules whose task is nearest to `query`; of equally near ones those that tell most."""
        if insight_k <= 0 or not self._has_rules():
            return ()
        rows = self._store.connection.execute(
            f"SELECT rowid, goal, after, do, won, tried FROM {_TABLE} WHERE tried >= ? ORDER BY rowid",
            (self._config.min_tried,),
        ).fetchall()
        rules = [(row[0], _Rule(goal=row[1], after=row[2], do=row[3], won=row[4], tried=row[5])) for row in rows]
        near = self._nearness(query, sorted({rule.goal for _, rule in rules}))
        # Sorting is stable: what is left equal keeps the order in which it was first seen.
        rules.sort(key=lambda pair: (-near[pair[1].goal], -abs(pair[1].score - 0.5)))
        return tuple(
            Insight(insight_id=f"rule-{number}", score=rule.score, text=rule.text) for number, rule in rules[:insight_k]
        )

    def _nearness(self, query: str, goals: list[str]) -> dict[str, float]:
        """Cosine of `query` with each goal."""
        if not goals:
            return {}
        vectors = self._embedder.embed([query, *goals]).astype(np.float64)
        cosines = np.round(vectors[1:] @ vectors[0], _DECIMALS)
        return dict(zip(goals, cosines.tolist(), strict=True))

    def _has_rules(self) -> bool:
        # Asked each time: a rollback takes the table along.
        found = self._store.connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (_TABLE,)
        ).fetchone()
        return found is not None


def _counted(trajectory: Trajectory) -> list[tuple[str, str, str, str, str, str, int]]:
    """One row for each pair of actions in a row that had their effect, however often the attempt did it."""
    goal = one_line(trajectory.task.goal)
    actions = [one_line(step.action) for step in trajectory.steps if step.kind is StepKind.ACTION and step.valid]
    rows = {
        (_form(goal), _form(after), _form(do)): (goal, after, do, int(trajectory.success))
        for after, do in pairwise(actions)
    }
    return [(*forms, *rest) for forms, rest in rows.items()]


def _form(text: str) -> str:
    return _NUMBER.sub("#", text.lower())


def _build(config: NotebookConfig, *, store: StreamStore, embedder: Embedder) -> NotebookMemory:
    return NotebookMemory(config, store=store, embedder=embedder)


PLUGIN = Plugin(config=NotebookConfig, build=_build, summary="whole attempts, and scored rules about the next step")
