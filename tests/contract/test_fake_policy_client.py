"""The fake policy client passes the contract of the port, with one shard and with several."""

from __future__ import annotations

import pytest

from memcon.errors import UnavailableError
from memcon.learning.exploration import UcbConfig
from memcon.protocols import PolicyClient
from memcon.testing.policy import FakePolicyClient, decide_request
from memcon.testing.policy_contract import PolicyClientContract


class TestFakePolicyClient(PolicyClientContract):
    @pytest.fixture(params=[1, 4])
    def client(self, request: pytest.FixtureRequest) -> PolicyClient:
        return FakePolicyClient(request.param)


async def test_fake_client_that_is_down_answers_like_a_lost_owner() -> None:
    client = FakePolicyClient()
    await client.open_table("table", UcbConfig().learning_settings())
    client.down = True

    with pytest.raises(UnavailableError):
        await client.decide(decide_request(1))
