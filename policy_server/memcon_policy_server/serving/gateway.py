"""The gateway of `memcon serve`: every route of an owner, for clients that cannot find the owner of a key themselves.

Checks token, form and limits as an owner's listener does (it is the same application), then asks the owners. Answers
to all shards at once are put together here.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlencode

import msgspec

from memcon.errors import MemconError, UnavailableError
from memcon_policy_server import messages, wire
from memcon_policy_server.http import metrics, openapi
from memcon_policy_server.http.app import HttpApp, Receive, Scope, Send
from memcon_policy_server.http.routes import Cancelled, CancelledEpisode, Changed, Done
from memcon_policy_server.options import Limits
from memcon_policy_server.serving.pages import merged_metrics, merged_tables
from memcon_policy_server.serving.router import ShardRouter

__all__ = ["Gateway"]


class Gateway(HttpApp):
    """ASGI application over a `ShardRouter`; belongs to one event loop. `name` marks its own metrics."""

    def __init__(self, router: ShardRouter, *, token: str, limits: Limits, name: str) -> None:
        self._router, self._name = router, name
        self._document = openapi.document(gateway=True)
        # Requests that are being answered, and whether there are none.
        self._open = 0
        self._idle = asyncio.Event()
        super().__init__(
            {
                wire.OPEN_TABLE: self._open_table,
                wire.IMPORT_TABLE: self._import_table,
                wire.FREEZE_TABLE: self._freeze_table,
                wire.DECIDE: self._decide,
                wire.DECIDE_BATCH: self._decide_batch,
                wire.OUTCOME: self._outcome,
                wire.OUTCOMES: self._outcomes,
                wire.CANCEL: self._cancel,
                wire.CANCEL_EPISODE: self._cancel_episode,
                wire.TABLES: self._tables,
                wire.HEALTH: self._health,
                wire.METRICS: self._metrics,
                wire.OPENAPI: self._openapi,
                wire.SHARD_MAP: self._shard_map,
            },
            token=token,
            limits=limits,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self._open += 1
        self._idle.clear()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    async def drain(self, patience_s: float) -> None:
        """Refuse new requests; returns when none is open, or after `patience_s`."""
        self.draining = True
        if self._open:
            try:
                async with asyncio.timeout(patience_s):
                    await self._idle.wait()
            except TimeoutError:
                return

    # --- one owner ---------------------------------------------------------------------------------------------------

    async def _decide(self, message: messages.Decide) -> object:
        return await self._router.decide(message)

    async def _outcome(self, message: messages.Outcome) -> object:
        return await self._router.outcome(message)

    async def _cancel(self, message: messages.Cancel) -> object:
        return Cancelled(cancelled=(await self._router.cancel(message))["cancelled"])

    # --- some owners -------------------------------------------------------------------------------------------------

    async def _decide_batch(self, message: messages.DecideBatch) -> object:
        self.check_batch(message.decides)
        return {"replies": await self._router.decides(message.decides)}

    async def _outcomes(self, message: messages.Outcomes) -> object:
        self.check_batch(message.outcomes)
        return {"replies": await self._router.outcomes(message.outcomes)}

    # --- all owners --------------------------------------------------------------------------------------------------

    async def _open_table(self, message: messages.OpenTable) -> object:
        await self._router.everywhere(wire.OPEN_TABLE, message)
        return Done()

    async def _import_table(self, message: messages.ImportTable) -> object:
        await self._router.everywhere(wire.IMPORT_TABLE, message)
        return Done()

    async def _freeze_table(self, message: messages.FreezeTable) -> object:
        answers = await self._router.everywhere(wire.FREEZE_TABLE, message)
        return Changed(changed=any(answer["changed"] for answer in answers))

    async def _cancel_episode(self, message: messages.CancelEpisode) -> object:
        answers = await self._router.everywhere(wire.CANCEL_EPISODE, message)
        return CancelledEpisode(cancelled=sum(answer["cancelled"] for answer in answers))

    async def _tables(self, message: messages.TablesQuery) -> object:
        # Without what is not set.
        query = urlencode(msgspec.to_builtins(message))
        answers = [msgspec.json.decode(body) for body in await self._router.get(f"{wire.TABLES}?{query}")]
        return merged_tables(answers)

    async def _health(self, _: messages.Nothing) -> object:
        shards = await asyncio.gather(*(self._health_of(shard) for shard in range(self._router.num_shards)))
        well = sum(shard["status"] == "ok" for shard in shards)
        if not well:
            raise UnavailableError("no shard answers now; see the server's log")
        return {"status": "ok" if well == len(shards) else "degraded", "shards": shards}

    async def _health_of(self, shard: int) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = msgspec.json.decode(await self._router.now(shard, wire.HEALTH))
        except MemconError:
            return {"status": "away", "shard": shard}
        return answer

    async def _metrics(self, _: messages.Nothing) -> object:
        pages = await asyncio.gather(*(self._page_of(shard) for shard in range(self._router.num_shards)))
        own = metrics.gateway_text(self._name, self._router.counts, self.answered)
        return merged_metrics([*pages, own])

    async def _page_of(self, shard: int) -> str:
        # Just when one is away the numbers of the others are looked at: it is missing, and nothing waits for it.
        try:
            return (await self._router.now(shard, wire.METRICS)).decode()
        except MemconError:
            return ""

    async def _shard_map(self, _: messages.Nothing) -> object:
        return await self._router.shard_map()

    async def _openapi(self, _: messages.Nothing) -> object:
        return self._document
