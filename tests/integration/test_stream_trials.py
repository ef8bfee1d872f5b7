"""Every arm on every task (policy `every_arm`): rows of an outcome matrix, and a memory that grows by one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memcon import ids
from memcon.control.settings import ControlSettings
from memcon.errors import Boundary, BoundaryError
from memcon.learning import actions
from memcon.protocols import AgentRun, Retrieval
from memcon.types import Episode, Operation, OutcomeClass
from memcon_workers.spec import PluginSpec
from support.streams import Fuse, PowerCut, StreamRig, learning, spec_of

ARMS = actions.action_set("default").action_ids
IDLE = ("consolidate", "forget", "noop")
KEEPER = PluginSpec(name="metagpt", parameters={"maintenance": True, "index_failures": True})


def _rig(folder: Path, **changes: Any) -> StreamRig:
    return StreamRig(spec_of(folder, **{"learning": None, "trial_set": "default", **changes}))


def _drawn(stream: int, ordinal: int, arms: tuple[str, ...] = ARMS) -> str:
    return arms[ids.draw64("trial", "cell", stream, ordinal) % len(arms)]


class Spied:
    """Notes the seeds and the arm's prompt of every play; `fails` says for which plays the environment breaks."""

    def __init__(self, inner: Any, fails: Callable[[int], bool]) -> None:
        self._inner, self._fails = inner, fails
        self.seeds: list[tuple[str, int, int]] = []

    async def run(self, task: Any, *args: Any, **keywords: Any) -> AgentRun:
        self.seeds.append((task.task_id, keywords["environment_seed"], keywords["agent_seed"]))
        run: AgentRun = await self._inner.run(task, *args, **keywords)
        if self._fails(len(self.seeds) - 1):
            raise BoundaryError(Boundary.ENVIRONMENT, "step", OSError("pipe closed"))
        return run


def _spied(rig: StreamRig, fails: Callable[[int], bool] = lambda play: False) -> list[Spied]:
    made: list[Spied] = []

    def wrap(inner: Any) -> Any:
        made.append(Spied(inner, fails))
        return made[-1]

    rig.wrap_framework = wrap
    return made


def _untimed(episode: Episode) -> Any:
    steps = tuple((step.action, step.observation, step.prompt_tokens) for step in episode.steps)
    return steps, replace(episode.outcome, duration_s=0.0), episode.reward


async def test_every_arm_is_played_on_the_same_task_memory_and_seeds(tmp_path: Path) -> None:
    rig = _rig(tmp_path, limit=4)
    made = _spied(rig)
    await rig.run()
    (spied,) = made
    assert [[trial.action_id for trial in episode.trials] for episode in rig.episodes()] == [list(ARMS)] * 4
    # One play for the arms that bring nothing.
    plays = [spied.seeds[7 * n : 7 * n + 7] for n in range(4)]
    assert len(spied.seeds) == 28
    assert [len(set(seeds)) for seeds in plays] == [1, 1, 1, 1]
    assert len({seeds[0][2] for seeds in plays}) == 4


async def test_the_episode_is_the_drawn_arms_and_alone_goes_into_memory(tmp_path: Path) -> None:
    rig = _rig(tmp_path, limit=6)
    await rig.run()
    for episode in rig.episodes():
        (decision,) = episode.decisions
        assert (decision.action_id, decision.policy, decision.table) == (_drawn(0, episode.ordinal), "every_arm", "")
        assert decision.propensity == 1 / 9
        trial = next(trial for trial in episode.trials if trial.action_id == decision.action_id)
        outcome = episode.outcome
        assert (trial.outcome_class, trial.score, trial.num_steps) == (
            outcome.outcome_class,
            outcome.score,
            outcome.num_steps,
        )
        assert (trial.reward, trial.tokens_agent_prompt) == (episode.reward, outcome.tokens.agent_prompt)
        assert trial.degraded == decision.degraded
        assert decision.features.memory_size == episode.ordinal
    assert rig.policy.events == ([],)


