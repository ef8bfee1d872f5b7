"""Any learning rule on an outcome matrix, through the real `PolicyShard`: in seconds, and exact but for one thing.

Groups of streams share a table and run in lock-step rounds: the choices of a round are made before its outcomes. A
choice finds the outcome that the arm had on that very task; so a replay is exact, except that the memory does not react
to the policy: it grew under arms that were drawn uniformly (docs/prototype.md, 1). One decision a task, at its
start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memcon import ids
from memcon.learning import state_key
from memcon.learning.credit import RewardSettings
from memcon.learning.shard import PolicyShard
from memcon.policy_types import CancelRequest, DecideReply, DecideRequest, LearningSettings, OutcomeRequest
from memcon_platform.report.conventions import LEARNED_FROM
from memcon_platform.study.matrix import Bools, Floats, Ints, OutcomeMatrix

__all__ = ["LABEL", "ContextPulls", "Learner", "Replayed", "replay"]

LABEL = "exact replay on the outcome matrix: the memory does not react to the policy"
_TABLE = "replay"
# Signs tokens that never leave this process.
_SECRET = ids.stable_hash("study", "replay", size=32).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A learning policy of the config, as it is replayed."""

    label: str
    learning: LearningSettings
    reward: RewardSettings
    # Arms that may be chosen at a task's start, in arm order; all were played.
    allowed: tuple[str, ...]
    # Arms that the memory lacks may not be chosen (control.unsupported_arms).
    mask_unsupported: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPulls:
    """How often the arms of one state key were credited, a table."""

    key: str
    # 0 = finest level of the pooling chain.
    level: int
    # Tables that met the key, and its mean credits over these.
    tables: int
    pulls: float
    # Share of these tables with fewer than `LEARNED_FROM`.
    by_arm: dict[str, float]
    not_learned: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a rule did on the matrix, rows of whole groups only."""

    group: int
    # Index of the chosen arm in the matrix, and whether the choice was forced; shape (streams, tasks).
    picks: Ints
    forced: Bools
    contexts: tuple[ContextPulls, ...]

    @property
    def tables(self) -> int:
        """Independent repetitions."""
        return len(self.picks) // self.group


def replay(matrix: OutcomeMatrix, learner: Learner, *, group: int) -> Replayed:
    """Let `learner` choose on the matrix, with a table for each `group` consecutive streams.

    Streams beyond the last whole group are left out.
    """
    rewards = matrix.rewards(learner.reward)
    tables = matrix.num_streams // group
    picks = np.zeros((tables * group, matrix.num_tasks), dtype=np.int64)
    forced = np.zeros(picks.shape, dtype=np.bool_)
    counts: list[dict[tuple[int, str], Ints]] = []
    for table in range(tables):
        rows = range(table * group, (table + 1) * group)
        game = _Game(matrix, learner, rewards)
        for task in range(matrix.num_tasks):
            for row, reply in game.round(rows, task):
                picks[row, task], forced[row, task] = matrix.arm(reply.action_id), reply.forced
        counts.append(game.counts)
    return Replayed(group=group, picks=picks, forced=forced, contexts=_contexts(counts, matrix.action_ids))


class _Game:
    """One table and the streams that share it."""

    def __init__(self, matrix: OutcomeMatrix, learner: Learner, rewards: Floats) -> None:
        self._matrix, self._learner, self._rewards = matrix, learner, rewards
        masked = matrix.unsupported if learner.mask_unsupported else frozenset()
        self._allowed = tuple(arm for arm in learner.allowed if arm not in masked)
        self._shard = PolicyShard(0, 1, _SECRET)
        self._shard.open_table(_TABLE, learner.learning)
        # (level, key) -> credits of each arm.
        self.counts: dict[tuple[int, str], Ints] = {}

    def round(self, rows: Sequence[int], task: int) -> list[tuple[int, DecideReply]]:
        """All streams decide on their task number `task`, then all get their outcomes."""
        asked = [(row, self._request(row, task)) for row in rows]
        found = [(row, request, self._shard.decide(request).reply) for row, request in asked]
        for row, request, reply in found:
            self._tell(row, task, request, reply)
        return [(row, reply) for row, _, reply in found]

    def _request(self, row: int, task: int) -> DecideRequest:
        learner, (seed, stream) = self._learner, self._matrix.units[row]
        episode = ids.episode_id(f"replay/{seed}", stream, task, 0)
        return DecideRequest(
            table=_TABLE,
            decision_id=ids.decision_id(episode, 0),
            episode_id=episode,
            position=0,
            keys=state_key.key_chain(learner.learning, self._matrix.features(row, task)),
            # The same for every rule and group size: rules are compared on the same draws.
            draw=ids.draw64("study", seed, stream, task),
            allowed=self._allowed,
        )

    def _tell(self, row: int, task: int, request: DecideRequest, reply: DecideReply) -> None:
        arm = self._matrix.arm(reply.action_id)
        reward = float(self._rewards[row, task, arm])
        if np.isnan(reward):
            # Unevaluable: teaches nothing, as in a sweep.
            self._shard.cancel(CancelRequest(decision_id=reply.decision_id, token=reply.token))
            return
        outcome = OutcomeRequest(
            decision_id=reply.decision_id,
            token=reply.token,
            reward=reward,
            position=0,
            num_decisions=1,
            cost=self._learner.reward.token_cost * float(self._matrix.tokens[row, task, arm]) / 1000,
        )
        self._shard.outcome(outcome)
        for level, key in enumerate(request.keys):
            row_counts = self.counts.setdefault((level, key), np.zeros(len(self._matrix.action_ids), dtype=np.int64))
            row_counts[arm] += 1


def _contexts(counts: Sequence[dict[tuple[int, str], Ints]], arms: Sequence[str]) -> tuple[ContextPulls, ...]:
    found = []
    for level, key in sorted({place for table in counts for place in table}):
        pulls = np.array([table[level, key] for table in counts if (level, key) in table])
        means = pulls.mean(axis=0)
        found.append(
            ContextPulls(
                key=key,
                level=level,
                tables=len(pulls),
                pulls=float(means.sum()),
                by_arm={arm: float(mean) for arm, mean in zip(arms, means, strict=True)},
                not_learned=float((pulls.sum(axis=1) < LEARNED_FROM).mean()),
            )
        )
    return tuple(found)
