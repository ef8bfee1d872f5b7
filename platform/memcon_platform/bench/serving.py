"""`memcon bench serving`: our server beside FastAPI + Redis, and its gateway beside a Serve ingress that does nothing.

One run on one machine; the sides of a comparison take turns. Both sides get the same key space (300), the same arms (9)
and the same generator. Ours checks tokens and limits, gives every decision an id and journals it; the peer does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from statistics import median

from memcon.errors import ConfigError
from memcon_platform.bench.dialects import Dialect, PeerDialect, address_of
from memcon_platform.bench.load import LoadReport, Target
from memcon_platform.bench.peers.fastapi_redis import fastapi_redis
from memcon_platform.bench.peers.noop_serve import PREFIX, start_noop
from memcon_platform.bench.rounds import (
    Figure,
    Figures,
    Numbers,
    Pace,
    Runner,
    Shape,
    Side,
    figures_of,
    play,
    ratio_of,
    remarks_of,
)
from memcon_platform.bench.server import CONTEXTS, Server

__all__ = ["BATCH_CONNECTIONS", "measure_load", "measure_serving"]

CONNECTIONS = (1, 16, 64)
BATCH_CONNECTIONS = 8
# Of the closed loop's rate at the most connections: what an open loop asks for by default.
SHARES = (0.5, 0.8)

Tell = Callable[[str], None]


class _Bench:
    """The figures so far, and how to get more."""

    def __init__(self, runner: Runner, pace: Pace, tell: Tell) -> None:
        self.found = Figures()
        self._runner, self._pace, self._tell = runner, pace, tell
        self._numbers = Numbers()

    def put(self, shape: Shape, ours: Side, peer: Side | None = None, ratio: str | None = None) -> list[LoadReport]:
        """Measure `ours`, by turns with `peer` if there is one; gives the reports on ours."""
        sides = [ours] if peer is None else [ours, peer]
        names = " and ".join(side.name for side in sides)
        self._tell(f"{names}: {self._pace.rounds} x {self._pace.seconds:g} s")
        reports = play(sides, shape, self._runner, pace=self._pace, numbers=self._numbers)
        unit = {"decide": "decisions/s", "pair": "pairs/s", "batch": "batches/s"}[shape.kind]
        self.found.loads |= {name: figures_of(rounds, unit) for name, rounds in reports.items()}
        self.found.remarks += remarks_of(reports)
        if peer is not None and ratio is not None:
            found = ratio_of(reports[ours.name], reports[peer.name])
            self.found.ratios[ratio], self.found.spread[ratio] = found
        return reports[ours.name]


def measure_serving(server: Server, runner: Runner, *, pace: Pace, tell: Tell) -> Figures:
    """All comparisons over HTTP, by the names of issue 4.

    A peer that is not installed is left out and said; our own figures are measured all the same.

    Raises:
        MemconError: a server answered nothing.
    """
    bench = _Bench(runner, pace, tell)
    bench.found.single |= {
        "shards": Figure(value=len(server.shards), unit="processes"),
        "gateways": Figure(value=server.num_gateways, unit="processes"),
    }
    # First of all: HAProxy takes up a new application by a reload, which closes the connections that there are.
    start_noop(server.num_gateways)
    with _peer("everysec", bench.found) as peer:
        for connections in CONNECTIONS:
            name = f"http_c{connections}"
            bench.put(
                Shape(kind="decide", connections=connections),
                Side(name=name, targets=server.at_shards()),
                _side(f"{name}_fastapi_redis", peer),
                f"{name}_vs_fastapi_redis",
            )
    with _peer("always", bench.found) as peer:
        name = "durable_pairs_c64"
        bench.put(
            Shape(kind="pair", connections=64),
            Side(name=name, targets=server.at_shards()),
            _side(f"{name}_fastapi_redis_always", peer),
            f"{name}_vs_fastapi_redis_always",
        )
    bench.put(
        Shape(kind="decide", connections=64),
        Side(name="gateway_c64", targets=server.at_gateway()),
        Side(name="gateway_c64_noop_serve", targets=server.at_gateway(prefix=PREFIX)),
        "gateway_c64_vs_noop_serve",
    )
    name = "http_batch64"
    _batches(bench, server, name)
    bench.found.single[f"{name}_per_s"] = bench.found.loads[name]["per_s"]
    return bench.found


def measure_load(server: Server, runner: Runner, *, pace: Pace, rates: tuple[float, ...], tell: Tell) -> Figures:
    """Closed and open loops on the listeners of `server`; `rates` (decisions a second) default to `SHARES`.

    Raises:
        MemconError: the server answered nothing.
    """
    bench = _Bench(runner, pace, tell)
    targets = server.at_shards()
    fastest = 0.0
    for connections in CONNECTIONS:
        name = f"closed_c{connections}_decide"
        bench.put(Shape(kind="decide", connections=connections), Side(name=name, targets=targets))
        fastest = max(fastest, bench.found.loads[name]["per_s"].value)
    bench.put(Shape(kind="pair", connections=64), Side(name="closed_c64_pair", targets=targets))
    _batches(bench, server, "closed_batch64")
    # Names that do not change with the machine, so that a trend can be drawn.
    shares = {f"open_{100 * share:.0f}_percent_decide": share * fastest for share in SHARES}
    for name, rate in ({f"open_{rate:.0f}_decide": rate for rate in rates} or shares).items():
        bench.put(Shape(kind="decide", connections=64, rate=rate), Side(name=name, targets=targets))
    return bench.found


def _batches(bench: _Bench, server: Server, name: str) -> None:
    shape = Shape(kind="batch", connections=BATCH_CONNECTIONS)
    reports = bench.put(shape, Side(name=name, targets=server.at_shards()))
    # Decisions, not requests.
    per_s = median(report.decisions_per_s for report in reports)
    bench.found.loads[name]["per_s"] = Figure(value=round(per_s, 1), unit="decisions/s")


@contextlib.contextmanager
def _peer(appendfsync: str, found: Figures) -> Iterator[tuple[Target, ...] | None]:
    """FastAPI + Redis; None when it is not installed."""
    with contextlib.ExitStack() as stack:
        url: str | None = None
        try:
            url = stack.enter_context(fastapi_redis(appendfsync=appendfsync))
        except ConfigError as error:
            remark = f"left out: FastAPI + Redis: {error}"
            if remark not in found.remarks:
                found.remarks.append(remark)
        yield None if url is None else (_target(url, PeerDialect(url, contexts=CONTEXTS)),)


def _side(name: str, targets: tuple[Target, ...] | None) -> Side | None:
    return None if targets is None else Side(name=name, targets=targets)


def _target(url: str, dialect: Dialect) -> Target:
    host, port = address_of(url)
    return Target(host=host, port=port, dialect=dialect)
