"""Streams for tests: real household tasks and agent, a fake policy server, and a power cut at any chosen call."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from memcon import registry
from memcon.clock import SystemClock
from memcon.control.controller import ControllerParts, ControlSettings, MemoryController, StreamPlace
from memcon.learning.credit import RewardSettings
from memcon.policy_types import LearningSettings
from memcon.protocols import Benchmark, Clock
from memcon.store import StreamStore
from memcon.stream_file import OWN_TABLES
from memcon.testing.policy import FakePolicyClient
from memcon.types import Episode
from memcon_workers.episode import Player
from memcon_workers.gate import Gate
from memcon_workers.preload import PracticeBook
from memcon_workers.spec import PluginSpec, StreamReady, StreamResult, StreamSpec, TaskEnded
from memcon_workers.stream import StreamLoop, StreamParts, stream_tasks


class PowerCut(BaseException):
    """The process dies here; no handler of ours may catch it."""


class Fuse:
    """Counts the calls that pass through it and dies at one of them."""

    def __init__(self, at: int | str | None = None) -> None:
        # Number of the call, or the first call of this name.
        self.at = at
        self.calls: list[str] = []

    def burn(self, name: str) -> None:
        self.calls.append(name)
        if self.at in {len(self.calls) - 1, name}:
            raise PowerCut(name)

    def around(self, target: Any, *names: str) -> None:
        """Let the methods `names` of `target` burn the fuse before and after they run."""
        for name in names:
            setattr(target, name, self._wrapped(getattr(target, name), name))

    def _wrapped(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        if asyncio.iscoroutinefunction(call):

            async def awaited(*args: Any, **keywords: Any) -> Any:
                self.burn(f"before {name}")
                result = await call(*args, **keywords)
                self.burn(f"after {name}")
                return result

            return awaited

        def called(*args: Any, **keywords: Any) -> Any:
            self.burn(f"before {name}")
            result = call(*args, **keywords)
            self.burn(f"after {name}")
            return result

        return called


class SameThread(Executor):
    """Runs at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - passed on whole, as an executor does
            future.set_exception(error)
        return future


