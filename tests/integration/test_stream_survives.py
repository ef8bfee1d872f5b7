"""The task protocol: wherever the process dies, the stream ends as if nothing had happened."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memcon.errors import Boundary, BoundaryError, UnavailableError
from memcon.protocols import AgentRun, Retrieval
from memcon.types import OutcomeClass, Trajectory
from memcon_workers.stream import BLOCK_ORDINALS, stream_tasks
from support.streams import Fuse, PowerCut, StreamRig, household, lasting, spec_of


async def _uninterrupted(folder: Path, **changes: Any) -> tuple[StreamRig, list[str]]:
    rig, fuse = StreamRig(spec_of(folder, **changes)), Fuse()
    await rig.run(fuse=fuse)
    return rig, fuse.calls


async def test_a_stream_runs_all_tasks_and_exports_them(tmp_path: Path) -> None:
    rig, _ = await _uninterrupted(tmp_path, limit=4)
    assert [episode.ordinal for episode in rig.episodes()] == [0, 1, 2, 3]
    assert rig.exported() == rig.episodes()
    assert [task.ordinal for task in rig.ended] == [0, 1, 2, 3]
    assert rig.tables()[1] == {}


async def test_a_death_at_any_call_changes_nothing_in_the_end(tmp_path: Path) -> None:
    whole, calls = await _uninterrupted(tmp_path / "whole", limit=3)
    expected = [lasting(episode) for episode in whole.episodes()]
    assert {"before begin", "after decide", "after end", "before outcomes", "after delivered"} <= set(calls)
    for at, name in enumerate(calls):
        rig = StreamRig(spec_of(tmp_path / str(at), limit=3))
        with pytest.raises(PowerCut):
            await rig.run(fuse=Fuse(at))
        result = await rig.run()
        assert result.done, f"death {name} (call {at})"
        assert [lasting(episode) for episode in rig.episodes()] == expected, f"death {name} (call {at})"
        assert [lasting(episode) for episode in rig.exported()] == expected, f"death {name} (call {at})"
        assert rig.tables() == whole.tables(), f"death {name} (call {at})"


async def test_deaths_again_and_again_change_nothing_in_the_end(tmp_path: Path) -> None:
    whole, _ = await _uninterrupted(tmp_path / "whole", limit=3)
    rig = StreamRig(spec_of(tmp_path / "shaken", limit=3))
    for at in (3, 6, 9, 12, 15, 18, 21, 24):
        try:
            await rig.run(fuse=Fuse(at))
        except PowerCut:
            continue
    await rig.run()
    assert [lasting(episode) for episode in rig.episodes()] == [lasting(episode) for episode in whole.episodes()]
    assert rig.tables() == whole.tables()


async def test_a_stop_is_honoured_at_a_task_boundary_and_the_next_launch_goes_on(tmp_path: Path) -> None:
    rig = StreamRig(spec_of(tmp_path, limit=4))
    rig.on_told = lambda report, gate: rig.stop.set() if len(rig.ended) == 2 else None
    assert not (await rig.run()).done
    assert len(rig.episodes()) == 2
    rig.stop.clear()
    assert (await rig.run()).done
    assert [task.ordinal for task in rig.ended] == [0, 1, 2, 3]


class _FailingFramework:
    """Fails at the given play; plays the others."""

    def __init__(self, inner: Any, failure: BaseException, at: int) -> None:
        self._inner, self._failure, self._at = inner, failure, at
        self._plays = 0

    async def run(self, *args: Any, **keywords: Any) -> AgentRun:
        self._plays += 1
        run: AgentRun = await self._inner.run(*args, **keywords)
        if self._plays - 1 == self._at:
            raise self._failure
        return run


async def test_a_task_that_fails_outside_is_data_and_teaches_nothing(tmp_path: Path) -> None:
    rig = StreamRig(spec_of(tmp_path, limit=3))
    failure = BoundaryError(Boundary.ENVIRONMENT, "step", RuntimeError("broken pipe"))
    rig.wrap_framework = lambda inner: _FailingFramework(inner, failure, at=1)
    await rig.run()
    failed = rig.episodes()[1]
    assert failed.outcome.outcome_class is OutcomeClass.UNEVALUABLE
    assert (failed.outcome.error_boundary, failed.reward) == ("environment", None)
    assert "broken pipe" in failed.outcome.error
    assert all(decision.credit is None for decision in failed.decisions)
    assert failed.memory_size == rig.episodes()[0].memory_size
    numbers, open_decisions = rig.tables()
    assert open_decisions == {}
    taken = sum(arm["taken"] for key in numbers["keys"].values() for arm in key.values())
    assert taken == sum(len(episode.decisions) for episode in rig.episodes() if episode is not failed) - len(
        failed.decisions
    )


async def test_a_server_that_stays_away_makes_the_task_unevaluable_and_is_reported(tmp_path: Path) -> None:
    rig = StreamRig(spec_of(tmp_path, limit=2))

    async def away(*_: Any) -> Any:
        rig.policy.down = True
        raise UnavailableError("the policy server did not answer within 120 s")

    decide, rig.policy.decide = rig.policy.decide, away  # type: ignore[assignment,method-assign]
    with pytest.raises(UnavailableError):
        await rig.run()
    assert rig.episodes()[0].outcome.error_boundary == "policy"
    rig.policy.decide, rig.policy.down = decide, False  # type: ignore[method-assign]
    assert (await rig.run()).done
    assert rig.tables()[1] == {}


async def test_a_task_that_kills_its_workers_ends_unevaluable(tmp_path: Path) -> None:
    rig = StreamRig(spec_of(tmp_path, limit=2, task_restarts=2))
    for life in range(3):
        with pytest.raises(PowerCut):
            await rig.run(fuse=Fuse("before decide"), worker_died=life > 0)
    await rig.run(worker_died=True)
    first = rig.episodes()[0]
    assert (first.outcome.outcome_class, first.outcome.error_boundary) == (OutcomeClass.UNEVALUABLE, "worker")
    assert rig.episodes()[1].outcome.outcome_class is not OutcomeClass.UNEVALUABLE


class _FailingRecord:
    """A backend whose record fails once."""

    def __init__(self, inner: Any, error: Exception) -> None:
        self._inner, self._error = inner, error
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        found: Retrieval = self._inner.retrieve(query, **parameters)
        return found

    def record(self, trajectory: Trajectory) -> int:
        tokens: int = self._inner.record(trajectory)
        if not self.failed:
            self.failed = True
            raise self._error
        return tokens


@pytest.mark.parametrize("error", [OSError("index is gone"), UnavailableError("the vector store is away")])
async def test_a_backend_that_fails_to_record_leaves_no_trace(error: Exception, tmp_path: Path) -> None:
    rig = StreamRig(spec_of(tmp_path, limit=2))
    broken: list[_FailingRecord] = []

    def wrap(inner: Any) -> Any:
        broken.append(_FailingRecord(inner, error))
        broken[-1].failed = len(broken) > 1
        return broken[-1]

    rig.wrap_backend = wrap
    await rig.run()
    first, second = rig.episodes()
    assert (first.outcome.outcome_class, first.outcome.error_boundary) == (OutcomeClass.UNEVALUABLE, "memory")
    assert (first.memory_size, second.memory_size) == (0, 1)
    assert len(broken) == 2


async def test_blocks_hold_fifty_ordinals_and_the_last_one_the_rest(tmp_path: Path) -> None:
    rig, _ = await _uninterrupted(tmp_path, limit=BLOCK_ORDINALS + 2)
    assert [len(block) for _, block in sorted(rig.sink.blocks.items())] == [BLOCK_ORDINALS, 2]


def _ids(spec: Any, tasks: Sequence[Any]) -> list[str]:
    return [task.task_id for task in stream_tasks(spec, tasks)]


def test_order_of_tasks_depends_on_seed_and_stream_only(tmp_path: Path) -> None:
    tasks = household().tasks()
    first = _ids(spec_of(tmp_path, limit=None), tasks)
    assert sorted(first) == sorted(task.task_id for task in tasks)
    assert first == _ids(spec_of(tmp_path, limit=None, learning=None, run="other", cell="other"), tasks)
    assert first != _ids(spec_of(tmp_path, limit=None, seed=1), tasks)
    assert first != _ids(spec_of(tmp_path, limit=None, stream=1, num_streams=2), tasks)


def test_a_partition_shares_every_task_out_once(tmp_path: Path) -> None:
    tasks = household().tasks()
    parts = [_ids(spec_of(tmp_path, limit=20, split="partition", num_streams=3, stream=i), tasks) for i in range(3)]
    assert sorted(itertools.chain(*parts)) == sorted(task.task_id for task in tasks[:20])
    assert [len(part) for part in parts] == [7, 7, 6]
