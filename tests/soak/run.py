"""One soak: a schedule of faults against a server under load, and then the reckoning."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import psutil

from soak import agent
from soak.fleet import Client, Fleet
from soak.ledger import read_ledger
from soak.log import Decided, Record, Told
from soak.schedule import CLAIM, CLIENT, GATEWAY, LONGEST_GAP_S, OWNER, PROXY, ROLL, Fault, draw_schedule
from soak.server import NUM_SHARDS, TABLE, MemconServe, kill
from soak.watch import StaleOwners, Watch
from support.waiting import wait_until

__all__ = ["ANSWER_S", "MAX_TO_FOLD", "Hit", "Report", "Soak", "percentile"]

# Decides are answered again within this at the 95th percentile, when the new owner has at most so many events to fold.
ANSWER_S, MAX_TO_FOLD = 5.0, 10_000
# Mean pause of a stream between two episodes: two cores carry the load and the restarts.
_PAUSE_S = 0.1
# What waits longer is stuck.
_STUCK_S = 90.0
_IN_THE_WAY = (ROLL, PROXY)
_OF_A_SHARD, _OF_THE_INGRESS = (OWNER, CLAIM), (GATEWAY, PROXY)


@dataclass(slots=True, kw_only=True)
class Hit:
    """One fault as it happened; times are monotonic."""

    kind: str
    # Shard, or number of the gateway or client.
    target: int
    began: float
    # Who asked before this may have been answered by the process that then died.
    counts_from: float
    # Events between the last snapshot and the kill of an owner.
    to_fold: int = 0
    # Until the next owner's claim, which Serve has to start first, and until the first good answer.
    claimed_s: float | None = None
    answered_s: float | None = None
    # It was not alone in the way: owners are down in an update without a kill, and while HAProxy is down nobody can ask
    # where the new owner is.
    is_compound: bool = False

    @property
    def name(self) -> str:
        """For people."""
        target = "" if self.kind in {ROLL, PROXY} else f" {self.target}"
        return {CLAIM: "claim of shard", ROLL: "update"}.get(self.kind, f"kill of {self.kind}") + target

    def answered(self, client: Client, record: Record) -> float | None:
        """When `record` came, if it is an answer that this fault had made impossible."""
        if not isinstance(record, Decided) or record.is_fallback or record.asked < self.counts_from:
            return None
        mode = client.spec.mode
        if self.kind in _OF_A_SHARD:
            good = mode != agent.GATEWAY and record.shard == self.target
        elif self.kind in _OF_THE_INGRESS:
            good = mode == agent.GATEWAY
        else:
            good = self.kind == CLIENT and mode == agent.MODES[self.target]
        return record.answered if good else None


@dataclass(slots=True, kw_only=True)
class Report:
    """What a soak saw; it is good when `problems` is empty."""

    hits: list[Hit] = field(default_factory=list)
    stale: StaleOwners = field(default_factory=StaleOwners)
    decisions: int = 0
    # Outcomes that some client has an acknowledgement of; those in the journal; those of them by their token alone.
    acknowledged: int = 0
    credited: int = 0
    recovered: int = 0
    # Of a single decide, by mode of the client.
    longest_wait_s: Mapping[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def answered_s(self, *kinds: str, compound: bool = False) -> list[float]:
        """Seconds from each fault of these kinds to the first good answer."""
        return [
            hit.answered_s
            for hit in self.hits
            if hit.kind in kinds and hit.is_compound == compound and hit.answered_s is not None
        ]


class Soak:
    """Clients under load against `server`, which runs and goes on running; all that is drawn comes from `seed`."""

    def __init__(
        self,
        server: MemconServe,
        *,
        seed: int,
        kills: int,
        roll: bool,
        say: Callable[[str], None],
        longest_gap_s: float = LONGEST_GAP_S,
    ) -> None:
        self._server, self._seed, self._say = server, seed, say
        self._schedule = draw_schedule(seed, kills, roll=roll, longest_gap_s=longest_gap_s)
        self._open: list[Hit] = []
        self._updates = 0
        self.report = Report()

    def run(self) -> Report:
        """Play the schedule to its end, have all delivered, and compare."""
        folder = self._server.folder / f"clients-{self._seed}"
        self._fleet = Fleet(
            self._server, folder, f"seed{self._seed}", seed=self._seed, streams=4, keys=40, pause_s=_PAUSE_S
        )
        try:
            with Watch(self._server) as watch:
                self._play()
                self._fleet.drain()
            self.report.stale = watch.stale
            for hit in self.report.hits:
                hit.claimed_s = _claimed_s(hit, watch.claims)
        finally:
            self._fleet.abandon()
        self._reckon()
        return self.report

    # --- faults ------------------------------------------------------------------------------------------------------

    def _play(self) -> None:
        # A kill before anybody plays would show nothing.
        self._until(lambda: all(map(_plays, self._fleet.clients)), "the clients to play")
        for number, fault in enumerate(self._schedule, start=1):
            self._until(partial(_reached, time.monotonic() + fault.after_s), "the next fault")
            hit = self._done(fault)
            self.report.hits.append(hit)
            self._open.append(hit)
            if any(is_open.kind in _IN_THE_WAY for is_open in self._open):
                for is_open in self._open:
                    is_open.is_compound = is_open.kind not in _IN_THE_WAY
            self._say(f"{number:3} of {len(self._schedule)}: {hit.name}" + _folds(hit))
        self._until(lambda: not self._open, "all to be answered again")

    def _done(self, fault: Fault) -> Hit:
        """Do it, once what it hits has recovered from the fault before."""
        targets = {OWNER: NUM_SHARDS, CLAIM: NUM_SHARDS, GATEWAY: 2, CLIENT: len(agent.MODES)}.get(fault.kind, 1)
        target = fault.target % targets
        self._until(lambda: not self._is_down(fault.kind, target), f"the last {fault.kind} {target} to answer again")
        if fault.kind == ROLL:
            self._updates = self._server.updates()
            self._server.update()
            now = time.monotonic()
            return Hit(kind=ROLL, target=0, began=now, counts_from=now)
        if fault.kind == CLAIM:
            return self._claim(target)
        if fault.kind == CLIENT:
            killed = self._fleet.kill(self._fleet.clients[target])
            return Hit(kind=CLIENT, target=target, began=killed, counts_from=killed)
        to_fold = self._server.after_snapshot(target) if fault.kind == OWNER else 0
        killed, ended = self._kill(fault.kind, target, fault.target)
        return Hit(kind=fault.kind, target=target, began=killed, counts_from=ended, to_fold=to_fold)

    def _is_down(self, kind: str, target: int) -> bool:
        kinds = _OF_A_SHARD if kind in _OF_A_SHARD else (kind,)
        return any(hit.kind in kinds and hit.target == target for hit in self._open)

    def _kill(self, kind: str, target: int, choice: int) -> tuple[float, float]:
        """Kill a process of this kind; while the server is updated there may be several of an owner."""

        def attempt() -> tuple[float, float] | None:
            found = self._server.processes(kind, target)
            try:
                return kill(found[choice // 2 % len(found)]) if found else None
            except (ProcessLookupError, psutil.NoSuchProcess):
                return None

        return wait_until(attempt, within_s=_STUCK_S, what=f"a {kind} {target} to kill")

    def _claim(self, shard: int) -> Hit:
        began = time.monotonic()
        epoch = self._server.claim(shard)
        # The owner may answer for a second; what is looked for are answers of the one that comes after.
        self._until(lambda: self._server.epoch(shard) > epoch, f"a new owner of shard {shard} after another's claim")
        return Hit(kind=CLAIM, target=shard, began=began, counts_from=time.monotonic())

    # --- what the clients see ----------------------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self._look()
            return condition()

        wait_until(look, within_s=_STUCK_S, what=what)

    def _look(self) -> None:
        new = self._fleet.look()
        for hit in list(self._open):
            if hit.kind == ROLL:
                ends = [time.monotonic()] if self._server.updates() > self._updates else []
            else:
                ends = [end for client, record in new if (end := hit.answered(client, record)) is not None]
            if ends:
                hit.answered_s = min(ends) - hit.began
                self._open.remove(hit)
                self._say(f"          {hit.name}: {_end(hit)} after {hit.answered_s:.1f} s")

    # --- the reckoning -----------------------------------------------------------------------------------------------

    def _reckon(self) -> None:
        report = self.report
        ledger = read_ledger(self._server.directory, NUM_SHARDS, TABLE)
        records = {client.spec.name: client.records for client in self._fleet.clients}
        report.decisions = sum(isinstance(record, Decided) for log in records.values() for record in log)
        report.acknowledged = len(
            {record.decision_id for log in records.values() for record in log if isinstance(record, Told)}
        )
        report.credited, report.recovered = ledger.credited, ledger.recovered
        report.longest_wait_s = {client.spec.mode: _longest(client.records) for client in self._fleet.clients}
        report.problems = [
            *ledger.problems(),
            *(problem for name, log in records.items() for problem in ledger.problems_of(name, log)),
            *self._server.differences(),
            *report.stale.problems(),
        ]


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else 0.0


def _claimed_s(hit: Hit, claims: Iterable[tuple[int, float]]) -> float | None:
    if hit.kind != OWNER:
        return None
    return next((seen - hit.began for shard, seen in claims if shard == hit.target and seen > hit.began), None)


def _reached(end: float) -> bool:
    return time.monotonic() >= end


def _plays(client: Client) -> bool:
    return any(isinstance(record, Decided) for record in client.records)


def _longest(records: Iterable[Record]) -> float:
    return max((record.answered - record.asked for record in records if isinstance(record, Decided)), default=0.0)


def _folds(hit: Hit) -> str:
    return f", {hit.to_fold:,} events after its snapshot" if hit.kind == OWNER else ""


def _end(hit: Hit) -> str:
    return "all replaced" if hit.kind == ROLL else "answered"
