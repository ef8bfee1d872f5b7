"""What a launch asks of its plug-ins before it writes anything (`Plugin.check`)."""

from __future__ import annotations

import asyncio
import dataclasses
import io
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memcon import registry
from memcon.errors import ConfigError, MemconError, ProviderError, UnknownNameError
from memcon_platform.config import RunPlan, load
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_platform.sweep.preflight import check_plugins, endpoints
from memcon_platform.sweep.runner import RunEnd
from support.plugged import plugged
from support.shell import SMALL, SMOKE

Check = Callable[[Any], Awaitable[None]]


class Nobody:
    """An observer that does not look."""

    def task_ended(self, task: object) -> None:
        return

    def cell_ended(self, cell: str) -> None:
        return


@contextmanager
def checked(checks: dict[tuple[str, str], Check]) -> Iterator[None]:
    """The installed plug-ins, some of them with a check."""
    with plugged({key: dataclasses.replace(registry.plugin(*key), check=check) for key, check in checks.items()}):
        yield


def asked_for(plan: RunPlan) -> str:
    """What is shown while the plug-ins of all streams are asked."""
    shown = io.StringIO()
    asyncio.run(check_plugins(plan, streams_of(plan), Console(file=shown, width=400)))
    return shown.getvalue()


def streams_of(plan: RunPlan) -> list[tuple[str, int]]:
    return [(cell.cell_id, stream) for cell in plan.cells for stream in range(cell.streams)]


def launched(plan: RunPlan) -> RunEnd:
    how = Launch(open_pool=open_local, observe=lambda *_: Nobody(), console=Console(quiet=True))
    _, end = asyncio.run(launch(plan, how))
    return end


def refusing(error: BaseException) -> Check:
    async def check(config: Any) -> None:
        raise error

    return check


def plan_of(root: Path, *overrides: str) -> RunPlan:
    return load(SMOKE, [*SMALL, f"root={root}", *overrides])


TWO_STRENGTHS = "axes.backbone=[imitator,{name: imitator, noise: 0.1}]"


def test_each_distinct_entry_is_asked_once_with_its_own_config(tmp_path: Path) -> None:
    asked: list[float] = []

    async def check(config: Any) -> None:
        asked.append(config.noise)

    with checked({("backbone", "imitator"): check}):
        plan = plan_of(tmp_path, TWO_STRENGTHS, "axes.seed=[0,1,2]", "include=[]")
        shown = asked_for(plan)

    assert len(plan.cells) > 2
    assert sorted(asked) == [0.1, 0.3]
    assert "backbone 'imitator', backbone 'imitator noise=0.1'" in shown


def test_all_are_asked_at_once_and_the_first_refusal_in_plan_order_is_told(tmp_path: Path) -> None:
    begun: list[str] = []
    both = asyncio.Event()

    def slow(name: str, error: Exception) -> Check:
        async def check(config: Any) -> None:
            begun.append(name)
            if len(begun) == 2:
                both.set()
            # Would never end if one were asked after the other.
            await both.wait()
            raise error

        return check

    refusals = {
        # Later in the plan's order of axes, whichever answers first.
        ("embedder", "hashing"): slow("embedder", ProviderError("second")),
        ("backbone", "imitator"): slow("backbone", ProviderError("the key is refused")),
    }
    with checked(refusals), pytest.raises(ProviderError) as caught:
        asked_for(plan_of(tmp_path))

    assert str(caught.value) == "backbone 'imitator': the key is refused"
    assert sorted(begun) == ["backbone", "embedder"]


def test_a_refusal_keeps_its_kind_and_what_it_carries(tmp_path: Path) -> None:
    refusal = UnknownNameError("region", "eu-midle", ["eu-middle", "us-east"])

    with checked({("memory", "metagpt"): refusing(refusal)}), pytest.raises(UnknownNameError) as caught:
        asked_for(plan_of(tmp_path))

    assert caught.value.allowed == ["eu-middle", "us-east"]
    assert str(caught.value).startswith("memory 'metagpt': unknown region 'eu-midle'")


@pytest.mark.parametrize("error", [KeyError("host"), asyncio.CancelledError()])
def test_a_check_that_breaks_is_named_with_its_plug_in(tmp_path: Path, error: BaseException) -> None:
    said = f"^backbone 'imitator': its check failed: {type(error).__name__}: "

    with checked({("backbone", "imitator"): refusing(error)}), pytest.raises(ConfigError, match=said):
        asked_for(plan_of(tmp_path))


def test_a_refusal_that_names_its_plug_in_is_not_told_twice(tmp_path: Path) -> None:
    refusal = ConfigError("backbone 'imitator' names no model; set model: ID")

    with checked({("backbone", "imitator"): refusing(refusal)}), pytest.raises(ConfigError) as caught:
        asked_for(plan_of(tmp_path))

    assert str(caught.value) == str(refusal)


def test_without_checks_nothing_is_asked_and_nothing_said(tmp_path: Path) -> None:
    assert asked_for(plan_of(tmp_path)) == ""


def test_each_distinct_entry_says_where_it_is_asked(tmp_path: Path) -> None:
    imitator = dataclasses.replace(
        registry.plugin("backbone", "imitator"), endpoint=lambda config: f"http://localhost/{config.noise}"
    )
    with plugged({("backbone", "imitator"): imitator}):
        plan = plan_of(tmp_path, TWO_STRENGTHS, "axes.seed=[0,1]", "include=[]")
        assert endpoints(plan, streams_of(plan)) == [
            "backbone 'imitator' at http://localhost/0.3",
            "backbone 'imitator noise=0.1' at http://localhost/0.1",
        ]
        assert endpoints(plan, []) == []


def test_an_entry_that_is_asked_nowhere_is_named(tmp_path: Path) -> None:
    def nowhere(_config: object) -> str:
        raise KeyError("HOST")

    lost = dataclasses.replace(registry.plugin("backbone", "imitator"), endpoint=nowhere)
    with plugged({("backbone", "imitator"): lost}), pytest.raises(ConfigError, match="its endpoint failed: KeyError"):
        launched(plan_of(tmp_path))


def test_a_refused_launch_has_written_nothing_and_a_finished_run_asks_nothing(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    refused = {("backbone", "imitator"): refusing(ProviderError("endpoint 127.0.0.1:9 does not answer"))}

    with checked(refused), pytest.raises(MemconError, match="does not answer"):
        launched(plan)

    # The lock alone: whoever drives the run holds it.
    assert [path.name for path in plan.run_dir.iterdir()] == ["run.lock"]
    assert not launched(plan).failures
    with checked(refused):
        assert not launched(plan).failures
        # Added cells are asked for again.
        with pytest.raises(ProviderError, match="does not answer"):
            launched(plan_of(tmp_path, "axes.seed=[0,1]", "include=[{memory: empty, policy: none, seed: 0}]"))
