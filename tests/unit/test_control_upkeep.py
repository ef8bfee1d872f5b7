"""What happens to a memory between tasks: practice, maintenance on a schedule, freezing; and what tokens cost."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from memcon.control.controller import MemoryController
from memcon.control.memory.embedder_hashing import HashingConfig, HashingEmbedder
from memcon.control.memory.metagpt import MetaGPTConfig, MetaGPTMemory
from memcon.errors import ConfigError, StorageError
from memcon.learning.credit import RewardSettings
from memcon.store import StreamStore
from memcon.testing.memory import SpyBackend, commit, episode_of, trajectory_of
from memcon.testing.policy import FakePolicyClient
from memcon.types import Episode, Operation
from support.control import HookedBackend, ScriptedPolicy, learning_settings
from support.controller import ATTEMPT, GO, SUCCESS, TASK, UNEVALUABLE, begin, controller_of, end, end_begun, play
from support.stream_files import opened

CONSOLIDATE, FORGET = Operation.CONSOLIDATE, Operation.FORGET


def pruned(store: StreamStore, *, index_failures: bool = False) -> MetaGPTMemory:
    return MetaGPTMemory(
        MetaGPTConfig(maintenance=True, index_failures=index_failures, top_k=9),
        store=store,
        embedder=HashingEmbedder(HashingConfig()),
    )


# --- schedule ---------------------------------------------------------------------------------------------------------


def test_maintenance_is_due_after_every_nth_task(store: StreamStore) -> None:
    controller = controller_of(pruned(store), store, ScriptedPolicy("noop"), forget_every=3, consolidate_every=2)
    assert [controller.scheduled(ordinal) for ordinal in range(6)] == [
        (),
        (CONSOLIDATE,),
        (FORGET,),
        (CONSOLIDATE,),
        (),
        (CONSOLIDATE, FORGET),
    ]


def test_nothing_is_due_by_default(store: StreamStore) -> None:
    controller = controller_of(pruned(store), store, ScriptedPolicy("noop"))
    assert not any(controller.scheduled(ordinal) for ordinal in range(200))


@pytest.mark.parametrize("name", ["forget_every", "consolidate_every"])
@pytest.mark.parametrize("policy", [None, ScriptedPolicy("noop")], ids=["none", "scripted"])
def test_a_schedule_that_the_memory_cannot_carry_out_is_refused(
    name: str, policy: ScriptedPolicy | None, metagpt: SpyBackend, store: StreamStore
) -> None:
    operation = name.removesuffix("_every")
    with pytest.raises(ConfigError, match=f"{name} = 10: memory 'metagpt' has no {operation} hook; leave it out"):
        controller_of(metagpt, store, policy, **{name: 10})


# --- upkeep -----------------------------------------------------------------------------------------------------------


def kept_up(store: StreamStore, controller: MemoryController, *operations: Operation) -> tuple[int, Mapping[str, str]]:
    """Run `operations` in the commit of the next task's end, after its attempt was recorded."""
    done: list[tuple[int, Mapping[str, str]]] = []

    def write() -> None:
        begin(controller, ordinal=store.num_ended).record(ATTEMPT, SUCCESS)
        done.append(controller.upkeep(operations))

    commit(store, write)
    return done[0]


def test_upkeep_runs_in_the_commit_of_the_task_and_tells_what_it_cost(store: StreamStore) -> None:
    backend = HookedBackend(store)
    controller = controller_of(backend, store, ScriptedPolicy("noop"))
    assert kept_up(store, controller, CONSOLIDATE) == (100, {"consolidate": ""})
    assert backend.rules() == ["recorded put some mug on the shelf", "consolidate"]
    assert kept_up(store, controller) == (0, {})