async def test_a_trial_is_what_the_arm_alone_would_have_come_to(tmp_path: Path) -> None:
    """The matrix against cells of policy `fixed` on the first task, where all memories are still equal."""
    preload: dict[str, Any] = {"limit": 1, "control": ControlSettings(decision_points="start"), "stream": 3}
    earlier = StreamRig(spec_of(tmp_path / "earlier", limit=8, cell="earlier", stream=1))
    await earlier.run()
    preload["memory_from"] = earlier.spec.store_path
    matrix = _rig(tmp_path / "matrix", **preload)
    await matrix.run()
    trials = {trial.action_id: trial for trial in matrix.episodes()[0].trials}
    assert len({(trial.num_steps, trial.tokens_agent_prompt) for trial in trials.values()}) > 2
    for arm in ("retrieve_shallow", "retrieve_deep", "plan_inject", "noop", "consolidate"):
        alone = StreamRig(spec_of(tmp_path / arm, learning=learning("fixed", action_id=arm), **preload))
        await alone.run()
        episode, trial = alone.episodes()[0], trials[arm]
        (decision,) = episode.decisions
        assert decision.action_id == arm
        assert (trial.outcome_class, trial.num_steps) == (episode.outcome.outcome_class, episode.outcome.num_steps)
        assert trial.tokens_agent_prompt == episode.outcome.tokens.agent_prompt
        injected = decision.tokens_items + decision.tokens_insights + decision.tokens_plan + decision.tokens_hint
        assert (trial.tokens_injected, trial.reward, trial.degraded) == (injected, episode.reward, decision.degraded)


async def test_arms_that_the_memory_lacks_share_what_noop_came_to(tmp_path: Path) -> None:
    rig = _rig(tmp_path, limit=8, stream=4)
    await rig.run()
    # The arm that was played for them is now one of them, now noop.
    assert _drawn(4, 0) == "forget"
    for episode in rig.episodes():
        of = {trial.action_id: trial for trial in episode.trials}
        assert [of[arm].degraded for arm in IDLE] == ["unsupported", "unsupported", ""]
        assert len({replace(of[arm], action_id="", degraded="") for arm in IDLE}) == 1
        assert [of[arm].tokens_injected for arm in IDLE] == [0, 0, 0]


