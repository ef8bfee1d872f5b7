"""`memcon serve` as a value: a Ray of its own or one that runs, the owners, the gateways, and their end.

All here blocks: call it in a thread beside an event loop. In the main thread Ray would take SIGTERM for itself.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memcon.errors import ConfigError, LockedError, UnavailableError
from memcon_policy_server.options import OwnerOptions
from memcon_policy_server.serving import haproxy

__all__ = ["LOOPBACK_ONLY", "Serving", "ServingOptions"]

# Bytes of Ray's object store: only addresses and paths go through it.
_OBJECT_STORE_BYTES = 100 * 2**20
_EVERYWHERE = ("0.0.0.0", "::")
# To the head of a Ray that runs.
_REACH_TIMEOUT_S = 5.0
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    # Ray's workers run at nice 15 by default, and would lose against whatever else asks for a core.
    "RAY_worker_niceness": "0",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # Part of the above is a handle that only works inside an event loop; no request here goes through a handle.
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "1",
    # Part of it, too. Actor calls instead: not shown to be faster or safer here, but all that was measured had them.
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "0",
    # A gateway that is replaced: its load balancer is HAProxy on this machine, which learns of it at once.
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
}
# Ray's switch for a Ray of one machine, whatever its system: it takes the loopback for the address of its node, and its
# dozen ports are bound there. Without it all are open to the network.
LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """What `memcon serve` was asked for."""

    name: str
    directory: Path
    shards: int
    gateways: int
    host: str
    port: int
    # None: a Ray of its own, which ends with it.
    ray_address: str | None
    owner: OwnerOptions


class Serving:
    """The server of one folder: `start_ray`, `start`, `stop`, once each; `stop` also after a start that failed."""

    def __init__(self, options: ServingOptions) -> None:
        self._options = options
        self._policy: Any = None
        self._ray: Any = None
        # Sockets and config of HAProxy; nobody else may read or open them.
        self._private: Path | None = None

    @property
    def url(self) -> str:
        """Where the gateway answers; on this machine's loopback when it listens on all addresses."""
        host = "127.0.0.1" if self._options.host in _EVERYWHERE else self._options.host
        return f"http://[{host}]:{self._options.port}" if ":" in host else f"http://{host}:{self._options.port}"

    def start_ray(self) -> None:
        """Start Ray, or attach to the one that was named; `start` comes next.

        Raises:
            LockedError: the port is in use.
            UnavailableError: Ray does not start, or does not answer.
            ConfigError: the cluster has several nodes, which the journals cannot serve.
        """
        options = self._options
        if options.ray_address is None:
            self._check_port()
            self._close_off(Path(tempfile.mkdtemp(prefix="memcon-", dir="/tmp")))
        else:
            _check_reached(options.ray_address)
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)  # noqa: TID251 - a shell; Ray reads these at import
        import ray

        self._ray = ray
        self._init(ray)
        self._refuse_many_nodes(ray)

    def start(self) -> None:
        """Start owners and gateways on that Ray; returns when the gateway answers.

        Raises:
            UnavailableError: Serve does not start.
            MemconError: a shard's files are damaged.
        """
        from ray import serve

        from memcon_policy_server.serving.deployments import LOGGING

        # Serve sets its level when it is imported; the lines between our progress must be ours.
        for name in ("ray", "ray.serve"):
            logging.getLogger(name).setLevel(logging.ERROR)
        http = {"host": self._options.host, "port": self._options.port}
        serve.start(proxy_location="HeadOnly", http_options=http, logging_config=LOGGING)
        self.roll()

    def roll(self) -> None:
        """Start all owners and gateways, or replace those that run; requests wait meanwhile.

        Raises:
            MemconError: as `start`.
        """
        from memcon_policy_server.serving.deployments import start_gateway

        options = self._options
        app = f"memcon-serve-{options.name}"
        host = _address_of_machine() if options.host in _EVERYWHERE else options.host
        self._policy = start_gateway(
            options.directory, options.shards, app, options.owner,
            host=host, gateways=options.gateways, update=self._policy is not None,
        )  # fmt: skip

    def stop(self) -> list[Path]:
        """Answer what is open, write the served tables, end all that was started here; returns the tables' files.

        Raises:
            MemconError: an owner could not export; all is ended nevertheless.
        """
        try:
            return [] if self._policy is None else self._policy.stop()
        finally:
            self._policy = None
            self._end_ray()
            if self._private is not None:
                shutil.rmtree(self._private, ignore_errors=True)

    def _end_ray(self) -> None:
        ray, self._ray = self._ray, None
        if ray is None or not ray.is_initialized():
            return
        if self._options.ray_address is None:
            from ray import serve

            # Ends HAProxy too, which outlives a Ray that just stops.
            serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()

    def _close_off(self, private: Path) -> None:
        """Let nobody but this user at Ray and HAProxy: whoever reaches a port of Ray's can run code here."""
        self._private = private
        token = private / "ray-token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32), encoding="ascii")
        closed = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            **LOOPBACK_ONLY,
            **haproxy.environment(private),
        }
        os.environ.update(closed)  # noqa: TID251 - as above

    def _check_port(self) -> None:
        """HAProxy's own message would stand in a log of Ray's."""
        options = self._options
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                # As HAProxy: connections of an earlier server that are in TIME_WAIT do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise LockedError(
                    f"port {options.port} of {options.host} is in use by another process; end it, or give port=N"
                ) from error
            raise ConfigError(
                f"cannot listen on host {options.host}, port {options.port}: {error.strerror or error}; "
                "take an address of this machine"
            ) from error

    def _init(self, ray: Any) -> None:
        own: dict[str, Any] = {
            "object_store_memory": _OBJECT_STORE_BYTES,
            "include_dashboard": False,
            # Nothing here asks for a share of one; as many workers start at once. With one, an owner that was killed
            # waits until all others that start are there (seen once each, under other load: 19 s in an update, 9 s with
            # four).
            "num_cpus": 4,
        }
        address = self._options.ray_address
        try:
            ray.init(
                address="local" if address is None else address,
                log_to_driver=False,
                logging_level="ERROR",
                **(own if address is None else {}),
            )
        except Exception as error:
            # Ray raises a dozen kinds here: no space, no permission, no cluster at that address.
            first_line = str(error).strip().partition("\n")[0]
            if address is None:
                problem = "Ray did not start on this machine"
                remedy = "check space and permissions of its folder (RAY_TMPDIR, else /tmp)"
            else:
                problem = f"cannot attach to the Ray at {address}"
                remedy = "check the address; a Ray that asks for a token needs RAY_AUTH_MODE=token here too"
            raise UnavailableError(f"{problem}: {type(error).__name__}: {first_line}; {remedy}") from error

    @staticmethod
    def _refuse_many_nodes(ray: Any) -> None:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        if len(nodes) > 1:
            raise ConfigError(
                f"ray_address: this cluster has {len(nodes)} nodes, and an owner that is restarted on another node "
                "would not find its SQLite journal there; serve on a Ray of one node, or leave ray_address out"
            )


def _check_reached(ray_address: str) -> None:
    """Refuse an address at which nobody listens: Ray would try it for minutes, deaf to signals."""
    host, _, port = ray_address.rpartition(":")
    if not (host and port.isdecimal()):
        # "auto", or a form that Ray itself refuses at once.
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise UnavailableError(
            f"ray_address: nobody answers at {ray_address} ({error}); start that Ray, or leave ray_address out"
        ) from error


def _address_of_machine() -> str:
    """Where other machines find an owner of a server that listens on all addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only asks the routes which address a packet to the outside would bear.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
