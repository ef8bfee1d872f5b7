"""The arms of the policy and their priors (paper Tables 6 and 7). Owns action sets by name and their identity.

`default` is Table 7. The paper names `retrieval_heavy` and `plan_first` without saying what is in them (MC-14), and has
no `compact`: these three are defined here, and what they hold is ours.

- `retrieval_heavy`: how much to retrieve is the whole question: Table 7's depths, two wider ones, `insight_only`,
  `re_retrieve` and `noop`; no plans, no maintenance. For tasks where several records say more than the best one.
- `plan_first`: Table 7's nine arms with `plan_inject` in front and its prior above those of `retrieve`, so that a new
  key tries the plan before anything else; it differs from `default` in nothing else.
- `compact`: the arms that differ in what they do to one task: shallow, medium, deep, plan, insights, nothing, and
  `re_retrieve` while the agent is stuck. Without Consolidate and Forget, which act as `noop` in their own task and
  whose later good no credit has shown; run them as a schedule instead (`control.consolidate_every`, `forget_every`).

An arm id means the same parameters in every set; only where it may be chosen differs.
"""

from __future__ import annotations

import dataclasses
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

_SHALLOW = MemoryAction(action_id="retrieve_shallow", op=Operation.RETRIEVE, top_k=1, insight_k=3, hop=1)
_MEDIUM = MemoryAction(action_id="retrieve_medium", op=Operation.RETRIEVE, top_k=2, insight_k=5, hop=1)
_DEEP = MemoryAction(action_id="retrieve_deep", op=Operation.RETRIEVE, top_k=3, insight_k=8, hop=2)
_PLAN = MemoryAction(action_id="plan_inject", op=Operation.PLAN_INJECT, top_k=1, insight_k=3)
_AGAIN = MemoryAction(
    action_id="re_retrieve", op=Operation.RE_RETRIEVE, top_k=2, insight_k=5, hop=2, query_suffix=QUERY_SUFFIX
)
_CONSOLIDATE = MemoryAction(action_id="consolidate", op=Operation.CONSOLIDATE)
_FORGET = MemoryAction(action_id="forget", op=Operation.FORGET)
_INSIGHTS = MemoryAction(action_id="insight_only", op=Operation.RETRIEVE, top_k=1, insight_k=2, hop=0)
_NOOP = MemoryAction(action_id="noop", op=Operation.NOOP)
# Beyond Table 7: as many items as a majority over past records needs.
_WIDE = MemoryAction(action_id="retrieve_wide", op=Operation.RETRIEVE, top_k=5, insight_k=8, hop=1)
_WIDEST = MemoryAction(action_id="retrieve_widest", op=Operation.RETRIEVE, top_k=8, insight_k=8, hop=2)

# Table 7, in its order (MC-12).
_DEFAULT = ActionSet(
    name="default",
    actions=(_SHALLOW, _MEDIUM, _DEEP, _PLAN, _AGAIN, _CONSOLIDATE, _FORGET, _INSIGHTS, _NOOP),
)
_RETRIEVAL_HEAVY = ActionSet(
    name="retrieval_heavy",
    actions=(_SHALLOW, _MEDIUM, _DEEP, _WIDE, _WIDEST, _INSIGHTS, _AGAIN, _NOOP),
)
_PLAN_FIRST = ActionSet(
    name="plan_first",
    # In front too: without warm start all priors are 0, and the order of first visits is the arms'.
    actions=(_PLAN, *[arm for arm in _DEFAULT.actions if arm is not _PLAN]),
    priors={_PLAN.action_id: 0.6},
)
_COMPACT = ActionSet(
    name="compact",
    actions=(_SHALLOW, _MEDIUM, _DEEP, _PLAN, _INSIGHTS, _NOOP, dataclasses.replace(_AGAIN, only_when_stuck=True)),
)
_SETS: Mapping[str, ActionSet] = MappingProxyType(
    {chosen.name: chosen for chosen in (_DEFAULT, _RETRIEVAL_HEAVY, _PLAN_FIRST, _COMPACT)}
)


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
    """Identity of a set: its arms' ids and parameters, whatever their order, priors and the set's name (MC-13)."""
    return ids.stable_hash("action_set", sorted(_identity(arm) for arm in actions.actions))


def _identity(arm: MemoryAction) -> list[str | int | None]:
    parameters = [arm.action_id, arm.op.value, arm.top_k, arm.insight_k, arm.hop, arm.query_suffix]
    # Only where it is set: arms had no such mark before.
    return [*parameters, "only_when_stuck"] if arm.only_when_stuck else parameters


def priors(actions: ActionSet, *, warm_start: bool) -> tuple[float, ...]:
    """Prior of each arm, in arm order: the set's own, else its operation's; all 0 without warm start (MC-28)."""
    if not warm_start:
        return (0.0,) * len(actions.actions)
    return tuple([actions.priors.get(arm.action_id, PRIORS[arm.op]) for arm in actions.actions])
