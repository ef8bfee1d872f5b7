"""The fake policy client passes the contract of the port, with one shard and with several."""

from __future__ import annotations

import pytest

from memcon.errors import UnavailableError
from memcon.learning.exploration import UcbConfig
from memcon.protocols import PolicyClient
from memcon.testing.policy import FakePolicyClient, cancel_request, decide_request, outcome_request
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


async def test_fake_client_takes_what_comes_after_an_expiry_at_its_shard() -> None:
    client = FakePolicyClient()
    await client.open_table("table", UcbConfig().learning_settings())
    late, defaulted = await client.decide(decide_request(1)), await client.decide(decide_request(2))

    (shard,) = client.shards
    shard.expire("table", "decision-1", None)
    shard.expire("table", "decision-2", 0.5)

    assert await client.cancel(cancel_request(late)) is False
    replies = await client.outcomes([outcome_request(late, 1.0), outcome_request(defaulted, 1.0)])
    assert [(reply.status, reply.credit) for reply in replies] == [("late", 1.0), ("not_applied", 0.5)]
