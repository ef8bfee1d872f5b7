"""Memory `metagpt`: whole trajectories, found by the similarity of their task's goal; no model calls (BL-2).

Successes and failures lie in separate indexes, so that failures cannot crowd out successes: `top_k` bounds the first,
`failed_top_k` the second.
"""

from __future__ import annotations

from dataclasses import dataclass

from memcon import checks
from memcon.control.memory.item_index import ItemIndex
from memcon.control.memory.rendering import render_trajectory
from memcon.protocols import Durability, Embedder, Retrieval
from memcon.registry import Plugin
from memcon.store import StreamStore
from memcon.types import Operation, Trajectory

__all__ = ["PLUGIN", "MetaGPTConfig", "MetaGPTMemory"]

_MAX_ITEMS = 1000


@dataclass(slots=True, kw_only=True)
class MetaGPTConfig:
    """What a retrieval brings when the caller does not say (policy `none`)."""

    # Successful trajectories.
    top_k: int = 1
    # Failed trajectories; arms do not set it, so this bounds every retrieval.
    failed_top_k: int = 0

    def __post_init__(self) -> None:
        checks.in_range("top_k", self.top_k, 0, _MAX_ITEMS)
        checks.in_range("failed_top_k", self.failed_top_k, 0, _MAX_ITEMS)


class MetaGPTMemory:
    """A `MemoryBackend` over two item indexes in the stream's file."""

    name = "metagpt"
    capabilities = frozenset({"top_k", "failed_top_k"})
    maintains: frozenset[Operation] = frozenset()
    durability: Durability = "transactional"
    blocking = False

    def __init__(self, config: MetaGPTConfig, *, store: StreamStore, embedder: Embedder) -> None:
        self._config = config
        self._successes = ItemIndex(store, embedder, source="success")
        self._failures = ItemIndex(store, embedder, source="failure")

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        """The nearest successes, then the nearest failures, each best first."""
        if undeclared := sorted(set(parameters) - self.capabilities):
            raise TypeError(f"memory 'metagpt' declares {sorted(self.capabilities)}, got {undeclared}")
        found = self._successes.search(query, parameters.get("top_k", self._config.top_k))
        failed = self._failures.search(query, parameters.get("failed_top_k", self._config.failed_top_k))
        return Retrieval(items=found + failed)

    def record(self, trajectory: Trajectory) -> int:
        """File the whole attempt under its goal; costs no tokens."""
        index = self._successes if trajectory.success else self._failures
        index.add(trajectory.task.goal, render_trajectory(trajectory))
        return 0

    def maintain(self, operation: Operation) -> int:
        """Refuse: it declares no maintenance."""
        raise TypeError(f"memory 'metagpt' declares no maintenance, got {operation.value}")

    def size(self) -> int:
        """Stored trajectories, successes and failures."""
        return len(self._successes) + len(self._failures)


def _build(config: MetaGPTConfig, *, store: StreamStore, embedder: Embedder) -> MetaGPTMemory:
    return MetaGPTMemory(config, store=store, embedder=embedder)


PLUGIN = Plugin(config=MetaGPTConfig, build=_build, summary="vector search over whole trajectories, no model calls")
