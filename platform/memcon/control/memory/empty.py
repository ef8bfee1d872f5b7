"""Memory `empty`: stores nothing and finds nothing (BL-1). The floor that every other memory is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from memcon.protocols import Durability, Embedder, Retrieval
from memcon.registry import Plugin
from memcon.store import StreamStore
from memcon.types import Operation, Trajectory

__all__ = ["PLUGIN", "EmptyConfig", "EmptyMemory"]


@dataclass(slots=True, kw_only=True)
class EmptyConfig:
    """No settings."""


class EmptyMemory:
    """A `MemoryBackend` without memory."""

    name = "empty"
    capabilities: frozenset[str] = frozenset()
    # There is nothing to prune, so that a schedule for a whole sweep holds for its row without memory too.
    maintains: frozenset[Operation] = frozenset({Operation.CONSOLIDATE, Operation.FORGET})
    durability: Durability = "transactional"
    blocking = False

    def retrieve(self, query: str, **parameters: int) -> Retrieval:
        """Nothing."""
        del query
        if parameters:
            raise TypeError(f"memory 'empty' declares no parameters, got {sorted(parameters)}")
        return Retrieval()

    def record(self, trajectory: Trajectory) -> int:
        """Forget `trajectory`; costs no tokens."""
        del trajectory
        return 0

    def maintain(self, operation: Operation) -> int:
        """Nothing; costs no tokens."""
        del operation
        return 0

    def size(self) -> int:
        """Always 0."""
        return 0


def _build(config: EmptyConfig, *, store: StreamStore, embedder: Embedder) -> EmptyMemory:
    del config, store, embedder
    return EmptyMemory()


PLUGIN = Plugin(config=EmptyConfig, build=_build, summary="stores nothing: the no-memory baseline")
