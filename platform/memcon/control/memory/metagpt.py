"""Memory `metagpt`: whole trajectories, found by the similarity of their task's goal; no model calls (BL-2).

Successes and failures lie in separate indexes, so that failures cannot crowd out successes: `top_k` bounds the first,
`failed_top_k` the second. With `index_failures` (ours) they share one index and `top_k` bounds both; each item is
labelled with its outcome. With `maintenance` (ours) it has both hooks; Consolidate and Forget are no part of MetaGPT.
With `ranking: random` (ours) it is the control of a retrieval study: as many items, whatever the query asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from memcon import checks
from memcon.control.memory.item_index import FiledItem, ItemIndex
from memcon.control.memory.rendering import num_actions_of, render_trajectory
from memcon.errors import ConfigError
from memcon.protocols import Durability, Embedder, Retrieval
from memcon.registry import Plugin
from memcon.store import StreamStore
from memcon.types import MemoryItem, Operation, Trajectory

__all__ = ["PLUGIN", "MetaGPTConfig", "MetaGPTMemory"]

_MAX_ITEMS = 1000
_SUCCESS, _FAILURE = "success", "failure"


@dataclass(slots=True, kw_only=True)
class MetaGPTConfig:
    """What a retrieval brings when the caller does not say (policy `none`), and how the store is kept."""

    # Successful trajectories; with `index_failures` trajectories of either outcome.
    top_k: int = 1
    # Failed trajectories; arms do not set it, so this bounds every retrieval.
    failed_top_k: int = 0
    # Failures are ranked together with successes.
    index_failures: bool = False
    # Consolidate keeps the best trajectory of each task text; Forget drops the older half of the failures.
    maintenance: bool = False
    # "similarity" of goals; "random": items drawn by a keyed hash of query and item.
    ranking: str = "similarity"

    def __post_init__(self) -> None:
        checks.in_range("top_k", self.top_k, 0, _MAX_ITEMS)
        checks.in_range("failed_top_k", self.failed_top_k, 0, _MAX_ITEMS)
        checks.choice("ranking", self.ranking, ("similarity", "random"))
        if self.index_failures and self.failed_top_k:
            raise ConfigError(
                f"failed_top_k = {self.failed_top_k} with index_failures: top_k bounds successes and failures "
                "together; leave failed_top_k out"
            )

    @property
    def maintains(self) -> frozenset[Operation]:
        """Maintenance that a memory of this config can do: asked before a run begins."""
        return frozenset({Operation.CONSOLIDATE, Operation.FORGET} if self.maintenance else ())


class MetaGPTMemory:
    """A `MemoryBackend` over item indexes in the stream's file."""

    name = "metagpt"
    durability: Durability = "transactional"
    blocking = False

    def __init__(self, config: MetaGPTConfig, *, store: StreamStore, embedder: Embedder) -> None:
        self._config = config
        self.capabilities = frozenset({"top_k"} if config.index_failures else {"top_k", "failed_top_k"})
        self.maintains = config.maintains
        together = ((_SUCCESS, _FAILURE),)
        apart = ((_SUCCESS,), (_FAILURE,))
        # Outcome -> the index that it is filed in.
        self._indexes: dict[str, ItemIndex] = {}
        for sources in together if config.index_failures else apart:
            index = ItemIndex(store, embedder, sources=sources)
            self._indexes.update(dict.fromkeys(sources, index))

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        """The nearest trajectories, best first; with two indexes the successes, then the failures."""
        if undeclared := sorted(set(parameters) - self.capabilities):
            raise TypeError(f"memory 'metagpt' declares {sorted(self.capabilities)}, got {undeclared}")
        found = self._find(_SUCCESS, query, parameters.get("top_k", self._config.top_k))
        if self._config.index_failures:
            return Retrieval(items=found)
        failed = self._find(_FAILURE, query, parameters.get("failed_top_k", self._config.failed_top_k))
        return Retrieval(items=found + failed)

    def _find(self, outcome: str, query: str, top_k: int) -> tuple[MemoryItem, ...]:
        index = self._indexes[outcome]
        return index.draw(query, top_k) if self._config.ranking == "random" else index.search(query, top_k)

    def record(self, trajectory: Trajectory) -> int:
        """File the whole attempt under its goal; costs no tokens."""
        outcome = _SUCCESS if trajectory.success else _FAILURE
        self._indexes[outcome].add(outcome, trajectory.task.goal, render_trajectory(trajectory))
        return 0

    def maintain(self, operation: Operation) -> int:
        """Prune the store; costs no tokens.

        Consolidate keeps one trajectory of each task text: a success before a failure, then the one with fewest
        actions, then the older. Forget drops the older half of the failures, rounded down.
        """
        if operation not in self.maintains:
            raise TypeError(f"memory 'metagpt' maintains {sorted(self.maintains)} here, got {operation.value}")
        self._remove(self._superseded() if operation is Operation.CONSOLIDATE else self._older_failures())
        return 0

    def size(self) -> int:
        """Stored trajectories, successes and failures."""
        return sum(len(index) for index in self._distinct())

    def _distinct(self) -> tuple[ItemIndex, ...]:
        return tuple(dict.fromkeys(self._indexes.values()))

    def _superseded(self) -> list[FiledItem]:
        """All but the best of each task text."""
        ranked = sorted((item for index in self._distinct() for item in index.items()), key=_rank)
        kept: set[str] = set()
        found = []
        for item in ranked:
            if item.query_text in kept:
                found.append(item)
            kept.add(item.query_text)
        return found

    def _older_failures(self) -> list[FiledItem]:
        failures = [item for item in self._indexes[_FAILURE].items() if item.source == _FAILURE]
        return failures[: len(failures) // 2]

    def _remove(self, items: list[FiledItem]) -> None:
        for outcome in (_SUCCESS, _FAILURE):
            self._indexes[outcome].remove({item.place for item in items if item.source == outcome})


def _rank(item: FiledItem) -> tuple[bool, int, int]:
    """Best first; `place` is an age among items of one outcome, whether or not the outcomes share an index."""
    return item.source == _FAILURE, num_actions_of(item.text), item.place


def _build(config: MetaGPTConfig, *, store: StreamStore, embedder: Embedder) -> MetaGPTMemory:
    return MetaGPTMemory(config, store=store, embedder=embedder)


PLUGIN = Plugin(config=MetaGPTConfig, build=_build, summary="vector search over whole trajectories, no model calls")
