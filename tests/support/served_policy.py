"""Owners behind real listeners on the loopback, without Ray: what tests of the served policy start."""

from __future__ import annotations

import asyncio
from pathlib import Path

from memcon.protocols import Clock
from memcon_policy_server.client.http import HttpPolicyClient
from memcon_policy_server.http.listener import Listener
from memcon_policy_server.http.shard_app import PolicyApp, build_app
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.owner.shard_owner import ShardOwner
from memcon_policy_server.shard_map import ShardAddress, ShardMap


class ServedShards:
    """All shards of a policy folder in the running event loop; an awaitable shard map of itself."""

    def __init__(
        self,
        directory: Path,
        num_shards: int = 1,
        *,
        token: str | None = None,
        options: OwnerOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        # Of the owners: no lease lapses under one that stands.
        self._clock = clock
        self.directory, self.num_shards, self.token = directory, num_shards, token
        self.options = options or OwnerOptions()
        self.owners: list[ShardOwner] = []
        self.apps: list[PolicyApp] = []
        self.listeners: list[Listener] = []
        # How often a client has asked where the shards are.
        self.asked = 0
        for shard in range(num_shards):
            self.owners.append(self._own(shard))
            self.apps.append(self._app(shard))
            self.listeners.append(self._listen(shard))

    async def __call__(self) -> ShardMap:
        self.asked += 1
        # A new owner of a shard has another port; which of the epochs is newer nobody asks here.
        return ShardMap(shards=tuple([ShardAddress(url=item.base_url, epoch=1) for item in self.listeners]))

    def client(self, patience_s: float = 10.0) -> HttpPolicyClient:
        return HttpPolicyClient(self, token=self.token, patience_s=patience_s)

    async def kill(self, shard: int) -> None:
        """End a shard's listener and journal as a death would: without an export."""
        await self.listeners[shard].stop()
        await self.owners[shard].close()

    def revive(self, shard: int) -> None:
        """Start a new owner of the shard on another port."""
        self.owners[shard] = self._own(shard)
        self.apps[shard] = self._app(shard)
        self.listeners[shard] = self._listen(shard)

    async def close(self, *, export: bool = False) -> None:
        if export:
            for owner in self.owners:
                await owner.export()
        await asyncio.gather(*(self.kill(shard) for shard in range(self.num_shards)))

    def _app(self, shard: int) -> PolicyApp:
        return build_app(self.owners[shard], token=self.token, limits=self.options.limits)

    def _own(self, shard: int) -> ShardOwner:
        return ShardOwner(
            self.directory, shard=shard, num_shards=self.num_shards, options=self.options, clock=self._clock
        )

    def _listen(self, shard: int) -> Listener:
        listener = Listener(self.apps[shard])
        listener.start()
        return listener
