"""Owners say where they listen; of two that start at once the later one's word stays."""

from __future__ import annotations

import fcntl
from contextlib import closing
from pathlib import Path

import pytest

from memcon.errors import UnavailableError
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.serving.addresses import FolderShardMap, publish_address
from memcon_policy_server.shard_map import ShardAddress
from memcon_policy_server.sharding import address_path, journal_path

NUM_SHARDS = 2


def claim(directory: Path, shard: int) -> ShardAddress:
    """A new owner of `shard`, as far as its journal knows."""
    path = journal_path(directory, shard)
    with closing(SqliteJournal(path, shard=shard, num_shards=NUM_SHARDS)) as journal:
        epoch = journal.claim()
    return ShardAddress(url=f"http://127.0.0.1:{1000 * shard + epoch}", epoch=epoch)


def publish(directory: Path, shard: int, address: ShardAddress) -> None:
    publish_address(directory, shard, NUM_SHARDS, address)


def lose_journal(directory: Path, shard: int) -> None:
    for file in directory.glob(f"shard-{shard}.sqlite*"):
        file.unlink()


async def test_the_map_is_what_the_owners_said(tmp_path: Path) -> None:
    first, second = (claim(tmp_path, shard) for shard in range(NUM_SHARDS))
    publish(tmp_path, 0, first)
    read = FolderShardMap(directory=tmp_path, num_shards=NUM_SHARDS)
    with pytest.raises(UnavailableError, match="shard 1"):
        await read()

    publish(tmp_path, 1, second)

    assert (await read()).shards == (first, second)


async def test_a_slow_owner_does_not_take_the_place_of_the_one_after_it(tmp_path: Path) -> None:
    publish(tmp_path, 1, claim(tmp_path, 1))
    slow, quick = claim(tmp_path, 0), claim(tmp_path, 0)
    publish(tmp_path, 0, quick)

    publish(tmp_path, 0, slow)

    assert (await FolderShardMap(directory=tmp_path, num_shards=NUM_SHARDS)()).shards[0] == quick


async def test_nobody_waits_for_an_owner_that_hangs_while_it_says_where_it_is(tmp_path: Path) -> None:
    publish(tmp_path, 1, claim(tmp_path, 1))
    publish(tmp_path, 0, claim(tmp_path, 0))
    read = FolderShardMap(directory=tmp_path, num_shards=NUM_SHARDS)

    with address_path(tmp_path, 0).open("a") as hanging:
        fcntl.flock(hanging, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match="shard 0"):
            await read()

    assert len(await read()) == NUM_SHARDS


async def test_an_owner_over_a_restored_journal_is_found_though_its_epoch_is_older(tmp_path: Path) -> None:
    publish(tmp_path, 1, claim(tmp_path, 1))
    for _ in range(3):
        publish(tmp_path, 0, claim(tmp_path, 0))
    lose_journal(tmp_path, 0)

    restored = claim(tmp_path, 0)
    publish(tmp_path, 0, restored)

    assert (await FolderShardMap(directory=tmp_path, num_shards=NUM_SHARDS)()).shards[0] == restored


async def test_what_an_owner_half_wrote_is_no_address_and_the_next_one_mends_it(tmp_path: Path) -> None:
    publish(tmp_path, 1, claim(tmp_path, 1))
    address_path(tmp_path, 0).write_text('{"url":"http', encoding="utf-8")
    read = FolderShardMap(directory=tmp_path, num_shards=NUM_SHARDS)
    with pytest.raises(UnavailableError):
        await read()

    mended = claim(tmp_path, 0)
    publish(tmp_path, 0, mended)

    assert (await read()).shards[0] == mended
