"""How alike two steps are, as a number in [0, 1] (facts on the offline signal, section 5.3)."""

from __future__ import annotations

from functools import lru_cache

from memcon_workers.backbones.experience import Experience
from memcon_workers.backbones.goals import Role, Signature, Together

__all__ = ["match", "match_row"]

# Factor of the pair flags: equal, not equal, one of them unknown.
PAIR_DIFFERS = 0.3
PAIR_UNKNOWN = 0.7
# Factor of one name.
SAME_KIND_OTHER_ROLE = 0.35
OTHER_KIND_BOTH_GOAL = 0.6
OTHER_KIND_BOTH_OTHER = 0.3
OTHER_KIND_OTHER_ROLE = 0.1
SAME_KIND_ROLE_UNKNOWN = 0.8
OTHER_KIND_ROLE_UNKNOWN = 0.3


@lru_cache(maxsize=65536)
def match(step: Signature, other: Signature) -> float:
    """Likeness of two steps; 0 when their skeletons differ."""
    if step.skeleton != other.skeleton:
        return 0.0
    value = _pair_factor(step.together, other.together)
    for kind, other_kind, role, other_role in zip(
        step.categories, other.categories, step.roles, other.roles, strict=True
    ):
        value *= _name_factor(same_kind=kind == other_kind, role=role, other_role=other_role)
    return value


@lru_cache(maxsize=16384)
def match_row(experience: Experience, step: Signature) -> tuple[float, ...] | None:
    """Likeness of `step` with each step of `experience`; None when all are 0."""
    row = tuple(match(one, step) for one in experience.signatures)
    return row if any(row) else None


def _pair_factor(together: Together, other: Together) -> float:
    if Together.UNKNOWN in {together, other}:
        return PAIR_UNKNOWN
    return 1.0 if together is other else PAIR_DIFFERS


def _name_factor(*, same_kind: bool, role: Role, other_role: Role) -> float:
    if Role.UNKNOWN in {role, other_role}:
        return SAME_KIND_ROLE_UNKNOWN if same_kind else OTHER_KIND_ROLE_UNKNOWN
    if same_kind:
        return 1.0 if role is other_role else SAME_KIND_OTHER_ROLE
    if role is not other_role:
        return OTHER_KIND_OTHER_ROLE
    return OTHER_KIND_BOTH_GOAL if role is Role.GOAL else OTHER_KIND_BOTH_OTHER
