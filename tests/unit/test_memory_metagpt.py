"""Memory `metagpt` and its item index: ranking, bounds, persistence, damage (BL-2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memcon.control.memory.item_index import ItemIndex
from memcon.control.memory.metagpt import MetaGPTConfig, MetaGPTMemory
from memcon.control.memory.rendering import render_trajectory
from memcon.errors import ConfigError, DamagedFileError, StorageError
from memcon.protocols import Embedder
from memcon.store import StreamStore
from memcon.testing.embedder import FixedEmbedder
from memcon.testing.memory import commit, trajectory_of

EMBEDDER = FixedEmbedder(
    {"north": (1, 0), "north too": (1, 0), "north-east": (1, 1), "east": (0, 1), "south": (-1, 0)}, dim=2
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StreamStore]:
    store = StreamStore(tmp_path / "stream.sqlite", identity="cell/0")
    yield store
    store.close()


def memory_of(store: StreamStore, embedder: Embedder = EMBEDDER, **config: int) -> MetaGPTMemory:
    return MetaGPTMemory(MetaGPTConfig(**config), store=store, embedder=embedder)  # type: ignore[arg-type]


def fill(store: StreamStore, memory: MetaGPTMemory, *goals: str, success: bool = True) -> None:
    for goal in goals:
        commit(store, lambda goal=goal: memory.record(trajectory_of(goal, [f"go {goal}"], success=success)))  # type: ignore[misc]


def found(memory: MetaGPTMemory, query: str, **parameters: int) -> list[tuple[str, float]]:
    return [(item.item_id, item.score) for item in memory.retrieve(query, **parameters).items]


def test_the_nearest_come_first_with_their_similarity(store: StreamStore) -> None:
    memory = memory_of(store)
    fill(store, memory, "south", "east", "north-east", "north")
    assert found(memory, "north", top_k=4) == [
        ("success-3", 1.0),
        ("success-2", 0.707107),
        ("success-1", 0.0),
        ("success-0", -1.0),
    ]


def test_ties_go_to_the_same_text_then_to_the_older_item(store: StreamStore) -> None:
    memory = memory_of(store)
    fill(store, memory, "north too", "north", "north too", "north")
    assert [item_id for item_id, _ in found(memory, "north", top_k=4)] == [
        "success-1",
        "success-3",
        "success-0",
        "success-2",
    ]


def test_a_random_ranking_depends_on_the_query_text_and_not_on_its_meaning(store: StreamStore) -> None:
    memory = MetaGPTMemory(MetaGPTConfig(ranking="random"), store=store, embedder=EMBEDDER)
    fill(store, memory, *["south", "north", "east", "north-east"] * 4)

    drawn = {query: found(memory, query, top_k=16) for query in ("north", "north too", "south")}

    assert drawn == {query: found(memory, query, top_k=16) for query in drawn}
    assert all(
        sorted(items) == sorted(drawn["north"]) and {score for _, score in items} == {0.0} for items in drawn.values()
    )
    # Texts of one meaning and vector: 16! orders make an equal one a fault.
    assert drawn["north"] != drawn["north too"]
    assert found(memory, "north", top_k=3) == drawn["north"][:3]
    assert found(memory, "north", top_k=0) == []


def test_an_item_is_the_whole_attempt(store: StreamStore) -> None:
    memory = memory_of(store)
    attempt = trajectory_of("north", [f"step {n}" for n in range(60)])
    commit(store, lambda: memory.record(attempt))
    (item,) = memory.retrieve("north").items
    assert item.text == render_trajectory(attempt)
    assert "> step 59" in item.text


def test_failures_are_apart_and_bounded_apart(store: StreamStore) -> None:
    memory = memory_of(store)
    fill(store, memory, "north", "north", success=False)
    fill(store, memory, "east", "south")
    assert found(memory, "north", top_k=2) == [("success-0", 0.0), ("success-1", -1.0)]
    both = memory.retrieve("north", top_k=1, failed_top_k=1).items
    assert [item.source for item in both] == ["success", "failure"]
    assert memory.size() == 4


def test_the_config_bounds_a_retrieval_that_says_nothing(store: StreamStore) -> None:
    memory = memory_of(store, top_k=2, failed_top_k=1)
    fill(store, memory, "north", "east", "south")
    fill(store, memory, "north", "east", success=False)
    assert [item_id for item_id, _ in found(memory, "north")] == ["success-0", "success-1", "failure-0"]
    assert len(memory.retrieve("north", top_k=1).items) == 2


@pytest.mark.parametrize(("key", "value"), [("top_k", -1), ("failed_top_k", 1001)])
def test_config_values_are_bounded(key: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{key} = {value}"):
        MetaGPTConfig(**{key: value})  # type: ignore[arg-type]


def test_many_items_grow_the_matrix(tmp_path: Path, store: StreamStore) -> None:
    generator = np.random.Generator(np.random.PCG64(7))
    vectors = generator.standard_normal((150, 8))
    embedder = FixedEmbedder({f"goal {n}": tuple(row) for n, row in enumerate(vectors)}, dim=8)
    memory = memory_of(store, embedder, top_k=5)

    def write() -> None:
        for number in range(150):
            memory.record(trajectory_of(f"goal {number}", ["go"]))

    commit(store, write)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for number in (0, 63, 64, 149):
        expected = np.argsort(-(unit @ unit[number]), kind="stable")[:5]
        assert [item_id for item_id, _ in found(memory, f"goal {number}")] == [f"success-{n}" for n in expected]
    again = memory_of(store, embedder, top_k=5)
    assert again.retrieve("goal 64") == memory.retrieve("goal 64")
    assert again.size() == 150


def test_the_size_of_the_store_does_not_move_a_score(store: StreamStore) -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    embedder = FixedEmbedder({f"g{n}": tuple(generator.standard_normal(256)) for n in range(200)}, dim=256)
    index = ItemIndex(store, embedder, sources=("success",))
    seen: dict[str, float] = {}
    for number in range(200):
        commit(store, lambda number=number: index.add("success", f"g{number}", "text"))  # type: ignore[misc]
        for item in index.search("g0", 200):
            assert seen.setdefault(item.item_id, item.score) == item.score


def test_another_embedder_is_refused(store: StreamStore) -> None:
    fill(store, memory_of(store), "north")
    with pytest.raises(ConfigError, match="embedded by 'fixed', not 'other'"):
        memory_of(store, FixedEmbedder({}, dim=2, name="other"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE memory_items SET vector = x'00'", "does not have 2 numbers"),
        ("UPDATE memory_items SET vector = x'0000c07f0000c07f'", "not finite"),
        ("UPDATE memory_items SET text = x'00ff'", "no text"),
        ("DELETE FROM memory_items WHERE place = 0", "item 0 is missing"),
    ],
)
def test_damaged_items_are_refused(change: str, problem: str, store: StreamStore) -> None:
    fill(store, memory_of(store), "north", "east")
    store.connection.execute(change)
    with pytest.raises(DamagedFileError, match=problem):
        memory_of(store)


def test_a_disk_that_refuses_is_no_failure_of_the_backend(store: StreamStore) -> None:
    # A BoundaryError would make every task `unevaluable` while the disk is full.
    memory = memory_of(store)
    fill(store, memory, "north")
    store.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="cannot write"):
        memory.record(trajectory_of("east", ["go"]))
    assert memory.size() == 1
