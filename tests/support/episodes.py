"""Synthetic episodes and whole run folders, for tests. Equal arguments, equal values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memcon import codec, ids
from memcon.control.settings import ControlSettings
from memcon.learning.credit import RewardSettings
from memcon.seeds import SeedTree
from memcon.types import (
    Decision,
    Episode,
    Outcome,
    OutcomeClass,
    Provenance,
    StateFeatures,
    Step,
    StepKind,
    Task,
    TokenUsage,
    Trial,
    Trigger,
)
from memcon_platform import config
from memcon_platform.config import Cell, Entry, RunPlan, RunSettings
from memcon_platform.trajectory import BLOCK_TASKS, ParquetSink

GOAL_TYPES = ("put", "clean", "heat", "cool")
ARMS = (
    "retrieve_shallow",
    "retrieve_medium",
    "retrieve_deep",
    "plan_inject",
    "re_retrieve",
    "consolidate",
    "forget",
    "insight_only",
    "noop",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCell:
    """A cell whose outcomes are drawn with a known success probability."""

    benchmark: str = "household"
    memory: str = "metagpt"
    policy: str = "ucb"
    policy_parameters: Mapping[str, Any] = field(default_factory=dict)
    backbone: str = "imitator"
    seed: int = 0
    streams: int = 1
    num_tasks: int = 12
    # Success probability of the first and of the last task.
    success: tuple[float, float] = (0.4, 0.6)
    # Ordinals that end unevaluable.
    broken: tuple[int, ...] = ()
    table_scope: str = "cell"
    # Every task was played under all arms (policy `every_arm`).
    trials: bool = False
    # What the model's provider called itself, task by task in turn; nothing = not kept, as in earlier versions.
    models: tuple[str, ...] = ()

    @property
    def cell_id(self) -> str:
        axes = (self.benchmark, self.memory, self.policy, dict(self.policy_parameters), self.backbone, self.seed)
        return ids.stable_hash(*axes, self.streams, self.table_scope, self.num_tasks)

    @property
    def policy_label(self) -> str:
        arm = self.policy_parameters.get("action_id")
        return f"{self.policy}:{arm}" if arm else self.policy

    def planned(self, place: int) -> Cell:
        """The cell as plan.json has it, at `place`."""

        entries: dict[str, Any] = {axis: Entry(name=name, label=name) for axis, name in self._names().items()}
        control, reward = ControlSettings(), RewardSettings()
        settings = {
            **{axis: {"name": name} for axis, name in self._names().items()},
            "policy": {"name": self.policy, **self.policy_parameters},
            "seed": self.seed,
            "control": codec.encode(control),
            "reward": codec.encode(reward),
        }
        return Cell(
            cell_id=self.cell_id,
            place=place,
            **entries,
            policy=Entry(name=self.policy, parameters=self.policy_parameters, label=self.policy_label),
            seed=self.seed,
            control=control,
            reward=reward,
            streams=self.streams,
            split="replicate",
            table_scope=self.table_scope,
            limit=None,
            stream_tasks=(self.num_tasks,) * self.streams,
            settings=settings,
        )

    def _names(self) -> dict[str, str]:
        return {
            "benchmark": self.benchmark,
            "framework": "lobster",
            "backbone": self.backbone,
            "memory": self.memory,
            "embedder": "hashing",
        }


def make_task(number: int, benchmark: str = "household") -> Task:
    kind = GOAL_TYPES[number % len(GOAL_TYPES)]
    return Task(
        task_id=f"{benchmark}-{number:03d}",
        benchmark=benchmark,
        goal=f"{kind} mug {number} on shelf {number % 3 + 1}",
        goal_type=kind,
        payload={"rooms": [number, 2], "b": {"z": 1, "a": 2}},
        max_steps=30,
        provenance=Provenance.SELF_MADE,
    )


def make_decision(position: int = 0, **changed: Any) -> Decision:
    values: dict[str, Any] = {
        "decision_id": f"decision-{position}",
        "episode_id": "episode",
        "position": position,
        "trigger": Trigger.START if position == 0 else Trigger.PHASE,
        "state_key": f"paper/1|put|{'early' if position == 0 else 'mid'}",
        "features": StateFeatures(
            goal_type="put",
            step=8 * position,
            is_stuck=False,
            objects_held=0,
            locations_visited=3,
            memory_size=7,
            plan_available=True,
            task_number=3,
        ),
        "action_id": "retrieve_shallow",
        "propensity": 1.0,
        "allowed": ARMS,
        "masked": {"consolidate": "unsupported", "forget": "unsupported"},
        "tie_set": ("retrieve_shallow",),
        "item_ids": ("item-1", "item-2"),
        "tokens_items": 120,
        "tokens_plan": 30,
        "credit": 0.9,
        "policy": "ucb",
        "table": "table",
        "table_version": 4,
        "received": 17,
        "latency_s": 0.002,
        "per_arm": {"noop": {"q": 0.5, "bonus": float("inf")}, "forget": {"q": 0.25, "bonus": 0.125}},
    }
    return Decision(**{**values, **changed})


def make_steps(count: int, *, thoughts: int = 1) -> tuple[Step, ...]:
    def step(index: int) -> Step:
        thought = index < thoughts
        return Step(
            index=index,
            kind=StepKind.THOUGHT if thought else StepKind.ACTION,
            action="think: find it" if thought else f"go to shelf {index}",
            observation="" if thought else f"You see mug {index}.",
            valid=True,
            progress=index / 100,
            prompt_tokens=100 + index,
            completion_tokens=6,
            model_s=0.01,
            environment_s=0.001,
        )

    return tuple(step(index) for index in range(count + thoughts))


def make_episode(cell: FakeCell, stream: int, ordinal: int, *, run: str = "demo", epoch: int = 1) -> Episode:
    """One episode of `cell`; `run` and `epoch` change volatile columns only."""
    place = SeedTree(("fake", cell.seed, cell.benchmark, stream))
    order = list(range(cell.num_tasks))
    place.child("order").generator().shuffle(order)
    task = make_task(order[ordinal], cell.benchmark)
    generator = place.child(cell.cell_id, ordinal).generator()
    low, high = cell.success
    chance = low + (high - low) * ordinal / max(1, cell.num_tasks - 1)
    # One draw a task that all cells share, so that cells are paired as real ones are.
    won = 0.7 * place.child("task", task.task_id).generator().random() + 0.3 * generator.random() < chance
    broken = ordinal in cell.broken
    episode_id = ids.episode_id(cell.cell_id, stream, ordinal, epoch)
    return Episode(
        run=run,
        cell=cell.cell_id,
        stream=stream,
        ordinal=ordinal,
        section=0,
        task=task,
        episode_id=episode_id,
        epoch=epoch,
        seed=cell.seed,
        first_observation="You are in a room.",
        steps=() if broken else make_steps(4 + ordinal % 5),
        decisions=_decisions(cell, stream, episode_id, generator),
        outcome=_outcome(won, broken, ordinal),
        reward=None if broken else (1.0 if won else -0.5),
        memory_size=ordinal,
        started_at=1_700_000_000.0 + epoch,
        trials=make_trials(place.child("trials", ordinal), cell.success) if cell.trials else (),
        model_ids=(cell.models[ordinal % len(cell.models)],) if cell.models else None,
    )


def make_trials(place: SeedTree, success: tuple[float, float]) -> tuple[Trial, ...]:
    """One trial an arm; later arms win more often, `insight_only` is never evaluated."""
    return tuple(_trial(place, success, arm) for arm in ARMS)


def _trial(place: SeedTree, success: tuple[float, float], arm: str) -> Trial:
    if arm == "insight_only":
        return Trial(
            action_id=arm,
            outcome_class=OutcomeClass.UNEVALUABLE,
            score=0.0,
            num_steps=0,
            reward=None,
            tokens_injected=90,
            tokens_agent_prompt=0,
        )
    number = ARMS.index(arm)
    low, high = success
    won = place.child(arm).generator().random() < low + (high - low) * number / (len(ARMS) - 1)
    brings_nothing = arm in {"consolidate", "forget", "noop"}
    return Trial(
        action_id=arm,
        outcome_class=OutcomeClass.SUCCESS if won else OutcomeClass.TRUNCATED,
        score=1.0 if won else 0.25,
        num_steps=5 + number,
        reward=1.0 if won else -0.5,
        tokens_injected=0 if brings_nothing else 100 + number,
        tokens_agent_prompt=1000 + number,
        degraded="unsupported" if arm in {"consolidate", "forget"} else "",
    )


def _decisions(cell: FakeCell, stream: int, episode_id: str, generator: Any) -> tuple[Decision, ...]:
    if cell.policy == "none":
        changed: dict[str, Any] = {
            "action_id": "default",
            "allowed": ("default",),
            "table": "",
            "forced": False,
            "per_arm": None,
        }
        empty: dict[str, Any] = {"tokens_items": 0, "tokens_plan": 0, "item_ids": ()} if cell.memory == "empty" else {}
        return (make_decision(episode_id=episode_id, policy="none", **changed, **empty),)
    fixed = cell.policy_parameters.get("action_id")
    return tuple(
        make_decision(
            position,
            episode_id=episode_id,
            action_id=fixed or generator.choice(ARMS),
            forced=cell.policy == "ucb" and generator.random() < 0.9,
            state_key=f"paper/1|{generator.choice(GOAL_TYPES)}|{generator.randrange(12)}|{position}",
            table=f"{cell.cell_id}/{stream}" if cell.table_scope == "stream" else cell.cell_id,
            policy=cell.policy,
        )
        for position in range(2)
    )


def _outcome(won: bool, broken: bool, ordinal: int) -> Outcome:
    if broken:
        return Outcome(
            outcome_class=OutcomeClass.UNEVALUABLE, score=0.0, num_steps=0, error_boundary="backbone", error="timeout"
        )
    return Outcome(
        outcome_class=OutcomeClass.SUCCESS if won else OutcomeClass.TRUNCATED,
        score=1.0 if won else 0.25,
        num_steps=4 + ordinal % 5,
        tokens=TokenUsage(agent_prompt=1500 + ordinal, agent_completion=60, memory_read=10, memory_write=5),
        duration_s=0.5,
    )


def stream_episodes(cell: FakeCell, stream: int = 0, *, count: int | None = None, **volatile: Any) -> list[Episode]:
    """The first `count` episodes of a stream (all by default)."""
    return [make_episode(cell, stream, n, **volatile) for n in range(cell.num_tasks if count is None else count)]


def write_plan(run_dir: Path, cells: Sequence[FakeCell]) -> None:
    """plan.json and config.yaml of a run of `cells`, first launched at 2026-01-02 03:04:05 UTC."""
    plan = RunPlan(
        run=run_dir.name,
        root=run_dir.parent,
        cells=tuple(cell.planned(place) for place, cell in enumerate(cells)),
        settings=RunSettings(workers=1),
        resolved={"run": run_dir.name},
    )
    config.write_plan(run_dir, plan, wall_time_s=1_767_323_045.0)


def write_stream(run_dir: Path, cell: FakeCell, stream: int = 0, *, count: int | None = None, **volatile: Any) -> None:
    """The stream's Parquet blocks, the last one partial."""
    episodes = stream_episodes(cell, stream, count=count, **volatile)
    sink = ParquetSink(run_dir)
    for start in range(0, len(episodes), BLOCK_TASKS):
        sink.write_block(cell.cell_id, stream, start // BLOCK_TASKS, episodes[start : start + BLOCK_TASKS])


def write_run(run_dir: Path, cells: Sequence[FakeCell], **volatile: Any) -> Path:
    """A finished run: plan.json and the Parquet of all streams; returns the folder."""
    write_plan(run_dir, cells)
    for cell in cells:
        for stream in range(cell.streams):
            write_stream(run_dir, cell, stream, **volatile)
    return run_dir


def demo_cells(num_tasks: int = 40, seeds: Sequence[int] = (0, 1, 2)) -> list[FakeCell]:
    """Cells like those of `configs/demo.yaml`."""
    cells = []
    for seed in seeds:
        common: dict[str, Any] = {"seed": seed, "num_tasks": num_tasks}
        cells += [
            FakeCell(memory="empty", policy="none", success=(0.25, 0.25), **common),
            FakeCell(
                policy="fixed", policy_parameters={"action_id": "retrieve_shallow"}, success=(0.3, 0.45), **common
            ),
            FakeCell(policy="fixed", policy_parameters={"action_id": "retrieve_deep"}, success=(0.28, 0.35), **common),
            FakeCell(policy="fixed", policy_parameters={"action_id": "plan_inject"}, success=(0.3, 0.5), **common),
            FakeCell(policy="uniform", success=(0.3, 0.42), **common),
            FakeCell(policy="ucb", success=(0.3, 0.4), **common),
        ]
    for seed in seeds[:2]:
        common = {"seed": seed, "num_tasks": max(4, num_tasks // 2), "benchmark": "pddl"}
        cells += [
            FakeCell(memory="empty", policy="none", success=(0.35, 0.35), **common),
            FakeCell(
                policy="fixed", policy_parameters={"action_id": "retrieve_shallow"}, success=(0.4, 0.55), **common
            ),
            FakeCell(policy="ucb", success=(0.4, 0.5), **common),
        ]
    cells.append(FakeCell(policy="ucb", streams=4, num_tasks=num_tasks, success=(0.3, 0.45)))
    return cells
