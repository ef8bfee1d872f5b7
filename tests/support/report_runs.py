"""Runs whose outcomes are said arm by arm and family by family, for tests of the report."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memcon.learning.events import Created, Imported
from memcon.learning.table import PolicyTable
from memcon.policy_types import LearningSettings
from memcon.types import Episode, OutcomeClass
from memcon_platform import config
from memcon_platform.config import Cell, RunPlan, RunSettings
from memcon_platform.config.plan import StudySettings
from memcon_platform.trajectory import ParquetSink
from support.episodes import FakeCell, stream_episodes

FAMILIES = ("audit", "household")
# (cell, stream, task number, family) -> whether the task is won.
Won = Callable[[FakeCell, int, int, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A cell with what its tasks come to."""

    cell: FakeCell
    won: Won
    # Tokens that each of a task's two decisions injects as items.
    tokens: int = 100
    # Fields of the planned cell that differ from those of `cell.planned`, and of its resolved settings.
    planned: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    # State key and table of the decisions; None = as the fake cell has them.
    key: Callable[[Episode], str] | None = None
    table: str | None = None

    def cell_at(self, place: int) -> Cell:
        """The cell as the plan has it."""
        cell = self.cell.planned(place)
        return dataclasses.replace(cell, settings={**cell.settings, **self.settings}, **self.planned)

    def episodes(self, stream: int) -> list[Episode]:
        """The stream's episodes; tasks of even number are of the first family."""
        return [self._changed(stream, episode) for episode in stream_episodes(self.cell, stream)]

    def _changed(self, stream: int, episode: Episode) -> Episode:
        number = int(episode.task.task_id[-3:])
        family = FAMILIES[number % 2]
        task = dataclasses.replace(episode.task, benchmark=family, goal_type=f"{family}:{number % 4}")
        changed = dataclasses.replace(episode, task=task)
        if episode.outcome.outcome_class is not OutcomeClass.UNEVALUABLE:
            won = self.won(self.cell, stream, number, family)
            outcome = OutcomeClass.SUCCESS if won else OutcomeClass.FAILURE
            changed = dataclasses.replace(changed, outcome=dataclasses.replace(episode.outcome, outcome_class=outcome))
        decisions = tuple(
            dataclasses.replace(
                decision,
                tokens_items=0 if self.cell.memory == "empty" else self.tokens,
                tokens_plan=0,
                state_key=self.key(changed) if self.key else decision.state_key,
                table=decision.table if self.table is None else self.table,
            )
            for decision in episode.decisions
        )
        return dataclasses.replace(changed, decisions=decisions)


def write_played(run_dir: Path, played: Sequence[Played], *, reference: str | None = None) -> Path:
    """A finished run of the cells; returns its folder. `reference`: the policy that rows are compared with."""
    plan = RunPlan(
        run=run_dir.name,
        root=run_dir.parent,
        cells=tuple(one.cell_at(place) for place, one in enumerate(played)),
        settings=RunSettings(workers=1, study=StudySettings(reference=reference)),
        resolved={"run": run_dir.name},
    )
    config.write_plan(run_dir, plan, wall_time_s=1_767_323_045.0)
    sink = ParquetSink(run_dir)
    for one in played:
        for stream in range(one.cell.streams):
            sink.write_block(one.cell.cell_id, stream, 0, one.episodes(stream))
    return run_dir


def fixed(arm: str, won: Won, *, seeds: Iterable[int] = (0,), tokens: int = 100, **changed: Any) -> list[Played]:
    """A static arm over seeds."""
    parameters = {"action_id": arm}
    return [
        Played(
            cell=FakeCell(policy="fixed", policy_parameters=parameters, seed=seed, **changed), won=won, tokens=tokens
        )
        for seed in seeds
    ]


def by_family(**chance: bool) -> Won:
    """Each family always won or always lost."""
    return lambda cell, stream, number, family: chance[family]


def write_served(run_dir: Path, tables: Mapping[str, tuple[LearningSettings, Mapping[str, Any]]]) -> Path:
    """The served tables of one shard: name -> (settings, numbers), as an owner exports them; returns the file."""
    dumps = {}
    for name, (settings, numbers) in tables.items():
        table = PolicyTable(Created(table=name, settings=settings))
        table.apply(Imported(table=name, source="elsewhere", numbers=numbers), received=0)
        dumps[name] = table.dump()
    path = run_dir / "policy" / "served" / "shard-0.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema_version": 1, "shard": 0, "num_shards": 1, "last_seq": 9, "tables": dumps}))
    return path
