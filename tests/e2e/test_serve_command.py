"""`memcon serve` as a process: what it tells, refuses, survives and leaves behind; and live agents against it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx2
import psutil
import pytest

from memcon_policy_server import wire
from memcon_policy_server.client import LivePolicy
from memcon_policy_server.client.transport import authorization
from memcon_policy_server.serving.free_ports import free_ports
from support.live_examples import run_curl, run_live_agent
from support.processes import kill_all, processes_below
from support.shell import ROOT
from support.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.fault, pytest.mark.timeout(240)]

MEMCON = Path(sys.executable).with_name("memcon")
CONFIG = ROOT / "configs" / "serve.yaml"


@dataclass(slots=True, kw_only=True)
class Running:
    """A `memcon serve` with what it said."""

    process: subprocess.Popen[str]
    place: dict[str, Any]
    log: Path

    def token(self) -> str:
        return Path(self.place["token_path"]).read_text(encoding="ascii").strip()

    def http(self) -> httpx2.Client:
        return httpx2.Client(
            base_url=self.place["url"], trust_env=False, timeout=90.0, headers=dict(authorization(self.token()))
        )

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def children(self, name: str) -> list[psutil.Process]:
        return list(processes_below(self.process.pid, name))

    def stop(self, how: signal.Signals) -> None:
        """End it, unless it was ended before; it must end well."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        assert self.process.wait(90) == 0, self.said()


@contextlib.contextmanager
def serve(folder: Path, *overrides: str) -> Iterator[Running]:
    """Start it in `folder`; it is ended by SIGTERM, if not before, and must end well."""
    log = folder / "serve.log"
    command = [str(MEMCON), "serve", str(CONFIG), *overrides, "--json"]
    with log.open("w") as errors, start(command, folder, errors) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text(encoding="utf-8")
        running = Running(process=process, place=json.loads(line), log=log)
        try:
            yield running
        finally:
            running.stop(signal.SIGTERM)


def start(command: list[str], folder: Path, errors: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True)


