"""The generator in a process of its own, and who took the cores while it ran."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from types import TracebackType

from memcon.clock import SystemClock
from memcon.errors import MissingExtraError
from memcon_platform.bench.generator import run_load
from memcon_platform.bench.load import Load, LoadReport
from memcon_platform.bench.processes import CpuSeconds, cpu_seconds, cpu_shares

__all__ = ["LoadProcess"]

# Processes that take less of a core than this are not told of.
_LEAST_SHARE = 0.02


class LoadProcess:
    """Runs one load after the other in a process of its own, so that nothing of the caller slows the generator."""

    def __init__(self) -> None:
        # Not forked: the caller may hold threads and sockets of Ray.
        self._pool = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))
        self._clock = SystemClock().monotonic

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, load: Load) -> LoadReport:
        """As `run_load`; says too which process took the cores meanwhile."""
        begin, before = self._clock(), self._look()
        report = self._pool.submit(run_load, load).result()
        shares = cpu_shares(before, self._look(), self._clock() - begin)
        return replace(report, cpu={name: share for name, share in shares.items() if share >= _LEAST_SHARE})

    @staticmethod
    def _look() -> CpuSeconds:
        try:
            return cpu_seconds()
        except MissingExtraError:
            return {}