class MemorySink:
    """Keeps blocks as they were last written."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[str, int, int], list[Episode]] = {}

    def write_block(self, cell: str, stream: int, block: int, episodes: Sequence[Episode]) -> None:
        self.blocks[cell, stream, block] = list(episodes)


def learning(policy: str = "ucb", **parameters: Any) -> LearningSettings:
    settings: LearningSettings = registry.configure("policy", policy, parameters).learning_settings()
    return settings


def spec_of(folder: Path, *, limit: int | None = 4, **changes: Any) -> StreamSpec:
    spec = StreamSpec(
        run="run",
        cell="cell",
        stream=0,
        num_streams=1,
        split="replicate",
        seed=0,
        limit=limit,
        benchmark=PluginSpec(name="household"),
        framework=PluginSpec(
            name="lobster",
            parameters={"history_window": "all", "few_shot": 0, "list_actions": True, "loop_stop": False},
        ),
        backbone=PluginSpec(name="imitator"),
        memory=PluginSpec(name="metagpt"),
        embedder=PluginSpec(name="hashing"),
        learning=learning(),
        table="cell/cell",
        control=ControlSettings(),
        reward=RewardSettings(),
        store_path=str(folder / "0.sqlite"),
        task_restarts=3,
        task_time_limit_s=None,
    )
    return replace(spec, **changes)


def build(kind: str, spec: PluginSpec, **collaborators: Any) -> Any:
    return registry.plugin(kind, spec.name).build(registry.configure(kind, spec.name, spec.parameters), **collaborators)


@functools.cache
def household() -> Benchmark:
    """The benchmark of these streams; built once, since it has no state of a stream."""
    benchmark: Benchmark = build("benchmark", PluginSpec(name="household"))
    return benchmark


class StreamRig:
    """One stream with a policy server and a sink that outlive its process."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self.policy = FakePolicyClient()
        self.sink = MemorySink()
        self.told: list[TaskEnded | StreamReady] = []
        self.stop = asyncio.Event()
        self.benchmark = household()
        self.clock: Clock = SystemClock()
        # Called with what the stream tells, and the gate of this life.
        self.on_told: Callable[[TaskEnded | StreamReady, Gate], None] = _grant_at_once
        self.wrap_framework: Callable[[Any], Any] = lambda framework: framework
        self.wrap_backend: Callable[[Any], Any] = lambda backend: backend
        self.wrap_model: Callable[[Any], Any] = lambda model: model

    async def run(self, *, fuse: Fuse | None = None, worker_died: bool = False) -> StreamResult:
        """One life of the process: ends with the stream, or with a `PowerCut`."""
        spec, clock, benchmark = self.spec, self.clock, self.benchmark
        gate = Gate(self.stop)
        store = StreamStore(Path(spec.store_path), identity=f"{spec.cell}/{spec.stream}")
        policy, sink = _Passing(self.policy), _Passing(self.sink)
        if fuse is not None:
            fuse.around(store, "raise_epoch", "seeded", "copy_memory", "begin", "end", "delivered")
            fuse.around(policy, "open_table", "decide", "outcomes", "cancel_episode")
            fuse.around(sink, "write_block")
            fuse.around(gate, "passed")

        def make_controller() -> MemoryController:
            backend = build("memory", spec.memory, store=store, embedder=build("embedder", spec.embedder))
            if fuse is not None:
                # Inside a commit, and inside a task between its commits.
                fuse.around(backend, "record", "maintain")
            return MemoryController(
                ControllerParts(
                    benchmark=benchmark,
                    backend=self.wrap_backend(backend),
                    store=store,
                    policy=policy if spec.learning is not None else None,
                    learning=spec.learning,
                    table=spec.table,
                    control=spec.control,
                    reward=spec.reward,
                    clock=clock,
                    place=StreamPlace(cell=spec.cell, stream=spec.stream),
                    setup=spec.setup,
                    memory_frozen=spec.memory_frozen,
                )
            )

        def tell(report: TaskEnded | StreamReady) -> None:
            self.told.append(report)
            self.on_told(report, gate)

        try:
            framework = _Passing(self.wrap_framework(build("framework", spec.framework, clock=clock)))
            if fuse is not None and (spec.trial_set or spec.preload):
                # Plays that no other call of the protocol stands between.
                fuse.around(framework, "run")
            player = Player(
                framework=framework,
                environment=benchmark.environment(),
                model=self.wrap_model(build("backbone", spec.backbone)),
                clock=clock,
                time_limit_s=spec.task_time_limit_s,
            )
            parts = StreamParts(
                tasks=stream_tasks(spec, benchmark.tasks()),
                store=store,
                player=player,
                make_controller=make_controller,
                policy=policy if spec.learning is not None else None,
                sink=sink,
                clock=clock,
                writer=SameThread(),
                # A book of its own: this is another process.
                practise=functools.partial(PracticeBook().attempts, spec, benchmark, player) if spec.preload else None,
                gate=gate if spec.gated else None,
            )
            return await StreamLoop(spec, parts, stop=self.stop, tell=tell).run(worker_died=worker_died)
        finally:
            store.close()

    @property
    def ready(self) -> list[int]:
        """How many tasks had ended each time that the stream told it was ready."""
        return [report.num_ended for report in self.told if isinstance(report, StreamReady)]

    @property
    def ended(self) -> list[TaskEnded]:
        """The ended tasks that the stream told."""
        return [report for report in self.told if isinstance(report, TaskEnded)]

    def episodes(self) -> list[Episode]:
        """What the stream's file holds."""
        store = StreamStore(Path(self.spec.store_path), identity=f"{self.spec.cell}/{self.spec.stream}")
        try:
            return list(store.episodes())
        finally:
            store.close()

    def memory(self) -> dict[str, list[Any]]:
        """Every row of every table that the memory keeps in the stream's file."""
        with contextlib.closing(sqlite3.connect(self.spec.store_path)) as file:
            names = [row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                name: file.execute(f"SELECT * FROM {name}").fetchall()
                for name in sorted(names)
                if name not in OWN_TABLES
            }

    def exported(self) -> list[Episode]:
        """What the sink holds, in order."""
        return [episode for _, block in sorted(self.sink.blocks.items()) for episode in block]

    def tables(self) -> Any:
        """The policy's tables, with floats as their bits."""
        dump = self.policy.shards[0].dump(self.spec.table)
        return dump["numbers"], dump["open"]


def _grant_at_once(report: TaskEnded | StreamReady, gate: Gate) -> None:
    if isinstance(report, StreamReady):
        gate.grant()


class _Passing:
    """Passes every call on; gives tests a place to wrap without touching what outlives the process."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def lasting(episode: Episode) -> Episode:
    """`episode` without what may differ between two tries: ids of the try, versions and clock columns."""
    return replace(
        episode,
        run="",
        episode_id="",
        epoch=0,
        started_at=0.0,
        steps=tuple(replace(step, model_s=0.0, environment_s=0.0) for step in episode.steps),
        decisions=tuple(
            replace(decision, decision_id="", episode_id="", table_version=0, shard=0, received=0, latency_s=0.0)
            for decision in episode.decisions
        ),
        outcome=replace(episode.outcome, duration_s=0.0),
    )
