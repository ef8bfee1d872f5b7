"""`make soak`: kill the processes of a served policy again and again under load, and prove that nothing was lost."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from memcon_platform.replay import verify
from soak.run import ANSWER_S, MAX_TO_FOLD, Report, Soak, percentile
from soak.schedule import CLAIM, KILLS, OWNER, ROLL
from soak.server import MemconServe


def main() -> int:
    """Run one soak; 0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-update", action="store_true", help="leave the rolling update out")
    parser.add_argument("--folder", type=Path, help="where journals and logs stay; default: a new one below /tmp")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="memcon-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"soak: {given.kills} kills, seed {given.seed}, in {folder}")
    server = MemconServe(folder)
    server.start()
    try:
        soak = Soak(server, seed=given.seed, kills=given.kills, roll=not given.no_update, say=console.print)
        report = soak.run()
        code = server.stop()
    finally:
        server.abandon()
    problems = [*report.problems, *_slow(report)]
    if code:
        problems.append(f"memcon serve ended with code {code}")
    verified = verify(server.directory)
    problems += verified.problems
    console.print(_summary(report, verified.events))
    for problem in problems:
        console.print(f"FOUND {problem}")
    console.print("nothing was found" if not problems else f"{len(problems)} problems; see {folder}")
    return 1 if problems else 0


def _slow(report: Report) -> list[str]:
    p95 = percentile(report.answered_s(OWNER), 0.95)
    found = [f"after a kill of their owner decides are answered within {p95:.1f} s at p95"] if p95 > ANSWER_S else []
    most = max((hit.to_fold for hit in report.hits), default=0)
    if most > MAX_TO_FOLD:
        found.append(f"{most:,} events were after a snapshot")
    return found


def _summary(report: Report, events: int) -> Table:
    table = Table("what", "n", "p50 s", "p95 s", "max s", title="from the fault to the first good answer")
    rows = [(kind, report.answered_s(kind)) for kind in (*KILLS, CLAIM, ROLL)]
    rows.append(("in update, no HAProxy", report.answered_s(*KILLS, CLAIM, compound=True)))
    rows.append(("owner, until claimed", [hit.claimed_s for hit in report.hits if hit.claimed_s is not None]))
    for what, seconds in rows:
        shown = (percentile(seconds, share) for share in (0.5, 0.95, 1.0))
        table.add_row(what, str(len(seconds)), *(f"{value:.2f}" for value in shown))
    counts = Counter(hit.kind for hit in report.hits)
    waits = ", ".join(f"{mode} {seconds:.1f}" for mode, seconds in report.longest_wait_s.items())
    table.caption = (
        f"{sum(counts[kind] for kind in KILLS)} kills, {counts[CLAIM]} claims; {report.decisions:,} decisions, "
        f"{report.acknowledged:,} outcomes acknowledged, {report.credited:,} in the journal ({report.recovered:,} by "
        f"their token), {events:,} events\nlongest single decide, s: {waits}; events after a snapshot at most "
        f"{max((hit.to_fold for hit in report.hits), default=0):,}\nreplaced owners answered "
        f"{dict(report.stale.answers)}, good ones until {report.stale.longest_s:.2f} s after the claim"
    )
    return table


if __name__ == "__main__":
    sys.exit(main())
