"""Tables at a server and in its folder: the same whichever way they are read, filled from one another, and frozen."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from memcon.errors import (
    ConfigError,
    ConflictError,
    DamagedFileError,
    LockedError,
    NotFoundError,
    UnavailableError,
    UnknownNameError,
)
from memcon.policy_types import DecideRequest
from memcon.testing.policy import outcome_request, state_keys
from memcon_platform.policies.events_copy import copy_events
from memcon_platform.policies.folder import PolicyFolder
from memcon_platform.policies.record import TableRecord
from memcon_platform.policies.served import ServedPolicy
from memcon_platform.policies.start import new_settings, table_start
from memcon_platform.replay import verify
from memcon_platform.trajectory.events import export_events
from memcon_policy_server.journal.owner_process import this_process
from memcon_policy_server.journal.sqlite_journal import SqliteJournal
from memcon_policy_server.sharding import export_path, journal_path
from memcon_policy_server.wire import UnauthorizedError
from support.journals import altered
from support.served_gateway import TOKEN, LiveServer
from support.shards import SETTINGS

T = TypeVar("T")

KEYS = state_keys(6)
DECISIONS = 24


def quiet(_: str) -> None:
    return


async def play(server: LiveServer, table: str = "table", *, decisions: int = DECISIONS) -> None:
    """Take decisions at keys of both shards, and tell the outcomes of all but the last one."""
    await server.open_table(table, SETTINGS)
    client = server.shards.client()
    for number in range(decisions):
        name = f"{table} {number}"
        keys = (KEYS[number % len(KEYS)],)
        decision = await client.decide(
            DecideRequest(table=table, decision_id=name, episode_id=name, position=0, keys=keys, draw=number)
        )
        if number < decisions - 1:
            await client.outcomes([outcome_request(decision, 1.15 if number % 3 else -0.5)])
    await client.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    server = LiveServer(tmp_path / "policy")
    await play(server)
    yield server
    await server.stop()


async def asked(server: LiveServer, ask: Callable[[ServedPolicy], T], *, token: str | None = TOKEN) -> T:
    """What `ask` gives at the server, asked from outside of its event loop."""

    def _ask() -> T:
        with ServedPolicy(server.url + "/", token, quiet) as policy:
            return ask(policy)

    return await asyncio.to_thread(_ask)


def folder_of(server: LiveServer) -> PolicyFolder:
    return PolicyFolder(server.directory, quiet)


# --- reading -----------------------------------------------------------------------------------------------------


async def test_a_table_is_the_same_at_the_server_and_in_its_folder(server: LiveServer) -> None:
    served = await asked(server, lambda policy: policy.table("table"))

    assert folder_of(server).table("table") == served
    assert set(served.numbers) == set(KEYS)
    assert (served.totals(), served.open, served.settings) == ((DECISIONS, DECISIONS - 1), 1, SETTINGS)
    # Created once a shard; and what was decided and credited.
    assert served.version == 2 + DECISIONS + DECISIONS - 1


async def test_a_list_and_some_keys_are_the_same_at_the_server_and_in_its_folder(server: LiveServer) -> None:
    await play(server, "another", decisions=3)
    whole = folder_of(server).table("table")

    summaries = await asked(server, lambda policy: policy.summaries())
    assert summaries == folder_of(server).summaries()
    assert [summary.table for summary in summaries] == ["another", "table"]
    listed = summaries[1]
    assert (listed.taken, listed.credited, listed.open) == (*whole.totals(), 1)
    assert (listed.keys, listed.version, listed.settings) == (len(KEYS), whole.version, SETTINGS)

    # A text that several keys hold, at several shards, and one key.
    for text in ("type 1", KEYS[2], "no key & none?"):
        served = await asked(server, functools.partial(_at, text=text))
        assert served == folder_of(server).table("table", text)
        assert set(served.numbers) == {key for key in KEYS if text in key}
        assert all(served.numbers[key] == whole.numbers[key] for key in served.numbers)
        assert served.open == 1


def _at(policy: ServedPolicy, text: str) -> TableRecord:
    return policy.table("table", text)


async def test_all_tables_are_read_by_name(server: LiveServer) -> None:
    await play(server, "another", decisions=3)

    def _all(policy: ServedPolicy | PolicyFolder) -> list[TableRecord]:
        return list(policy.every_table())

    served = await asked(server, _all)
    assert [record.table for record in served] == ["another", "table"]
    assert _all(folder_of(server)) == served
    assert await asked(server, lambda policy: policy.tables()) == folder_of(server).tables() == ["another", "table"]


async def test_reading_a_folder_writes_nothing(server: LiveServer) -> None:
    await server.stop()
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in server.directory.rglob("*")}

    folder_of(server).table("table")

    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in server.directory.rglob("*")} == before
    server.start()


# --- filling and freezing ----------------------------------------------------------------------------------------


async def test_a_new_table_of_a_server_starts_from_another_and_may_be_asked_for_twice(server: LiveServer) -> None:
    record = folder_of(server).table("table")
    settings = new_settings(record, frozen=True)
    start = table_start(record, "warm", settings, count_cap=2)
    assert await asked(server, lambda policy: policy.settings("warm")) is None

    for _ in range(2):
        await asked(server, lambda policy: policy.create(settings, start))

    warm = folder_of(server).table("warm")
    assert warm.settings == settings
    assert warm.numbers.keys() == start.numbers.keys()
    for key, arms in start.numbers.items():
        assert {arm: warm.numbers[key][arm] for arm in arms} == arms
    assert warm.source == start.source
    assert warm.version == 2 + 2


async def test_what_has_decisions_is_not_filled(server: LiveServer) -> None:
    record = folder_of(server).table("table")
    start = table_start(record, "table", SETTINGS, count_cap=None)

    with pytest.raises(ConflictError, match="it has decisions already"):
        await asked(server, lambda policy: policy.create(SETTINGS, start))


async def test_a_server_freezes_a_table_and_lets_it_learn_again(server: LiveServer) -> None:
    for frozen in (True, False):
        freeze = functools.partial(ServedPolicy.freeze, table="table", frozen=frozen)
        assert await asked(server, freeze)
        assert not await asked(server, freeze)
        assert folder_of(server).table("table").settings.frozen is frozen
    with pytest.raises(UnknownNameError, match=r"unknown table in http://127.* 'tabel'; allowed: table .did you mean"):
        await asked(server, lambda policy: policy.freeze("tabel", frozen=True))


async def test_a_folder_at_rest_is_changed_and_still_verifies(server: LiveServer) -> None:
    await server.stop()
    folder = folder_of(server)
    record = folder.table("table")
    settings = new_settings(record, frozen=False)
    start = table_start(record, "warm", settings, count_cap=None)

    def _change() -> list[bool]:
        folder.create(settings, start)
        return [folder.freeze("table", frozen=True), folder.freeze("table", frozen=True)]

    assert await asyncio.to_thread(_change) == [True, False]

    assert folder.table("table").settings.frozen
    assert folder.table("warm").totals() == (DECISIONS - 1,) * 2
    found = verify(server.directory)
    assert (found.problems, found.tables) == ((), 2)
    assert export_path(server.directory, 1).exists()
    server.start()
    served = await asked(server, lambda policy: policy.table("warm"))
    assert served == folder.table("warm")


# --- refused -----------------------------------------------------------------------------------------------------


def parent_as_owner() -> tuple[int, str]:
    """The id of the process that started this one, and how a journal names it as its owner."""
    parent = os.getppid()
    return parent, f"{parent}:{Path(f'/proc/{parent}/stat').read_text().rpartition(')')[2].split()[19]}"


async def test_a_folder_with_a_live_owner_is_not_claimed(server: LiveServer) -> None:
    folder = folder_of(server)
    # As if the owner of shard 1 were the process that started this one.
    parent, owner = parent_as_owner()
    path = journal_path(server.directory, 1)
    altered(path, f"UPDATE meta SET owner = '{owner}'")

    with pytest.raises(LockedError, match=f"shard-1.sqlite is owned by process {parent}, which is alive: give the URL"):
        await asyncio.to_thread(lambda: folder.freeze("table", frozen=True))

    with closing(SqliteJournal(path, shard=1, num_shards=2, read_only=True)) as journal:
        assert journal.current_epoch() == 1
    altered(path, f"UPDATE meta SET owner = '{this_process()}'")


async def test_a_wrong_token_and_none_say_where_it_lies(server: LiveServer) -> None:
    for token in ("wrong", None):
        with pytest.raises(UnauthorizedError, match=r"give --token-file with the file `token` of the served folder"):
            await asked(server, lambda policy: policy.tables(), token=token)


async def test_the_listener_of_one_shard_is_no_server(server: LiveServer) -> None:
    listener = server.shards.listeners[1].base_url

    def _ask() -> None:
        with ServedPolicy(listener, TOKEN, quiet) as policy:
            policy.tables()

    with pytest.raises(ConfigError, match="is the listener of shard 1 alone; give the URL that `memcon serve` prints"):
        await asyncio.to_thread(_ask)


async def test_a_server_that_is_not_there_is_named_with_another_way(server: LiveServer) -> None:
    await server.stop()
    with pytest.raises(
        UnavailableError, match=r"no answer from http://127.* is `memcon serve` running there\? Give its f"
    ):
        await asked(server, lambda policy: policy.tables())
    server.start()


async def test_a_table_that_is_too_large_for_a_request_says_what_to_do(server: LiveServer) -> None:
    record = folder_of(server).table("table")
    start = table_start(record, "warm", SETTINGS, count_cap=None)
    server.app.endpoints["/v1/import_table"].max_body_bytes = 100

    with pytest.raises(
        ConfigError, match=r"'warm' is too large for one request .the body is over 100 bytes.; raise limi"
    ):
        await asked(server, lambda policy: policy.create(SETTINGS, start))


def test_a_folder_without_journals_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no policy journal"):
        PolicyFolder(tmp_path, quiet)


def test_a_url_without_a_host_is_told() -> None:
    with pytest.raises(ConfigError, match=r"url 'http://' names no server; expected http://HOST:PORT"):
        ServedPolicy("http://", None, quiet)


# --- events ------------------------------------------------------------------------------------------------------


async def test_a_copy_of_the_events_is_whole_and_the_export_stays_the_only_one(
    server: LiveServer, tmp_path: Path
) -> None:
    # Some events were exported before, by the export that the journal knows.
    export = server.directory / "events"
    assert export_events(server.directory, export) == 2 + DECISIONS + DECISIONS - 1
    await play(server, "another", decisions=3)

    files, new = copy_events(server.directory, tmp_path / "copy", quiet)

    assert new == 2 + 3 + 2
    copied = {path.relative_to(tmp_path / "copy"): path.read_bytes() for path in (tmp_path / "copy").rglob("*.parquet")}
    assert copied == {path.relative_to(export): path.read_bytes() for path in export.rglob("*.parquet")}
    assert len(copied) == files > 2
    with pytest.raises(ConfigError, match="is the policy's own export"):
        copy_events(server.directory, export, quiet)


async def test_a_copy_of_an_export_that_was_moved_away_is_refused(server: LiveServer, tmp_path: Path) -> None:
    copy_events(server.directory, tmp_path / "copy", quiet)
    (server.directory / "events").rename(tmp_path / "elsewhere")

    with pytest.raises(
        DamagedFileError, match=r"does not hold the first events of shard-0.sqlite, .* put events/shard=0/eve"
    ):
        copy_events(server.directory, tmp_path / "second", quiet)
