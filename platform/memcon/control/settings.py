"""Settings of memory control: each augmentation is a switch, so that an ablation is a config (MC-41)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from memcon import checks
from memcon.control.plans import PlanChoice, PlanForm

__all__ = ["OBSERVING", "ControlSettings", "PreloadSettings"]

# Settings of control that change neither when decisions are taken nor what an arm does.
OBSERVING = frozenset({"explain"})


@dataclass(slots=True, kw_only=True)
class ControlSettings:
    """When decisions are taken and what they may bring.

    Policy `none` takes none and brings the backend's default; of these settings it heeds the maintenance schedule only.
    """

    # "events": task start, change of the step phase, stuck turned true (reading A-1); "every_step": after each action;
    # "start": once, at task start.
    decision_points: str = "events"
    # An arm that the backend lacks: "noop" = may be chosen and does nothing, logged; "mask" = may not be chosen.
    unsupported_arms: str = "noop"
    # Plan templates are kept, show in the state key and are injected by the arm PlanInject.
    plan_injection: bool = True
    # "numbered" keeps which thing is which, with the source task's sentence; "bare" is the paper's form.
    plan_form: str = "numbered"
    # Which success becomes the template (reading A-7): "shortest", ties keep the older; or "latest".
    plan_choice: str = "shortest"
    # Two-object goals get the hint of MC-40.
    goal_decomposition: bool = True
    # Ask the owner for the per-arm values of each decision.
    explain: bool = False
    # Maintenance as a schedule outside the bandit: after every N-th task of a stream; None = never. Where both are due,
    # Consolidate goes first.
    forget_every: int | None = None
    consolidate_every: int | None = None

    def __post_init__(self) -> None:
        checks.choice("decision_points", self.decision_points, ("events", "every_step", "start"))
        checks.choice("unsupported_arms", self.unsupported_arms, ("noop", "mask"))
        checks.choice("plan_form", self.plan_form, ("numbered", "bare"))
        checks.choice("plan_choice", self.plan_choice, ("shortest", "latest"))
        for name in ("forget_every", "consolidate_every"):
            every = getattr(self, name)
            if every is not None:
                checks.in_range(name, every, 1)

    @property
    def form(self) -> PlanForm:
        """`plan_form` with its narrow type."""
        return cast("PlanForm", self.plan_form)

    @property
    def choice(self) -> PlanChoice:
        """`plan_choice` with its narrow type."""
        return cast("PlanChoice", self.plan_choice)


@dataclass(slots=True, kw_only=True)
class PreloadSettings:
    """What a memory holds before the first task of a stream: attempts at the benchmark's practice tasks."""

    # "reference_plans": the benchmark's own solutions; "attempts": what this agent does without memory.
    source: str = "reference_plans"
    # Practice tasks of each goal type.
    per_type: int = 25
    # Nothing is added afterwards: every task meets the same memory.
    frozen: bool = False

    def __post_init__(self) -> None:
        checks.choice("source", self.source, ("reference_plans", "attempts"))
        checks.in_range("per_type", self.per_type, 1, 1000)
