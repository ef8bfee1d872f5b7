"""What is kept of a task's decisions: the records, their tokens of the policy, and their credit at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memcon.control.operations import Applied
from memcon.learning import credit
from memcon.policy_types import DecideReply, OutcomeRequest
from memcon.tokens import estimate_tokens
from memcon.types import Decision, MemoryContext

__all__ = ["DecisionLog", "Finished", "brought", "chosen", "tokens_injected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a task's end means for its decisions."""

    # Eq. 5; None for `unevaluable`.
    reward: float | None
    decisions: tuple[Decision, ...]
    # One a decision; none for `unevaluable` and for policy `none`.
    outcomes: tuple[OutcomeRequest, ...]


class DecisionLog:
    """Decisions of one task, in order."""

    def __init__(self) -> None:
        self._decisions: list[Decision] = []
        # Tokens of the policy stay here: they never enter a `Decision`, which is exported.
        self._tokens: list[str] = []

    @property
    def position(self) -> int:
        """Place of the next decision."""
        return len(self._decisions)

    def append(self, decision: Decision, token: str) -> None:
        """Keep a decision that was carried out, with the policy's token for it."""
        self._decisions.append(decision)
        self._tokens.append(token)

    def finish(self, reward: float | None, *, gamma: float | None, token_cost: float) -> Finished:
        """Discount `reward` over the decisions (Eq. 7), each less `token_cost` per 1,000 tokens that it injected.

        Without `reward` or `gamma` (no policy) nothing is credited.
        """
        if reward is None or gamma is None:
            return Finished(reward=reward, decisions=tuple(self._decisions), outcomes=())
        outcomes = tuple(
            OutcomeRequest(
                decision_id=decision.decision_id,
                token=token,
                reward=reward,
                position=decision.position,
                num_decisions=len(self._decisions),
                cost=token_cost * tokens_injected(decision) / 1000,
            )
            for decision, token in zip(self._decisions, self._tokens, strict=True)
        )
        return Finished(
            reward=reward,
            decisions=tuple(
                replace(decision, credit=_credit(outcome, gamma))
                for decision, outcome in zip(self._decisions, outcomes, strict=True)
            ),
            outcomes=outcomes,
        )


def tokens_injected(decision: Decision) -> int:
    """Estimated tokens that `decision` put into the prompt, of all sources (MC-42)."""
    return decision.tokens_items + decision.tokens_insights + decision.tokens_plan + decision.tokens_hint


def _credit(outcome: OutcomeRequest, gamma: float) -> float:
    """What the owner credits for `outcome`, bit for bit: the same function of the same numbers."""
    return credit.discounted(
        outcome.reward,
        gamma=gamma,
        position=outcome.position,
        num_decisions=outcome.num_decisions,
        cost=outcome.cost,
    )


def chosen(asked: Decision, reply: DecideReply) -> Decision:
    """`asked` with what the owner chose."""
    return replace(
        asked,
        action_id=reply.action_id,
        propensity=reply.propensity,
        tie_set=reply.tie_set,
        forced=reply.forced,
        table_version=reply.table_version,
        shard=reply.shard,
        received=reply.received,
        per_arm=reply.per_arm,
    )


def brought(decision: Decision, applied: Applied) -> Decision:
    """`decision` with what its arm put into the prompt, in estimated tokens by source (MC-42)."""
    block = applied.context or MemoryContext()
    return replace(
        decision,
        degraded=applied.degraded,
        hook_error=applied.hook_error,
        item_ids=tuple(item.item_id for item in block.items),
        tokens_items=sum(estimate_tokens(item.text) for item in block.items),
        tokens_insights=sum(estimate_tokens(insight.text) for insight in block.insights),
        tokens_plan=estimate_tokens(block.plan),
        tokens_hint=estimate_tokens(block.hint),
    )
