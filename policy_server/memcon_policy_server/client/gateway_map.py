"""What a client asks the gateway of `memcon serve`: where the shards are, and how a table makes its keys."""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

import httpx2

from memcon import codec
from memcon.errors import ConfigError, NotFoundError, UnavailableError
from memcon.policy_types import LearningSettings
from memcon_policy_server import wire
from memcon_policy_server.client.transport import KEEP_ALIVE_S, TRANSIENT, authorization, checked, reply_of
from memcon_policy_server.shard_map import ShardAddress, ShardMap

__all__ = ["HttpShardMap"]

ASK_TIMEOUT_S = 5.0


class HttpShardMap:
    """The shard map as the gateway at `base_url` gives it; belongs to one event loop.

    Where the owners cannot be reached, the gateway stands for them all, as one shard: when they listen on the loopback
    of another machine, or with `direct` off (a tunnel or a proxy that lets only the gateway through).

    Raises:
        ConfigError: `base_url` is no http or https URL of a server.
    """

    def __init__(self, base_url: str, token: str | None, *, direct: bool = True) -> None:
        self._base_url = _checked(base_url)
        self._direct = direct
        self._http = httpx2.AsyncClient(
            trust_env=False, timeout=ASK_TIMEOUT_S, headers=dict(authorization(token)),
            limits=httpx2.Limits(keepalive_expiry=KEEP_ALIVE_S),
        )  # fmt: skip

    async def __call__(self) -> ShardMap:
        """The map as it is now.

        Raises:
            UnavailableError: the gateway does not answer, or does not know.
            UnauthorizedError: the token is not the server's.
        """
        if not self._direct:
            return self._gateway_alone()
        record = await self._get(wire.SHARD_MAP)
        try:
            shards = tuple([ShardAddress(url=str(item["url"]), epoch=int(item["epoch"])) for item in record["shards"]])
        except (KeyError, TypeError, ValueError) as error:
            raise UnavailableError(f"{self._base_url}{wire.SHARD_MAP} gives no shard map: {error!r}") from error
        if not shards:
            raise UnavailableError(f"{self._base_url}{wire.SHARD_MAP}: no shard is up yet")
        if not _is_loopback(self._base_url) and any(_is_loopback(shard.url) for shard in shards):
            return self._gateway_alone()
        return ShardMap(shards=shards)

    async def table_settings(self, table: str) -> LearningSettings:
        """What the served table `table` was created with.

        Raises:
            NotFoundError: no such table.
            UnavailableError, UnauthorizedError: as in `__call__`.
        """
        tables = (await self._get(wire.TABLES))["tables"]
        if table not in tables:
            raise NotFoundError(f"the server at {self._base_url} has no table '{table}'; it has: {', '.join(tables)}")
        return codec.decode(LearningSettings, tables[table]["settings"], where=f"settings of table '{table}'")

    async def close(self) -> None:
        """Free the connection; may be called twice."""
        await self._http.aclose()

    def _gateway_alone(self) -> ShardMap:
        return ShardMap(shards=(ShardAddress(url=self._base_url, epoch=0),))

    async def _get(self, path: str) -> Any:
        try:
            return checked(path, reply_of(await self._http.get(self._base_url + path)))
        except TRANSIENT as error:
            raise UnavailableError(f"{self._base_url}{path}: {type(error).__name__}: {error}") from error


def _checked(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            f"policy server: url = {base_url!r}; expected http://HOST:PORT or https://HOST, as `memcon serve` prints it"
        )
    return base_url.rstrip("/")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