def refused(folder: Path, *overrides: str) -> str:
    """What it says when it does not start."""
    ended = subprocess.run(
        [str(MEMCON), "serve", str(CONFIG), *overrides],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    return ended.stderr


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    pytest.importorskip("ray")
    # On a busy machine a process may take longer to be replaced than the ten seconds for which a request waits else.
    patient = "limits.request_timeout_s=80"
    with serve(tmp_path_factory.mktemp("serve"), f"port={free_ports(1)[0]}", patient) as running:
        yield running


def decide(http: httpx2.Client, name: str) -> dict[str, Any]:
    answer = http.post(wire.DECIDE, json={"table": "default", "decision_id": name, "keys": ["key"]})
    assert answer.status_code == 200, answer.text
    reply: dict[str, Any] = answer.json()
    return reply


def credit(http: httpx2.Client, reply: dict[str, Any]) -> str:
    told = {
        "decision_id": reply["decision_id"],
        "token": reply["token"],
        "reward": 1.0,
        "position": 0,
        "num_decisions": 1,
    }
    return str(http.post(wire.OUTCOME, json=told).json()["status"])


def test_it_says_where_it_is_and_never_the_token(running: Running) -> None:
    place = running.place
    assert place["tables"] == ["default"]
    assert place["shards"] == 2
    token = Path(place["token_path"])
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text(encoding="ascii").strip() not in running.said() + json.dumps(place)


def test_its_ports_are_open_to_the_loopback_only(running: Running) -> None:
    bound = set()
    for process in running.children(""):
        with contextlib.suppress(psutil.NoSuchProcess):
            title = " ".join(process.cmdline()).partition(":memcon")[0]
            bound |= {
                (title, item.laddr.ip.removeprefix("::ffff:"))
                for item in process.net_connections(kind="tcp")
                if item.status == psutil.CONN_LISTEN
            }
    # Serve binds the port for calls between replicas to all addresses; it asks for the token of this Ray.
    assert {place for place in bound if place[1] != "127.0.0.1"} == {("ray::ServeReplica", "::")}


def test_a_stop_during_the_start_ends_well(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    with log.open("w") as errors, start([str(MEMCON), "serve", str(CONFIG), "--json"], tmp_path, errors) as process:
        # Ray is there, with its own handler of SIGTERM; owners and gateways are still to come.
        wait_until(
            lambda: list(processes_below(process.pid, "ServeController")),
            within_s=60.0,
            what="Serve's controller",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 130, log.read_text(encoding="utf-8")
        assert process.stdout is not None
        assert process.stdout.read() == ""
    assert log.read_text(encoding="utf-8").endswith("stopped before it answered\n")


def test_its_ray_asks_for_a_token_of_its_own(running: Running) -> None:
    (gcs, *_) = running.children("gcs_server")
    assert gcs.environ()["RAY_AUTH_MODE"] == "token"
    token = Path(gcs.environ()["RAY_AUTH_TOKEN_PATH"])
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700


def test_the_folder_and_the_port_are_its_own(running: Running, tmp_path: Path) -> None:
    folder = Path(running.place["directory"])
    assert f"is served by process {running.process.pid}" in refused(tmp_path, f"directory={folder}", "port=1")
    port = running.place["url"].rpartition(":")[2]
    assert f"port {port} of 127.0.0.1 is in use" in refused(tmp_path, f"port={port}")


# --- live agents ------------------------------------------------------------------------------------------------------


def test_the_shipped_curl_session_runs(running: Running) -> None:
    _, outcome, _, tables = map(json.loads, run_curl(running.place["url"], Path(running.place["token_path"])))

    assert outcome["status"] == "credited"
    assert "default" in tables["tables"]


async def owner_pids(url: str) -> list[int]:
    async with httpx2.AsyncClient(trust_env=False, timeout=60.0) as http:
        return [shard["pid"] for shard in (await http.get(url + wire.HEALTH)).json()["shards"]]


async def credited(running: Running) -> int:
    """Outcomes in the table `default`, over all keys and arms."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60.0) as http:
        headers = {"authorization": f"Bearer {running.token()}"}
        answer = await http.get(f"{running.place['url']}{wire.TABLES}?table=default", headers=headers)
        keys = answer.json()["tables"]["default"]["numbers"]["keys"]
    return sum(arm["credited"] for row in keys.values() for arm in row.values())


async def test_the_shipped_live_agent_runs(running: Running, tmp_path: Path) -> None:
    before = await credited(running)

    said = await asyncio.to_thread(run_live_agent, running.place["url"], running.token(), 120, folder=tmp_path)

    assert "decisions=120, fallbacks=0" in said
    assert await credited(running) - before == 120


async def test_killed_owners_cost_agents_nothing_but_time(running: Running, tmp_path: Path) -> None:
    before = await credited(running)
    async with await LivePolicy.connect(
        running.place["url"], running.token(), deadline_s=60.0, spool=tmp_path / "agent.sqlite"
    ) as policy:
        for number in range(60):
            if number == 20:
                for pid in await owner_pids(running.place["url"]):
                    os.kill(pid, signal.SIGKILL)
            decision = await policy.decide("default", f"paper/1|goal_type=kill {number}", episode_id=f"kill {number}")
            assert not decision.is_fallback
            await policy.outcome(decision, 1.0)
        async with asyncio.timeout(60.0):
            while (await policy.counters()).waiting:
                pass
        assert await policy.refused() == []

    assert await credited(running) - before == 60


# --- faults and ends --------------------------------------------------------------------------------------------------


def test_owner_gateway_and_haproxy_may_die(running: Running) -> None:
    with running.http() as http:
        before = decide(http, "before")
        assert credit(http, before) == "credited"
        for name in (
            "ServeReplica:memcon-serve-agents:shard-0",
            "ServeReplica:memcon-serve-agents:gateway",
            "haproxy.cfg",
        ):
            doomed = running.children(name)
            assert doomed
            # An HAProxy that was replaced may be ending by itself.
            kill_all(doomed)
            answered: list[dict[str, Any]] = []

            def ask(answered: list[dict[str, Any]] = answered, name: str = name) -> bool:
                with contextlib.suppress(httpx2.TransportError, AssertionError):
                    answered.append(decide(http, f"after {name}"))
                return bool(answered)

            wait_until(ask, within_s=60.0, what=f"an answer after {name} was killed")
        assert credit(http, before) == "duplicate"


def test_all_processes_are_replaced_at_sighup_and_no_request_fails(running: Running) -> None:
    names = ("ServeReplica:memcon-serve-agents:shard-0", "ServeReplica:memcon-serve-agents:gateway")
    before = {process.pid for name in names for process in running.children(name)}
    said = running.said().count("all processes replaced")
    running.process.send_signal(signal.SIGHUP)
    asked = 0
    with running.http() as http:
        while running.said().count("all processes replaced") == said:
            asked += 1
            with contextlib.suppress(httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                # A kept connection may be closed under a request; it is sent again.
                decide(http, f"rolling {asked}")
    assert asked > 1
    wait_until(
        lambda: before.isdisjoint(process.pid for name in names for process in running.children(name)),
        within_s=30.0,
        what="the end of what was replaced",
    )


def test_what_it_learned_is_there_again_and_its_tables_are_written(running: Running) -> None:
    """The last one: it ends the server of all others."""
    with running.http() as http:
        reply = decide(http, "a")
        assert credit(http, reply) == "credited"
    running.stop(signal.SIGINT)
    directory = Path(running.place["directory"])
    served = json.loads((directory / "served" / f"shard-{reply['shard']}.json").read_text())
    assert "a" in served["tables"]["default"]["closed"]

    port = running.place["url"].rpartition(":")[2]
    with serve(running.log.parent, f"port={port}") as again, again.http() as http:
        assert again.place["directory"] == running.place["directory"]
        assert credit(http, reply) == "duplicate"
