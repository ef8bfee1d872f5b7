"""A stream records which model answered (HX-3), and a provider that refuses us uses no task up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memcon.control.settings import PreloadSettings
from memcon.errors import ProviderError, UnavailableError
from memcon.protocols import Completion, Message
from memcon.types import OutcomeClass
from support.streams import StreamRig, lasting, spec_of


class Renamed:
    """Another model's answers, under the ids that `name` gives by the number of the call; `name` may raise."""

    token_source = "provider"

    def __init__(self, inner: Any, name: Callable[[int], str]) -> None:
        self._inner, self._name = inner, name
        self.model_id = "asked-for"
        self.calls = 0

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        self.calls += 1
        reported = self._name(self.calls - 1)
        completion: Completion = await self._inner.complete(messages, seed=seed)
        return replace(completion, model_id=reported)

    async def close(self) -> None:
        return


def rig_of(folder: Path, name: Callable[[int], str], **changes: Any) -> StreamRig:
    rig = StreamRig(spec_of(folder, **changes))
    rig.wrap_model = lambda model: Renamed(model, name)
    return rig


def refuse_from(call: int, error: Exception) -> Callable[[int], str]:
    def name(number: int) -> str:
        if number >= call:
            raise error
        return "a-2025"

    return name


async def test_the_ids_of_a_task_stand_in_its_episode(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, lambda call: "a-2025" if call < 3 else "b-2025", limit=2)

    await rig.run()

    assert [episode.model_ids for episode in rig.episodes()] == [("a-2025", "b-2025"), ("b-2025",)]
    assert rig.exported() == rig.episodes()


async def test_a_task_that_is_played_under_every_arm_has_the_ids_of_all_plays(tmp_path: Path) -> None:
    # A new id each call: those of the plays that make no episode are in it too, in order.
    rig = rig_of(tmp_path, lambda call: f"id-{call}", limit=1, learning=None, trial_set="default")

    await rig.run()

    (episode,) = rig.episodes()
    assert len(episode.trials) == 9
    assert episode.model_ids is not None
    assert episode.model_ids == tuple(f"id-{call}" for call in range(len(episode.model_ids)))
    assert len(episode.model_ids) > len(episode.steps)


async def test_a_refusal_uses_no_task_up_and_the_resume_ends_as_an_undisturbed_stream(tmp_path: Path) -> None:
    whole = rig_of(tmp_path / "whole", lambda call: "a-2025", limit=3)
    await whole.run()
    first = len(whole.episodes()[0].steps)
    # In the middle of the second task.
    shaken = rig_of(tmp_path / "shaken", refuse_from(first + 2, ProviderError("the key is refused")), limit=3)

    with pytest.raises(ProviderError, match="the key is refused"):
        await shaken.run()

    assert [episode.ordinal for episode in shaken.episodes()] == [0]
    shaken.wrap_model = lambda model: Renamed(model, lambda call: "a-2025")
    await shaken.run()
    assert list(map(lasting, shaken.episodes())) == list(map(lasting, whole.episodes()))
    assert shaken.memory() == whole.memory()


async def test_a_model_that_is_away_ends_the_task_and_not_the_stream(tmp_path: Path) -> None:
    def away_at_first(call: int) -> str:
        if call == 0:
            raise UnavailableError("no reply after 3 tries")
        return "a-2025"

    rig = rig_of(tmp_path, away_at_first, limit=2)

    await rig.run()

    lost, played = rig.episodes()
    assert (lost.outcome.outcome_class, lost.outcome.error_boundary) == (OutcomeClass.UNEVALUABLE, "backbone")
    assert (lost.model_ids, played.model_ids) == ((), ("a-2025",))


@pytest.mark.parametrize(
    ("error", "expected", "said"),
    [
        (ProviderError("the key is refused"), ProviderError, "^the key is refused$"),
        (UnavailableError("no reply"), UnavailableError, "practice task .* could not be played: backbone failed"),
    ],
)
async def test_practice_is_played_in_the_same_way(
    tmp_path: Path, error: Exception, expected: type[Exception], said: str
) -> None:
    preload = PreloadSettings(source="attempts", per_type=1)
    rig = rig_of(tmp_path, refuse_from(0, error), preload=preload, limit=1)

    with pytest.raises(expected, match=said):
        await rig.run()

    assert rig.episodes() == []
