"""The server of live agents in the running event loop, without Ray: real owners, real listeners, the real gateway."""

from __future__ import annotations

from pathlib import Path

from memcon.policy_types import LearningSettings
from memcon_policy_server.http.listener import Listener
from memcon_policy_server.options import Limits, OwnerOptions
from memcon_policy_server.serving.free_ports import free_ports
from memcon_policy_server.serving.gateway import Gateway
from memcon_policy_server.serving.links import LinkedTransport
from memcon_policy_server.serving.router import ShardRouter
from support.served_policy import ServedShards

TOKEN = "token of a test's server"


class LiveServer:
    """All that `memcon serve` runs; the gateway's port stays the same when the server goes away and comes back."""

    def __init__(
        self,
        directory: Path,
        num_shards: int = 2,
        *,
        request_timeout_s: float = 30.0,
        attempt_timeout_s: float = 20.0,
        options: OwnerOptions | None = None,
    ) -> None:
        self.directory, self.num_shards, self._timeout_s = directory, num_shards, request_timeout_s
        self._attempt_timeout_s = attempt_timeout_s
        self._options = options
        # While the server is away nobody else is given it.
        (self._port,) = free_ports(1)
        self.start()

    def start(self) -> None:
        self.shards = ServedShards(self.directory, self.num_shards, token=TOKEN, options=self._options)
        self._transport = LinkedTransport(self.shards, token=TOKEN, attempt_timeout_s=self._attempt_timeout_s)
        router = ShardRouter(self._transport, self.num_shards)
        self.app = Gateway(router, token=TOKEN, limits=Limits(request_timeout_s=self._timeout_s), name="gateway")
        self.gateway = Listener(self.app, port=self._port)
        self.url = self.gateway.start()

    async def open_table(self, table: str, settings: LearningSettings) -> None:
        client = self.shards.client()
        await client.open_table(table, settings)
        await client.close()

    async def stop(self) -> None:
        await self.gateway.stop()
        await self._transport.close()
        await self.shards.close()
