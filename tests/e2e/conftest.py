"""What one of these tests may take: it starts several processes, and a busy machine several times as long for each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_LONGEST_S = 180


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_LONGEST_S))
