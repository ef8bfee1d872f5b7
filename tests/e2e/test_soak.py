"""`make soak` in small: ten fixed seeds of kills under load against one `memcon serve`, an update among them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memcon_platform.replay import verify
from soak.run import ANSWER_S, Report, Soak, percentile
from soak.schedule import CLAIM, KILLS, OWNER
from soak.server import MemconServe

pytestmark = [pytest.mark.ray, pytest.mark.fault, pytest.mark.timeout(240)]

SEEDS = range(1, 11)
# The one in whose middle all processes are replaced.
UPDATED = 5
KILLS_A_SEED = 3
# Most faults come while the process before is not back yet.
LONGEST_GAP_S = 2.0
# `make soak` looks at the 95th percentile, on a machine of its own: on a busy one each restart takes several times as
# long.
BUSY = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemconServe]:
    pytest.importorskip("ray")
    server = MemconServe(tmp_path_factory.mktemp("soak"))
    server.start()
    yield server
    server.abandon()


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    """Of the seeds so far."""
    return []


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_or_doubled_and_clients_see_only_retries(
    seed: int, server: MemconServe, reports: list[Report]
) -> None:
    report = Soak(
        server, seed=seed, kills=KILLS_A_SEED, roll=seed == UPDATED, say=lambda _: None, longest_gap_s=LONGEST_GAP_S
    ).run()

    assert report.problems == []
    assert sum(hit.kind in KILLS for hit in report.hits) == KILLS_A_SEED
    assert report.acknowledged > 0
    reports.append(report)


def test_the_served_tables_are_the_journal_s_and_answers_came_soon(server: MemconServe, reports: list[Report]) -> None:
    assert server.stop() == 0

    verified = verify(server.directory)
    assert verified.problems == ()
    # All kinds of faults were among the seeds; the ledger covers what all of them told.
    assert {hit.kind for report in reports for hit in report.hits} >= {*KILLS, CLAIM}
    assert reports[-1].credited >= sum(report.acknowledged for report in reports)
    answered = [seconds for report in reports for seconds in report.answered_s(OWNER)]
    assert percentile(answered, 0.5) <= BUSY * ANSWER_S
