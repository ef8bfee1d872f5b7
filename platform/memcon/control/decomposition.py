"""Goal decomposition: what a task with two objects is told (MC-40). A switch, no arm.

The hint joins the memory block of every decision that fetches something (Retrieve, Re-Retrieve, PlanInject), since the
paper adds it to what memory returns; NoOp and maintenance add nothing. The single-object template is part of the hint,
not of the plan: the plan slot belongs to the arm PlanInject alone (MC-18), and its tokens count as hint.
"""

from __future__ import annotations

from collections.abc import Mapping

from memcon.control.plans import PlanForm, PlanIndex, Rewriter

__all__ = ["TWO_OBJECTS_HINT", "hint"]

TWO_OBJECTS_HINT = (
    "This goal asks for two objects. Do every step for the first object until it is where it belongs, "
    "then do the same steps for the second object."
)
_TEMPLATE_HEADER = "Steps that solved the same goal for one object:"


def hint(
    goal_type: str, single_object_types: Mapping[str, str], plans: PlanIndex, *, rewriter: Rewriter, form: PlanForm
) -> str:
    """The hint for `goal_type`, with the single-object template when one is stored; "" for other goals."""
    single = single_object_types.get(goal_type)
    if single is None:
        return ""
    template = plans.get(single)
    if template is None:
        return TWO_OBJECTS_HINT
    return "\n".join([TWO_OBJECTS_HINT, _TEMPLATE_HEADER, rewriter.render(template, form)])