def test_a_hook_that_fails_takes_only_itself_back(store: StreamStore, caplog: pytest.LogCaptureFixture) -> None:
    backend = HookedBackend(store)
    controller = controller_of(backend, store, ScriptedPolicy("noop"))
    tokens, errors = kept_up(store, controller, CONSOLIDATE, FORGET)
    assert (tokens, errors) == (100, {"consolidate": "", "forget": "ZeroDivisionError: nothing to divide"})
    # The attempt, the hook before it and the task's end are kept.
    assert backend.rules() == ["recorded put some mug on the shelf", "consolidate"]
    assert store.num_ended == 1
    assert [record.message for record in caplog.records] == ["memory.hook_failed"]


def test_a_task_whose_end_fails_takes_its_upkeep_with_it(store: StreamStore) -> None:
    memory = pruned(store)
    controller = controller_of(memory, store, ScriptedPolicy("noop"))
    for _ in range(3):
        commit(store, lambda: controller.learn(ATTEMPT))
    before = memory.size(), memory.retrieve(TASK.goal)

    def make() -> Episode:
        controller.upkeep((CONSOLIDATE,))
        assert memory.size() == 1
        raise ZeroDivisionError

    store.begin(3, 1)
    with pytest.raises(ZeroDivisionError):
        store.end(make, ())
    assert (memory.size(), memory.retrieve(TASK.goal)) == before


def test_a_full_disk_in_upkeep_is_no_failure_of_the_hook(store: StreamStore) -> None:
    class Full(HookedBackend):
        def maintain(self, operation: Operation) -> int:
            self.store.connection.execute("ROLLBACK")
            raise OSError("no space left on device")

    controller = controller_of(Full(store), store, ScriptedPolicy("noop"))
    with pytest.raises(StorageError):
        kept_up(store, controller, CONSOLIDATE)
    assert store.num_ended == 0


def test_what_upkeep_removed_is_gone_for_the_next_task_and_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with opened(path) as store:
        memory = pruned(store, index_failures=True)
        controller = controller_of(memory, store, None, forget_every=2)
        failed = trajectory_of(TASK, ["go to shelf 1"], success=False)
        for ordinal in range(4):

            def make(ordinal: int = ordinal) -> Episode:
                controller.learn(failed)
                controller.upkeep(controller.scheduled(ordinal))
                return episode_of(ordinal)

            store.begin(ordinal, 1)
            store.end(make, ())
        # After the second task one of two is dropped, after the fourth one of three.
        kept = memory.retrieve(TASK.goal)
        assert [item.item_id for item in kept.items] == ["failure-2", "failure-3"]
    with opened(path) as store:
        assert pruned(store, index_failures=True).retrieve(TASK.goal) == kept


# --- practice ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, ScriptedPolicy("noop")], ids=["none", "scripted"])
def test_practice_fills_memory_and_plans_without_a_decision(
    policy: ScriptedPolicy | None, metagpt: SpyBackend, store: StreamStore
) -> None:
    # The same rows whatever the policy is: cells stay paired.
    controller = controller_of(metagpt, store, policy)
    assert store.seeded(lambda: controller.learn(ATTEMPT))
    assert metagpt.size() == 1
    assert store.connection.execute("SELECT goal_type FROM plan_templates").fetchall() == [("put",)]
    assert policy is None or policy.requests == []
    assert store.num_ended == 0


async def test_what_was_practised_is_found_by_the_first_task(metagpt: SpyBackend, store: StreamStore) -> None:
    controller = controller_of(metagpt, store, ScriptedPolicy("plan_inject"))
    store.seeded(lambda: controller.learn(ATTEMPT))
    memory = begin(controller)
    (block,) = await play(memory)
    (decision,) = memory.finish(SUCCESS).decisions
    assert (len(block.items), bool(block.plan)) == (1, True)
    assert (decision.features.memory_size, decision.features.task_number) == (1, 1)


# --- frozen -----------------------------------------------------------------------------------------------------------


def frozen(store: StreamStore, policy: ScriptedPolicy, **control: object) -> MemoryController:
    parts = controller_of(pruned(store), store, policy, **control).parts
    return MemoryController(replace(parts, memory_frozen=True))


