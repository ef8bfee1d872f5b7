"""Who chooses the arm of a decision: the policy's owner, or nobody (one fixed thing at task start).

A chooser knows when it may be asked and writes the decision's record up to what was chosen; carrying the arm out is
`memcon.control.operations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from memcon import ids
from memcon.control.decisions import chosen
from memcon.control.operations import Operations
from memcon.control.parts import ControllerParts
from memcon.control.settings import ControlSettings
from memcon.errors import Boundary, ConfigError, InvariantError, boundary
from memcon.learning import actions, state_key
from memcon.policy_types import DecideReply, DecideRequest, LearningSettings
from memcon.protocols import PolicyClient
from memcon.types import Decision, MemoryAction, StateFeatures, Trigger

__all__ = ["Choice", "Chooser", "FixedChooser", "Moment", "PolicyChooser", "masked_arms"]

# The key that is written down where no table has one.
_DEFAULT_KEY_SCHEMA = "paper/1"
_ONLY_WHEN_STUCK = "only when stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A decision point before anything is chosen."""

    episode_id: str
    # 0-based place of the task in its stream, and of the decision in its episode.
    ordinal: int
    position: int
    trigger: Trigger
    features: StateFeatures


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen at a moment, not yet carried out."""

    decision: Decision
    # The policy's token for it; "" without a policy.
    token: str
    # None = the backend's own default retrieval.
    arm: MemoryAction | None


class Chooser(Protocol):
    """Chooses at each decision point of a task."""

    @property
    def points(self) -> str:
        """When to ask, as in `ControlSettings.decision_points`."""
        ...

    @property
    def has_arms(self) -> bool:
        """Arms are played, so plan templates are kept and show in the state."""
        ...

    @property
    def gamma(self) -> float | None:
        """Discount of the credits; None = nothing is credited."""
        ...

    async def choose(self, moment: Moment) -> Choice:
        """Choose at `moment`.

        Raises:
            BoundaryError: the policy failed.
            ConflictError: the episode was cancelled.
        """
        ...


class FixedChooser:
    """The same thing once, at task start, whatever the state; it was drawn from `allowed`, uniformly."""

    def __init__(
        self,
        *,
        policy: str,
        action_id: str,
        arm: MemoryAction | None,
        allowed: tuple[str, ...],
        masked: Mapping[str, str],
    ) -> None:
        self._policy, self._action_id, self._arm = policy, action_id, arm
        self._allowed, self._masked = allowed, masked
        self.points, self.gamma = "start", None
        self.has_arms = arm is not None

    async def choose(self, moment: Moment) -> Choice:
        """The fixed thing, with the propensity of a uniform draw."""
        decision = Decision(
            decision_id=ids.decision_id(moment.episode_id, moment.position),
            episode_id=moment.episode_id,
            position=moment.position,
            trigger=moment.trigger,
            state_key=state_key.key_text(_DEFAULT_KEY_SCHEMA, moment.features),
            features=moment.features,
            action_id=self._action_id,
            propensity=1.0 / len(self._allowed),
            allowed=self._allowed,
            masked=self._masked,
            tie_set=self._allowed,
            policy=self._policy,
            table="",
        )
        return Choice(decision=decision, token="", arm=self._arm)


class PolicyChooser:
    """Asks the owner of the table; arms that cannot be played now are not offered.

    Raises:
        ConfigError: the policy's arms are not the arms known here, or none of them is left to choose.
    """

    def __init__(
        self, parts: ControllerParts, operations: Operations, *, policy: PolicyClient, learning: LearningSettings
    ) -> None:
        self._parts, self._policy, self._learning = parts, policy, learning
        self.points, self.gamma = parts.control.decision_points, learning.gamma
        self.has_arms = True
        self.arms = _arms(learning)
        # Stuck or not -> the arms that are not offered.
        self._masks = {
            is_stuck: masked_arms(self.arms, operations, parts.control, is_stuck=is_stuck) for is_stuck in (True, False)
        }
        at_start = self._masks[False]
        if len(at_start) == len(self.arms):
            reasons = ", ".join(dict.fromkeys(at_start.values()))
            raise ConfigError(
                f"none of the arms {', '.join(self.arms)} can be chosen at task start ({reasons}); "
                "set unsupported_arms: noop, or take another action set"
            )

    async def choose(self, moment: Moment) -> Choice:
        """Ask the owner of the decision's key."""
        masked = self._masks[moment.features.is_stuck]
        keys = state_key.key_chain(self._learning, moment.features)
        asked = Decision(
            decision_id=ids.decision_id(moment.episode_id, moment.position),
            episode_id=moment.episode_id,
            position=moment.position,
            trigger=moment.trigger,
            state_key=keys[0],
            features=moment.features,
            # Until the owner has answered.
            action_id="",
            propensity=None,
            allowed=tuple(name for name in self.arms if name not in masked),
            masked=masked,
            policy=self._learning.rule,
            table=self._parts.table,
        )
        reply = await self._ask(asked, keys, moment.ordinal)
        arm = self.arms.get(reply.action_id)
        if arm is None:
            raise InvariantError(f"table '{self._parts.table}' chose arm '{reply.action_id}', which is none of its own")
        return Choice(decision=chosen(asked, reply), token=reply.token, arm=arm)

    async def _ask(self, asked: Decision, keys: tuple[str, ...], ordinal: int) -> DecideReply:
        place = self._parts.place
        request = DecideRequest(
            table=asked.table,
            decision_id=asked.decision_id,
            episode_id=asked.episode_id,
            position=asked.position,
            keys=keys,
            # Without the epoch: a repeated task decides alike.
            draw=ids.draw64("draw", place.cell, place.stream, ordinal, asked.position),
            allowed=asked.allowed if asked.masked else None,
            explain=self._parts.control.explain,
        )
        with boundary(Boundary.POLICY, "decide"):
            return await self._policy.decide(request)


def masked_arms(
    arms: Mapping[str, MemoryAction], operations: Operations, control: ControlSettings, *, is_stuck: bool
) -> dict[str, str]:
    """Arms that may not be chosen now, with the reason, in arm order."""
    masked: dict[str, str] = {}
    for name, arm in arms.items():
        reason = operations.unsupported(arm) if control.unsupported_arms == "mask" else ""
        if not reason and arm.only_when_stuck and not is_stuck:
            reason = _ONLY_WHEN_STUCK
        if reason:
            masked[name] = reason
    return masked


def _arms(learning: LearningSettings) -> Mapping[str, MemoryAction]:
    """Arms of the policy by id, in arm order; identity is checked, never the position (MC-13)."""
    known = actions.action_set(learning.action_set)
    if actions.fingerprint(known) != learning.fingerprint:
        raise ConfigError(
            f"action set '{known.name}' has fingerprint {actions.fingerprint(known)} here and {learning.fingerprint} "
            "in the policy's table; use the memcon that made the table, or a new table"
        )
    by_id = {arm.action_id: arm for arm in known.actions}
    return {name: by_id[name] for name in learning.action_ids}
