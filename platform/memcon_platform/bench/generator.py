"""The load generator: HTTP/1.1 over raw sockets, closed or open loop. One connection in a closed loop: `load_single`.

Closed loop: each connection has one job open and begins the next when it ends: how much a server can do. Open loop:
jobs arrive at random (exponential gaps) at a given rate, whether or not earlier ones have ended, and a job's latency
counts from when it was meant to begin, so that a server which stalls cannot hide the jobs that it kept waiting
("coordinated omission"). Whatever an answer was, it is counted: as done, or as an error by its kind.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import cast

from memcon.clock import SystemClock
from memcon.errors import UnavailableError
from memcon.seeds import SeedTree
from memcon_platform.bench.load import GRACE_S, Load, LoadReport, Target, error_of, first_request, report_of
from memcon_platform.bench.load_single import run_single
from memcon_platform.bench.replies import ReplyReader
from memcon_policy_server.wire import RejectedError

__all__ = ["run_load"]

# Batches are built before the load begins, as far as they fit in here and a server may get to them.
_PREPARED_BYTES = 160 << 20
_MOST_DECISIONS_PER_S = 250_000


def run_load(load: Load) -> LoadReport:
    """Send `load` and count what comes back; blocks for its seconds and a grace of five more at most.

    Raises:
        UnavailableError: a target takes no connection at the start.
    """
    if load.connections == 1 and load.rate is None:
        return run_single(load)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_Generator(load).run())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)


class _Generator:
    def __init__(self, load: Load) -> None:
        self.load = load
        self.clock: Callable[[], float] = SystemClock().monotonic
        self.latencies, self.late = array("d"), array("d")
        self.errors: Counter[str] = Counter()
        self.numbers = count(load.first, load.decisions_a_job)
        # Numbers and requests of the batches that are built already.
        self._ready: dict[Target, deque[tuple[int, bytes]]] = {target: deque() for target in load.targets}
        self._connections: list[_Connection] = []
        # Open loop: connections without a job, and jobs without a connection (when they were meant to begin).
        self._idle: deque[_Connection] = deque()
        self._backlog: deque[float] = deque()
        self._jobs_open = 0
        self._more = True
        self._over = asyncio.Event()
        # The measured seconds; known once all connections are there.
        self.measured_from = self._end = math.inf
        self._reopening: set[asyncio.Task[None]] = set()

    async def run(self) -> LoadReport:
        load = self.load
        loop = asyncio.get_running_loop()
        for number in range(load.connections):
            await self._open(load.targets[number % len(load.targets)])
        if load.kind == "batch":
            self._prepare()
        begin = self.clock()
        self.measured_from, self._end = begin + load.warmup_s, begin + load.warmup_s + load.seconds
        cpu = time.process_time()
        if load.rate is None:
            for connection in list(self._connections):
                self._begin(connection, self.clock())
            self._await_the_end()
        else:
            self._idle.extend(self._connections)
            _Pacer(begin, load, loop, self.arrive, self._no_more).start()
        await self._over_within(self._end + GRACE_S)
        spent = (time.process_time() - cpu) / (self.clock() - begin)
        self._close()
        late = None if load.rate is None else self.late
        return report_of(load, latencies=self.latencies, errors=self.errors, busy=spent, late=late)

    def _prepare(self) -> None:
        """Build batches for all targets alike."""
        load, number = self.load, next(self.numbers)
        first = load.targets[0].dialect.batch(number, load.batch_size)
        self._ready[load.targets[0]].append((number, first))
        decisions = _MOST_DECISIONS_PER_S * (load.warmup_s + load.seconds)
        for job in range(1, min(_PREPARED_BYTES // len(first), int(decisions / load.batch_size))):
            target, number = load.targets[job % len(load.targets)], next(self.numbers)
            self._ready[target].append((number, target.dialect.batch(number, load.batch_size)))

    async def _over_within(self, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline - self.clock()):
                await self._over.wait()
        except TimeoutError:
            unanswered = self._jobs_open + len(self._backlog)
            self.errors["unanswered"] += unanswered

    def arrive(self, dues: Sequence[float]) -> None:
        """Begin the jobs that were meant to begin at `dues`, or queue them."""
        now = self.clock()
        for due in dues:
            if self._idle:
                if due >= self.measured_from:
                    self.late.append(now - due)
                self._begin(self._idle.popleft(), due)
            else:
                self._backlog.append(due)

    def _begin(self, connection: _Connection, due: float) -> None:
        self._jobs_open += 1
        ready = self._ready[connection.target]
        if ready:
            connection.begin(*ready.popleft(), due)
        else:
            number = next(self.numbers)
            connection.begin(number, first_request(self.load, connection.target, number), due)

    def ended(self, connection: _Connection, due: float, error: str | None) -> None:
        """A job came to its end: count it and give the connection, which is alive, the next one."""
        now = self.clock()
        self._jobs_open -= 1
        if error is not None:
            self.errors[error] += 1
        elif self._is_measured(due, now):
            self.latencies.append(now - due)
        if self.load.rate is None:
            # The time, and not only the timer's word: a loop that is late must not begin what nobody counts.
            if self._more and now < self._end:
                self._begin(connection, now)
        elif self._backlog:
            self._begin(connection, self._backlog.popleft())
        else:
            self._idle.append(connection)
        self._look_for_the_end()

    def _is_measured(self, due: float, now: float) -> bool:
        # A closed loop counts what ends within its seconds, an open one what was meant to begin within them.
        return self.measured_from <= (now if self.load.rate is None else due) <= self._end

    def lost(self, connection: _Connection) -> None:
        """A connection was closed by the server: its job, if it had one, is an error, and another one is opened."""
        if connection.is_busy:
            self._jobs_open -= 1
            self.errors[connection.end] += 1
        self._connections.remove(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._more or self._backlog:
            task = asyncio.get_running_loop().create_task(self._reopen(connection.target))
            self._reopening.add(task)
            task.add_done_callback(self._reopening.discard)
        self._look_for_the_end()

    async def _reopen(self, target: Target) -> None:
        try:
            connection = await self._open(target)
        except UnavailableError:
            self.errors["refused"] += 1
            return
        if self.load.rate is None and self._more:
            self._begin(connection, self.clock())
        elif self._backlog:
            self._begin(connection, self._backlog.popleft())
        else:
            self._idle.append(connection)

    async def _open(self, target: Target) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: _Connection(self, target), target.host, target.port)
        except OSError as error:
            place = f"http://{target.host}:{target.port}"
            raise UnavailableError(f"no connection to {place}: {error.strerror or error}; is it running?") from error
        self._connections.append(connection)
        return connection

    def _await_the_end(self) -> None:
        """End a closed loop when its seconds are over, by the clock that jobs are counted with."""
        left_s = self._end - self.clock()
        if left_s > 0:
            asyncio.get_running_loop().call_later(left_s, self._await_the_end)
        else:
            self._no_more()

    def _no_more(self) -> None:
        self._more = False
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        if not self._more and not self._jobs_open and not self._backlog:
            self._over.set()

    def _close(self) -> None:
        self._more = False
        self._backlog.clear()
        for connection in list(self._connections):
            connection.close()
        for task in self._reopening:
            task.cancel()


class _Connection(asyncio.Protocol):
    """One kept connection with at most one job open."""

    def __init__(self, generator: _Generator, target: Target) -> None:
        self.target = target
        self.is_busy = False
        # How a job is counted that the connection's end takes with it.
        self.end = "closed"
        self._generator, self._dialect, self._kind = generator, target.dialect, generator.load.kind
        self._reader = ReplyReader()
        self._number, self._due = 0, 0.0
        self._outcome_is_due = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def begin(self, number: int, request: bytes, due: float) -> None:
        """Send the first request of a job."""
        self.is_busy = True
        self._number, self._due = number, due
        self._outcome_is_due = self._kind == "pair"
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """A whole answer ends the job or, in a pair, sends the outcome."""
        try:
            reply = self._reader.feed(data)
        except RejectedError:
            self.end = "no content-length"
            self._transport.abort()
            return
        if reply is None:
            return
        status, body = reply
        if error := error_of(self._generator.load, self._dialect, self._number, status, body):
            self._end(error)
        elif self._outcome_is_due:
            self._outcome_is_due = False
            self._transport.write(self._dialect.outcome(self._number, body))
        else:
            self._end(None)

    def _end(self, error: str | None) -> None:
        self.is_busy = False
        self._generator.ended(self, self._due, error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._generator.lost(self)

    def close(self) -> None:
        self._transport.abort()


class _Pacer(threading.Thread):
    """Says when the jobs of an open loop are to begin; a thread, since timers of event loops are a millisecond wide."""

    def __init__(
        self,
        begin: float,
        load: Load,
        loop: asyncio.AbstractEventLoop,
        arrive: Callable[[Sequence[float]], None],
        no_more: Callable[[], None],
    ) -> None:
        super().__init__(name="pacer", daemon=True)
        self._loop, self._arrive, self._no_more = loop, arrive, no_more
        self._dues = _arrivals(begin, load)

    def run(self) -> None:
        """Wait for the next job, then hand over all that are due."""
        clock, pause, dues, next_due = SystemClock().monotonic, threading.Event(), self._dues, 0
        while next_due < len(dues):
            wait_s = dues[next_due] - clock()
            if wait_s > 0:
                pause.wait(wait_s)
                continue
            first, now = next_due, clock()
            while next_due < len(dues) and dues[next_due] <= now:
                next_due += 1
            self._loop.call_soon_threadsafe(self._arrive, dues[first:next_due])
        self._loop.call_soon_threadsafe(self._no_more)


def _arrivals(begin: float, load: Load) -> list[float]:
    """Times at which the jobs of an open loop are meant to begin: a Poisson process, the same for the same `first`."""
    rate, end = load.rate or 1.0, begin + load.warmup_s + load.seconds
    draw = SeedTree(("bench", "arrivals", load.first)).generator().expovariate
    dues, due = [], begin
    while (due := due + draw(rate)) < end:
        dues.append(due)
    return dues
