"""What a memory holds before the first task: practice, or the memory of an earlier stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memcon.clock import SystemClock
from memcon.control.settings import PreloadSettings
from memcon.errors import Boundary, BoundaryError, ConfigError, NotFoundError, UnavailableError
from memcon.protocols import AgentRun, Environment, StepResult
from memcon.types import Task
from memcon_workers.episode import Player
from memcon_workers.preload import PracticeBook
from memcon_workers.spec import PluginSpec, StreamSpec
from support.streams import StreamRig, build, household, spec_of

PLANS = PreloadSettings(per_type=2)
ATTEMPTS = PreloadSettings(source="attempts", per_type=2)
BOTH = PluginSpec(name="metagpt", parameters={"index_failures": True})


class Bench:
    """Household, except for what a test replaces; counts how often it was asked for practice."""

    def __init__(self, **replaced: Any) -> None:
        self._replaced = replaced
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(household(), name)

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        self.asked += 1
        found = self._replaced.get("practice", household().practice_tasks)(per_type)
        return tuple(found)


def _rig(folder: Path, bench: Any = None, **changes: Any) -> StreamRig:
    rig = StreamRig(spec_of(folder, **{"limit": 2, "preload": PLANS, **changes}))
    rig.benchmark = bench or Bench()
    return rig


async def test_the_first_task_meets_the_benchmarks_solutions(tmp_path: Path) -> None:
    rig = _rig(tmp_path)
    await rig.run()
    first = rig.episodes()[0].decisions[0].features
    assert first.memory_size == len(household().practice_tasks(2)) == 12
    assert first.plan_available
    assert rig.episodes()[0].outcome.tokens.memory_write == 0


async def test_reference_plans_are_stepped_through_the_environment_without_a_model(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, preload=PLANS)
    made = await PracticeBook().attempts(spec, household(), _player(spec))
    assert [one.task for one in made] == list(household().practice_tasks(2))
    for one in made:
        assert one.success
        assert [step.action for step in one.steps] == list(household().reference_plan(one.task) or ())
        assert one.steps[-1].progress == 1.0
        assert all(step.valid and step.observation and not step.prompt_tokens for step in one.steps)


async def test_what_follows_the_end_of_a_task_is_no_part_of_its_solution(tmp_path: Path) -> None:
    bench = Bench(reference_plan=lambda task: [*(household().reference_plan(task) or ()), "go to desk 1"])
    spec = spec_of(tmp_path, preload=PLANS)
    for one in await PracticeBook().attempts(spec, bench, _player(spec)):
        assert [step.action for step in one.steps] == list(household().reference_plan(one.task) or ())


async def test_what_the_agent_tries_without_memory_is_learned_whether_it_worked_or_not(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, preload=ATTEMPTS)
    made = await PracticeBook().attempts(spec, household(), _player(spec))
    assert {one.success for one in made} == {True, False}
    assert all(step.prompt_tokens > 0 for one in made for step in one.steps if step.kind == "action")

    rig = _rig(tmp_path, preload=ATTEMPTS, memory=BOTH)
    await rig.run()
    assert rig.episodes()[0].decisions[0].features.memory_size == len(made)


async def test_streams_of_one_seed_and_agent_begin_alike(tmp_path: Path) -> None:
    async def made(**changes: Any) -> Any:
        spec = spec_of(tmp_path, **{"preload": ATTEMPTS, **changes})
        found = await PracticeBook().attempts(spec, household(), _player(spec))
        return [tuple((step.action, step.observation) for step in one.steps) for one in found]

    first = await made()
    assert await made(stream=3, num_streams=4, run="other", cell="other", memory=BOTH, learning=None) == first
    assert await made(seed=1) != first


async def test_practice_is_played_once_for_all_streams_that_begin_alike(tmp_path: Path) -> None:
    book, bench = PracticeBook(), Bench()
    specs = [spec_of(tmp_path, preload=PLANS, stream=stream, num_streams=4) for stream in range(4)]
    player: Any = _player(specs[0])
    found = await asyncio.gather(*(book.attempts(spec, bench, player) for spec in specs))
    assert bench.asked == 1
    assert all(one is found[0] for one in found)
    # Solutions do not depend on the agent; attempts do.
    other = PluginSpec(name="another")
    await book.attempts(spec_of(tmp_path, preload=PLANS, backbone=other), bench, player)
    assert bench.asked == 1
    await book.attempts(spec_of(tmp_path, preload=ATTEMPTS), bench, player)
    await book.attempts(spec_of(tmp_path, preload=ATTEMPTS, backbone=other), bench, player)
    assert bench.asked == 3


async def test_a_memory_is_filled_once_in_the_life_of_its_stream(tmp_path: Path) -> None:
    bench = Bench()
    rig = _rig(tmp_path, bench)
    rig.stop.set()
    await rig.run()
    filled = rig.memory()
    assert sum(map(len, filled.values())) > 12
    rig.stop.clear()
    rig.on_told = lambda report, gate: rig.stop.set()
    await rig.run()
    rig.stop.clear()
    assert (await rig.run()).done
    assert bench.asked == 1
    assert rig.episodes()[1].decisions[0].features.memory_size == 12 + 1


async def test_a_stop_ends_practice_and_leaves_the_stream_fresh(tmp_path: Path) -> None:
    playing, rig = asyncio.Event(), _rig(tmp_path, preload=ATTEMPTS)

    class Endless:
        async def run(self, *args: Any, **keywords: Any) -> AgentRun:
            playing.set()
            await asyncio.Event().wait()
            raise AssertionError

    rig.wrap_framework = lambda inner: Endless()
    job = asyncio.ensure_future(rig.run())
    await playing.wait()
    rig.stop.set()
    result = await job
    assert (result.num_ended, result.done, rig.told) == (0, False, [])
    rig.stop.clear()
    rig.wrap_framework = lambda inner: inner
    assert (await rig.run()).done
    assert rig.episodes()[0].decisions[0].features.memory_size == 12


async def test_practice_is_no_time_of_tasks(tmp_path: Path) -> None:
    class Hours(SystemClock):
        passed_s = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.passed_s

    clock = Hours()

    def slow(per_type: int) -> Sequence[Task]:
        clock.passed_s += 36_000.0
        return household().practice_tasks(per_type)

    rig = _rig(tmp_path, Bench(practice=slow))
    rig.clock = clock
    result = await rig.run()
    assert clock.passed_s == 36_000.0
    assert 0.0 < result.elapsed_s < 3_600.0


# --- what cannot be had ----------------------------------------------------------------------------------------------


class BrokenWorld:
    """An environment that fails at its first step."""

    blocking = False

    def __init__(self, inner: Environment) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def step(self, action: str) -> StepResult:
        raise OSError(f"{action}: pipe closed")


@pytest.mark.parametrize(
    ("replaced", "preload", "error", "message"),
    [
        (
            {"practice": lambda per_type: (), "name": "trivia"},
            PLANS,
            ConfigError,
            r"benchmark 'trivia' has no practice tasks; take `preload` off",
        ),
        (
            {"reference_plan": lambda task: None},
            PLANS,
            ConfigError,
            r"benchmark 'household' has no reference plan for practice task '.+'; set source: attempts",
        ),
        (
            {"reference_plan": lambda task: ["go to desk 1"]},
            PLANS,
            ConfigError,
            r"plan of practice task '.+' does not solve it \(1 of 1 actions .*error of benchmark 'household'",
        ),
        (
            {"environment": lambda: BrokenWorld(household().environment())},
            PLANS,
            UnavailableError,
            r"practice task '.+' of benchmark 'household' could not be played: environment failed.*pipe closed",
        ),
        (
            {"environment": lambda: BrokenWorld(household().environment())},
            ATTEMPTS,
            UnavailableError,
            r"could not be played: environment failed.*pipe closed.*run the same command again",
        ),
    ],
)
async def test_practice_that_cannot_be_had_is_one_clear_line_and_leaves_the_stream_fresh(
    replaced: dict[str, Any], preload: PreloadSettings, error: type[Exception], message: str, tmp_path: Path
) -> None:
    rig = _rig(tmp_path, Bench(**replaced), preload=preload)
    with pytest.raises(error, match=message) as raised:
        await rig.run()
    assert "\n" not in str(raised.value)
    assert rig.episodes() == []
    # The cause is mended, and the same command goes on.
    rig.benchmark = household()
    assert (await rig.run()).done
    assert rig.episodes()[0].decisions[0].features.memory_size > 0


async def test_an_attempt_that_failed_once_is_played_again_by_the_next_stream(tmp_path: Path) -> None:
    class Flaky:
        calls = 0

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def run(self, *args: Any, **keywords: Any) -> AgentRun:
            Flaky.calls += 1
            if Flaky.calls == 3:
                raise BoundaryError(Boundary.BACKBONE, "complete", TimeoutError("busy"))
            run: AgentRun = await self._inner.run(*args, **keywords)
            return run

    spec, book = spec_of(tmp_path, preload=ATTEMPTS), PracticeBook()
    player = _player(spec, Flaky(build("framework", spec.framework, clock=SystemClock())))
    with pytest.raises(UnavailableError, match="busy"):
        await book.attempts(spec, household(), player)
    assert len(await book.attempts(spec, household(), player)) == 12


# --- the memory of an earlier stream ---------------------------------------------------------------------------------


async def _earlier(folder: Path) -> StreamRig:
    rig = _rig(folder / "earlier", cell="earlier", limit=3)
    await rig.run()
    return rig


async def test_a_stream_goes_on_with_the_memory_of_an_earlier_one(tmp_path: Path) -> None:
    earlier = await _earlier(tmp_path)
    bench = Bench()
    # The earlier memory has its own practice in it.
    rig = _rig(tmp_path / "next", bench, memory_from=earlier.spec.store_path)
    rig.stop.set()
    await rig.run()
    assert rig.memory() == earlier.memory()
    rig.stop.clear()
    await rig.run()
    assert bench.asked == 0
    assert rig.memory() != earlier.memory()
    last = earlier.episodes()[-1]
    assert rig.episodes()[0].decisions[0].features.memory_size == last.memory_size


async def test_a_backend_that_looks_at_its_file_once_sees_the_copied_memory(tmp_path: Path) -> None:
    class Cached:
        def __init__(self, inner: Any) -> None:
            self._inner, self._size = inner, inner.size()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def size(self) -> int:
            found: int = self._size
            return found

    earlier = await _earlier(tmp_path)
    rig = _rig(tmp_path / "next", limit=1, memory_from=earlier.spec.store_path)
    rig.wrap_backend = Cached
    await rig.run()
    assert rig.episodes()[0].decisions[0].features.memory_size == earlier.episodes()[-1].memory_size


async def test_nothing_is_added_to_a_frozen_memory(tmp_path: Path) -> None:
    earlier = await _earlier(tmp_path)
    rig = _rig(tmp_path / "next", limit=3, memory_from=earlier.spec.store_path, memory_frozen=True)
    await rig.run()
    assert rig.memory() == earlier.memory()
    assert len({decision.features.memory_size for episode in rig.episodes() for decision in episode.decisions}) == 1
    assert any(decision.item_ids for episode in rig.episodes() for decision in episode.decisions)


async def test_an_earlier_stream_that_is_not_there_is_named_and_leaves_the_stream_fresh(tmp_path: Path) -> None:
    rig = _rig(tmp_path / "next", memory_from=str(tmp_path / "gone.sqlite"))
    with pytest.raises(NotFoundError, match=r"gone\.sqlite"):
        await rig.run()
    assert rig.episodes() == []
    assert not any(rig.memory().values())


def _player(spec: StreamSpec, framework: Any = None) -> Player:
    return Player(
        framework=framework or build("framework", spec.framework, clock=SystemClock()),
        environment=household().environment(),
        model=build("backbone", spec.backbone),
        clock=SystemClock(),
        time_limit_s=None,
    )
