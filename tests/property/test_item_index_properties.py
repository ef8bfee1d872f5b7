"""The item index against a list: whatever is filed, removed, rolled back and reopened, file and index say the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memcon.control.memory.embedder_hashing import HashingConfig, HashingEmbedder
from memcon.control.memory.item_index import FiledItem, ItemIndex
from memcon.store import StreamStore
from memcon.testing.memory import commit
from support.stream_files import opened

EMBEDDER = HashingEmbedder(HashingConfig(dim=8))
SOURCES = ("success", "failure")
TEXTS = ("mug", "mug shelf", "pen", "egg fridge", "mug mug shelf")

adds = st.tuples(st.just("add"), st.sampled_from(SOURCES), st.sampled_from(TEXTS))
removals = st.tuples(st.just("remove"), st.sets(st.integers(0, 12), max_size=4), st.just(""))
steps = st.lists(st.one_of(adds, adds, removals), max_size=6)
# Each part is one commit; or it is rolled back, or the file is closed after it.
parts = st.lists(st.tuples(steps, st.sampled_from(["commit", "roll back", "reopen"])), max_size=5)


class Model:
    """What an index must hold: items by place, and the places given so far."""

    def __init__(self) -> None:
        self.items: dict[int, FiledItem] = {}
        self.num_given = 0

    def copy(self) -> Model:
        other = Model()
        other.items, other.num_given = dict(self.items), self.num_given
        return other

    def add(self, source: str, text: str) -> str:
        place, self.num_given = self.num_given, self.num_given + 1
        self.items[place] = FiledItem(source=source, place=place, query_text=text, text=f"text {place}")
        return f"{source}-{place}"

    def remove(self, places: set[int]) -> None:
        for place in places:
            self.items.pop(place, None)

    def ranking(self, query: str) -> list[str]:
        vector = EMBEDDER.embed([query])[0].astype(np.float64)

        def rank(item: FiledItem) -> tuple[float, bool, int]:
            score = round(float(EMBEDDER.embed([item.query_text])[0].astype(np.float64) @ vector), 6)
            return -score, item.query_text != query, item.place

        return [item.item_id for item in sorted(self.items.values(), key=rank)]


def carried_out(index: ItemIndex, model: Model, step: tuple[str, object, str]) -> None:
    kind, what, text = step
    if kind == "remove":
        assert isinstance(what, set)
        index.remove(what)
        model.remove(what)
    else:
        expected = model.add(str(what), text)
        assert index.add(str(what), text, f"text {model.num_given - 1}") == expected


def agree(index: ItemIndex, model: Model) -> None:
    assert index.items() == tuple(model.items[place] for place in sorted(model.items))
    assert len(index) == len(model.items)
    for query in ("mug", "egg fridge", "nothing known"):
        assert [item.item_id for item in index.search(query, 99)] == model.ranking(query)


def opened_index(store: StreamStore) -> ItemIndex:
    return ItemIndex(store, EMBEDDER, sources=SOURCES)


@settings(max_examples=25, deadline=None)
@given(parts)
def test_an_index_is_a_list_whose_places_are_given_once(plan: list[tuple[list[tuple[str, object, str]], str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.sqlite"
        model = Model()
        left = list(plan)
        while left:
            with opened(path) as store:
                index = opened_index(store)
                agree(index, model)
                while left:
                    part, ending = left.pop(0)
                    model = played(store, index, model, part, is_kept=ending != "roll back")
                    agree(index, model)
                    if ending == "reopen":
                        break
        with opened(path) as store:
            agree(opened_index(store), model)


def played(
    store: StreamStore, index: ItemIndex, model: Model, part: list[tuple[str, object, str]], *, is_kept: bool
) -> Model:
    """The model after one commit of `part`, or after it was rolled back."""
    changed = model.copy()

    def change() -> None:
        for step in part:
            carried_out(index, changed, step)
        agree(index, changed)

    if is_kept:
        commit(store, change)
        return changed
    with store.maintenance():
        change()
    store.discard()
    return model
