"""The report of a run, from its Parquet and plan.json alone: terminal, one HTML file, JSON."""

from memcon_platform.report.build import build
from memcon_platform.report.data import CellResult, GroupResult, ReportData

__all__ = ["CellResult", "GroupResult", "ReportData", "build"]
