"""Streams that begin with a memory, follow a schedule, wait for grants or play every arm: no death changes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memcon.control.settings import ControlSettings, PreloadSettings
from memcon.types import Task
from memcon_workers.spec import PluginSpec, StreamSpec
from support.streams import Fuse, PowerCut, StreamRig, household, lasting, spec_of

KEEPER = PluginSpec(name="metagpt", parameters={"maintenance": True, "index_failures": True})
PLANS = PreloadSettings(per_type=1)


async def _earlier_run(folder: Path) -> str:
    rig = StreamRig(spec_of(folder / "earlier", limit=2, cell="earlier", memory=KEEPER))
    await rig.run()
    return rig.spec.store_path


async def preloaded(folder: Path) -> Callable[[Path], StreamSpec]:
    return lambda place: spec_of(place, limit=1, preload=PLANS)


async def practised(folder: Path) -> Callable[[Path], StreamSpec]:
    return lambda place: spec_of(place, limit=1, preload=PreloadSettings(source="attempts", per_type=1))


async def copied(folder: Path) -> Callable[[Path], StreamSpec]:
    source = await _earlier_run(folder)
    return lambda place: spec_of(place, limit=1, memory=KEEPER, memory_from=source)


async def frozen(folder: Path) -> Callable[[Path], StreamSpec]:
    source = await _earlier_run(folder)
    return lambda place: spec_of(place, limit=1, memory=KEEPER, memory_from=source, memory_frozen=True)


async def scheduled(folder: Path) -> Callable[[Path], StreamSpec]:
    control = ControlSettings(decision_points="start", forget_every=2, consolidate_every=1)
    return lambda place: spec_of(place, limit=2, memory=KEEPER, control=control)


async def gated(folder: Path) -> Callable[[Path], StreamSpec]:
    return lambda place: spec_of(
        place, limit=2, gated=True, learning=None, control=ControlSettings(decision_points="start")
    )


async def trials(folder: Path) -> Callable[[Path], StreamSpec]:
    """Every arm on a memory that holds something; the drawn one is Forget, which changes it."""
    source = await _earlier_run(folder)
    matrix: dict[str, Any] = {"learning": None, "trial_set": "default", "memory": KEEPER, "memory_from": source}
    return lambda place: spec_of(place, limit=1, stream=FORGETTING, **matrix)


# A stream in whose first task the drawn arm is Forget.
FORGETTING = 4


class Short:
    """Household with two practice tasks, and a horizon that lets a death in every play take its time."""

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps

    def __getattr__(self, name: str) -> Any:
        return getattr(household(), name)

    def tasks(self) -> Sequence[Task]:
        return [replace(task, max_steps=self._max_steps) for task in household().tasks()]

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        return [replace(task, max_steps=self._max_steps) for task in household().practice_tasks(per_type)[:2]]


def _rig(kind: Any, spec: StreamSpec) -> StreamRig:
    rig = StreamRig(spec)
    # Solutions need the whole horizon.
    rig.benchmark = Short(6 if kind in {practised, trials} else 30)
    return rig


@pytest.mark.parametrize("kind", [preloaded, practised, copied, frozen, scheduled, gated, trials])
async def test_a_death_at_any_call_changes_nothing_in_the_end(kind: Any, tmp_path: Path) -> None:
    make = await kind(tmp_path)
    whole, fuse = _rig(kind, make(tmp_path / "whole")), Fuse()
    await whole.run(fuse=fuse)
    expected = [lasting(episode) for episode in whole.episodes()]
    for at, name in enumerate(fuse.calls):
        rig, death = _rig(kind, make(tmp_path / str(at))), f"death {name} (call {at})"
        with pytest.raises(PowerCut):
            await rig.run(fuse=Fuse(at))
        assert (await rig.run()).done, death
        assert [lasting(episode) for episode in rig.episodes()] == expected, death
        assert [lasting(episode) for episode in rig.exported()] == expected, death
        assert rig.memory() == whole.memory(), death
        if rig.spec.learning is not None:
            assert rig.tables() == whole.tables(), death


async def test_the_deaths_meet_the_calls_that_matter(tmp_path: Path) -> None:
    met: dict[str, set[str]] = {}
    for kind in (preloaded, copied, scheduled, gated, trials):
        rig, fuse = _rig(kind, (await kind(tmp_path))(tmp_path / kind.__name__)), Fuse()
        await rig.run(fuse=fuse)
        met[kind.__name__] = set(fuse.calls)
    assert {"before seeded", "before record", "after seeded"} <= met["preloaded"]
    assert {"before seeded", "after copy_memory", "after seeded"} <= met["copied"]
    assert {"before maintain", "after maintain"} <= met["scheduled"]
    assert {"before passed", "after passed"} <= met["gated"]
    assert {"after run", "before maintain", "after maintain"} <= met["trials"]
