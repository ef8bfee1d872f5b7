"""Owners behind real listeners on the loopback, without Ray: what tests of the served policy start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from memcon_policy_server.client.http import HttpPolicyClient
from memcon_policy_server.listener import Listener, build_app
from memcon_policy_server.owner import ShardOwner


class ServedShards:
    """All shards of a policy folder in the running event loop; an awaitable shard map of itself."""

    def __init__(self, directory: Path, num_shards: int = 1) -> None:
        self.directory, self.num_shards = directory, num_shards
        self.owners: list[ShardOwner] = []
        self.listeners: list[Listener] = []
        # How often a client has asked where the shards are.
        self.asked = 0
        for shard in range(num_shards):
            self.owners.append(ShardOwner(directory, shard=shard, num_shards=num_shards))
            self.listeners.append(self._listen(shard))

    async def __call__(self) -> Sequence[str]:
        self.asked += 1
        return [listener.base_url for listener in self.listeners]

    def client(self, patience_s: float = 10.0) -> HttpPolicyClient:
        return HttpPolicyClient(self, patience_s=patience_s)

    async def kill(self, shard: int) -> None:
        """End a shard's listener and journal as a death would: without an export."""
        await self.listeners[shard].stop()
        await self.owners[shard].close()

    def revive(self, shard: int) -> None:
        """Start a new owner of the shard on another port."""
        self.owners[shard] = ShardOwner(self.directory, shard=shard, num_shards=self.num_shards)
        self.listeners[shard] = self._listen(shard)

    async def close(self, *, export: bool = False) -> None:
        if export:
            for owner in self.owners:
                await owner.export()
        await asyncio.gather(*(self.kill(shard) for shard in range(self.num_shards)))

    def _listen(self, shard: int) -> Listener:
        listener = Listener(build_app(self.owners[shard]))
        listener.start()
        return listener
