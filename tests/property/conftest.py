"""What all property tests need before their first example, which has a deadline."""

from __future__ import annotations

import pytest

from memcon.learning import kernel


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """The first table of a process compiles the arithmetic, or loads it: up to seconds."""
    kernel.kernels()
