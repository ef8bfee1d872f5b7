"""One tree of seeds: (seed axis, benchmark) -> stream -> ordinal -> component (architecture: task protocol).

A leaf is named by its path, never by the order of calls, so that adding a draw somewhere moves no other draw. This is
the only module that makes random generators.
"""

from __future__ import annotations

import random  # noqa: TID251 - the one module that makes generators
from dataclasses import dataclass

from memcon import ids

__all__ = ["Generator", "SeedTree"]

# `random.Random` seeded with an integer is stable over Python versions, which numpy's generators do not promise.
Generator = random.Random


@dataclass(frozen=True, slots=True)
class SeedTree:
    """A place in the tree of seeds."""

    path: tuple[str | int, ...] = ()

    def child(self, *names: str | int) -> SeedTree:
        """The place below this one that `names` lead to."""
        return SeedTree((*self.path, *names))

    def value(self) -> int:
        """The 64-bit unsigned seed of this place."""
        return ids.draw64("seed", *self.path)

    def generator(self) -> Generator:
        """A fresh generator for this place; two calls give equal sequences."""
        return random.Random(self.value())
