"""A live agent against `memcon serve` as shipped: the examples, and a kill of an owner that no agent notices."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memcon_policy_server import wire
from memcon_policy_server.client import LivePolicy
from support.live_examples import run_curl, run_live_agent
from support.shell import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.fault, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What a running `memcon serve configs/serve.yaml` tells of itself."""
    pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("served")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    memcon = Path(sys.executable).with_name("memcon")
    command = [str(memcon), "serve", str(ROOT / "configs" / "serve.yaml"), f"port={port}", "shards=2", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        try:
            assert line, f"the server ended with code {server.wait()}"
            yield json.loads(line)
        finally:
            server.send_signal(signal.SIGINT)
            code = server.wait(60)
    assert code == 0


def token_of(place: dict[str, Any]) -> str:
    return Path(place["token_path"]).read_text(encoding="ascii").strip()


def test_the_shipped_curl_session_runs(place: dict[str, Any]) -> None:
    _, outcome, _, tables = map(json.loads, run_curl(place["url"], Path(place["token_path"])))

    assert outcome["status"] == "credited"
    assert "default" in tables["tables"]


async def owner_pids(url: str) -> list[int]:
    async with httpx2.AsyncClient(trust_env=False) as http:
        return [shard["pid"] for shard in (await http.get(url + wire.HEALTH)).json()["shards"]]


async def credited(place: dict[str, Any]) -> int:
    """Outcomes in the table `default`, over all keys and arms."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        headers = {"authorization": f"Bearer {token_of(place)}"}
        answer = await http.get(f"{place['url']}{wire.TABLES}?table=default", headers=headers)
        keys = answer.json()["tables"]["default"]["numbers"]["keys"]
    return sum(arm["credited"] for row in keys.values() for arm in row.values())


async def test_the_shipped_live_agent_runs(place: dict[str, Any], tmp_path: Path) -> None:
    before = await credited(place)

    said = await asyncio.to_thread(run_live_agent, place["url"], token_of(place), 120, folder=tmp_path)

    assert "decisions=120, fallbacks=0" in said
    assert await credited(place) - before == 120


async def test_killed_owners_cost_agents_nothing_but_time(place: dict[str, Any], tmp_path: Path) -> None:
    before = await credited(place)
    async with await LivePolicy.connect(
        place["url"], token_of(place), deadline_s=60.0, spool=tmp_path / "agent.sqlite"
    ) as policy:
        for number in range(60):
            if number == 20:
                for pid in await owner_pids(place["url"]):
                    os.kill(pid, signal.SIGKILL)
            decision = await policy.decide("default", f"paper/1|goal_type=kill {number}", episode_id=f"kill {number}")
            assert not decision.is_fallback
            await policy.outcome(decision, 1.0)
        async with asyncio.timeout(60.0):
            while (await policy.counters()).waiting:
                pass
        assert await policy.refused() == []

    assert await credited(place) - before == 60
