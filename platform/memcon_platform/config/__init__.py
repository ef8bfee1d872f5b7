"""Config files to plans: typed, complete, hashed. The only package that knows OmegaConf."""

from memcon_platform.config.loading import load
from memcon_platform.config.plan import Cell, Entry, RunPlan, RunSettings
from memcon_platform.config.plan_file import RunRecord, has_plan, read_plan, read_record, write_plan
from memcon_platform.config.provenance import provenance
from memcon_platform.config.reconcile import reconcile
from memcon_platform.config.summary import CellSummary, PlanSummary, plan_summary

__all__ = [
    "Cell",
    "CellSummary",
    "Entry",
    "PlanSummary",
    "RunPlan",
    "RunRecord",
    "RunSettings",
    "has_plan",
    "load",
    "plan_summary",
    "provenance",
    "read_plan",
    "read_record",
    "reconcile",
    "write_plan",
]
