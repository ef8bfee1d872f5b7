"""The policy port under test: what becomes of a decision, and what the body of all of it is played on."""

from __future__ import annotations

import math

import pytest

from memcon.errors import ConfigError, ConflictError, NotFoundError
from memcon.learning import decision_token
from memcon.learning.exploration import UcbConfig
from memcon.policy_types import CancelRequest, DecideReply, LearningSettings, OutcomeRequest
from memcon.protocols import PolicyClient
from memcon.testing.contract import Contract, Run, expect, expect_equal, refuses, to_give
from memcon.testing.policy import cancel_request, decide_request, outcome_request

__all__ = ["OutcomeSuite"]

_DECIDE, _OUTCOMES = "PolicyClient.decide", "PolicyClient.outcomes"
_CANCEL, _CANCEL_EPISODE = "PolicyClient.cancel", "PolicyClient.cancel_episode"
# Eq. 7 from the prior 0.5 of the first arm, with a return of 1.
_LEARNED_ONCE = 0.5 + 0.15 * (1.0 - 0.5)


class OutcomeSuite(Contract):
    """The part of `PolicyClientContract` that is about `outcomes`, `cancel` and `cancel_episode`."""

    @pytest.fixture
    def client(self) -> PolicyClient:
        """The client under test."""
        to_give(
            self,
            "client",
            "PolicyClient",
            "the client under test, without any table; what must be awaited to open and to close it goes through `run`",
        )

    @pytest.fixture
    def settings(self) -> LearningSettings:
        """Settings of the policy `ucb` with its defaults."""
        return UcbConfig().learning_settings()

    @pytest.fixture
    def opened(self, run: Run, client: PolicyClient, settings: LearningSettings) -> PolicyClient:
        """The client, with a table named "table"."""
        run(client.open_table("table", settings))
        return client

    def check_learned_once(self, run: Run, client: PolicyClient, wants: str) -> None:
        """The arm of the first decision learned a return of 1, once."""
        __tracebackhide__ = True
        after = run(client.decide(decide_request(99)))
        expect(after.per_arm is not None, _DECIDE, "gives the values of every arm when asked to explain", met=after)
        value = (after.per_arm or {}).get("retrieve_shallow", {}).get("q")
        expect_equal(value, _LEARNED_ONCE, _OUTCOMES, wants=wants)

    def test_client_credits_the_discounted_return(self, run: Run, opened: PolicyClient) -> None:
        decisions = [
            run(opened.decide(decide_request(n, episode_id="e", position=n, key=f"key {n}"))) for n in range(3)
        ]
        requests = [outcome_request(decision, 1.0, position=n, num_decisions=3) for n, decision in enumerate(decisions)]
        replies = run(opened.outcomes(requests))
        wants = "credits each decision of an episode with gamma^(decisions after it) times the reward (Eq. 7)"
        expect_equal([reply.status for reply in replies], ["credited"] * 3, _OUTCOMES, wants=wants)
        expect_equal([reply.credit for reply in replies], pytest.approx([0.81, 0.9, 1.0]), _OUTCOMES, wants=wants)
        after = run(opened.decide(decide_request(9, key="key 2")))
        value = (after.per_arm or {}).get("retrieve_shallow", {}).get("q")
        expect_equal(value, _LEARNED_ONCE, _OUTCOMES, wants="moves the arm's value by alpha towards its credit (Eq. 7)")

    def test_client_applies_an_outcome_once(self, run: Run, opened: PolicyClient) -> None:
        decision = run(opened.decide(decide_request(1)))
        first = run(opened.outcomes([outcome_request(decision, 1.0)]))
        again = run(opened.outcomes([outcome_request(decision, 1.0)]))
        wants = "answers an outcome that is told again as a duplicate, with the credit of the first time"
        expect_equal((again[0].status, again[0].credit), ("duplicate", first[0].credit), _OUTCOMES, wants=wants)
        self.check_learned_once(run, opened, "learns an outcome once, however often it is told")

    def test_client_refuses_another_outcome_for_a_credited_decision(self, run: Run, opened: PolicyClient) -> None:
        decision = run(opened.decide(decide_request(1)))
        run(opened.outcomes([outcome_request(decision, 1.0)]))
        wants = "refuses another outcome than the one that was credited"
        with refuses(ConflictError, _OUTCOMES, wants=wants, naming="already credited"):
            run(opened.outcomes([outcome_request(decision, -0.5)]))
        wants = "refuses the id of a decision that is credited"
        with refuses(ConflictError, _DECIDE, wants=wants, naming="already credited"):
            run(opened.decide(decide_request(1)))

    @pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e300])
    def test_client_refuses_impossible_rewards_and_learns_nothing(
        self, run: Run, opened: PolicyClient, reward: float
    ) -> None:
        decision = run(opened.decide(decide_request(1)))
        with refuses(ConfigError, _OUTCOMES, wants=f"refuses the reward {reward}", naming="reward"):
            run(opened.outcomes([outcome_request(decision, reward)]))
        status = run(opened.outcomes([outcome_request(decision, 1.0)]))[0].status
        expect_equal(status, "credited", _OUTCOMES, wants="leaves the decision open when it refuses its outcome")

    def test_client_refuses_a_forged_token(self, run: Run, opened: PolicyClient) -> None:
        decision = run(opened.decide(decide_request(1)))
        claims = decision_token.read(decision.token)
        forged = decision_token.sign(b"some other secret than theirs", claims)
        for token in (forged, "", "no token", decision.token[:-2]):
            with refuses(NotFoundError, _OUTCOMES, wants="refuses a token that it did not sign", naming="token"):
                run(opened.outcomes([_outcome(decision, token)]))

    def test_client_refuses_the_token_of_another_decision(self, run: Run, opened: PolicyClient) -> None:
        first, second = (run(opened.decide(decide_request(n))) for n in (1, 2))
        wants = "refuses the token of another decision"
        with refuses(ConflictError, _OUTCOMES, wants=wants, naming="its own token"):
            run(opened.outcomes([_outcome(first, second.token)]))

    def test_client_cancels_an_open_decision_once(self, run: Run, opened: PolicyClient) -> None:
        decision = run(opened.decide(decide_request(1)))
        found = [run(opened.cancel(cancel_request(decision))) for _ in range(2)]
        expect_equal(found, [True, False], _CANCEL, wants="is True for an open decision, and without effect again")
        after = run(opened.decide(decide_request(2))).action_id
        expect_equal(after, decision.action_id, _CANCEL, wants="takes the count back: the arm is due again")
        with refuses(ConflictError, _OUTCOMES, wants="refuses a cancelled decision", naming="already cancelled"):
            run(opened.outcomes([outcome_request(decision, 1.0)]))
        with refuses(
            ConflictError, _DECIDE, wants="refuses the id of a cancelled decision", naming="already cancelled"
        ):
            run(opened.decide(decide_request(1)))

    def test_client_refuses_to_cancel_a_credited_decision_or_with_a_wrong_token(
        self, run: Run, opened: PolicyClient
    ) -> None:
        credited, other = (run(opened.decide(decide_request(n))) for n in (1, 2))
        run(opened.outcomes([outcome_request(credited, 1.0)]))
        forged = decision_token.sign(b"some other secret than theirs", decision_token.read(other.token))
        with refuses(ConflictError, _CANCEL, wants="refuses a credited decision", naming="already credited"):
            run(opened.cancel(cancel_request(credited)))
        with refuses(ConflictError, _CANCEL, wants="refuses the token of another decision", naming="its own token"):
            run(opened.cancel(CancelRequest(decision_id=credited.decision_id, token=other.token)))
        with refuses(NotFoundError, _CANCEL, wants="refuses a token that it did not sign", naming="token"):
            run(opened.cancel(CancelRequest(decision_id=other.decision_id, token=forged)))
        found = run(opened.cancel(cancel_request(other)))
        expect_equal(found, True, _CANCEL, wants="leaves the decision open when it refuses a cancel")

    def test_client_cancels_an_episode_at_every_shard(self, run: Run, opened: PolicyClient) -> None:
        decisions = [
            run(opened.decide(decide_request(n, episode_id="e", position=n, key=f"key {n}"))) for n in range(5)
        ]
        run(opened.outcomes([outcome_request(decisions[0], 1.0, num_decisions=1)]))
        found = [run(opened.cancel_episode("table", "e")) for _ in range(2)]
        expect_equal(found, [4, 0], _CANCEL_EPISODE, wants="cancels the episode's open decisions at every shard, once")
        arms = [run(opened.decide(decide_request(10 + n, key=f"key {n}"))).action_id for n in (0, 1)]
        wants = "leaves the credited decision counted, and takes the counts of the others back"
        expect_equal(arms, ["retrieve_medium", "retrieve_shallow"], _CANCEL_EPISODE, wants=wants)
        for n in range(5, 9):
            request = decide_request(n, episode_id="e", position=n, key=f"key {n}")
            with refuses(ConflictError, _DECIDE, wants="refuses a cancelled episode", naming="cancelled"):
                run(opened.decide(request))
        with refuses(ConflictError, _OUTCOMES, wants="refuses a decision of a cancelled episode", naming="cancelled"):
            run(opened.outcomes([outcome_request(decisions[1], 1.0, position=1, num_decisions=5)]))


def _outcome(decision: DecideReply, token: str) -> OutcomeRequest:
    return OutcomeRequest(decision_id=decision.decision_id, token=token, reward=1.0, position=0, num_decisions=1)
