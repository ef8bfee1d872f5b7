"""The benches of the served policy as commands: every figure that issue 4 names comes out, from a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.shell import memcon, the_error

OURS = ("http_c1", "http_c16", "http_c64", "durable_pairs_c64", "gateway_c64", "http_batch64")
RATIOS = {
    "http_c1_vs_fastapi_redis",
    "http_c16_vs_fastapi_redis",
    "http_c64_vs_fastapi_redis",
    "durable_pairs_c64_vs_fastapi_redis_always",
    "gateway_c64_vs_noop_serve",
}


@pytest.mark.ray
@pytest.mark.timeout(180)
def test_the_serving_bench_gives_every_name_and_no_error() -> None:
    # Ray, Serve and the peers start and end: 25 s on an idle machine.
    command = [str(Path(sys.executable).with_name("memcon")), "bench", "serving"]
    # Of two rounds one may go by while this machine has no time for us.
    flags = ["--rounds", "2", "--seconds", "0.1", "--json"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr
    # All of stdout is JSON, whatever Ray has to say.
    printed = json.loads(done.stdout)
    figures, ratios = printed["figures"], printed["ratios"]

    for name in OURS:
        assert figures[f"{name}_per_s"]["value"] > 0
        assert figures[f"{name}_p99_9_ms"]["value"] >= figures[f"{name}_p50_ms"]["value"] > 0
        assert figures[f"{name}_errors"]["value"] == 0, done.stderr
    assert figures["http_batch64_per_s"]["unit"] == "decisions/s"
    have_peer = shutil.which("redis-server") and all(map(find_spec, ("fastapi", "redis", "hiredis")))
    expected = RATIOS if have_peer else {"gateway_c64_vs_noop_serve"}
    assert set(ratios) == expected
    assert ("left out: FastAPI + Redis" in done.stderr) is not bool(have_peer)
    assert all(figures[f"{name}_low"]["value"] <= ratio + 0.01 for name, ratio in ratios.items())


def test_a_load_on_a_server_that_is_not_there_is_one_line() -> None:
    assert "is it the gateway of a memcon server?" in the_error(
        memcon("bench", "policy", "--url", "http://127.0.0.1:9")
    )
    assert "such as http://" in the_error(memcon("bench", "policy", "--url", "nowhere"))


def test_a_wrong_override_is_one_line() -> None:
    assert "shards" in the_error(memcon("bench", "serving", "shards=0"))
