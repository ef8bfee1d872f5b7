"""Ray Serve shells: one single-replica deployment a shard, each with its own listener, and the gateway's.

Kept thin, and its imports inside the functions: Serve pickles the module of a deployment by value. Serve starts,
watches and replaces the processes; no decision passes through Ray (measured: 10 times FastAPI + Redis this way, less
than once through an actor call). The driver has started Ray; nothing here does.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import RayServeException

from memcon.errors import MemconError, UnavailableError
from memcon_policy_server.options import Limits, OwnerOptions
from memcon_policy_server.shard_map import ShardAddress, ShardMap

__all__ = ["GatewayReplica", "ServeShardMap", "ServedPolicy", "ShardReplica", "start_gateway", "start_policy"]

# Exit code of an owner whose memory no longer agrees with its journal; Serve starts a new one, which folds the journal.
EXIT_FAULT = 70
# Finds a killed owner within about three seconds, its restart included.
HEALTH_CHECK_PERIOD_S = 0.5
HEALTH_CHECK_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = 60.0
# A call that was on its way to a process which died may not be answered; the next one finds its successor.
ADDRESS_TIMEOUT_S = 2.0
DRAIN_S = 5
LOOPBACK = "127.0.0.1"
GATEWAY = "gateway"
# More wait in Serve's queue.
MAX_GATEWAY_REQUESTS = 4096
# The files were read before: what still stops a claim is an older owner that is busy.
MAX_CONSTRUCTOR_TRIES = 5
# Serve calls an update failed when any process dies in its middle.
MAX_UPDATE_TRIES = 3
LOGGING = {"enable_access_log": False, "log_level": "WARNING"}
# Of every deployment here.
_COMMON: dict[str, Any] = {
    "ray_actor_options": {"num_cpus": 0},
    "max_constructor_retry_count": MAX_CONSTRUCTOR_TRIES,
    "health_check_period_s": HEALTH_CHECK_PERIOD_S,
    "health_check_timeout_s": HEALTH_CHECK_TIMEOUT_S,
    "graceful_shutdown_wait_loop_s": 0.1,
    "logging_config": LOGGING,
}


class ShardReplica:
    """The process of one shard: claim, fold, listen. A restart runs `__init__` only, so all is set up there."""

    async def __init__(  # type: ignore[misc] # Serve awaits it
        self, directory: str, shard: int, num_shards: int, options: OwnerOptions, host: str, *_: Any
    ) -> None:
        from memcon_policy_server.http.listener import Listener
        from memcon_policy_server.http.shard_app import build_app
        from memcon_policy_server.owner.shard_owner import ShardOwner
        from memcon_policy_server.secret import load_token
        from memcon_policy_server.serving.addresses import publish_address

        folder = Path(directory)
        # Before the fold, which makes most of the objects (a third of its time), and once more when they are there.
        _collect_seldom()
        self.owner = ShardOwner(folder, shard=shard, num_shards=num_shards, options=options, on_fault=self._end_process)
        self.listener = Listener(build_app(self.owner, token=load_token(folder), limits=options.limits), host=host)
        self.base_url = self.listener.start()
        _collect_seldom()
        publish_address(folder, shard, num_shards, await self.address())

    async def address(self) -> ShardAddress:
        """Where this owner listens, and since which epoch."""
        return ShardAddress(url=self.base_url, epoch=self.owner.epoch)

    async def check_health(self) -> None:
        """Asked by Serve, which replaces an owner whose listener ended under it.

        Raises:
            UnavailableError: nobody answers at this owner's port.
        """
        self.listener.check()

    async def export(self) -> str:
        """Write the served tables; returns the file's path."""
        return str(await self.owner.export())

    async def stop(self) -> str:
        """Answer what is open, export, and free the port and the journal; returns the export's path."""
        await self.listener.stop()
        try:
            return str(await self.owner.export())
        finally:
            await self.owner.close()

    @staticmethod
    def _end_process(error: MemconError) -> None:
        # Not sys.exit: a replica would catch it, and memory that is ahead of the journal must not answer once more.
        logging.getLogger("ray.serve").critical("policy.owner_failed: %s", error)
        logging.shutdown()
        os._exit(EXIT_FAULT)


def _collect_seldom() -> None:
    """Keep the collector of cycles off the tables and Ray's modules: hundreds of thousands of objects that stay.

    With Python's own settings it took a quarter of a loaded owner, in stops of up to 0.2 s.
    """
    import gc

    gc.collect()
    gc.freeze()
    # The young are looked at while they are still in the core's cache, all others as seldom as can be.
    gc.set_threshold(5_000, 500, 100)


