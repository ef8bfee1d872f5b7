"""One connection in a closed loop: a plain blocking socket, with nothing of an event loop between request and answer.

What one client waits for is what this measures, and a generator's own loop would be a third of it.
"""

from __future__ import annotations

import socket
import struct
import time
from array import array
from collections import Counter
from itertools import count

from memcon.clock import SystemClock
from memcon.errors import UnavailableError
from memcon_platform.bench.load import GRACE_S, Load, LoadReport, Target, error_of, first_request, report_of
from memcon_platform.bench.replies import ReplyReader
from memcon_policy_server.wire import RejectedError

__all__ = ["run_single"]

_RECEIVE_BYTES = 1 << 16


def run_single(load: Load) -> LoadReport:
    """As `memcon_platform.bench.generator.run_load`, for one connection in a closed loop.

    Raises:
        UnavailableError: the target takes no connection at the start.
    """
    clock, numbers = SystemClock().monotonic, count(load.first, load.decisions_a_job)
    latencies, errors = array("d"), Counter[str]()
    client = _Client(load, load.targets[0])
    begin = clock()
    measured_from, end = begin + load.warmup_s, begin + load.warmup_s + load.seconds
    cpu, now = time.process_time(), begin
    while now < end:
        if client.is_lost and not client.reopen():
            errors["refused"] += 1
            break
        began = now
        error = client.job(next(numbers))
        now = clock()
        if error is not None:
            errors[error] += 1
        elif measured_from <= now <= end:
            latencies.append(now - began)
    busy = (time.process_time() - cpu) / (clock() - begin)
    client.close()
    return report_of(load, latencies=latencies, errors=errors, busy=busy)


class _Client:
    """A connection that plays one job after the other.

    Raises:
        UnavailableError: the target takes no connection.
    """

    def __init__(self, load: Load, target: Target) -> None:
        self._load, self._target = load, target
        self._open()

    def _open(self) -> None:
        # Once it is, nothing more can be asked.
        self.is_lost = False
        self._reader = ReplyReader()
        try:
            self._socket = socket.create_connection((self._target.host, self._target.port))
        except OSError as error:
            place = f"http://{self._target.host}:{self._target.port}"
            raise UnavailableError(f"no connection to {place}: {error.strerror or error}; is it running?") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Of the kernel: with one of Python's own each answer would cost another call of the system.
        for wait in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, wait, struct.pack("ll", int(GRACE_S), 0))

    def reopen(self) -> bool:
        """Open another connection in place of the lost one; False = the target takes none."""
        self.close()
        try:
            self._open()
        except UnavailableError:
            return False
        return True

    def job(self, number: int) -> str | None:
        """Play job `number` to its end; how it failed, if it did."""
        dialect = self._target.dialect
        try:
            status, body = self._ask(first_request(self._load, self._target, number))
            error = error_of(self._load, dialect, number, status, body)
            if error is None and self._load.kind == "pair":
                status, body = self._ask(dialect.outcome(number, body))
                error = error_of(self._load, dialect, number, status, body)
        except BlockingIOError:
            error, self.is_lost = "unanswered", True
        except RejectedError:
            error, self.is_lost = "no content-length", True
        except OSError:
            error, self.is_lost = "closed", True
        return error

    def _ask(self, request: bytes) -> tuple[int, bytes]:
        self._socket.sendall(request)
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError
            if reply := self._reader.feed(data):
                return reply

    def close(self) -> None:
        self._socket.close()
