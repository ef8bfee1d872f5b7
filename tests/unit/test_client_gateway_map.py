"""The shard map as clients read it: owners directly where they can be reached, else the gateway as the only shard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from memcon import codec
from memcon.errors import ConfigError, NotFoundError, UnavailableError
from memcon.learning.exploration import UcbConfig
from memcon_policy_server import wire
from memcon_policy_server.client.gateway_map import HttpShardMap

SETTINGS = UcbConfig().learning_settings()


class AnsweredMap(HttpShardMap):
    """Gets `answers` in place of what a gateway says."""

    def __init__(self, base_url: str, answers: dict[str, Any], *, direct: bool = True) -> None:
        super().__init__(base_url, None, direct=direct)
        self._answers = answers

    async def _get(self, path: str) -> Any:
        return self._answers[path]


@asynccontextmanager
async def answered(base_url: str, answers: dict[str, Any], *, direct: bool = True) -> AsyncIterator[HttpShardMap]:
    shard_map = AnsweredMap(base_url, answers, direct=direct)
    yield shard_map
    await shard_map.close()


def shards(*urls: str) -> dict[str, Any]:
    return {wire.SHARD_MAP: {"shards": [{"url": url, "epoch": 3 + place} for place, url in enumerate(urls)]}}


@pytest.mark.parametrize(
    ("base_url", "owners", "asked"),
    [
        ("http://127.0.0.1:8000", ["http://127.0.0.1:1", "http://127.0.0.1:2"], ["http://127.0.0.1:1", "http://127.0.0.1:2"]),
        ("http://localhost:8000/", ["http://127.0.0.1:1"], ["http://127.0.0.1:1"]),
        ("http://example.org:8000", ["http://example.org:1"], ["http://example.org:1"]),
        ("https://example.org", ["http://127.0.0.1:1", "http://127.0.0.1:2"], ["https://example.org"]),
        ("http://example.org", ["http://[::1]:1"], ["http://example.org"]),
    ],
)  # fmt: skip
async def test_owners_on_a_loopback_elsewhere_are_asked_through_the_gateway(
    base_url: str, owners: list[str], asked: list[str]
) -> None:
    async with answered(base_url, shards(*owners)) as shard_map:
        assert [shard.url for shard in (await shard_map()).shards] == asked


async def test_the_map_has_the_owners_epochs() -> None:
    async with answered("http://127.0.0.1:8000", shards("http://127.0.0.1:1", "http://127.0.0.1:2")) as shard_map:
        assert [shard.epoch for shard in (await shard_map()).shards] == [3, 4]


async def test_a_client_may_be_kept_to_the_gateway() -> None:
    # Nothing is read: what cannot be reached need not be known.
    async with answered("http://127.0.0.1:8000", {}, direct=False) as shard_map:
        assert [shard.url for shard in (await shard_map()).shards] == ["http://127.0.0.1:8000"]


@pytest.mark.parametrize("answer", [{}, {"shards": [{"url": "x"}]}, {"shards": []}, [], {"shards": 3}])
async def test_what_is_no_map_is_asked_for_again_later(answer: Any) -> None:
    async with answered("http://127.0.0.1:8000", {wire.SHARD_MAP: answer}) as shard_map:
        with pytest.raises(UnavailableError, match="shard"):
            await shard_map()


async def test_the_settings_of_a_table_say_how_its_keys_are_made() -> None:
    listed = {wire.TABLES: {"tables": {"mine": {"settings": codec.encode(SETTINGS), "keys": 0}}}}
    async with answered("http://127.0.0.1:8000", listed) as shard_map:
        assert await shard_map.table_settings("mine") == SETTINGS
        with pytest.raises(NotFoundError, match="no table 'yours'; it has: mine"):
            await shard_map.table_settings("yours")


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://example.org", "http://", "/v1"])
def test_an_url_that_cannot_be_a_servers_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected http://HOST:PORT"):
        HttpShardMap(url, None)
