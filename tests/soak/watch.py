"""Asks every owner that was replaced whether it still answers, all through a soak.

An owner may answer for a second after another one's claim, while its last look at the journal is young enough, and
then never again. Asked are decides in a table of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx2

from memcon import ids
from memcon.errors import MemconError
from memcon_policy_server import wire
from memcon_policy_server.client.transport import authorization, reply_of
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.owner.lease import LEASE_S
from memcon_policy_server.sharding import journal_path, shard_of_keys
from soak.server import NUM_SHARDS, WATCH_TABLE, MemconServe

__all__ = ["StaleOwners", "Watch"]

_EVERY_S = 0.02
_MAP_EVERY_S = 0.5
_ATTEMPT_S = 2.0
GOOD, MOVED, GONE = "good", "moved", "gone"


@dataclass(slots=True, kw_only=True)
class StaleOwners:
    """What owners answered that had been replaced."""

    # "good", "moved", "gone" (nobody listens there any more), or another code of the wire.
    answers: Counter[str] = field(default_factory=Counter)
    # Longest time after the newer claim was seen at which one still gave a good answer.
    longest_s: float = 0.0

    def problems(self) -> list[str]:
        """One line when an owner was too slow to stop."""
        if self.longest_s <= LEASE_S:
            return []
        return [f"an owner that had been replaced still answered {self.longest_s:.2f} s later"]


class Watch:
    """Runs beside the block in a thread of its own."""

    def __init__(self, server: MemconServe) -> None:
        self.stale = StaleOwners()
        # Each new epoch of a shard and when it was seen: a new owner, that has its tables to restore yet.
        self.claims: list[tuple[int, float]] = []
        self._server = server
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="watch")
        self._stop = threading.Event()
        # Of each shard: the owners that were seen, with their epochs; the newest epoch and when it was first seen.
        self._owners: list[dict[str, int]] = [{} for _ in range(NUM_SHARDS)]
        self._newest = [(0, 0.0)] * NUM_SHARDS
        self._keys = [
            next(key for key in map("watch/1|number={}".format, range(1000)) if _shard(key) == shard)
            for shard in range(NUM_SHARDS)
        ]
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        headers = dict(authorization(self._server.token))
        async with httpx2.AsyncClient(trust_env=False, timeout=_ATTEMPT_S, headers=headers) as http:
            await asyncio.gather(self._learn(http), *(self._follow(http, shard) for shard in range(NUM_SHARDS)))

    async def _learn(self, http: httpx2.AsyncClient) -> None:
        """Keep up with where the owners are."""
        while not self._stop.is_set():
            try:
                found = reply_of(await http.get(self._server.url + wire.SHARD_MAP))["shards"]
            except (httpx2.HTTPError, MemconError):
                found = []
            for owners, shard in zip(self._owners, found, strict=False):
                owners[shard["url"]] = shard["epoch"]
            await _pause(_MAP_EVERY_S)

    async def _follow(self, http: httpx2.AsyncClient, shard: int) -> None:
        path = journal_path(self._server.directory, shard)
        with closing(SqliteJournal(path, shard=shard, num_shards=NUM_SHARDS, read_only=True)) as journal:
            while not self._stop.is_set():
                epoch = journal.current_epoch()
                if epoch != self._newest[shard][0]:
                    self._newest[shard] = epoch, time.monotonic()
                    self.claims.append((shard, time.monotonic()))
                for url in [url for url, since in self._owners[shard].items() if since < epoch]:
                    await self._ask(http, shard, url)
                await _pause(_EVERY_S)

    async def _ask(self, http: httpx2.AsyncClient, shard: int, url: str) -> None:
        newest, seen = self._newest[shard]
        asked = time.monotonic()
        try:
            answer = await self._answer(http, shard, url)
            # A port that was freed may be the new owner's.
            if answer == GOOD and (await http.get(url + wire.HEALTH)).json().get("epoch", 0) >= newest:
                answer = GONE
        except httpx2.HTTPError:
            answer = GONE
        self.stale.answers[answer] += 1
        if answer == GOOD:
            self.stale.longest_s = max(self.stale.longest_s, asked - seen)
        if answer == GONE:
            self._owners[shard].pop(url, None)

    async def _answer(self, http: httpx2.AsyncClient, shard: int, url: str) -> str:
        decision_id = f"watch {next(self._numbers)}"
        response = await http.post(
            url + wire.DECIDE,
            headers={wire.SHARD_HEADER: wire.shard_mark(shard, NUM_SHARDS)},
            json={
                "table": WATCH_TABLE,
                "decision_id": decision_id,
                "keys": [self._keys[shard]],
                "draw": ids.draw64(decision_id),
            },
        )
        return GOOD if response.status_code == 200 else str(response.json()["error"])


def _shard(key: str) -> int:
    return shard_of_keys(WATCH_TABLE, (key,), NUM_SHARDS)


async def _pause(seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        return
