"""`memcon policy` as a user meets it: on a run at rest, and on a server with a token."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memcon.testing.policy import decide_request, outcome_request, state_keys
from memcon_platform.policies.table_file import TableFile
from support.journals import altered
from support.served_gateway import TOKEN, LiveServer
from support.shards import SETTINGS
from support.shell import Printed, half_done, memcon, the_error

KEY, OTHER = state_keys(2)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = half_done(tmp_path_factory.mktemp("work") / "runs")
    # This process owned its policy, and lives on.
    altered(run / "policy" / "shard-0.sqlite", "UPDATE meta SET owner = ''")
    return run


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A run that was stopped inside its first cell, to change; its table is named after the cell."""
    return Path(shutil.copytree(stopped, tmp_path / "runs" / stopped.name))


def told(printed: Printed) -> Any:
    """The JSON of a command that did well."""
    assert printed.code == 0, printed.err
    return json.loads(printed.out)


def test_a_run_at_rest_is_listed_inspected_exported_and_compared(run: Path) -> None:
    work = run.parents[1]

    [table] = told(memcon("policy", "list", run.name, "--json", cwd=work))["tables"]

    assert table["rule"] == "ucb"
    assert table["taken"] == table["credited"] > 0
    assert (table["open"], table["frozen"]) == (0, False)
    shown = told(memcon("policy", "inspect", run, table["table"], "--top", "1", "--json"))
    [[key, arms]] = shown["numbers"].items()
    assert arms["retrieve_shallow"]["taken"] == 1
    assert arms["noop"] == {"q": -0.2, "taken": 0, "credited": 0, "bonus": None, "score": None}
    people = memcon("policy", "inspect", run, table["table"], "--key", key).out
    assert f"{table['taken']} decisions, {table['credited']} credited, 0 open; 1 of {table['keys']} keys" in people
    assert key in people
    exported = told(memcon("policy", "export", run, "--to", work / "tables.json", "--json"))
    assert exported["tables"] == [table["table"]] == TableFile(work / "tables.json").tables()
    same = memcon("policy", "diff", run, work / "tables.json")
    assert (same.code, same.out) == (0, "equal\n")


def test_a_run_at_rest_is_frozen_and_filled_and_goes_on(run: Path) -> None:
    [name] = [table["table"] for table in told(memcon("policy", "list", run, "--json"))["tables"]]
    file = run.parent / "tables.json"
    told(memcon("policy", "export", run, name, "--to", file, "--json"))

    warm = told(memcon("policy", "import", run, "warm", file, "--count-cap", "1", "--frozen", "--json"))

    assert (warm["new"], warm["frozen"], warm["table"]) == (True, True, "warm")
    assert told(memcon("policy", "freeze", run, name, "--json")) == {"table": name, "frozen": True, "changed": True}
    differing = memcon("policy", "diff", run, file, name)
    assert differing.code == 1
    assert f"table {name}: 1 settings and 0 cells differ\n  frozen: True -> False\nNOT equal\n" in differing.out
    assert memcon("policy", "freeze", run, name, "--undo").out == f"table {name} learns from now on\n"
    again = memcon("sweep", run / "config.yaml", f"root={run.parent}", "--local", "workers=1")
    assert again.code == 0, again.err
    assert "equal to the served tables" in memcon("replay", "verify", run).out


def test_the_events_of_a_folder_are_copied(run: Path, tmp_path: Path) -> None:
    copied = told(memcon("policy", "export", run, "--events", "--to", tmp_path / "events", "--json"))

    assert copied["files"] == len(list((tmp_path / "events").rglob("*.parquet"))) == 1
    assert copied["newly_exported"] > 0
    line = the_error(memcon("policy", "export", "http://127.0.0.1:9", "--events", "--to", tmp_path))
    assert "give the served folder on its machine in place of the URL" in line


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("list", "nothing"), "nothing has no policy journal: none of nothing, nothing/policy, runs/nothing/policy"),
        (("list", "ftp://127.0.0.1"), "url 'ftp://127.0.0.1': expected http://HOST:PORT or https://HOST"),
        (("list", "http://127.0.0.1:9", "--token-file", "none"), "cannot read the token file none: No such file"),
        (("diff", "none.json", "none.json"), "cannot read none.json: No such file or directory; give a file that"),
    ],
)
def test_what_is_not_there_is_one_line(arguments: tuple[str, ...], line: str, tmp_path: Path) -> None:
    assert line in the_error(memcon("policy", *arguments, cwd=tmp_path))


# --- a server ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """A server whose table has learned at one key."""
    server = LiveServer(tmp_path / "policy")
    await server.open_table("default", SETTINGS)
    client = server.shards.client()
    for number in range(10):
        decision = await client.decide(decide_request(number, table="default", key=KEY))
        await client.outcomes([outcome_request(decision, 1.0)])
    await client.decide(decide_request(10, table="default", key=OTHER))
    await client.close()
    yield server
    await server.stop()


async def test_a_server_is_asked_with_its_token_while_it_serves(server: LiveServer, tmp_path: Path) -> None:
    token_file, file = tmp_path / "its token", tmp_path / "tables.json"
    token_file.write_text(TOKEN + "\n")

    async def _policy(*arguments: str | Path, by_file: bool = True) -> Printed:
        environment = {"MEMCON_TOKEN": "of another server" if by_file else TOKEN}
        extra = ("--token-file", token_file) if by_file else ()
        return await asyncio.to_thread(memcon, "policy", *arguments, *extra, environment=environment)

    [listed] = told(await _policy("list", server.url, "--json"))["tables"]
    assert listed == {
        "table": "default", "rule": "ucb", "keys": 2, "taken": 11, "credited": 10, "open": 1, "frozen": False,
        "version": 2 + 11 + 10,
    }  # fmt: skip
    told(await _policy("export", server.url, "--to", file, "--json", by_file=False))
    told(await _policy("import", server.url, "warm", file, "--json"))
    difference = told_different(await _policy("diff", file, server.url, "--json"))
    assert difference["only_in"] == {server.url: ["warm"]}
    assert difference["tables"]["default"]["equal"]
    frozen = await _policy("freeze", server.url, "warm")
    assert frozen.out == "table warm is frozen from now on\n"
    offline = the_error(await _policy("freeze", server.directory, "warm"))
    assert "is alive: give the URL of its `memcon serve` in place of the folder" in offline
    # Reading beside it is allowed.
    assert (await _policy("diff", server.directory, server.url)).out == "equal\n"


def told_different(printed: Printed) -> Any:
    assert printed.code == 1, printed.err
    return json.loads(printed.out)


async def test_a_server_refuses_a_wrong_token_in_one_line(server: LiveServer) -> None:
    line = the_error(
        await asyncio.to_thread(memcon, "policy", "list", server.url, environment={"MEMCON_TOKEN": "wrong"})
    )
    assert "give --token-file with the file `token` of the served folder, or set MEMCON_TOKEN" in line
    assert "wrong" not in line
