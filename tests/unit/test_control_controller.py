"""The controller over every backend: when it decides and what an arm does (MC-15 to MC-20, MC-37, MC-38)."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import pytest

from memcon import control, ids, learning, protocols
from memcon.control.memory.empty import EmptyMemory
from memcon.learning import actions
from memcon.learning.state_key import parse
from memcon.protocols import Retrieval
from memcon.store import StreamStore
from memcon.testing.memory import SpyBackend, commit
from memcon.types import MemoryContext, Trigger
from support.control import HookedBackend, PathGraphBackend, ScriptedPolicy, learning_settings, steps_of
from support.controller import (
    ATTEMPT,
    GO,
    SUCCESS,
    TASK,
    UNEVALUABLE,
    begin,
    controller_of,
    end,
    end_begun,
    play,
)

# --- every backend alike ----------------------------------------------------------------------------------------------


async def test_a_whole_task_runs_over_any_backend(any_backend: SpyBackend, store: StreamStore) -> None:
    policy = ScriptedPolicy(*(arm.action_id for arm in actions.action_set("default").actions))
    controller = controller_of(any_backend, store, policy, decision_points="every_step")
    memory = begin(controller)
    store.begin(0, 0)
    await play(memory, *GO[:10])
    end_begun(store, memory, SUCCESS)
    assert [d.action_id for d in memory.finish(SUCCESS).decisions][:9] == list(learning_settings().action_ids)
    assert len(any_backend.named("record")) == 1


async def test_a_task_is_stored_exactly_once(any_backend: SpyBackend, store: StreamStore) -> None:
    # D29: the published wrapper stores twice.
    for ordinal in range(3):
        memory = begin(controller_of(any_backend, store, ScriptedPolicy("retrieve_deep")), ordinal=ordinal)
        await play(memory, *GO[:20])
        end(store, memory)
    assert len(any_backend.named("record")) == 3


async def test_noop_touches_the_backend_not_at_all(any_backend: SpyBackend, store: StreamStore) -> None:
    memory = begin(controller_of(any_backend, store, ScriptedPolicy("noop"), decision_points="every_step"))
    any_backend.calls.clear()
    blocks = await play(memory, *GO)
    assert any_backend.calls == []
    assert all(block == MemoryContext() for block in blocks)


async def test_an_unevaluable_task_leaves_no_trace(any_backend: SpyBackend, store: StreamStore) -> None:
    commit(store, lambda: any_backend.record(ATTEMPT))
    before, size = any_backend.retrieve(TASK.goal), any_backend.size()
    memory = begin(controller_of(any_backend, store, ScriptedPolicy("consolidate", "retrieve_deep")))
    store.begin(1, 0)
    await play(memory, *GO[:9])
    end_begun(store, memory, UNEVALUABLE)
    assert (any_backend.retrieve(TASK.goal), any_backend.size()) == (before, size)
    assert len(any_backend.named("record")) == 1
    assert memory.finish(UNEVALUABLE).outcomes == ()
    assert all(decision.credit is None for decision in memory.finish(UNEVALUABLE).decisions)


async def test_parameters_that_the_backend_does_not_declare_are_dropped(
    any_backend: SpyBackend, store: StreamStore
) -> None:
    memory = begin(controller_of(any_backend, store, ScriptedPolicy("retrieve_deep")))
    await play(memory)
    arm = {"top_k": 3, "insight_k": 8, "hop": 2}
    expected = {name: value for name, value in arm.items() if name in any_backend.capabilities}
    assert any_backend.named("retrieve") == [(TASK.goal, expected)]


def test_memory_control_reaches_for_no_model() -> None:
    # MC-21: what it gets has no model, and no module of it knows the port of one.
    known = {"ChatModel", "Completion", "Message"}
    assert known <= set(vars(protocols))
    for folder in (control, learning):
        for path in Path(folder.__path__[0]).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            names = {node.id for node in nodes if isinstance(node, ast.Name)}
            names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            assert known.isdisjoint(names), path.name


# --- when it decides --------------------------------------------------------------------------------------------------


async def test_it_decides_at_start_at_phase_changes_and_when_stuck_turns_true(store: StreamStore) -> None:
    memory = begin(controller_of(EmptyMemory(), store, ScriptedPolicy("noop")))
    actions_taken = [*GO[:9], "look", "look", "think: hm", "look", *GO[9:20]]
    await play(memory, *actions_taken)
    decisions = memory.finish(SUCCESS).decisions
    assert [(d.trigger, d.features.step) for d in decisions] == [
        (Trigger.START, 0),
        (Trigger.PHASE, 8),
        (Trigger.STUCK, 11),
        (Trigger.PHASE, 18),
    ]
    assert [d.position for d in decisions] == [0, 1, 2, 3]
    keys = [parse(d.state_key).values for d in decisions]
    assert [(key["step_phase"], key["is_stuck"]) for key in keys] == [
        ("early", False),
        ("mid", False),
        ("mid", True),
        ("late", False),
    ]


async def test_a_second_spell_of_being_stuck_is_a_second_decision(store: StreamStore) -> None:
    memory = begin(controller_of(EmptyMemory(), store, ScriptedPolicy("noop")))
    await play(memory, "look", "look", "inventory", "look", "look")
    triggers = [decision.trigger for decision in memory.finish(SUCCESS).decisions]
    assert triggers == [Trigger.START, Trigger.STUCK, Trigger.STUCK]


async def test_every_step_decides_after_each_action_but_not_after_thoughts(store: StreamStore) -> None:
    memory = begin(controller_of(EmptyMemory(), store, ScriptedPolicy("noop"), decision_points="every_step"))
    await play(memory, "go to shelf 1", "think: hm", "go to shelf 2")
    triggers = [decision.trigger for decision in memory.finish(SUCCESS).decisions]
    assert triggers == [Trigger.START, Trigger.EVERY_STEP, Trigger.EVERY_STEP]


async def test_asking_again_without_news_decides_nothing(metagpt: SpyBackend, store: StreamStore) -> None:
    policy = ScriptedPolicy("retrieve_shallow")
    memory = begin(controller_of(metagpt, store, policy))
    for _ in range(3):
        await memory.context(steps_of(*GO[:3]))
    assert len(policy.requests) == 1
    assert len(metagpt.named("retrieve")) == 1


async def test_the_request_names_its_place(store: StreamStore) -> None:
    policy = ScriptedPolicy("noop")
    episode_id = ids.episode_id("cell", 2, 15, 4)
    memory = controller_of(EmptyMemory(), store, policy).begin(TASK, ordinal=15, episode_id=episode_id)
    await play(memory, *GO[:9])
    for position, request in enumerate(policy.requests):
        assert request.decision_id == ids.decision_id(episode_id, position)
        assert request.draw == ids.draw64("draw", "cell", 2, 15, position)
        assert (request.table, request.position, request.allowed) == ("table", position, None)
        assert parse(request.keys[0]).values["learning_phase"] == "warm"


async def test_a_repeated_task_draws_alike_under_another_epoch(store: StreamStore) -> None:
    draws = []
    for epoch in (1, 2):
        policy = ScriptedPolicy("noop")
        controller = controller_of(EmptyMemory(), store, policy)
        await play(controller.begin(TASK, ordinal=3, episode_id=ids.episode_id("cell", 2, 3, epoch)))
        draws.append((policy.requests[0].draw, policy.requests[0].decision_id))
    assert draws[0][0] == draws[1][0]
    assert draws[0][1] != draws[1][1]


async def test_features_come_from_the_attempt_and_the_memory(metagpt: SpyBackend, store: StreamStore) -> None:
    for _ in range(11):
        commit(store, lambda: metagpt.record(ATTEMPT))
    memory = begin(controller_of(metagpt, store, ScriptedPolicy("noop")), ordinal=11)
    await play(memory, *GO[:3], "take mug 1 from shelf 3", *GO[3:8])
    features = memory.finish(SUCCESS).decisions[-1].features
    assert (features.step, features.objects_held, features.locations_visited) == (8, 1, 7)
    assert (features.memory_size, features.task_number, features.goal_type) == (11, 12, "put")


# --- what an arm does -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arm", "items", "insights"), [
    ("retrieve_shallow", 1, 3), ("retrieve_medium", 2, 5), ("retrieve_deep", 3, 8), ("insight_only", 1, 2),
    ("plan_inject", 1, 3), ("re_retrieve", 2, 5),
])  # fmt: skip
async def test_what_the_policy_chose_reaches_the_block_uncut(
    arm: str, items: int, insights: int, store: StreamStore
) -> None:
    memory = begin(controller_of(HookedBackend(store), store, ScriptedPolicy(arm)))
    (block,) = await play(memory)
    assert (len(block.items), len(block.insights)) == (items, insights)
    (decision,) = memory.finish(SUCCESS).decisions
    assert decision.item_ids == tuple(item.item_id for item in block.items)
    # Items of 4, 8, 12 characters and insights of 8: one token each 4 characters.
    assert (decision.tokens_items, decision.tokens_insights) == (sum(range(1, items + 1)), 2 * insights)
    assert memory.read_tokens == 10


async def test_re_retrieve_appends_its_suffix_to_the_query(metagpt: SpyBackend, store: StreamStore) -> None:
    await play(begin(controller_of(metagpt, store, ScriptedPolicy("re_retrieve"))))
    assert metagpt.named("retrieve") == [(TASK.goal + actions.QUERY_SUFFIX, {"top_k": 2})]


@pytest.mark.parametrize("arm", ["noop", "consolidate", "forget"])
async def test_arms_that_bring_nothing_keep_the_block_later_and_leave_it_empty_at_start(
    arm: str, store: StreamStore
) -> None:
    memory = begin(controller_of(HookedBackend(store), store, ScriptedPolicy(arm, "retrieve_shallow", arm)))
    blocks = await play(memory, *GO[:18])
    store.discard()
    assert blocks[0] == MemoryContext()
    assert not blocks[8].is_empty
    assert blocks[18] is blocks[8]
    decisions = memory.finish(UNEVALUABLE).decisions
    assert [decision.context_kept for decision in decisions] == [False, False, True]
    assert decisions[2].item_ids == ()
    assert decisions[2].tokens_items == 0


async def test_an_empty_block_is_not_kept(store: StreamStore) -> None:
    memory = begin(controller_of(EmptyMemory(), store, ScriptedPolicy("noop", "consolidate", "retrieve_deep", "noop")))
    await play(memory, *GO[:18], "look", "look")
    assert [decision.context_kept for decision in memory.finish(SUCCESS).decisions] == [False] * 4


async def test_a_hook_that_changes_the_memory_changes_the_size_of_the_next_decision(store: StreamStore) -> None:
    # MC-7: the bin is of the memory as it is at the decision, not as it was when the task began.
    memory = begin(controller_of(HookedBackend(store), store, ScriptedPolicy("consolidate", "forget", "noop")))
    await play(memory, *GO[:18])
    store.discard()
    decisions = memory.finish(UNEVALUABLE).decisions
    # Consolidate adds a rule; what the failing Forget added is rolled back.
    assert [decision.features.memory_size for decision in decisions] == [0, 1, 1]


@pytest.mark.parametrize(("arm", "nodes"), [("insight_only", 1), ("retrieve_shallow", 2), ("retrieve_deep", 3)])
async def test_hops_reach_a_graph_backend_with_each_call(arm: str, nodes: int, store: StreamStore) -> None:
    # MC-16, D22: hops 0, 1 and 2 along a path.
    memory = begin(controller_of(PathGraphBackend(), store, ScriptedPolicy(arm)))
    (block,) = await play(memory)
    assert [item.text for item in block.items] == ["near", "next", "far"][:nodes]


async def test_a_later_retrieval_replaces_the_block(store: StreamStore) -> None:
    memory = begin(controller_of(HookedBackend(store), store, ScriptedPolicy("retrieve_deep", "retrieve_shallow")))
    blocks = await play(memory, *GO[:8])
    assert [len(blocks[0].items), len(blocks[8].items)] == [3, 1]


async def test_consolidate_and_forget_call_the_hook_only(store: StreamStore) -> None:
    backend = SpyBackend(HookedBackend(store))
    memory = begin(controller_of(backend, store, ScriptedPolicy("consolidate")))
    backend.calls.clear()
    await play(memory)
    assert [call[0] for call in backend.calls] == ["maintain"]
    assert memory.maintenance_tokens == 100


async def test_an_absent_hook_does_nothing_and_says_so(metagpt: SpyBackend, store: StreamStore) -> None:
    memory = begin(controller_of(metagpt, store, ScriptedPolicy("consolidate", "forget")))
    blocks = await play(memory, *GO[:8])
    assert metagpt.named("maintain") == []
    assert all(block.is_empty for block in blocks)
    assert [decision.degraded for decision in memory.finish(SUCCESS).decisions] == ["unsupported", "unsupported"]


async def test_masked_arms_are_not_offered_and_their_reasons_are_kept(metagpt: SpyBackend, store: StreamStore) -> None:
    policy = ScriptedPolicy("retrieve_shallow")
    memory = begin(controller_of(metagpt, store, policy, unsupported_arms="mask", plan_injection=False))
    await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    expected = ("retrieve_shallow", "retrieve_medium", "retrieve_deep", "re_retrieve", "insight_only", "noop")
    assert policy.requests[0].allowed == decision.allowed == expected
    assert decision.masked == {
        "plan_inject": "plan injection is switched off",
        "consolidate": "memory 'metagpt' has no consolidate hook",
        "forget": "memory 'metagpt' has no forget hook",
    }


async def test_a_failing_hook_is_logged_and_recorded(store: StreamStore, caplog: pytest.LogCaptureFixture) -> None:
    backend = HookedBackend(store)
    memory = begin(controller_of(backend, store, ScriptedPolicy("forget")))
    await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    assert decision.degraded == "hook_failed"
    assert decision.hook_error == "ZeroDivisionError: nothing to divide"
    assert [(r.message, r.__dict__["error"]) for r in caplog.records] == [("memory.hook_failed", "ZeroDivisionError")]
    assert backend.rules() == []


async def test_a_blocking_backend_runs_in_a_thread(store: StreamStore) -> None:
    threads = []

    class Slow(HookedBackend):
        def retrieve(self, query: str, **parameters: int) -> Retrieval:
            threads.append(threading.current_thread())
            return super().retrieve(query, **parameters)

    await play(begin(controller_of(Slow(store, blocking=True), store, ScriptedPolicy("retrieve_shallow"))))
    assert threads != [threading.current_thread()]
