"""Who chooses, when and from what: chains of keys, arms for the stuck, one decision a task, mixes, fixed arms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memcon import ids
from memcon.control.controller import MemoryController, TaskMemory
from memcon.control.decomposition import TWO_OBJECTS_HINT
from memcon.control.memory.empty import EmptyMemory
from memcon.errors import ConfigError, UnknownNameError
from memcon.learning import actions
from memcon.learning.state_key import parse
from memcon.store import StreamStore
from memcon.testing.memory import SpyBackend, commit, task_of
from memcon.types import ProgressRules, Step, Task, Trigger
from support.control import HookedBackend, ScriptedPolicy, SmallBenchmark, SmallMix, learning_settings
from support.controller import ATTEMPT, GO, SUCCESS, TASK, begin, controller_of, end, play

# --- keys and features ------------------------------------------------------------------------------------------------


async def test_the_request_carries_the_chain_and_the_decision_its_finest_key(store: StreamStore) -> None:
    policy = ScriptedPolicy("noop")
    parts = controller_of(EmptyMemory(), store, policy).parts
    learning = learning_settings(pooling=("benchmark",))
    memory = begin(MemoryController(replace(parts, learning=learning)))
    await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    (request,) = policy.requests
    assert [parse(key).values for key in request.keys] == [
        {"benchmark": "test", "goal_type": "put"},
        {"benchmark": "test"},
    ]
    assert decision.state_key == request.keys[0]


async def test_features_name_the_family_and_the_set_up(store: StreamStore) -> None:
    parts = controller_of(EmptyMemory(), store, ScriptedPolicy("noop")).parts
    memory = begin(MemoryController(replace(parts, setup="a1b2")))
    await play(memory)
    features = memory.finish(SUCCESS).decisions[0].features
    assert (features.benchmark, features.setup) == ("test", "a1b2")


async def test_the_set_up_can_be_a_level_of_the_chain(store: StreamStore) -> None:
    # Cells that disagree share a table only with a level of their own (docs/prototype.md, 4).
    policy = ScriptedPolicy("noop")
    parts = controller_of(EmptyMemory(), store, policy).parts
    learning = replace(learning_settings(), key_schema="setup+goal_type", pooling=("goal_type",))
    await play(begin(MemoryController(replace(parts, learning=learning, setup="cell b"))))
    assert [dict(parse(key).values) for key in policy.requests[0].keys] == [
        {"setup": "cell b", "goal_type": "put"},
        {"goal_type": "put"},
    ]


# --- when -------------------------------------------------------------------------------------------------------------


async def test_start_decides_once_a_task(store: StreamStore) -> None:
    policy = ScriptedPolicy("retrieve_shallow", "noop")
    memory = begin(controller_of(HookedBackend(store), store, policy, decision_points="start"))
    blocks = await play(memory, *GO[:9], "look", "look", *GO[9:20])
    finished = memory.finish(SUCCESS)
    assert [decision.trigger for decision in finished.decisions] == [Trigger.START]
    assert all(block is blocks[0] for block in blocks)
    # One decision: the whole reward is its credit.
    assert finished.decisions[0].credit == finished.reward


# --- from what --------------------------------------------------------------------------------------------------------

COMPACT = ("retrieve_shallow", "retrieve_medium", "retrieve_deep", "plan_inject", "insight_only", "noop")


def compact(store: StreamStore, policy: ScriptedPolicy, **control: object) -> MemoryController:
    parts = controller_of(EmptyMemory(), store, policy, **control).parts
    return MemoryController(replace(parts, learning=learning_settings(action_set="compact")))


async def test_an_arm_for_the_stuck_is_offered_while_stuck_only(store: StreamStore) -> None:
    policy = ScriptedPolicy("noop", "re_retrieve", "noop")
    memory = begin(compact(store, policy, decision_points="every_step"))
    await play(memory, "look", "look", "inventory")
    assert [request.allowed for request in policy.requests] == [COMPACT, COMPACT, None, COMPACT]
    decisions = memory.finish(SUCCESS).decisions
    assert [decision.features.is_stuck for decision in decisions] == [False, False, True, False]
    assert [decision.allowed for decision in decisions] == [COMPACT, COMPACT, (*COMPACT, "re_retrieve"), COMPACT]
    assert [dict(decision.masked) for decision in decisions] == [
        {"re_retrieve": "only when stuck"},
        {"re_retrieve": "only when stuck"},
        {},
        {"re_retrieve": "only when stuck"},
    ]


async def test_what_the_backend_lacks_is_the_first_reason(store: StreamStore) -> None:
    policy = ScriptedPolicy("noop")
    memory = begin(compact(store, policy, unsupported_arms="mask", plan_injection=False))
    await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    assert decision.masked == {"plan_inject": "plan injection is switched off", "re_retrieve": "only when stuck"}


def test_a_table_without_an_arm_for_the_start_is_refused(store: StreamStore, monkeypatch: pytest.MonkeyPatch) -> None:
    known = actions.action_set("compact")
    stuck = replace(known, actions=tuple(arm for arm in known.actions if arm.only_when_stuck))
    monkeypatch.setattr(actions, "action_set", lambda name: stuck)
    with pytest.raises(
        ConfigError,
        match=r"none of the arms re_retrieve can be chosen at task start .*only when stuck.*another action set",
    ):
        compact(store, ScriptedPolicy("re_retrieve"))


# --- mixes ------------------------------------------------------------------------------------------------------------

WORKSHOP = SmallBenchmark(
    name="workshop",
    goal_types=("weld", "weldtwo"),
    vocabulary=frozenset({"pipe"}),
    progress_rules=ProgressRules(take="grab (?P<object>.+)", release="drop (?P<object>.+)", visit="walk (?P<place>.+)"),
    single_object_types={"weldtwo": "weld"},
    has_step_budget=False,
)
MIX = SmallMix(parts=(SmallBenchmark(), WORKSHOP))


def mixed(store: StreamStore, policy: ScriptedPolicy, backend: SpyBackend | None = None) -> MemoryController:
    return MemoryController(replace(controller_of(backend or EmptyMemory(), store, policy).parts, benchmark=MIX))


def task_in(part: str, goal_type: str) -> Task:
    return replace(task_of("weld some pipe", goal_type=goal_type), benchmark=part)


@pytest.mark.parametrize(
    ("part", "texts", "held", "places"),
    [
        ("workshop", ["grab pipe 1", "take mug 1 from shelf 1", "walk pit 1", "walk pit 2"], 1, 2),
        ("small", ["grab pipe 1", "take mug 1 from shelf 1", "go to shelf 1", "walk pit 2"], 1, 1),
    ],
)
async def test_progress_is_read_by_the_rules_of_the_task_s_part(
    part: str, texts: list[str], held: int, places: int, store: StreamStore
) -> None:
    memory = begin(mixed(store, ScriptedPolicy("noop")), task_in(part, "put"))
    await play(memory, *texts, "look", "look")
    features = memory.finish(SUCCESS).decisions[-1].features
    assert (features.benchmark, features.objects_held, features.locations_visited) == (part, held, places)


@pytest.mark.parametrize(("part", "reward"), [("workshop", 1.0), ("small", 1.15)])
def test_the_step_budget_is_the_part_s(part: str, reward: float, store: StreamStore) -> None:
    memory = begin(mixed(store, ScriptedPolicy("noop")), task_in(part, "put"))
    assert memory.finish(SUCCESS).reward == pytest.approx(reward)


async def test_plan_and_hint_use_the_words_of_the_task_s_part(metagpt: SpyBackend, store: StreamStore) -> None:
    controller = mixed(store, ScriptedPolicy("plan_inject"), metagpt)
    weld = task_in("workshop", "weld")
    attempt = replace(ATTEMPT, task=weld, steps=replace_actions("grab pipe 1", "walk pit 1", "weld pipe 1 to mug 1"))
    commit(store, lambda: controller.learn(attempt))
    (block,) = await play(begin(controller, weld, ordinal=1))
    # "pit" and "mug" are no words of the workshop.
    assert block.plan.splitlines() == [
        "From the solved task: weld some pipe",
        "1. grab [pipe A]",
        "2. walk pit 1",
        "3. weld [pipe A] to mug 1",
    ]
    (two,) = await play(begin(controller, task_in("workshop", "weldtwo"), ordinal=1))
    assert two.hint.startswith(TWO_OBJECTS_HINT)
    assert "weld [pipe A] to mug 1" in two.hint


def replace_actions(*texts: str) -> tuple[Step, ...]:
    return tuple(replace(step, action=text) for step, text in zip(ATTEMPT.steps[: len(texts)], texts, strict=True))


# --- a fixed arm ------------------------------------------------------------------------------------------------------


def fixed(controller: MemoryController, action_id: str, action_set: str = "default", *, ordinal: int = 0) -> TaskMemory:
    return controller.begin_fixed(
        TASK,
        ordinal=ordinal,
        episode_id=ids.episode_id("cell", 2, ordinal, 1),
        action_id=action_id,
        action_set=action_set,
    )


async def test_a_fixed_arm_is_played_once_at_task_start(metagpt: SpyBackend, store: StreamStore) -> None:
    controller = controller_of(metagpt, store, None)
    memory = fixed(controller, "retrieve_deep")
    blocks = await play(memory, *GO[:9], "look", "look")
    assert metagpt.named("retrieve") == [(TASK.goal, {"top_k": 3})]
    assert all(block is blocks[0] for block in blocks)
    finished = memory.finish(SUCCESS)
    (decision,) = finished.decisions
    assert (decision.policy, decision.table, decision.action_id) == ("every_arm", "", "retrieve_deep")
    assert decision.propensity == pytest.approx(1 / 9)
    assert decision.allowed == decision.tie_set == actions.action_set("default").action_ids
    assert (decision.credit, finished.outcomes) == (None, ())
    assert finished.reward == pytest.approx(1.15)


async def test_fixed_arms_learn_and_bring_plans_as_a_policy_s_arms_do(metagpt: SpyBackend, store: StreamStore) -> None:
    controller = controller_of(metagpt, store, None)
    first = fixed(controller, "noop")
    await play(first)
    end(store, first)
    memory = fixed(controller, "plan_inject", ordinal=1)
    (block,) = await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    assert block.plan
    assert (decision.degraded, decision.features.plan_available) == ("", True)


@pytest.mark.parametrize(("unsupported_arms", "degraded"), [("noop", "unsupported"), ("mask", None)])
async def test_fixed_arms_are_drawn_from_those_that_may_be_played_at_the_start(
    unsupported_arms: str, degraded: str | None, metagpt: SpyBackend, store: StreamStore
) -> None:
    controller = controller_of(metagpt, store, None, unsupported_arms=unsupported_arms)
    arms = controller.start_arms("default")
    lacking = {name: reason for name, reason in arms.items() if reason}
    if degraded is None:
        assert (len(arms), lacking) == (7, {})
        with pytest.raises(UnknownNameError, match="unknown arm of action set 'default' at task start 'forget'"):
            fixed(controller, "forget")
        return
    assert lacking == {
        "consolidate": "memory 'metagpt' has no consolidate hook",
        "forget": "memory 'metagpt' has no forget hook",
    }
    memory = fixed(controller, "forget")
    await play(memory)
    assert memory.finish(SUCCESS).decisions[0].degraded == degraded


async def test_an_arm_for_the_stuck_is_no_arm_of_a_task_s_start(metagpt: SpyBackend, store: StreamStore) -> None:
    controller = controller_of(metagpt, store, None)
    assert tuple(controller.start_arms("compact")) == COMPACT
    memory = fixed(controller, "noop", "compact")
    await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    assert decision.propensity == pytest.approx(1 / 6)
    assert decision.masked == {"re_retrieve": "only when stuck"}
    with pytest.raises(UnknownNameError, match="'re_retrieve'; allowed: insight_only"):
        fixed(controller, "re_retrieve", "compact")


def test_an_unknown_set_of_fixed_arms_is_refused(store: StreamStore) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown action set 'compct'.*did you mean 'compact'"):
        fixed(controller_of(EmptyMemory(), store, None), "noop", "compct")
