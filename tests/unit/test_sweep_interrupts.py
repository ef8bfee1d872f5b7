"""Ctrl-C and SIGTERM: honoured in every phase of a launch, never an exception inside the event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest

from memcon.errors import UnavailableError
from memcon_platform.sweep import ray_cluster
from memcon_platform.sweep.interrupts import Interrupted, interrupts
from memcon_platform.sweep.ray_cluster import to_its_end


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_during_the_start_ends_it_as_interrupted(name: signal.Signals) -> None:
    async def start() -> None:
        with interrupts():
            os.kill(os.getpid(), name)
            await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        await start()


async def test_a_later_phase_honours_signals_in_its_own_way() -> None:
    honoured = asyncio.Event()
    with interrupts() as phase:
        phase.to(honoured.set)
        os.kill(os.getpid(), signal.SIGTERM)
        await honoured.wait()


async def test_a_cancel_that_is_no_signal_stays_a_cancel() -> None:
    async def launch() -> None:
        with interrupts():
            await asyncio.Event().wait()

    job = asyncio.ensure_future(launch())
    await asyncio.wait({job}, timeout=0)
    job.cancel()
    await asyncio.wait({job})
    assert job.cancelled()


def test_a_blocking_call_of_ray_is_never_left_behind_even_when_the_loop_ends() -> None:
    may_end, left = threading.Event(), []

    async def launch() -> None:
        try:
            await to_its_end(may_end.wait)
        finally:
            # Where Ray is shut down.
            left.append(not may_end.is_set())

    async def end_early() -> None:
        started = asyncio.ensure_future(launch())
        await asyncio.wait({started}, timeout=0)
        started.cancel()
        asyncio.get_running_loop().call_later(0.05, may_end.set)

    # Ends with `launch` open: the runner cancels every task, as it does after a Ctrl-C.
    asyncio.run(end_early())
    assert left == [False]


class _BrokenRay:
    def init(self, **_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise OSError(28, "No space left on device")


def test_a_ray_that_does_not_start_is_one_clear_error_and_leaves_our_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plan:
        class settings:  # noqa: N801 - stands for an attribute
            workers = 1

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(UnavailableError, match=r"Ray did not start.*No space left.*--local"):
        ray_cluster._init(_BrokenRay(), Plan)  # type: ignore[arg-type]
    assert signal.getsignal(signal.SIGTERM) is before
