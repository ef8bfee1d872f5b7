"""The Ray side of a launch: a local cluster, the policy's shards on Ray Serve, and a pool of actors.

Always a cluster of its own on this machine: a stale "current cluster" file of another program must never decide where
a run goes, and the files of streams and journals lie on this disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from memcon.errors import UnavailableError
from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.pool import Pool
from memcon_platform.sweep.run_folder import policy_folder
from memcon_platform.trajectory import SinkFactory
from memcon_policy_server.client.http import ServedClientFactory
from memcon_policy_server.serving.server import LOOPBACK_ONLY

__all__ = ["open_ray", "to_its_end"]

T = TypeVar("T")

# Bytes of Ray's object store: streams pass specs and counts, never data.
_OBJECT_STORE_BYTES = 200 * 2**20
# Quiet start: no usage report, no colours or warnings of Ray's own between our lines.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


@asynccontextmanager
async def open_ray(plan: RunPlan) -> AsyncIterator[Pool]:
    """Workers as Ray actors; each decides at the shards that Ray Serve runs for this run.

    On the way out the shards export the served tables, then the cluster ends.

    Raises:
        UnavailableError: Ray or the policy server does not start, or the shards could not export.
    """
    for name, value in (_ENVIRONMENT | LOOPBACK_ONLY).items():
        os.environ.setdefault(name, value)  # noqa: TID251 - a shell; Ray reads these at import
    import ray

    from memcon_platform.sweep.ray_pool import RayPool
    from memcon_policy_server.serving.deployments import start_policy

    # Ray and Serve tell of each step of their own, and Serve sets its level when it is imported; the lines between our
    # progress must be ours.
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    _init(ray, plan)
    try:
        shards, app = plan.settings.policy_server.shards, f"memcon-{plan.run}"
        folder = policy_folder(plan).resolve()
        policy = await to_its_end(lambda: start_policy(folder, shards, app))
        make_client = ServedClientFactory(
            shard_map=policy.shard_map, directory=folder, patience_s=plan.settings.server_wait_s
        )
        make_sink = SinkFactory(run_dir=plan.run_dir.resolve())
        pool = RayPool(plan.run, make_client, make_sink, max_streams=_most_streams(plan))
        try:
            yield pool
        finally:
            await pool.close()
            await to_its_end(policy.stop)
    finally:
        await to_its_end(ray.shutdown)


def _most_streams(plan: RunPlan) -> int:
    """Streams that can be at one worker: those that it runs, and all that wait for their turn at a bounded table."""
    bounded = sum(cell.streams for cell in plan.cells if cell.max_open_episodes is not None)
    return plan.settings.streams_per_worker + bounded


async def to_its_end(call: Callable[[], T]) -> T:
    """Run the blocking `call` in a thread; a cancel (Ctrl-C) is honoured when it has returned.

    Serve's calls start a second Ray when Ray is shut down under them (measured: 25 to 80 s, with a dashboard).
    """
    # A future and no task: the end of `asyncio.run` cancels all tasks, also one whose thread still runs.
    work = asyncio.get_running_loop().run_in_executor(None, call)
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # What the call came to is no longer of interest; asking for it keeps the loop from reporting it.
        work.exception()
        raise cancelled
    return work.result()


def _init(ray: Any, plan: RunPlan) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address="local",
            num_cpus=plan.settings.workers,
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as error:
        # Ray raises a dozen kinds here: no space, no permission, no port, no shared memory.
        raise UnavailableError(
            f"Ray did not start on this machine: {type(error).__name__}: {error}; check space and permissions of its "
            "folder (RAY_TMPDIR, else /tmp), or run with --local"
        ) from error
    finally:
        # Ray puts an exit of its own there.
        signal.signal(signal.SIGTERM, handler)
