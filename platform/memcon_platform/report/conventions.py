"""What reports and studies mean alike: the arms that stand beside every learner, and what counts as learned."""

from __future__ import annotations

__all__ = ["DEFAULT_ARM", "LEARNED_FROM", "NOOP_ARM"]

# What a static choice would be without any knowledge: one trajectory, the default of retrieval memories.
DEFAULT_ARM = "retrieve_shallow"
# Injects nothing.
NOOP_ARM = "noop"
# Outcomes of one table in one context below which the table has not learned the context: the standard error of an arm's
# mean is above the gaps that occur (docs/prototype.md, 1 and 8).
LEARNED_FROM = 30
