"""Rounds of the serving bench: turned order, ratios inside a round, and answers read byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from memcon.errors import UnavailableError
from memcon_platform.bench.dialects import PeerDialect
from memcon_platform.bench.load import Load, LoadReport, Target
from memcon_platform.bench.replies import ReplyReader
from memcon_platform.bench.rounds import Figures, Numbers, Pace, Shape, Side, figures_of, play, ratio_of, remarks_of
from memcon_policy_server.wire import RejectedError


def report(rate: float, errors: Mapping[str, int] | None = None) -> LoadReport:
    return LoadReport(
        jobs=int(rate), jobs_per_s=rate, decisions_per_s=rate, latency_ms={50.0: 1.0, 99.9: 2.0},
        errors=errors or {}, busy=0.5, late_ms=None, cpu={"shard": 0.9},
    )  # fmt: skip


def side(name: str) -> Side:
    dialect = PeerDialect("http://127.0.0.1:1", contexts=1)
    return Side(name=name, targets=(Target(host=name, port=1, dialect=dialect),))


class Recorder:
    """A runner that gives what it is told."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self.rates, self.loads = rates, list[Load]()

    def run(self, load: Load) -> LoadReport:
        self.loads.append(load)
        return report(self.rates[load.targets[0].host], {"status 500": 2} if not self.rates["b"] else None)


def test_sides_take_turns_and_no_two_loads_share_a_number() -> None:
    runner = Recorder({"a": 10.0, "b": 5.0})
    pace, shape = Pace(rounds=3, seconds=1.0), Shape(kind="decide", connections=4)
    reports = play([side("a"), side("b")], shape, runner, pace=pace, numbers=Numbers())

    assert [load.targets[0].host for load in runner.loads] == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(rounds) for name, rounds in reports.items()} == {"a": 3, "b": 3}
    firsts = sorted(load.first for load in runner.loads)
    # A load of an hour at a million a second would still keep its place.
    assert all(later - earlier > 3600 * 10**6 for earlier, later in pairwise(firsts))
    assert firsts[0] >= 0
    assert firsts[-1] < 1 << 63


def test_a_side_that_answers_nothing_ends_the_bench_and_is_named() -> None:
    with pytest.raises(UnavailableError, match=r"b: no pair of 4 connections ended well \(2 x status 500\)"):
        play([side("b")], Shape(kind="pair", connections=4), Recorder({"b": 0.0}), pace=Pace(), numbers=Numbers())


def test_a_round_without_a_job_is_told_and_ends_nothing() -> None:
    class Stops(Recorder):
        def run(self, load: Load) -> LoadReport:
            # The second round of both; a server that stopped answers nothing, and no job has a latency.
            found = super().run(load)
            stopped = len(self.loads) in {3, 4}
            return replace(report(0.0), latency_ms=dict.fromkeys(found.latency_ms, float("nan"))) if stopped else found

    runner, sides = Stops({"a": 10.0, "b": 5.0}), [side("a"), side("b")]
    shape, pace = Shape(kind="decide", connections=4), Pace(rounds=3, seconds=1.0)
    reports = play(sides, shape, runner, pace=pace, numbers=Numbers())

    assert [one.jobs for one in reports["a"]] == [10, 0, 10]
    assert ratio_of(reports["a"], reports["b"]) == (2.0, (2.0, 2.0))
    figures = figures_of(reports["b"], "decisions/s")
    assert (figures["per_s"].value, figures["p50_ms"].value) == (5.0, 1.0)
    assert remarks_of(reports) == [f"{name}: no job ended in round 2 of 3; it counts as 0" for name in "ab"]


def test_a_ratio_is_taken_inside_each_round() -> None:
    # The machine was slow in the second round, for both.
    ours, peers = [report(100.0), report(30.0), report(90.0)], [report(20.0), report(5.0), report(30.0)]
    assert ratio_of(ours, peers) == (5.0, (3.0, 6.0))


def test_figures_are_medians_and_errors_are_summed_and_told() -> None:
    rounds = [report(10.0), report(30.0, {"closed": 1}), report(20.0, {"status 503": 2})]
    found = Figures(loads={"a": figures_of(rounds, "decisions/s")}, spread={"x": (1.0, 2.0)})
    assert {name: (figure.value, figure.unit) for name, figure in found.by_name().items()} == {
        "a_per_s": (20.0, "decisions/s"),
        "a_p50_ms": (1.0, "ms"),
        "a_p99_9_ms": (2.0, "ms"),
        "a_generator_busy": (0.5, "cores"),
        "a_cpu shard": (0.9, "cores"),
        "a_errors": (3, "requests"),
        "x_low": (1.0, "x"),
        "x_high": (2.0, "x"),
    }
    assert remarks_of({"a": rounds}) == ["a: 1 x closed, 2 x status 503"]
    assert remarks_of({"a": [report(1.0)]}) == []


def test_an_answer_is_read_however_it_was_cut() -> None:
    answer = b"HTTP/1.1 421 Moved\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello"
    for cut in range(1, len(answer)):
        reader = ReplyReader()
        assert reader.feed(answer[:cut]) is None
        assert reader.feed(answer[cut:]) == (421, b"hello")
        # The next answer on the same connection.
        assert reader.feed(answer) == (421, b"hello")
    with pytest.raises(RejectedError, match="without content-length"):
        ReplyReader().feed(b"HTTP/1.1 200 OK\r\n\r\n")
