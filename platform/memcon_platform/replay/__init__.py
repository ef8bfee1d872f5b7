"""Replay: what the journal proves about a run."""

from memcon_platform.replay.verification import VerifyReport, verify

__all__ = ["VerifyReport", "verify"]
