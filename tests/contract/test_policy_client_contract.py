"""The in-process client and the served one keep the contract of the port, with one shard and with several."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memcon.protocols import PolicyClient
from memcon.testing.policy_contract import PolicyClientContract
from memcon_policy_server.client.local import LocalPolicyClient
from support.served_policy import ServedShards


class TestLocalPolicyClient(PolicyClientContract):
    @pytest.fixture(params=[1, 3])
    async def client(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PolicyClient]:
        client = LocalPolicyClient(tmp_path, request.param)
        yield client
        await client.close()


class TestHttpPolicyClient(PolicyClientContract):
    @pytest.fixture(params=[1, 3])
    async def client(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PolicyClient]:
        shards = ServedShards(tmp_path, request.param)
        client = shards.client()
        yield client
        await client.close()
        await shards.close()
