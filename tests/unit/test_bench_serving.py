"""What the serving benches ask of whom, and the names under which it comes out; servers and loads are made up."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from memcon.errors import ConfigError, MissingExtraError, UnavailableError
from memcon_platform.bench import serving
from memcon_platform.bench.dialects import PeerDialect
from memcon_platform.bench.load import Load, LoadReport
from memcon_platform.bench.rounds import Figure, Figures, Pace
from memcon_platform.bench.server import Server
from memcon_platform.bench.serving import measure_load, measure_serving
from memcon_platform.cli import bench_policy
from memcon_policy_server import wire

SHARDS = ("http://127.0.0.1:1", "http://127.0.0.1:2")
SERVER = Server(gateway="http://127.0.0.1:3", shards=SHARDS, token="t", num_gateways=2)
PEER_PORTS = {"everysec": 4, "always": 5}
NAMES = {
    "http_c1_vs_fastapi_redis",
    "http_c16_vs_fastapi_redis",
    "http_c64_vs_fastapi_redis",
    "durable_pairs_c64_vs_fastapi_redis_always",
    "gateway_c64_vs_noop_serve",
}


class Recorder:
    """A runner whose servers answer 100 jobs a second, ours 700."""

    def __init__(self) -> None:
        self.loads: list[Load] = []

    def run(self, load: Load) -> LoadReport:
        self.loads.append(load)
        rate = 100.0 if isinstance(load.targets[0].dialect, PeerDialect) else 700.0
        each = load.batch_size if load.kind == "batch" else 1
        return LoadReport(
            jobs=100, jobs_per_s=rate, decisions_per_s=rate * each, latency_ms={50.0: 1.0, 99.9: 2.0}, errors={},
            busy=0.5, late_ms=None,
        )  # fmt: skip


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many replicas the do-nothing ingress was started with."""
    started: list[int] = []

    @contextlib.contextmanager
    def peer(*, appendfsync: str) -> Iterator[str]:
        yield f"http://127.0.0.1:{PEER_PORTS[appendfsync]}"

    monkeypatch.setattr(serving, "fastapi_redis", peer)
    monkeypatch.setattr(serving, "start_noop", started.append)
    return started


def test_the_serving_bench_gives_every_name_of_the_issue(replicas: list[int]) -> None:
    runner = Recorder()
    found = measure_serving(SERVER, runner, pace=Pace(rounds=2, seconds=1.0), tell=lambda _: None)

    assert set(found.ratios) == NAMES
    assert found.ratios["http_c16_vs_fastapi_redis"] == 7.0
    figures = found.by_name()
    assert {f"{name}_low" for name in NAMES} <= set(figures)
    assert (figures["http_batch64_per_s"].value, figures["http_batch64_per_s"].unit) == (700.0 * 64, "decisions/s")
    assert found.remarks == []
    # As many of the ingress that does nothing as of our gateway.
    assert replicas == [2]
    # One that people see under its name, and how many processes the figures are of.
    assert {name: figure.value for name, figure in found.single.items()} == {
        "http_batch64_per_s": 700.0 * 64, "shards": 2, "gateways": 2
    }  # fmt: skip


def test_each_comparison_asks_both_sides_for_the_same_in_the_right_place(replicas: list[int]) -> None:
    runner = Recorder()
    measure_serving(SERVER, runner, pace=Pace(rounds=1, seconds=1.0), tell=lambda _: None)
    asked = [(load.kind, load.connections, tuple(one.port for one in load.targets)) for load in runner.loads]
    decides = [pair for c in (1, 16, 64) for pair in (("decide", c, (1, 2)), ("decide", c, (4,)))]
    assert asked == [
        *decides, ("pair", 64, (1, 2)), ("pair", 64, (5,)), ("decide", 64, (3,)), ("decide", 64, (3,)),
        ("batch", 8, (1, 2)),
    ]  # fmt: skip
    gateway, noop = (load.targets[0].dialect.decide(1) for load in runner.loads[8:10])
    assert gateway.startswith(f"POST {wire.DECIDE} HTTP/1.1\r\n".encode())
    assert noop.startswith(f"POST /noop{wire.DECIDE} HTTP/1.1\r\n".encode())
    # Token and shard as our client sends them.
    assert b"\r\nauthorization: Bearer t\r\nmemcon-shard: 1/2\r\n" in runner.loads[0].targets[1].dialect.decide(1)


def test_a_peer_that_is_not_installed_is_left_out_and_said_once(
    replicas: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def absent(*, appendfsync: str) -> Iterator[str]:
        raise MissingExtraError("fastapi", "bench")
        yield

    monkeypatch.setattr(serving, "fastapi_redis", absent)
    found = measure_serving(SERVER, Recorder(), pace=Pace(rounds=1, seconds=1.0), tell=lambda _: None)
    assert set(found.ratios) == {"gateway_c64_vs_noop_serve"}
    assert {"http_c1", "http_c64", "durable_pairs_c64", "http_batch64"} <= set(found.loads)
    (remark,) = found.remarks
    assert remark.startswith("left out: FastAPI + Redis: fastapi is not installed")


def test_an_error_while_a_peer_runs_is_no_absent_peer(replicas: list[int]) -> None:
    class Broken(Recorder):
        def run(self, load: Load) -> LoadReport:
            raise ConfigError("the load is wrong")

    with pytest.raises(ConfigError, match="the load is wrong"):
        measure_serving(SERVER, Broken(), pace=Pace(rounds=1, seconds=1.0), tell=lambda _: None)


def test_open_loops_run_at_shares_of_the_closed_loops_rate_or_as_told() -> None:
    runner, pace = Recorder(), Pace(rounds=1, seconds=1.0)
    found = measure_load(SERVER, runner, pace=pace, rates=(), tell=lambda _: None)
    assert [load.rate for load in runner.loads if load.rate is not None] == [350.0, 560.0]
    assert set(found.loads) == {
        "closed_c1_decide", "closed_c16_decide", "closed_c64_decide", "closed_c64_pair", "closed_batch64",
        "open_50_percent_decide", "open_80_percent_decide",
    }  # fmt: skip
    told = Recorder()
    found = measure_load(SERVER, told, pace=pace, rates=(10.0,), tell=lambda _: None)
    assert [name for name in found.loads if name.startswith("open")] == ["open_10_decide"]
    assert [load.rate for load in told.loads if load.rate is not None] == [10.0]


def test_figures_of_this_process_are_told_though_the_server_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures(single={"rule_us": Figure(value=1.5, unit="us")})
    monkeypatch.setattr(bench_policy, "_in_process", lambda rounds: figures)

    def _no_server(url: str | None, token_file: Path | None) -> Server:
        raise UnavailableError("the server did not start")

    monkeypatch.setattr(bench_policy, "_server", _no_server)
    done = CliRunner().invoke(bench_policy.policy_command, ["--json"])
    assert json.loads(done.stdout) == {"figures": {"rule_us": {"value": 1.5, "unit": "us"}}, "ratios": {}}
    assert isinstance(done.exception, UnavailableError)
