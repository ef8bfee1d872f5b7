"""The arms of the policy and their priors (paper Tables 6 and 7). Owns action sets by name and their identity."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from memcon import ids
from memcon.errors import UnknownNameError
from memcon.types import ActionSet, MemoryAction, Operation

__all__ = ["PRIORS", "QUERY_SUFFIX", "action_set", "action_set_names", "fingerprint", "priors"]

# Q before the first update (Table 6, MC-28).
PRIORS: Mapping[Operation, float] = MappingProxyType(
    {
        Operation.RETRIEVE: 0.5,
        Operation.PLAN_INJECT: 0.3,
        Operation.RE_RETRIEVE: 0.1,
        Operation.CONSOLIDATE: 0.0,
        Operation.FORGET: -0.1,
        Operation.NOOP: -0.2,
    }
)

# What Re-Retrieve appends to the query (MC-17); the paper gives the idea, not the words.
QUERY_SUFFIX = " (look for another way to reach this goal)"

# Table 7, in its order (MC-12).
_DEFAULT = ActionSet(
    name="default",
    actions=(
        MemoryAction(action_id="retrieve_shallow", op=Operation.RETRIEVE, top_k=1, insight_k=3, hop=1),
        MemoryAction(action_id="retrieve_medium", op=Operation.RETRIEVE, top_k=2, insight_k=5, hop=1),
        MemoryAction(action_id="retrieve_deep", op=Operation.RETRIEVE, top_k=3, insight_k=8, hop=2),
        MemoryAction(action_id="plan_inject", op=Operation.PLAN_INJECT, top_k=1, insight_k=3),
        MemoryAction(
            action_id="re_retrieve",
            op=Operation.RE_RETRIEVE,
            top_k=2,
            insight_k=5,
            hop=2,
            query_suffix=QUERY_SUFFIX,
        ),
        MemoryAction(action_id="consolidate", op=Operation.CONSOLIDATE),
        MemoryAction(action_id="forget", op=Operation.FORGET),
        MemoryAction(action_id="insight_only", op=Operation.RETRIEVE, top_k=1, insight_k=2, hop=0),
        MemoryAction(action_id="noop", op=Operation.NOOP),
    ),
)
_SETS: Mapping[str, ActionSet] = MappingProxyType({_DEFAULT.name: _DEFAULT})


def action_set_names() -> list[str]:
    """Names that `action_set` knows, sorted."""
    return sorted(_SETS)


def action_set(name: str) -> ActionSet:
    """The arms under `name`.

    Raises:
        UnknownNameError: no such set; lists the known ones.
    """
    found = _SETS.get(name)
    if found is None:
        raise UnknownNameError("action set", name, _SETS)
    return found


def fingerprint(actions: ActionSet) -> str:
    """Identity of a set: its arms' ids and parameters, whatever their order and the set's name (MC-13)."""
    arms = sorted(
        [arm.action_id, arm.op.value, arm.top_k, arm.insight_k, arm.hop, arm.query_suffix] for arm in actions.actions
    )
    return ids.stable_hash("action_set", arms)


def priors(actions: ActionSet, *, warm_start: bool) -> tuple[float, ...]:
    """Prior of each arm, in arm order; all 0 without warm start (MC-28)."""
    return tuple(PRIORS[arm.op] if warm_start else 0.0 for arm in actions.actions)