async def test_a_frozen_memory_is_read_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"

    def memory_rows(store: StreamStore) -> str:
        rows = [
            store.connection.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("memory_items", "plan_templates")
        ]
        return hashlib.sha256(repr(rows).encode()).hexdigest()

    with opened(path) as store:
        controller = frozen(store, ScriptedPolicy("consolidate", "plan_inject", "forget"))
        store.seeded(lambda: [controller.learn(ATTEMPT), controller.learn(ATTEMPT)])
        before = memory_rows(store)
        memory = begin(controller)
        blocks = await play(memory, *GO[:18])
        end(store, memory)
        assert [decision.degraded for decision in memory.finish(SUCCESS).decisions] == [
            "unsupported",
            "",
            "unsupported",
        ]
        assert len(blocks[-1].items) == 1
    with opened(path) as store:
        assert memory_rows(store) == before
        assert store.num_ended == 1


async def test_maintenance_of_a_frozen_memory_can_be_masked(store: StreamStore) -> None:
    policy = ScriptedPolicy("noop")
    memory = begin(frozen(store, policy, unsupported_arms="mask"))
    await play(memory)
    assert memory.finish(UNEVALUABLE).decisions[0].masked == {
        "consolidate": "memory 'metagpt' is frozen",
        "forget": "memory 'metagpt' is frozen",
    }


def test_a_schedule_over_a_frozen_memory_is_refused(store: StreamStore) -> None:
    with pytest.raises(ConfigError, match="forget_every = 5: memory 'metagpt' is frozen"):
        frozen(store, ScriptedPolicy("noop"), forget_every=5)


# --- what tokens cost -------------------------------------------------------------------------------------------------


async def test_each_decision_pays_for_what_it_injected_itself(store: StreamStore) -> None:
    policy = ScriptedPolicy("retrieve_deep", "noop", "retrieve_shallow")
    parts = controller_of(HookedBackend(store), store, policy).parts
    controller = MemoryController(replace(parts, reward=RewardSettings(token_cost=0.1)))
    memory = begin(controller)
    await play(memory, *GO[:18])
    finished = memory.finish(SUCCESS)
    # Deep: 6 tokens of items, 16 of insights; NoOp keeps the block and pays nothing; shallow: 1 and 6.
    costs = [outcome.cost for outcome in finished.outcomes]
    assert costs == pytest.approx([0.0022, 0.0, 0.0007])
    assert [decision.credit for decision in finished.decisions] == pytest.approx(
        [0.81 * 1.15 - 0.0022, 0.9 * 1.15, 1.15 - 0.0007]
    )
    # Eq. 5 itself is what it was.
    assert finished.reward == pytest.approx(1.15)


@pytest.mark.parametrize("token_cost", [0.0, 0.1, 1 / 3, 7.7])
async def test_a_real_owner_credits_bit_for_bit_what_the_decisions_say(token_cost: float, store: StreamStore) -> None:
    settings = replace(learning_settings("ucb", gamma=0.92), rule_parameters={"c": 1.4})
    client = FakePolicyClient(num_shards=2)
    await client.open_table("table", settings)
    parts = controller_of(HookedBackend(store), store, ScriptedPolicy("noop")).parts
    controller = MemoryController(
        replace(parts, policy=client, learning=settings, reward=RewardSettings(token_cost=token_cost))
    )
    for ordinal in range(12):
        memory = begin(controller, ordinal=ordinal)
        store.begin(ordinal, 1)
        await play(memory, *GO[:20])
        finished = memory.finish(SUCCESS)
        end_begun(store, memory, SUCCESS)
        replies = await client.outcomes(store.outbox())
        store.delivered()
        assert [reply.credit.hex() for reply in replies] == [
            decision.credit.hex() for decision in finished.decisions if decision.credit is not None
        ]
    assert any(outcome.cost for outcome in finished.outcomes) is (token_cost > 0)
