"""Ray Serve shells around the owners: one single-replica deployment a shard, each with its own listener.

Kept thin, and its imports inside the functions: Serve pickles the module of a deployment by value. Serve starts,
watches and replaces the processes; no decision passes through Ray (measured: 10 times FastAPI + Redis this way, less
than once through an actor call). The driver has started Ray; nothing here does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import serve
from ray.exceptions import RayActorError, RayTaskError

from memcon.errors import MemconError, UnavailableError

__all__ = ["ServeShardMap", "ServedPolicy", "ShardReplica", "start_policy"]

# Exit code of an owner whose memory no longer agrees with its journal; Serve starts a new one, which folds the journal.
EXIT_FAULT = 70
# Finds a killed owner within about three seconds, its restart included.
HEALTH_CHECK_PERIOD_S = 1.0
HEALTH_CHECK_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = 60.0
# The files were read before: what still stops a claim is an older owner that is busy.
MAX_CONSTRUCTOR_TRIES = 5


class ShardReplica:
    """The process of one shard: claim, fold, listen. A restart runs `__init__` only, so all is set up there."""

    async def __init__(  # type: ignore[misc] # Serve awaits it
        self, directory: str, shard: int, num_shards: int, *_: Any
    ) -> None:
        from memcon_policy_server.listener import Listener, build_app
        from memcon_policy_server.owner import ShardOwner

        self.owner = ShardOwner(Path(directory), shard=shard, num_shards=num_shards, on_fault=self._end_process)
        self.listener = Listener(build_app(self.owner))
        self.base_url = self.listener.start()

    async def address(self) -> str:
        """Base URL of this owner's listener."""
        return self.base_url

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeShardMap:
    """Base URLs of the shards, read through Serve; picklable, for any process of the cluster."""

    app_name: str
    num_shards: int

    async def __call__(self) -> Sequence[str]:
        """The URLs as they are now.

        Raises:
            UnavailableError: a shard has no live replica, or Serve does not answer.
        """
        try:
            return [await self.handle(shard).address.remote() for shard in range(self.num_shards)]
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

    def export(self) -> list[Path]:
        """Write the served tables of all shards; returns the files.

        Raises:
            MemconError: what an owner raised; `UnavailableError` when one does not answer.
        """
        return [Path(path) for path in self._ask("export")]

    def stop(self) -> list[Path]:
        """Export, stop all shards and remove the app; returns the exported files.

        The app stays when a shard did not answer: a Serve that is broken must not hold up the end of its cluster.

        Raises:
            MemconError: what an owner raised; `UnavailableError` when one does not answer.
        """
        exported = [Path(path) for path in self._ask("stop")]
        serve.delete(self.shard_map.app_name)
        return exported

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


def start_policy(directory: Path, num_shards: int, app_name: str) -> ServedPolicy:
    """Start the app `app_name` with one owner a shard over the journals in `directory`; returns when all answer.

    Blocks: call it outside of an event loop, after `ray.init`. Serve's own HTTP proxy stays off.

    Raises:
        MemconError: a shard's files are damaged, of another version, or cannot be written; `UnavailableError` when
            Serve could not start the shards.
    """
    _check_files(directory, num_shards)
    serve.start(proxy_location="Disabled", logging_config={"enable_access_log": False, "log_level": "WARNING"})
    # One app is one graph with one root: shard 0 takes the others as arguments only to be deployed with them.
    others = [_deployment(shard).bind(str(directory), shard, num_shards) for shard in range(1, num_shards)]
    root = _deployment(0).bind(str(directory), 0, num_shards, *others)
    try:
        serve.run(root, name=app_name, route_prefix=None)
    except RuntimeError as error:
        serve.delete(app_name)
        reason = str(error).partition("\n")[0]
        raise UnavailableError(f"the policy server {app_name} did not start: {reason}") from error
    return ServedPolicy(shard_map=ServeShardMap(app_name=app_name, num_shards=num_shards))


def _check_files(directory: Path, num_shards: int) -> None:
    """Fold each journal once here: a damaged one is then one clear error, not a replica that dies again and again."""
    from memcon.learning.shard import PolicyShard
    from memcon_policy_server.fold import fold
    from memcon_policy_server.journal import SqliteJournal
    from memcon_policy_server.secret import load_secret
    from memcon_policy_server.sharding import journal_path

    secret = load_secret(directory)
    for shard in range(num_shards):
        journal = SqliteJournal(journal_path(directory, shard), shard=shard, num_shards=num_shards)
        try:
            for _ in fold(journal, PolicyShard(shard, num_shards, secret)):
                pass
        finally:
            journal.close()


def _deployment_name(shard: int) -> str:
    return f"shard-{shard}"


def _deployment(shard: int) -> Any:
    return serve.deployment(
        ShardReplica,
        name=_deployment_name(shard),
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=100,
        max_constructor_retry_count=MAX_CONSTRUCTOR_TRIES,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        graceful_shutdown_timeout_s=2.0,
        graceful_shutdown_wait_loop_s=0.1,
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
    )
