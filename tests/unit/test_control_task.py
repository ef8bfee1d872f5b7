"""A task under control: maintenance, plans, hint, policy none, credit, failures (MC-18, MC-19, MC-39 to MC-42)."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from memcon.control.controller import ControlSettings, MemoryController
from memcon.control.decomposition import TWO_OBJECTS_HINT
from memcon.control.memory.empty import EmptyMemory
from memcon.errors import Boundary, BoundaryError, ConfigError, ConflictError, InvariantError, UnavailableError
from memcon.learning.exploration import UcbConfig
from memcon.protocols import Retrieval
from memcon.store import StreamStore
from memcon.testing.memory import SpyBackend, ToyBackend, commit, task_of
from memcon.testing.policy import FakePolicyClient
from support.control import HookedBackend, ScriptedPolicy, SmallBenchmark, learning_settings
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

# --- maintenance is atomic with the task ------------------------------------------------------------------------------


async def test_what_a_hook_wrote_is_committed_with_the_task(store: StreamStore) -> None:
    backend = HookedBackend(store)
    memory = begin(controller_of(backend, store, ScriptedPolicy("consolidate")))
    store.begin(0, 0)
    await play(memory)
    assert store.connection.in_transaction
    end_begun(store, memory, SUCCESS)
    assert not store.connection.in_transaction
    assert backend.rules() == ["consolidate", "recorded put some mug on the shelf"]


async def test_a_death_after_a_hook_leaves_the_last_ended_task(tmp_path: Path) -> None:
    store = StreamStore(tmp_path / "s.sqlite", identity="cell/0")
    memory = begin(controller_of(HookedBackend(store), store, ScriptedPolicy("consolidate")))
    store.begin(0, 0)
    await play(memory)
    store.close()
    again = StreamStore(tmp_path / "s.sqlite", identity="cell/0")
    assert HookedBackend(again).rules() == []
    assert again.open_task() is not None
    again.close()


async def test_the_next_task_cannot_begin_over_open_maintenance(store: StreamStore) -> None:
    await play(begin(controller_of(HookedBackend(store), store, ScriptedPolicy("consolidate"))))
    with pytest.raises(InvariantError, match="neither ended nor discarded"):
        store.begin(0, 0)


# --- plans and decomposition ------------------------------------------------------------------------------------------

NUMBERED = """From the solved task: put some mug on the shelf
1. go to [shelf A]
2. take [mug A] from [shelf A]
3. go to [shelf B]
4. put [mug A] on [shelf B]"""
BARE = "1. go to [shelf]\n2. take [mug] from [shelf]\n3. go to [shelf]\n4. put [mug] on [shelf]"


async def learn(store: StreamStore, controller: MemoryController) -> None:
    memory = begin(controller, ordinal=store.num_ended)
    await play(memory)
    end(store, memory)


@pytest.mark.parametrize(("form", "text"), [("numbered", NUMBERED), ("bare", BARE)])
async def test_plan_inject_alone_brings_the_plan(form: str, text: str, metagpt: SpyBackend, store: StreamStore) -> None:
    # D18: the published wrapper brings it with plain retrieval too.
    policy = ScriptedPolicy("noop", "plan_inject", "retrieve_shallow")
    controller = controller_of(metagpt, store, policy, plan_form=form)
    await learn(store, controller)
    memory = begin(controller, ordinal=1)
    blocks = await play(memory, *GO[:8])
    assert blocks[0].plan == text
    assert len(blocks[0].items) == 1
    assert blocks[8].plan == ""
    first = memory.finish(SUCCESS).decisions[0]
    assert first.features.plan_available
    assert first.degraded == ""
    assert first.tokens_plan == -(-len(text) // 4)


async def test_without_a_plan_the_arm_is_that_retrieval_and_says_so(metagpt: SpyBackend, store: StreamStore) -> None:
    memory = begin(controller_of(metagpt, store, ScriptedPolicy("plan_inject")))
    await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    assert metagpt.named("retrieve") == [(TASK.goal, {"top_k": 1})]
    assert (decision.degraded, decision.features.plan_available) == ("no_plan", False)


async def test_plan_injection_off_keeps_no_plan(metagpt: SpyBackend, store: StreamStore) -> None:
    controller = controller_of(
        metagpt, store, ScriptedPolicy("plan_inject"), plan_injection=False, goal_decomposition=False
    )
    await learn(store, controller)
    memory = begin(controller, ordinal=1)
    (block,) = await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    assert (decision.degraded, decision.features.plan_available, block.plan) == ("plan_off", False, "")
    tables = store.connection.execute("SELECT name FROM sqlite_master WHERE name = 'plan_templates'").fetchall()
    assert tables == []


TWO = task_of("put two mug on the shelf", goal_type="puttwo")


async def test_two_object_goals_get_the_hint_and_the_single_object_template(
    metagpt: SpyBackend, store: StreamStore
) -> None:
    controller = controller_of(metagpt, store, ScriptedPolicy("retrieve_shallow"))
    (without,) = await play(begin(controller, TWO))
    assert without.hint == TWO_OBJECTS_HINT
    await learn(store, controller)
    memory = begin(controller, TWO, ordinal=1)
    (block,) = await play(memory)
    assert block.hint.startswith(TWO_OBJECTS_HINT)
    assert block.hint.endswith(NUMBERED)
    assert block.plan == ""
    assert memory.finish(SUCCESS).decisions[0].tokens_hint == -(-len(block.hint) // 4)


@pytest.mark.parametrize("arm", ["noop", "consolidate"])
async def test_the_hint_comes_with_fetching_arms_only(arm: str, metagpt: SpyBackend, store: StreamStore) -> None:
    (block,) = await play(begin(controller_of(metagpt, store, ScriptedPolicy(arm)), TWO))
    assert block.is_empty


async def test_other_goals_and_the_switch_give_no_hint(metagpt: SpyBackend, store: StreamStore) -> None:
    (other,) = await play(begin(controller_of(metagpt, store, ScriptedPolicy("retrieve_shallow")), TASK))
    off = controller_of(metagpt, store, ScriptedPolicy("retrieve_shallow"), goal_decomposition=False)
    (switched_off,) = await play(begin(off, TWO))
    assert (other.hint, switched_off.hint) == ("", "")


async def test_the_hint_shows_the_template_where_plans_are_not_injected(
    metagpt: SpyBackend, store: StreamStore
) -> None:
    # MC-41: the row "+ decomposition" of Table 2.
    controller = controller_of(metagpt, store, ScriptedPolicy("retrieve_shallow"), plan_injection=False)
    await learn(store, controller)
    memory = begin(controller, TWO, ordinal=1)
    (block,) = await play(memory)
    assert block.hint.endswith(NUMBERED)
    assert not memory.finish(SUCCESS).decisions[0].features.plan_available


# --- policy none ------------------------------------------------------------------------------------------------------


async def test_policy_none_is_the_default_retrieval_once(any_backend: SpyBackend, store: StreamStore) -> None:
    commit(store, lambda: any_backend.record(ATTEMPT))
    memory = begin(controller_of(any_backend, store, None, decision_points="every_step"), TWO, ordinal=1)
    blocks = await play(memory, *GO)
    assert any_backend.named("retrieve") == [(TWO.goal, {})]
    assert all(block is blocks[0] for block in blocks)
    assert (blocks[0].plan, blocks[0].hint) == ("", "")
    finished = memory.finish(SUCCESS)
    (decision,) = finished.decisions
    assert (decision.action_id, decision.propensity, decision.table, decision.policy) == ("default", 1.0, "", "none")
    assert (decision.allowed, decision.credit, finished.outcomes) == (("default",), None, ())
    assert finished.reward == pytest.approx(1.15)


async def test_policy_none_keeps_no_plan(metagpt: SpyBackend, store: StreamStore) -> None:
    controller = controller_of(metagpt, store, None)
    await learn(store, controller)
    memory = begin(controller, ordinal=1)
    await play(memory)
    assert not memory.finish(SUCCESS).decisions[0].features.plan_available
    assert store.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'plan_templates'").fetchall() == []


# --- the end of a task ------------------------------------------------------------------------------------------------


async def test_credits_are_discounted_from_the_end(store: StreamStore) -> None:
    memory = begin(controller_of(EmptyMemory(), store, ScriptedPolicy("noop")))
    await play(memory, *GO[:18])
    finished = memory.finish(SUCCESS)
    assert finished.reward == pytest.approx(1.15)
    assert [d.credit for d in finished.decisions] == pytest.approx([0.81 * 1.15, 0.9 * 1.15, 1.15])
    assert [(o.token, o.position, o.num_decisions, o.reward) for o in finished.outcomes] == [
        (f"token-{position}", position, 3, finished.reward) for position in range(3)
    ]
    assert [o.decision_id for o in finished.outcomes] == [d.decision_id for d in finished.decisions]


@pytest.mark.parametrize(("has_step_budget", "max_steps", "reward"), [(True, 60, 1.225), (False, 60, 1.0)])
def test_the_reward_goes_by_the_task_s_own_steps_where_the_benchmark_counts_them(
    has_step_budget: bool, max_steps: int, reward: float, store: StreamStore
) -> None:
    # Reading A-4: a one-shot question has no efficiency term.
    parts = controller_of(EmptyMemory(), store, ScriptedPolicy("noop")).parts
    benchmark = SmallBenchmark(has_step_budget=has_step_budget)
    controller = MemoryController(replace(parts, benchmark=benchmark))
    memory = begin(controller, task_of("answer", max_steps=max_steps))
    assert memory.finish(SUCCESS).reward == pytest.approx(reward)


async def test_a_real_owner_credits_what_the_decisions_say(metagpt: SpyBackend, store: StreamStore) -> None:
    settings = UcbConfig().learning_settings()
    client = FakePolicyClient(num_shards=3)
    await client.open_table("table", settings)
    parts = controller_of(metagpt, store, ScriptedPolicy("noop")).parts
    controller = MemoryController(replace(parts, policy=client, learning=settings))
    chosen = []
    for ordinal in range(3):
        memory = begin(controller, ordinal=ordinal)
        store.begin(ordinal, 1)
        await play(memory, *GO[:20])
        finished = memory.finish(SUCCESS)
        end_begun(store, memory, SUCCESS)
        replies = await client.outcomes(store.outbox())
        store.delivered()
        assert [reply.credit for reply in replies] == [decision.credit for decision in finished.decisions]
        assert {reply.status for reply in replies} == {"credited"}
        chosen.append([decision.action_id for decision in finished.decisions])
    # The stored plan makes another key of the second task; the third meets the keys of the second again.
    assert chosen == [["retrieve_shallow"] * 3, ["retrieve_shallow"] * 3, ["retrieve_medium"] * 3]


async def test_the_owner_s_answer_is_recorded_without_its_token(store: StreamStore) -> None:
    memory = begin(controller_of(EmptyMemory(), store, ScriptedPolicy("noop"), explain=True))
    await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    assert (decision.table_version, decision.shard, decision.received) == (7, 3, 9)
    assert (decision.propensity, decision.tie_set, decision.forced) == (0.5, ("noop", "noop"), True)
    assert decision.per_arm == {"noop": {"q": 0.5}}
    assert "token-0" not in repr(decision)


async def test_recording_twice_is_refused(metagpt: SpyBackend, store: StreamStore) -> None:
    memory = begin(controller_of(metagpt, store, ScriptedPolicy("noop")))
    end(store, memory)
    with pytest.raises(InvariantError, match="recorded twice"):
        memory.record(ATTEMPT, SUCCESS)


async def test_tokens_add_up_over_the_task_and_those_of_maintenance_stand_apart(store: StreamStore) -> None:
    policy = ScriptedPolicy("consolidate", "retrieve_shallow", "consolidate", "retrieve_shallow")
    memory = begin(controller_of(HookedBackend(store), store, policy, decision_points="every_step"))
    await play(memory, *GO[:3])
    assert (memory.read_tokens, memory.maintenance_tokens) == (20, 200)
    assert memory.record(ATTEMPT, SUCCESS) == 5
    store.discard()


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_policy_that_does_not_answer_fails_at_its_boundary(store: StreamStore) -> None:
    policy = ScriptedPolicy("noop")
    for policy.error in (UnavailableError("the owner is away"), ValueError("garbled reply")):
        memory = begin(controller_of(EmptyMemory(), store, policy))
        with pytest.raises(BoundaryError) as caught:
            await play(memory)
        assert caught.value.boundary is Boundary.POLICY
        assert memory.finish(UNEVALUABLE).decisions == ()


async def test_a_cancelled_episode_stops_the_stream(store: StreamStore) -> None:
    policy = ScriptedPolicy("noop")
    policy.error = ConflictError("the episode was cancelled")
    with pytest.raises(ConflictError):
        await play(begin(controller_of(EmptyMemory(), store, policy)))


async def test_a_backend_that_gives_something_else_than_a_retrieval_is_named(store: StreamStore) -> None:
    class Bare(ToyBackend):
        def retrieve(self, query: str, **parameters: int) -> Retrieval:
            return super().retrieve(query, **parameters).items  # type: ignore[return-value]

    for policy in (ScriptedPolicy("retrieve_shallow"), None):
        memory = begin(controller_of(Bare(), store, policy))
        with pytest.raises(
            BoundaryError, match=r"memory failed during retrieve: TypeError: it gave a tuple, not a mem"
        ):
            await play(memory)
        memory.finish(UNEVALUABLE)


async def test_a_failing_backend_fails_at_its_boundary_and_the_decision_is_kept(store: StreamStore) -> None:
    class Broken(ToyBackend):
        def retrieve(self, query: str, **parameters: int) -> Retrieval:
            raise OSError("no such index")

        def record(self, trajectory: object) -> int:
            raise OSError("no such index")

    memory = begin(controller_of(Broken(), store, ScriptedPolicy("retrieve_shallow")))
    with pytest.raises(BoundaryError, match="memory failed during retrieve: OSError: no such index") as caught:
        await play(memory)
    assert caught.value.boundary is Boundary.MEMORY
    (decision,) = memory.finish(UNEVALUABLE).decisions
    assert (decision.action_id, decision.degraded) == ("retrieve_shallow", "backend_failed")
    with pytest.raises(BoundaryError, match="memory failed during record"):
        memory.record(ATTEMPT, SUCCESS)


async def test_an_arm_that_nobody_knows_is_a_bug(store: StreamStore) -> None:
    with pytest.raises(InvariantError, match="'dance'"):
        await play(begin(controller_of(EmptyMemory(), store, ScriptedPolicy("dance"))))


def test_a_table_over_other_arms_is_refused(store: StreamStore) -> None:
    parts = controller_of(EmptyMemory(), store, ScriptedPolicy("noop")).parts
    with pytest.raises(ConfigError, match="fingerprint"):
        MemoryController(replace(parts, learning=replace(learning_settings(), fingerprint="other")))


def test_a_policy_without_settings_is_a_bug(store: StreamStore) -> None:
    parts = controller_of(EmptyMemory(), store, ScriptedPolicy("noop")).parts
    with pytest.raises(InvariantError, match="or neither"):
        MemoryController(replace(parts, learning=None))


@pytest.mark.parametrize("setting", ["decision_points", "unsupported_arms", "plan_form", "plan_choice"])
def test_settings_name_the_allowed_values(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown {setting} 'x'; allowed: "):
        ControlSettings(**{setting: "x"})  # type: ignore[arg-type]


async def test_a_cancelled_task_waits_for_its_thread_and_keeps_the_decision(store: StreamStore) -> None:
    # The stream's file has one user at a time, and a thread cannot be stopped.
    loop = asyncio.get_running_loop()
    entered, leave, left = asyncio.Event(), threading.Event(), []

    class Slow(ToyBackend):
        blocking = True

        def retrieve(self, query: str, **parameters: int) -> Retrieval:
            loop.call_soon_threadsafe(entered.set)
            leave.wait(10)
            left.append(query)
            return super().retrieve(query, **parameters)

    memory = begin(controller_of(Slow(), store, ScriptedPolicy("retrieve_shallow")))
    work = asyncio.ensure_future(memory.context(()))
    await entered.wait()
    work.cancel()
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert left == [TASK.goal]
    assert [decision.degraded for decision in memory.finish(UNEVALUABLE).decisions] == ["backend_failed"]
