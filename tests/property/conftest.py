"""How the property tests run: what an example takes says nothing of the code on a machine with other work."""

from __future__ import annotations

from hypothesis import settings

# Nor does the first table of a process, which compiles the arithmetic or loads it: up to seconds.
# The examples hang on the text of the test alone: a run that fails can be had again, and so can one that is good.
# `pytest tests/property --hypothesis-profile explore` draws others.
settings.register_profile("memcon", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("memcon")
