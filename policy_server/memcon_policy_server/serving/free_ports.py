"""Ports for programs that must be told theirs: none that the system gives to somebody else meanwhile."""

from __future__ import annotations

import contextlib
import secrets
import socket
from pathlib import Path

__all__ = ["free_ports"]

# From here on the system gives ports to whoever binds port 0 or connects: Ray's processes do so dozens of times between
# our look and the start of the program that was told the port.
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_GIVEN = 32_768
# Ray's workers may have those below.
_LOWEST = 20_000
_ENOUGH = 1_000


def free_ports(count: int) -> list[int]:
    """`count` ports of the loopback on which nobody listens now."""
    given_from = _given_from()
    # Where that range begins so low any free port is as good as another.
    candidates = range(_LOWEST, given_from) if given_from - _LOWEST >= _ENOUGH else range(1)
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", candidates[secrets.randbelow(len(candidates))]))
                ports.append(int(probe.getsockname()[1]))
    return ports


def _given_from() -> int:
    try:
        return int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _FIRST_GIVEN
