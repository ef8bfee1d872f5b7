"""Asks, before a launch writes anything, whether what its streams name can be used: endpoint, key, server, file.

A plug-in says how by `Plugin.check`; one without it is taken at its word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from memcon import codec, registry
from memcon.errors import ConfigError, MemconError, placed
from memcon_platform.config.plan import PLUGIN_AXES, Entry, RunPlan
from memcon_platform.sweep.events import StreamName
from memcon_platform.sweep.interrupts import interrupts

__all__ = ["check_plugins"]

_KINDS = (*PLUGIN_AXES, "embedder")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    kind: str
    entry: Entry
    ask: Callable[[Any], Awaitable[None]]

    @property
    def name(self) -> str:
        return f"{self.kind} '{self.entry.label}'"

    async def answer(self) -> None:
        await self.ask(registry.configure(self.kind, self.entry.name, self.entry.parameters))


async def check_plugins(plan: RunPlan, streams: Iterable[StreamName], console: Console) -> None:
    """Ask the check of every distinct plug-in entry of the cells of `streams`, all at once.

    Raises:
        MemconError: the first refusal in the order of the plan; its text begins with the entry.
        Interrupted: Ctrl-C came meanwhile.
    """
    questions = _questions(plan, streams)
    if not questions:
        return
    named = ", ".join(question.name for question in questions)
    console.print(f"checking {named} ...", style="dim", soft_wrap=True, markup=False, highlight=False)
    with interrupts():
        answers = await asyncio.gather(*(question.answer() for question in questions), return_exceptions=True)
    for question, answer in zip(questions, answers, strict=True):
        if isinstance(answer, MemconError):
            if str(answer).startswith(f"{question.kind} '{question.entry.name}"):
                raise answer
            raise placed(answer, question.name) from answer
        if isinstance(answer, BaseException):
            raise ConfigError(f"{question.name}: its check failed: {type(answer).__name__}: {answer}") from answer


def _questions(plan: RunPlan, streams: Iterable[StreamName]) -> list[_Question]:
    wanted = {cell for cell, _ in streams}
    found: dict[tuple[str, str, str], _Question] = {}
    for cell in plan.cells:
        for kind in _KINDS if cell.cell_id in wanted else ():
            entry: Entry = getattr(cell, kind)
            ask = registry.plugin(kind, entry.name).check
            if ask is not None:
                key = (kind, entry.name, codec.encode_json(entry.parameters))
                found.setdefault(key, _Question(kind=kind, entry=entry, ask=ask))
    return list(found.values())
