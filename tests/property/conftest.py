"""How the property tests run: what an example takes says nothing of the code on a machine with other work."""

from __future__ import annotations

from hypothesis import settings

# Nor does the first table of a process, which compiles the arithmetic or loads it: up to seconds.
settings.register_profile("memcon", deadline=None)
settings.load_profile("memcon")
