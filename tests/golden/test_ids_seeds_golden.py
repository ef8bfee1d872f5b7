"""Ids and seeds are content: these values stand in files of earlier runs and must never move."""

from __future__ import annotations

import pytest

from memcon import ids
from memcon.seeds import SeedTree


def test_ids_of_a_place_never_move() -> None:
    episode = ids.episode_id("cell", 2, 15, 1)
    assert episode == "e62cf757359054a7"
    assert ids.decision_id(episode, 0) == "22da76bcfeec229b"
    assert ids.draw64("draw", "cell", 2, 15, 0) == 1762984518900346579
    assert ids.stable_hash("ü", 1, None, ["x"], size=4) == "c8c259c9"
    assert [ids.shard_of("table", f"key {n}", 4) for n in range(8)] == [3, 3, 3, 1, 2, 0, 2, 2]


def test_seeds_of_a_place_never_move() -> None:
    leaf = SeedTree(("seed", 0, "household")).child("stream", 0).child("ordinal", 3, "agent")
    assert leaf.value() == 15186779499528246293
    generator = leaf.generator()
    assert [generator.getrandbits(32) for _ in range(2)] == [495091343, 757936251]


def test_a_leaf_is_named_by_its_path_alone() -> None:
    root = SeedTree(("seed", 1))
    assert root.child("a", "b") == root.child("a").child("b")
    assert root.child("a").value() != root.child("b").value()
    assert root.child("a").generator().random() == root.child("a").generator().random()


def test_kinds_of_parts_are_told_apart() -> None:
    assert len({ids.draw64(part) for part in (1, "1", 1.0, True, None, (1,), ("1",))}) == 7
    assert ids.stable_hash("a", "b") != ids.stable_hash("ab")


def test_numbers_without_a_json_form_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        ids.stable_hash(float("nan"))


def test_shards_get_even_shares() -> None:
    counts = [0] * 4
    for number in range(4000):
        counts[ids.shard_of("table", f"key {number}", 4)] += 1
    assert all(900 < count < 1100 for count in counts)
