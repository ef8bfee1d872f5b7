"""Many transfers at a time: an error waits for those under way, and Ctrl-C for none."""

from __future__ import annotations

import signal
import threading

import pytest

from memcon_platform.mirror.transfers import each
from support.waiting import wait_until

KEYS = [f"file-{number}" for number in range(9)]


class Slow:
    """Transfers that end when they are let go; `failing` fails at once, when others are under way."""

    def __init__(self, failing: str = "") -> None:
        self._failing = failing
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.may_end = threading.Event()

    def __call__(self, key: str) -> str:
        self.begun.append(key)
        if key == self._failing:
            wait_until(lambda: len(self.begun) > 1, within_s=30, what="another transfer")
            raise OSError(key)
        assert self.may_end.wait(50)
        self.ended.append(key)
        return key.upper()


def test_every_result_is_told_once() -> None:
    slow, told = Slow(), dict[str, str]()
    slow.may_end.set()

    each(slow, KEYS, told.__setitem__)
    each(slow, [], told.__setitem__)

    assert told == {key: key.upper() for key in KEYS}
    assert sorted(slow.begun) == KEYS


def test_an_error_is_raised_when_what_was_under_way_has_ended() -> None:
    slow = Slow(failing=KEYS[0])
    threading.Timer(0.1, slow.may_end.set).start()

    with pytest.raises(OSError, match=KEYS[0]):
        each(slow, KEYS, lambda _key, _result: None)

    assert sorted([KEYS[0], *slow.ended]) == sorted(slow.begun)


def test_ctrl_c_waits_for_nothing_that_is_under_way() -> None:
    slow = Slow()

    def press() -> None:
        wait_until(lambda: slow.begun, within_s=30, what="a transfer")
        # To this thread, as a terminal's: a wait of it must end.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        each(slow, KEYS, lambda _key, _result: None)

    assert slow.ended == []
    slow.may_end.set()
    wait_until(lambda: len(slow.ended) == len(slow.begun), within_s=30, what="their end")
    # Of those that waited none was begun.
    assert len(slow.begun) < len(KEYS)
