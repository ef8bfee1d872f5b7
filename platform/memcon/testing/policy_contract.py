"""The policy port under test: the contract body that every client passes."""

from __future__ import annotations

import asyncio
import math

import pytest

from memcon.errors import ConfigError, ConflictError, NotFoundError
from memcon.learning import decision_token
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import CancelRequest, DecideRequest, LearningSettings, OutcomeRequest, TableImport
from memcon.protocols import PolicyClient
from memcon.testing.policy import cancel_request, decide_request, outcome_request, state_keys, table_import

__all__ = ["PolicyClientContract"]


class PolicyClientContract:
    """What every PolicyClient does. Override the fixture `client`; it gives a client without any table.

    The policy under test is `ucb` with its defaults on the arms of Table 7.
    """

    # First visits by prior, then arm order (MC-27).
    FIRST_VISITS = (
        "retrieve_shallow",
        "retrieve_medium",
        "retrieve_deep",
        "insight_only",
        "plan_inject",
        "re_retrieve",
        "consolidate",
        "forget",
        "noop",
    )

    @pytest.fixture
    def client(self) -> PolicyClient:
        raise NotImplementedError("a subclass gives its client")

    @pytest.fixture
    def settings(self) -> LearningSettings:
        return UcbConfig().learning_settings()

    async def test_client_opens_a_table_again_with_equal_settings(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)
        await client.open_table("table", settings)

        assert (await client.decide(decide_request(1))).action_id == "retrieve_shallow"

    async def test_client_refuses_other_settings_and_names_the_field(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)

        with pytest.raises(ConflictError, match=r"alpha.*0\.15.*0\.5"):
            await client.open_table("table", UcbConfig(alpha=0.5).learning_settings())

    async def test_client_finds_no_table_that_was_never_opened(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)

        with pytest.raises(NotFoundError, match="other"):
            await client.decide(decide_request(1, table="other"))

    async def test_client_visits_the_arms_of_a_key_by_prior_then_order(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)

        replies = [await client.decide(decide_request(n)) for n in range(9)]

        assert tuple(reply.action_id for reply in replies) == self.FIRST_VISITS
        assert all(reply.forced and reply.propensity == 1.0 for reply in replies)
        assert all(reply.tie_set == (reply.action_id,) for reply in replies)

    async def test_client_gives_the_same_answer_to_the_same_id(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)

        first = await client.decide(decide_request(1))
        again = await client.decide(decide_request(1))
        other = await client.decide(decide_request(2))

        assert again == first
        assert other.action_id == "retrieve_medium"

    async def test_client_counts_each_of_many_decides_at_once(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)

        replies = await asyncio.gather(*(client.decide(decide_request(n)) for n in range(9)))

        assert {reply.action_id for reply in replies} == set(self.FIRST_VISITS)

    async def test_client_gives_many_streams_at_one_new_key_its_arms_in_prior_order(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)

        replies = await asyncio.gather(*(client.decide(decide_request(n, key="new")) for n in range(32)))

        # No outcome is there yet: what tells the streams apart is that each decision counts when it is taken.
        in_order = sorted(replies, key=lambda reply: reply.received)
        assert tuple(reply.action_id for reply in in_order[:9]) == self.FIRST_VISITS
        assert [reply.forced for reply in in_order] == [True] * 9 + [False] * 23

    async def test_client_never_chooses_a_masked_arm(self, client: PolicyClient, settings: LearningSettings) -> None:
        await client.open_table("table", settings)
        allowed = ("forget", "noop")

        for n in range(6):
            request = decide_request(n)
            reply = await client.decide(
                DecideRequest(
                    table=request.table,
                    decision_id=request.decision_id,
                    episode_id=request.episode_id,
                    position=0,
                    keys=request.keys,
                    draw=n,
                    allowed=allowed,
                )
            )
            assert reply.action_id in allowed
            assert reply.per_arm is None

    @pytest.mark.parametrize("allowed", [(), ("noop", "retreive_deep")])
    async def test_client_refuses_arms_that_cannot_be_chosen(
        self, client: PolicyClient, settings: LearningSettings, allowed: tuple[str, ...]
    ) -> None:
        await client.open_table("table", settings)

        with pytest.raises(ConfigError, match="allow"):
            await client.decide(
                DecideRequest(
                    table="table", decision_id="d", episode_id="e", position=0, keys=("key",), draw=0, allowed=allowed
                )
            )

    async def test_client_credits_the_discounted_return(self, client: PolicyClient, settings: LearningSettings) -> None:
        await client.open_table("table", settings)
        decisions = [
            await client.decide(decide_request(n, episode_id="e", position=n, key=f"key {n}")) for n in range(3)
        ]

        replies = await client.outcomes(
            [outcome_request(decision, 1.0, position=n, num_decisions=3) for n, decision in enumerate(decisions)]
        )

        assert [reply.status for reply in replies] == ["credited"] * 3
        assert [reply.credit for reply in replies] == pytest.approx([0.81, 0.9, 1.0])
        after = await client.decide(decide_request(9, key="key 2"))
        assert after.per_arm is not None
        assert after.per_arm["retrieve_shallow"]["q"] == 0.5 + 0.15 * (1.0 - 0.5)

    async def test_client_applies_an_outcome_once(self, client: PolicyClient, settings: LearningSettings) -> None:
        await client.open_table("table", settings)
        decision = await client.decide(decide_request(1))
        first = await client.outcomes([outcome_request(decision, 1.0)])

        again = await client.outcomes([outcome_request(decision, 1.0)])

        assert (again[0].status, again[0].credit) == ("duplicate", first[0].credit)
        after = await client.decide(decide_request(2))
        assert after.per_arm is not None
        assert after.per_arm["retrieve_shallow"]["q"] == 0.5 + 0.15 * (1.0 - 0.5)

    async def test_client_refuses_another_outcome_for_a_credited_decision(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)
        decision = await client.decide(decide_request(1))
        await client.outcomes([outcome_request(decision, 1.0)])

        with pytest.raises(ConflictError, match="already credited"):
            await client.outcomes([outcome_request(decision, -0.5)])
        with pytest.raises(ConflictError, match="already credited"):
            await client.decide(decide_request(1))

    @pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e300])
    async def test_client_refuses_impossible_rewards_and_learns_nothing(
        self, client: PolicyClient, settings: LearningSettings, reward: float
    ) -> None:
        await client.open_table("table", settings)
        decision = await client.decide(decide_request(1))

        with pytest.raises(ConfigError, match="reward"):
            await client.outcomes([outcome_request(decision, reward)])

        assert (await client.outcomes([outcome_request(decision, 1.0)]))[0].status == "credited"

    async def test_client_refuses_a_forged_token(self, client: PolicyClient, settings: LearningSettings) -> None:
        await client.open_table("table", settings)
        decision = await client.decide(decide_request(1))
        claims = decision_token.read(decision.token)
        forged = decision_token.sign(b"some other secret than theirs", claims)

        for token in (forged, "", "no token", decision.token[:-2]):
            with pytest.raises(NotFoundError, match="token"):
                await client.outcomes(
                    [
                        OutcomeRequest(
                            decision_id=decision.decision_id, token=token, reward=1.0, position=0, num_decisions=1
                        )
                    ]
                )

    async def test_client_refuses_the_token_of_another_decision(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)
        first, second = await client.decide(decide_request(1)), await client.decide(decide_request(2))

        with pytest.raises(ConflictError, match="its own token"):
            await client.outcomes(
                [
                    OutcomeRequest(
                        decision_id=first.decision_id, token=second.token, reward=1.0, position=0, num_decisions=1
                    )
                ]
            )

    async def test_client_cancels_an_open_decision_once(self, client: PolicyClient, settings: LearningSettings) -> None:
        await client.open_table("table", settings)
        decision = await client.decide(decide_request(1))

        assert await client.cancel(cancel_request(decision)) is True
        assert await client.cancel(cancel_request(decision)) is False

        # Its arm is due again, and its id is used up.
        assert (await client.decide(decide_request(2))).action_id == decision.action_id
        with pytest.raises(ConflictError, match="already cancelled"):
            await client.outcomes([outcome_request(decision, 1.0)])
        with pytest.raises(ConflictError, match="already cancelled"):
            await client.decide(decide_request(1))

    async def test_client_refuses_to_cancel_a_credited_decision_or_with_a_wrong_token(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)
        credited, other = await client.decide(decide_request(1)), await client.decide(decide_request(2))
        await client.outcomes([outcome_request(credited, 1.0)])
        forged = decision_token.sign(b"some other secret than theirs", decision_token.read(other.token))

        with pytest.raises(ConflictError, match="already credited"):
            await client.cancel(cancel_request(credited))
        with pytest.raises(ConflictError, match="its own token"):
            await client.cancel(CancelRequest(decision_id=credited.decision_id, token=other.token))
        with pytest.raises(NotFoundError, match="token"):
            await client.cancel(CancelRequest(decision_id=other.decision_id, token=forged))

        assert await client.cancel(cancel_request(other)) is True

    async def test_client_cancels_an_episode_at_every_shard(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)
        decisions = [
            await client.decide(decide_request(n, episode_id="e", position=n, key=f"key {n}")) for n in range(5)
        ]
        await client.outcomes([outcome_request(decisions[0], 1.0, num_decisions=1)])

        assert await client.cancel_episode("table", "e") == 4
        assert await client.cancel_episode("table", "e") == 0

        # The credited decision stays; the others left no count, and their key starts over.
        assert (await client.decide(decide_request(10, key="key 0"))).action_id == "retrieve_medium"
        assert (await client.decide(decide_request(11, key="key 1"))).action_id == "retrieve_shallow"
        for n in range(5, 9):
            with pytest.raises(ConflictError, match="cancelled"):
                await client.decide(decide_request(n, episode_id="e", position=n, key=f"key {n}"))
        with pytest.raises(ConflictError, match="cancelled"):
            await client.outcomes([outcome_request(decisions[1], 1.0, position=1, num_decisions=5)])

    async def test_client_starts_a_table_from_the_numbers_of_another(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)
        # Enough keys to be at every shard.
        keys = state_keys(12)

        await client.import_table(table_import(keys))

        for number, key in enumerate(keys):
            reply = await client.decide(decide_request(number, key=key))
            # The arm that has outcomes is no unvisited one any more.
            assert reply.action_id == "retrieve_shallow"
            assert reply.per_arm is not None
            known = reply.per_arm["noop"]
            assert (known["q"], known["taken"], known["credited"]) == (0.75, 4.0, 4.0)

    async def test_client_imports_the_same_source_once(self, client: PolicyClient, settings: LearningSettings) -> None:
        await client.open_table("table", settings)
        request = table_import(state_keys(3))
        await client.import_table(request)
        for number, key in enumerate(state_keys(3)):
            await client.decide(decide_request(number, key=key))

        # A launch that goes on: decisions were taken meanwhile.
        await client.import_table(request)

        reply = await client.decide(decide_request(9, key=state_keys(1)[0]))
        assert reply.action_id == "retrieve_medium"
        assert reply.per_arm is not None
        assert reply.per_arm["noop"]["taken"] == 4.0

    async def test_client_refuses_to_mix_numbers(self, client: PolicyClient, settings: LearningSettings) -> None:
        await client.open_table("table", settings)
        await client.open_table("begun", settings)
        keys = state_keys(12)
        await client.import_table(table_import(keys))
        for number, key in enumerate(keys):
            await client.decide(decide_request(number, table="begun", key=key))

        with pytest.raises(ConflictError, match=r"an earlier run.*another run"):
            await client.import_table(table_import(keys, source="another run"))
        with pytest.raises(ConflictError, match="decisions already"):
            await client.import_table(table_import(keys, table="begun"))
        with pytest.raises(NotFoundError, match="nowhere"):
            await client.import_table(table_import(keys, table="nowhere"))

    async def test_client_refuses_numbers_of_another_kind_of_table(
        self, client: PolicyClient, settings: LearningSettings
    ) -> None:
        await client.open_table("table", settings)
        good = table_import(state_keys(1))
        (key,) = good.numbers
        row = good.numbers[key]["noop"]
        refused: list[TableImport] = [
            table_import([""]),
            TableImport(table="table", source="s", numbers={key: {"nop": row}}),
            TableImport(table="table", source="s", numbers={key: {"noop": {**row, "q": "nan"}}}),
            TableImport(table="table", source="s", numbers={key: {"noop": {**row, "credited": 5}}}),
        ]

        for request in refused:
            with pytest.raises(ConfigError, match="import"):
                await client.import_table(request)

        await client.import_table(good)

    async def test_client_keeps_tables_apart(self, client: PolicyClient, settings: LearningSettings) -> None:
        await client.open_table("table", settings)
        await client.open_table("other", settings)

        first, second = await client.decide(decide_request(1)), await client.decide(decide_request(1, table="other"))

        assert first.action_id == second.action_id == "retrieve_shallow"
        assert first.token != second.token

    async def test_client_closes_twice(self, client: PolicyClient) -> None:
        await client.close()
        await client.close()
