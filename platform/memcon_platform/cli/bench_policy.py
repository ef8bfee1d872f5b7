"""`memcon bench policy` and `memcon bench serving`: the policy in process and over HTTP, beside its peers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memcon_platform.cli.arguments import json_option, server_token
from memcon_platform.cli.figures import print_figures

if TYPE_CHECKING:
    from memcon_platform.bench.rounds import Figures
    from memcon_platform.bench.server import Server

__all__ = ["policy_command", "serving_command"]

# Processes that take less of a core than this are not printed.
_LEAST_SHARE = 0.05

_POLICY_NOTES = (
    "us: microseconds a decision, choice and update, called from Python, one at a time; above 1 x we are faster",
    "inprocess: choice and update alone (rule_us), as the peers do",
    "shard: the same with idempotent ids, signed tokens, probabilities and the events of the journal",
    "decide: a shard's decide alone among 300 and among a million keys, drawn at random",
    "river: a bandit.UCB for each context; vw: cb_explore, epsilon-greedy, its cheapest, one parse a decision",
)

_SERVING_NOTES = (
    "ours: one process a shard and gateway, as many as `shards` and `gateways` say; by default those of `memcon serve`",
    "http: single decides at the owners' listeners; durable_pairs: decide and outcome, acknowledged when committed",
    "fastapi_redis: one worker and one Redis, a Lua script, fsync each second, no token; _always: fsync each write",
    "noop_serve: a Ray Serve ingress that reads the body and answers, behind the same HAProxy as the gateway",
    "ratios: medians of the ratios inside a round; _low and _high are the smallest and the largest of them",
)
_LOAD_NOTES = (
    "closed: a connection asks again when it was answered; open: arrivals at random, latency from the intended moment",
    "cores: share of a core by process, warm-up included; a generator near 1 measured itself",
)


@click.command(name="policy", short_help="A decision in process, beside its peers, and a server under load.")
@click.option("--rounds", type=click.IntRange(min=1), default=15, show_default=True, help="Rounds in process.")
@click.option("--load/--no-load", default=True, show_default=True, help="Put a server under load too.")
@click.option("--url", help="Put the server at this gateway under load, not one started for it.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Holds the token of that server. [default: MEMCON_TOKEN]",
)
@click.option("--rate", "rates", type=click.FloatRange(min=1), multiple=True, help="Decisions/s of an open loop.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=3.0, show_default=True, help="Of each load.")
@json_option
def policy_command(
    *,
    rounds: int,
    load: bool,
    url: str | None,
    token_file: Path | None,
    rates: tuple[float, ...],
    seconds: float,
    as_json: bool,
) -> None:
    """Choice and update of our policy in this process beside its peers; then a server under load.

    In process all do the same job: nine arms, 100 contexts, a decision and its reward at a time; medians over
    interleaved rounds. With --url this part is left out.

    The load is single decides in closed loops of 1, 16 and 64 connections, decides with a durable outcome, batches of
    64, and open loops at --rate (default: half and 80 % of what the closed loop gave). A server at --url gets a table
    "bench" for it, which stays.
    """
    from memcon_platform.bench.load_process import LoadProcess
    from memcon_platform.bench.rounds import Figures, Pace
    from memcon_platform.bench.serving import measure_load

    found = Figures() if url else _in_process(rounds)
    try:
        if load or url:
            with _server(url, token_file) as server, LoadProcess() as process:
                served = measure_load(server, process, pace=Pace(rounds=1, seconds=seconds), rates=rates, tell=_tell)
            found.loads = served.loads
            found.remarks += served.remarks
    finally:
        # What was measured before a server failed is told all the same.
        if found.single or found.loads:
            _print_found(found, as_json=as_json, notes=(*(() if url else _POLICY_NOTES), *_LOAD_NOTES))


@click.command(name="serving", short_help="Our server beside FastAPI + Redis, and its gateway beside Ray Serve alone.")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--rounds", type=click.IntRange(min=1), default=7, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Of each side a round.")
@click.option("--quick", is_flag=True, help="Two rounds of half a second: that all works, no figures to quote.")
@json_option
def serving_command(overrides: tuple[str, ...], *, rounds: int, seconds: float, quick: bool, as_json: bool) -> None:
    """Decides over HTTP, durable pairs, the gateway and batches, each beside its peer, in interleaved rounds.

    Our server is started as `memcon serve` starts it, with KEY=VALUE laid over its config (such as shards=2): token and
    limits on, decides journaled, outcomes acknowledged after they are durable. The peer is FastAPI with one worker
    before Redis with a Lua script.
    """
    from memcon_platform.bench.load_process import LoadProcess
    from memcon_platform.bench.rounds import Pace
    from memcon_platform.bench.server import started
    from memcon_platform.bench.serving import measure_serving

    pace = Pace(rounds=2, seconds=0.5) if quick else Pace(rounds=rounds, seconds=seconds)
    with started(overrides) as server, LoadProcess() as process:
        found = measure_serving(server, process, pace=pace, tell=_tell)
    _print_found(found, as_json=as_json, notes=(*_SERVING_NOTES, *_LOAD_NOTES))


def _in_process(rounds: int) -> Figures:
    from memcon_platform.bench.policy import measure_policies
    from memcon_platform.bench.rounds import Figure, Figures

    policies = measure_policies(rounds=rounds)
    return Figures(
        single={f"{name}_us": Figure(value=round(us, 2), unit="us") for name, us in policies.decision_us.items()},
        ratios=dict(policies.ratios),
        remarks=[f"left out: {install}" for install in policies.absent.values()],
    )


def _server(url: str | None, token_file: Path | None) -> AbstractContextManager[Server]:
    from memcon.learning.exploration import UcbConfig
    from memcon_platform.bench.server import running, started

    if url is None:
        return started()
    return nullcontext(running(url, server_token(token_file), UcbConfig().learning_settings()))


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _print_found(found: Figures, *, as_json: bool, notes: Sequence[str]) -> None:
    for remark in found.remarks:
        click.echo(remark, err=True)
    if not as_json:
        _print_loads(found)
        width = max(map(len, found.spread), default=0)
        for ratio, (low, high) in found.spread.items():
            click.echo(f"{ratio:{width}} {found.ratios[ratio]:>12} x; rounds from {low} to {high}")
    shown = found.by_name() if as_json else found.single
    figures = {name: {"value": figure.value, "unit": figure.unit} for name, figure in shown.items()}
    ratios = {name: ratio for name, ratio in found.ratios.items() if as_json or name not in found.spread}
    print_figures(figures, ratios, as_json=as_json, notes=notes)


def _print_loads(found: Figures) -> None:
    """A line for each load: its rate, percentiles, errors, and who took the cores."""
    width = max(map(len, found.loads), default=0)
    for load, own in found.loads.items():
        times = "  ".join(f"{name} {own[f'{name}_ms'].value:.3f}" for name in ("p50", "p90", "p99", "p99_9"))
        cores = ", ".join(
            f"{name.removeprefix('cpu ').removeprefix('ray::')} {figure.value:.2f}"
            for name, figure in own.items()
            if name.startswith("cpu ") and figure.value >= _LEAST_SHARE
        )
        rate, errors = own["per_s"], own["errors"].value
        click.echo(f"{load:{width}} {rate.value:10.1f} {rate.unit}; ms {times}; {errors:.0f} errors; cores: {cores}")
