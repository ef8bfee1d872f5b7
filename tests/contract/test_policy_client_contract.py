"""The in-process client and the served one keep the contract of the port, with one shard and with several."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memcon.protocols import PolicyClient
from memcon.testing import Run
from memcon.testing.policy_contract import PolicyClientContract
from memcon_policy_server.client.local import LocalPolicyClient
from support.served_policy import ServedShards


class TestLocalPolicyClient(PolicyClientContract):
    @pytest.fixture(params=[1, 3])
    def client(self, request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> Iterator[PolicyClient]:
        client = LocalPolicyClient(tmp_path, request.param)
        yield client
        run(client.close())


async def _served(directory: Path, num_shards: int) -> ServedShards:
    return ServedShards(directory, num_shards)


class TestHttpPolicyClient(PolicyClientContract):
    @pytest.fixture(params=[1, 3])
    def client(self, request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> Iterator[PolicyClient]:
        # Its listeners serve on the loop of the test, whenever that runs.
        shards = run(_served(tmp_path, request.param))
        client = shards.client()
        yield client
        run(client.close())
        run(shards.close())
