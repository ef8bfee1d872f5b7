"""Plug-ins that stand in the registry while a test runs, beside or in place of the installed ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from memcon import registry
from memcon.registry import Plugin


@contextmanager
def plugged(found: Mapping[tuple[str, str], Plugin]) -> Iterator[None]:
    """Inside the block `registry.plugin(kind, name)` gives the plug-in of `found`, by (kind, name)."""
    plugin, names = registry.plugin, registry.names
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "plugin", lambda kind, name: found.get((kind, name)) or plugin(kind, name))
        patch.setattr(
            registry, "names", lambda kind: sorted({*names(kind), *(name for of, name in found if of == kind)})
        )
        yield
