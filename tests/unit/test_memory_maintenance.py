"""Memory `metagpt` that prunes and that ranks failures with successes; items that leave the index (MC-19)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from memcon.control.memory.embedder_hashing import HashingConfig, HashingEmbedder
from memcon.control.memory.item_index import ItemIndex
from memcon.control.memory.metagpt import MetaGPTConfig, MetaGPTMemory
from memcon.control.memory.rendering import num_actions_of, render_trajectory
from memcon.errors import ConfigError, DamagedFileError, InvariantError, StorageError
from memcon.store import StreamStore
from memcon.testing.memory import commit, trajectory_of
from memcon.types import Operation
from support.stream_files import opened

EMBEDDER = HashingEmbedder(HashingConfig())
SUCCESS_OR_NOT = ("success", "failure")


def memory_of(store: StreamStore, **config: int) -> MetaGPTMemory:
    return MetaGPTMemory(MetaGPTConfig(**config), store=store, embedder=EMBEDDER)  # type: ignore[arg-type]


def attempted(
    store: StreamStore, memory: MetaGPTMemory, goal: str, *, actions: int = 1, success: bool = True, times: int = 1
) -> None:
    for _ in range(times):
        attempt = trajectory_of(goal, ["go to shelf 1"] * actions, success=success)
        commit(store, lambda attempt=attempt: memory.record(attempt))  # type: ignore[misc]


def maintained(store: StreamStore, memory: MetaGPTMemory, operation: Operation) -> None:
    commit(store, lambda: memory.maintain(operation))


def ids_of(memory: MetaGPTMemory, query: str, **parameters: int) -> list[str]:
    return [item.item_id for item in memory.retrieve(query, **parameters).items]


# --- failures in the index --------------------------------------------------------------------------------------------


def test_failures_share_the_ranking_and_are_labelled(store: StreamStore) -> None:
    memory = memory_of(store, index_failures=True)
    attempted(store, memory, "find the parcel", success=False)
    attempted(store, memory, "find the parcel")
    attempted(store, memory, "water the garden", success=False)
    items = memory.retrieve("find the parcel", top_k=3).items
    assert [(item.item_id, item.source) for item in items] == [
        ("failure-0", "failure"),
        ("success-1", "success"),
        ("failure-2", "failure"),
    ]
    # What the prompt shows says so too: the agent must know that it reads what did not work.
    assert ["Outcome: failure" in item.text for item in items] == [True, False, True]
    assert memory.size() == 3
    assert memory.capabilities == {"top_k"}


def test_by_default_neither_hook_nor_shared_index_is_there(store: StreamStore) -> None:
    memory = memory_of(store)
    assert not memory.maintains
    assert memory.capabilities == {"top_k", "failed_top_k"}
    with pytest.raises(TypeError, match="maintains \\[\\] here, got forget"):
        memory.maintain(Operation.FORGET)
    with pytest.raises(TypeError, match="got noop"):
        memory_of(store, maintenance=True).maintain(Operation.NOOP)


def test_a_bound_of_failures_has_no_meaning_in_one_index() -> None:
    with pytest.raises(ConfigError, match="failed_top_k = 2 with index_failures"):
        MetaGPTConfig(index_failures=True, failed_top_k=2)


@pytest.mark.parametrize("first", [False, True])
def test_items_that_were_filed_in_other_indexes_are_refused(first: bool, store: StreamStore) -> None:
    # A memory that is taken over from a run with the other setting would be read wrongly, or found empty.
    memory = memory_of(store, index_failures=first)
    attempted(store, memory, "goal")
    attempted(store, memory, "goal", success=False)
    with pytest.raises(ConfigError, match=r"not filed in one index over .*; take the memory settings"):
        memory_of(store, index_failures=not first)


# --- Consolidate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index_failures", [False, True])
def test_consolidate_keeps_the_best_attempt_of_each_task_text(index_failures: bool, store: StreamStore) -> None:
    memory = memory_of(store, index_failures=index_failures, maintenance=True, top_k=9)
    attempted(store, memory, "mixed", actions=1, success=False)
    attempted(store, memory, "mixed", actions=5)
    attempted(store, memory, "mixed", actions=3)
    attempted(store, memory, "mixed", actions=3)
    attempted(store, memory, "failed", actions=4, success=False)
    attempted(store, memory, "failed", actions=2, success=False)
    attempted(store, memory, "Mixed", actions=9)
    assert memory.maintain(Operation.CONSOLIDATE) == 0
    left = memory.retrieve("mixed", top_k=9).items
    kept = [(item.text.splitlines()[0], num_actions_of(item.text)) for item in left if item.source == "success"]
    # A success before a failure that was shorter; of equal ones the older; another text is another task.
    assert kept == [("Task: mixed", 3), ("Task: Mixed", 9)]
    assert left[0].item_id == ("success-2" if index_failures else "success-1")
    assert memory.size() == 3


def test_consolidate_twice_is_consolidate_once(store: StreamStore) -> None:
    memory = memory_of(store, maintenance=True)
    attempted(store, memory, "goal", times=3)
    for _ in range(2):
        maintained(store, memory, Operation.CONSOLIDATE)
        assert ids_of(memory, "goal", top_k=9) == ["success-0"]


@pytest.mark.parametrize("number", [0, 1, 7])
def test_the_number_of_actions_is_read_back_from_the_text(number: int) -> None:
    attempt = trajectory_of("goal\nin two  lines", ["think: hm", *["> odd\naction"] * number])
    assert num_actions_of(render_trajectory(attempt)) == number


# --- Forget -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index_failures", [False, True])
@pytest.mark.parametrize(("failures", "left"), [(0, 0), (1, 1), (2, 1), (5, 3)])
def test_forget_drops_the_older_half_of_the_failures(
    failures: int, left: int, index_failures: bool, store: StreamStore
) -> None:
    memory = memory_of(store, index_failures=index_failures, maintenance=True)
    attempted(store, memory, "goal", times=2)
    for number in range(failures):
        attempted(store, memory, f"failed {number * 'x'}", success=False)
    maintained(store, memory, Operation.FORGET)
    bounds = {"top_k": 9} if index_failures else {"top_k": 9, "failed_top_k": 9}
    items = memory.retrieve("goal", **bounds).items
    assert [item.source for item in items].count("success") == 2
    goals = sorted(item.text.splitlines()[0] for item in items if item.source == "failure")
    assert goals == sorted(f"Task: failed {number * 'x'}".rstrip() for number in range(failures - left, failures))


# --- items that leave -------------------------------------------------------------------------------------------------


@pytest.fixture
def index(store: StreamStore) -> ItemIndex:
    return ItemIndex(store, EMBEDDER, sources=("success",))


def filed(store: StreamStore, index: ItemIndex, *texts: str) -> None:
    commit(store, lambda: [index.add("success", text, text) for text in texts])


def removed(store: StreamStore, index: ItemIndex, *places: int) -> None:
    commit(store, lambda: index.remove(places))


def found(index: ItemIndex, query: str) -> list[tuple[str, str]]:
    return [(item.item_id, item.text) for item in index.search(query, 99)]


def test_removed_items_are_found_no_more_and_the_others_as_before(store: StreamStore, index: ItemIndex) -> None:
    filed(store, index, *(f"goal {'x' * number}" for number in range(70)))
    before = {item.item_id: item for item in index.search("goal x", 99)}
    removed(store, index, 0, 33, 64, 69)
    after = {item.item_id: item for item in index.search("goal x", 99)}
    assert set(before) - set(after) == {"success-0", "success-33", "success-64", "success-69"}
    assert all(before[name] == item for name, item in after.items())
    assert len(index) == 66


@pytest.mark.parametrize("gone", [(2,), (0, 1, 2)])
def test_the_place_of_a_removed_item_is_never_given_again(
    gone: Sequence[int], store: StreamStore, index: ItemIndex
) -> None:
    # Decisions name items by id for ever: a second "success-2" would be another item.
    filed(store, index, "a", "b", "c")
    removed(store, index, *gone)
    filed(store, index, "d")
    reopened = ItemIndex(store, EMBEDDER, sources=("success",))
    filed(store, reopened, "e")
    assert {item_id for item_id, text in found(reopened, "d") if text in "de"} == {"success-3", "success-4"}


def test_a_removal_that_is_rolled_back_is_undone_in_file_and_index(store: StreamStore, index: ItemIndex) -> None:
    filed(store, index, "a", "b")
    before = index.search("a", 9)
    with store.maintenance():
        index.remove((0,))
        assert found(index, "a") == [("success-1", "b")]
        assert index.add("success", "c", "c") == "success-2"
    store.discard()
    assert index.search("a", 9) == before
    assert index.items() == ItemIndex(store, EMBEDDER, sources=("success",)).items()
    filed(store, index, "d")
    assert found(index, "d")[0] == ("success-2", "d")


def test_file_and_index_agree_after_removals(tmp_path: Path) -> None:
    with opened(tmp_path / "s.sqlite") as store:
        index = ItemIndex(store, EMBEDDER, sources=SUCCESS_OR_NOT)
        commit(store, lambda: [index.add(SUCCESS_OR_NOT[n % 2], f"goal {n}", f"text {n}") for n in range(9)])
        removed(store, index, 3, 4, 8)
        before = index.items(), index.search("goal", 9)
    with opened(tmp_path / "s.sqlite") as store:
        again = ItemIndex(store, EMBEDDER, sources=SUCCESS_OR_NOT)
        assert (again.items(), again.search("goal", 9)) == before


def test_removing_what_is_not_there_does_nothing(store: StreamStore, index: ItemIndex) -> None:
    filed(store, index, "a")
    before = store.connection.total_changes
    index.remove((7,))
    index.remove(())
    assert (len(index), store.connection.total_changes) == (1, before)


def test_a_disk_that_refuses_keeps_the_items(store: StreamStore, index: ItemIndex) -> None:
    filed(store, index, "a", "b")
    store.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError):
        index.remove((0,))
    store.connection.execute("PRAGMA query_only = OFF")
    assert len(index) == 2


def test_another_source_is_a_bug(index: ItemIndex) -> None:
    with pytest.raises(InvariantError, match="cannot file under 'failure'"):
        index.add("failure", "a", "a")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("DELETE FROM memory_items WHERE place = 0", "item 0 is missing"),
        ("DELETE FROM memory_items WHERE place = 2", "item 2 is missing"),
        ("DELETE FROM memory_removed", "item 1 is missing"),
        ("INSERT INTO memory_removed VALUES ('success', 0)", "removed and is still there"),
        ("INSERT INTO memory_removed VALUES ('success', 9)", "item 4 is missing"),
    ],
)
def test_a_gap_without_its_removal_is_damage(change: str, problem: str, store: StreamStore, index: ItemIndex) -> None:
    filed(store, index, "a", "b", "c", "d")
    removed(store, index, 1, 3)
    store.connection.execute(change)
    with pytest.raises(DamagedFileError, match=problem):
        ItemIndex(store, EMBEDDER, sources=("success",))


def test_a_file_from_before_removals_is_read(store: StreamStore, index: ItemIndex) -> None:
    filed(store, index, "a", "b")
    tables = store.connection.execute("SELECT name FROM sqlite_master WHERE name = 'memory_removed'").fetchall()
    assert tables == []
    assert [item.item_id for item in ItemIndex(store, EMBEDDER, sources=("success",)).items()] == [
        "success-0",
        "success-1",
    ]