class Noting:
    """A backend that notes what its hooks met and left: operation, items before, items after."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.met: list[tuple[Operation, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def maintain(self, operation: Operation) -> int:
        before = self._inner.size()
        tokens: int = self._inner.maintain(operation)
        self.met.append((operation, before, self._inner.size()))
        return tokens


def _noted(rig: StreamRig) -> list[Noting]:
    made: list[Noting] = []

    def wrap(inner: Any) -> Any:
        made.append(Noting(inner))
        return made[-1]

    rig.wrap_backend = wrap
    return made


async def test_what_the_arms_beside_the_drawn_one_do_to_memory_is_undone(tmp_path: Path) -> None:
    rig = _rig(tmp_path, limit=5, memory=KEEPER)
    made = _noted(rig)
    await rig.run()
    assert not {_drawn(0, ordinal) for ordinal in range(5)} & {"consolidate", "forget"}
    (backend,) = made
    # Both hooks on every task, on the memory as the task found it; nothing of them is left.
    assert [(operation, before) for operation, before, _ in backend.met] == [
        (operation, ordinal) for ordinal in range(5) for operation in (Operation.CONSOLIDATE, Operation.FORGET)
    ]
    assert any(after < before for _, before, after in backend.met)
    assert [episode.memory_size for episode in rig.episodes()] == [1, 2, 3, 4, 5]
    of = {trial.action_id: trial for trial in rig.episodes()[4].trials}
    assert [of[arm].degraded for arm in IDLE] == ["", "", ""]


async def test_what_the_drawn_arm_does_to_memory_stays(tmp_path: Path) -> None:
    earlier = StreamRig(spec_of(tmp_path / "earlier", limit=6, cell="earlier", memory=KEEPER))
    await earlier.run()
    rig = _rig(tmp_path / "next", limit=1, stream=4, memory=KEEPER, memory_from=earlier.spec.store_path)
    made = _noted(rig)
    await rig.run()
    assert _drawn(4, 0) == "forget"
    (first, before, after), (last, met, left) = made[-1].met
    assert (first, last) == (Operation.CONSOLIDATE, Operation.FORGET)
    assert (before, after, met) == (6, 6, 6)
    assert left < 6
    assert rig.episodes()[0].memory_size == left + 1


async def test_a_set_gives_the_arms_that_may_be_chosen_at_task_start(tmp_path: Path) -> None:
    compact = _rig(tmp_path / "compact", limit=2, trial_set="compact")
    await compact.run()
    arms = tuple(trial.action_id for trial in compact.episodes()[1].trials)
    # `re_retrieve` waits for an agent that is stuck.
    assert arms == ("retrieve_shallow", "retrieve_medium", "retrieve_deep", "plan_inject", "insight_only", "noop")
    (decision,) = compact.episodes()[1].decisions
    assert (decision.action_id, decision.propensity) == (_drawn(0, 1, arms), 1 / 6)

    masked = _rig(tmp_path / "masked", limit=1, control=ControlSettings(unsupported_arms="mask"))
    await masked.run()
    assert [trial.action_id for trial in masked.episodes()[0].trials] == [
        arm for arm in ARMS if arm not in {"consolidate", "forget"}
    ]


async def test_an_arm_whose_world_breaks_is_unevaluable_and_the_others_are_not(tmp_path: Path) -> None:
    sound, rig = _rig(tmp_path / "sound", limit=2), _rig(tmp_path / "broken", limit=2)
    await sound.run()
    # The first play of the first task is no drawn arm.
    _spied(rig, lambda play: play == 0)
    await rig.run()
    first, as_it_should_be = rig.episodes()[0], sound.episodes()[0]
    assert _drawn(0, 0) == "plan_inject"
    broken = first.trials[0]
    assert (broken.action_id, broken.outcome_class, broken.reward) == ("retrieve_shallow", "unevaluable", None)
    assert first.trials[1:] == as_it_should_be.trials[1:]
    assert _untimed(first) == _untimed(as_it_should_be)
    assert rig.episodes()[1].trials == sound.episodes()[1].trials


async def test_nothing_is_recorded_when_the_drawn_arm_is_unevaluable(tmp_path: Path) -> None:
    rig = _rig(tmp_path, limit=2, memory=KEEPER)
    _spied(rig, lambda play: play == 8)
    await rig.run()
    first, second = rig.episodes()
    assert (first.outcome.outcome_class, first.outcome.error_boundary) == (OutcomeClass.UNEVALUABLE, "environment")
    assert (first.reward, first.memory_size, second.decisions[0].features.memory_size) == (None, 0, 0)
    evaluated = [trial.action_id for trial in first.trials if trial.outcome_class is not OutcomeClass.UNEVALUABLE]
    assert evaluated == [arm for arm in ARMS if arm != _drawn(0, 0)]


async def test_a_task_that_kills_its_workers_is_unevaluable_under_every_arm(tmp_path: Path) -> None:
    rig = _rig(tmp_path, limit=2, task_restarts=1)
    for life in range(2):
        with pytest.raises(PowerCut):
            await rig.run(fuse=Fuse("after run"), worker_died=life > 0)
    await rig.run(worker_died=True)
    first, second = rig.episodes()
    assert first.outcome.error_boundary == "worker"
    assert {trial.outcome_class for trial in first.trials} == {OutcomeClass.UNEVALUABLE}
    assert OutcomeClass.UNEVALUABLE not in {trial.outcome_class for trial in second.trials}


async def test_a_memory_that_cannot_be_read_fails_the_arms_that_read_it(tmp_path: Path) -> None:
    class Deaf:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def retrieve(self, query: str, **parameters: int) -> Retrieval:
            raise OSError(f"no index for {query}")

    rig = _rig(tmp_path, limit=1)
    rig.wrap_backend = Deaf
    await rig.run()
    of = {trial.action_id: trial for trial in rig.episodes()[0].trials}
    assert {arm for arm, trial in of.items() if trial.outcome_class is not OutcomeClass.UNEVALUABLE} == set(IDLE)
    assert of["retrieve_deep"].degraded == "backend_failed"


async def test_progress_counts_the_drawn_arm(tmp_path: Path) -> None:
    rig = _rig(tmp_path, limit=3)
    result = await rig.run()
    for told, episode in zip(rig.ended, rig.episodes(), strict=True):
        assert (told.num_steps, told.num_decisions, told.reward) == (episode.outcome.num_steps, 1, episode.reward)
    assert result.num_steps == sum(len(episode.steps) for episode in rig.episodes())