class GatewayReplica:
    """The process of one gateway, behind Serve's HTTP path. Serve takes the application once it is constructed."""

    async def __init__(  # type: ignore[misc] # Serve awaits it
        self, directory: str, num_shards: int, limits: Limits, *_: Any
    ) -> None:
        from memcon_policy_server.secret import load_token
        from memcon_policy_server.serving.addresses import FolderShardMap
        from memcon_policy_server.serving.gateway import Gateway
        from memcon_policy_server.serving.links import LinkedTransport
        from memcon_policy_server.serving.router import ShardRouter

        folder = Path(directory)
        token = load_token(folder)
        shard_map = FolderShardMap(directory=folder, num_shards=num_shards)
        # Half of a request's time, so that a second owner can be asked when the first one hangs.
        transport = LinkedTransport(shard_map, token=token, attempt_timeout_s=limits.request_timeout_s / 2)
        self.router = ShardRouter(transport, num_shards)
        self.gateway = Gateway(self.router, token=token, limits=limits, name=f"gateway-{os.getpid()}")
        _collect_seldom()

    def __serve_build_asgi_app__(self) -> Any:
        return self.gateway

    async def drain(self) -> None:
        """Refuse new requests and wait for those that are open."""
        await self.gateway.drain(DRAIN_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeShardMap:
    """Base URLs of the shards, read through Serve; picklable, for any process of the cluster."""

    app_name: str
    num_shards: int

    async def __call__(self) -> ShardMap:
        """The map as it is now.

        Raises:
            UnavailableError: a shard has no live replica, or Serve does not answer.
        """
        try:
            async with asyncio.timeout(ADDRESS_TIMEOUT_S):
                calls = [self.handle(shard).address.remote() for shard in range(self.num_shards)]
                return ShardMap(shards=tuple([await call for call in calls]))
        except Exception as error:
            # Ray, Serve and gRPC raise a dozen kinds while a process is replaced.
            problem = f"{type(error).__name__}: {error}"
            raise UnavailableError(f"app {self.app_name} has no shard map now: {problem}") from error

    def handle(self, shard: int) -> Any:
        """Serve's handle of one shard."""
        return serve.get_deployment_handle(_deployment_name(shard), app_name=self.app_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPolicy:
    """The running shards as the driver sees them. Its methods block: call them outside of an event loop."""

    shard_map: ServeShardMap
    # Deployment of the gateways, if there are any.
    gateway: str | None = None

    def export(self) -> list[Path]:
        """Write the served tables of all shards; returns the files.

        Raises:
            MemconError: what an owner raised; `UnavailableError` when one does not answer.
        """
        return [Path(path) for path in self._ask("export")]

    def stop(self) -> list[Path]:
        """Answer what is open, export, stop all shards and remove the app; returns the exported files.

        The app stays when a shard did not answer: a Serve that is broken must not hold up the end of its cluster.

        Raises:
            MemconError: what an owner raised; `UnavailableError` when one does not answer.
        """
        if self.gateway is not None:
            self._drain(self.gateway)
        exported = [Path(path) for path in self._ask("stop")]
        serve.delete(self.shard_map.app_name)
        return exported

    def _drain(self, gateway: str) -> None:
        handle = serve.get_deployment_handle(gateway, app_name=self.shard_map.app_name)
        try:
            handle.broadcast("drain").results(timeout_s=2.0 * DRAIN_S)
        except Exception as error:  # noqa: BLE001 - a gateway that died has nothing open; the owners still export
            logging.getLogger("ray.serve").warning("policy.gateway_not_drained: %s", error)

    def _ask(self, method: str) -> list[str]:
        """Ask all shards at once; one whose replica died with the call is asked again, since Serve replaces it."""
        shards = range(self.shard_map.num_shards)
        try:
            calls = [self._call(shard, method) for shard in shards]
            return [self._answer(shard, method, call) for shard, call in zip(shards, calls, strict=True)]
        except RayTaskError as error:
            # Its text is the replica's whole traceback; what the owner raised is one line.
            raise error.cause if isinstance(error.cause, MemconError) else self._silent(method, error) from error
        except Exception as error:
            raise self._silent(method, error) from error

    def _answer(self, shard: int, method: str, call: Any) -> str:
        try:
            return str(call.result(timeout_s=CALL_TIMEOUT_S))
        except RayActorError:
            return str(self._call(shard, method).result(timeout_s=CALL_TIMEOUT_S))

    def _call(self, shard: int, method: str) -> Any:
        return getattr(self.shard_map.handle(shard), method).remote()

    def _silent(self, method: str, error: Exception) -> UnavailableError:
        first_line = str(error).strip().partition("\n")[0]
        return UnavailableError(
            f"the policy server {self.shard_map.app_name} did not answer {method} ({type(error).__name__}: "
            f"{first_line}); nothing that it had acknowledged is lost, run the same command again"
        )


def start_policy(directory: Path, num_shards: int, app_name: str, options: OwnerOptions | None = None) -> ServedPolicy:
    """Start the app `app_name` with one owner a shard over the journals in `directory`; returns when all answer.

    Blocks: call it outside of an event loop, after `ray.init`. Serve's own HTTP proxy stays off.

    Raises:
        MemconError: a shard's files are damaged, of another version, or cannot be written; `UnavailableError` when
            Serve could not start the shards.
    """
    _check_files(directory, num_shards)
    serve.start(proxy_location="Disabled", logging_config=dict(LOGGING))
    # One app is one graph with one root: shard 0 takes the others as arguments only to be deployed with them.
    root: Any = None
    for shard in reversed(range(num_shards)):
        below = [] if root is None else [root]
        root = _shard_deployment(shard).bind(
            str(directory), shard, num_shards, options or OwnerOptions(), LOOPBACK, *below
        )
    return _run(root, ServeShardMap(app_name=app_name, num_shards=num_shards))


def start_gateway(
    directory: Path,
    num_shards: int,
    app_name: str,
    options: OwnerOptions,
    *,
    host: str,
    gateways: int,
    update: bool,
) -> ServedPolicy:
    """Start the owners and the gateways in front of them, at "/" of the HTTP ingress of the Serve that was started.

    `host` is where the owners listen. `update`: the app runs, and all its processes are replaced; whoever asks
    meanwhile sees retries at most, and when that fails it goes on with what lives. Blocks, as `start_policy`.

    Raises:
        MemconError: as `start_policy`.
    """
    _check_files(directory, num_shards)
    shard_map = ServeShardMap(app_name=app_name, num_shards=num_shards)
    owners = [
        _shard_deployment(shard).bind(str(directory), shard, num_shards, options, host) for shard in range(num_shards)
    ]
    gateway: Any = serve.deployment(
        serve.ingress()(GatewayReplica),
        name=GATEWAY,
        num_replicas=gateways,
        max_ongoing_requests=MAX_GATEWAY_REQUESTS,
        graceful_shutdown_timeout_s=float(DRAIN_S),
        **_COMMON,
    )
    return _run(gateway.bind(str(directory), num_shards, options.limits, *owners), shard_map, GATEWAY, update=update)


def _run(root: Any, shard_map: ServeShardMap, gateway: str | None = None, *, update: bool = False) -> ServedPolicy:
    for tries_left in reversed(range(MAX_UPDATE_TRIES if update else 1)):
        try:
            serve.run(root, name=shard_map.app_name, route_prefix="/" if gateway else None)
            break
        except (RuntimeError, RayServeException) as error:
            if not tries_left:
                raise _not_run(shard_map.app_name, error, update=update) from error
    return ServedPolicy(shard_map=shard_map, gateway=gateway)


def _not_run(app_name: str, error: Exception, *, update: bool) -> UnavailableError:
    """What became of an app that did not come up; one that was running before must not end for that."""
    reason = str(error).strip().partition("\n")[0]
    if update:
        return UnavailableError(f"the policy server {app_name} goes on, but not all of it was replaced: {reason}")
    serve.delete(app_name)
    return UnavailableError(f"the policy server {app_name} did not start: {reason}")


def _check_files(directory: Path, num_shards: int) -> None:
    """Read each journal once here: a damaged one is then one clear error, not a replica that dies again and again."""
    from memcon_policy_server.journal.fold import check_journal
    from memcon_policy_server.secret import load_secret, load_token

    load_secret(directory)
    load_token(directory)
    for shard in range(num_shards):
        check_journal(directory, shard, num_shards)


def _deployment_name(shard: int) -> str:
    return f"shard-{shard}"


def _shard_deployment(shard: int) -> Any:
    return serve.deployment(
        ShardReplica,
        name=_deployment_name(shard),
        num_replicas=1,
        max_ongoing_requests=100,
        graceful_shutdown_timeout_s=2.0,
        **_COMMON,
    )
