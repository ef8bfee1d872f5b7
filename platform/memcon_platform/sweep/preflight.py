"""Asks, before a launch writes anything, whether what its streams name can be used: endpoint, key, server, file.

A plug-in says how by `Plugin.check`; one without it is taken at its word. Where it is asked it says by
`Plugin.endpoint`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from memcon import codec, registry
from memcon.errors import ConfigError, MemconError, placed
from memcon_platform.config.plan import PLUGIN_AXES, Entry, RunPlan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.interrupts import interrupts

__all__ = ["check_plugins", "endpoints"]

_KINDS = (*PLUGIN_AXES, "embedder")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    """A distinct plug-in entry of the streams that are left."""

    kind: str
    entry: Entry

    @property
    def name(self) -> str:
        return f"{self.kind} '{self.entry.label}'"

    @property
    def plugin(self) -> registry.Plugin:
        return registry.plugin(self.kind, self.entry.name)

    def config(self) -> Any:
        return registry.configure(self.kind, self.entry.name, self.entry.parameters)

    async def answer(self) -> None:
        if self.plugin.check is not None:
            await self.plugin.check(self.config())

    def refused(self, error: BaseException, doing: str) -> MemconError:
        if not isinstance(error, MemconError):
            return ConfigError(f"{self.name}: its {doing} failed: {type(error).__name__}: {error}")
        is_named = str(error).startswith(f"{self.kind} '{self.entry.name}")
        return error if is_named else placed(error, self.name)


async def check_plugins(plan: RunPlan, streams: Iterable[StreamName], console: Console) -> None:
    """Ask the check of every distinct plug-in entry of the cells of `streams`, all at once.

    Raises:
        MemconError: the first refusal in the order of the plan; its text begins with the entry.
        Interrupted: Ctrl-C came meanwhile.
    """
    questions = [used for used in _used(plan, streams) if used.plugin.check is not None]
    if not questions:
        return
    named = ", ".join(question.name for question in questions)
    console.print(f"checking {named} ...", style="dim", soft_wrap=True, markup=False, highlight=False)
    with interrupts():
        answers = await asyncio.gather(*(question.answer() for question in questions), return_exceptions=True)
    for question, answer in zip(questions, answers, strict=True):
        if isinstance(answer, BaseException):
            raise question.refused(answer, "check") from answer


def endpoints(plan: RunPlan, streams: Iterable[StreamName]) -> list[str]:
    """Where the plug-in entries of the cells of `streams` are asked, in the order of the plan, one text an entry.

    Raises:
        MemconError: one is asked nowhere; its text begins with the entry.
    """
    found = []
    for used in _used(plan, streams):
        if used.plugin.endpoint is None:
            continue
        try:
            found.append(f"{used.name} at {used.plugin.endpoint(used.config())}")
        except Exception as error:
            raise used.refused(error, "endpoint") from error
    return found


def _used(plan: RunPlan, streams: Iterable[StreamName]) -> list[_Used]:
    wanted = {cell for cell, _ in streams}
    found: dict[tuple[str, str, str], _Used] = {}
    for cell in plan.cells:
        for kind in _KINDS if cell.cell_id in wanted else ():
            entry: Entry = getattr(cell, kind)
            key = (kind, entry.name, codec.encode_json(entry.parameters))
            found.setdefault(key, _Used(kind=kind, entry=entry))
    return list(found.values())
