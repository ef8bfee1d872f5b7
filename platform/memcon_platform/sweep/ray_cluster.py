"""The Ray side of a launch: a local cluster, the policy's shards on Ray Serve, and a pool of actors.

Always a cluster of its own on this machine: a stale "current cluster" file of another program must never decide where
a run goes, and the files of streams and journals lie on this disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from memcon_platform.config.plan import RunPlan
from memcon_platform.sweep.pool import Pool
from memcon_platform.sweep.run_folder import policy_folder
from memcon_platform.trajectory import SinkFactory
from memcon_policy_server.client.http import ServedClientFactory

__all__ = ["open_ray"]

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
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # noqa: TID251 - a shell; Ray reads these at import
    import ray

    from memcon_platform.sweep.ray_pool import RayPool
    from memcon_policy_server.deployments import start_policy

    # Ray and Serve tell of each step of their own, and Serve sets its level when it is imported; the lines between our
    # progress must be ours.
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    _init(ray, plan)
    try:
        shards, app = plan.settings.policy_server.shards, f"memcon-{plan.run}"
        # Serve's calls block, so they go through a thread.
        policy = await asyncio.to_thread(start_policy, policy_folder(plan), shards, app)
        make_client = ServedClientFactory(shard_map=policy.shard_map, patience_s=plan.settings.server_wait_s)
        make_sink = SinkFactory(run_dir=plan.run_dir.resolve())
        pool = RayPool(plan.run, make_client, make_sink, streams_per_worker=plan.settings.streams_per_worker)
        try:
            yield pool
        finally:
            await pool.close()
            await asyncio.to_thread(policy.stop)
    finally:
        await asyncio.to_thread(ray.shutdown)


def _init(ray: Any, plan: RunPlan) -> None:
    ray.init(
        address="local",
        num_cpus=plan.settings.workers,
        object_store_memory=_OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
