"""Backbone `gardener`: a rule program for `greenhouse`. It reads its prompt and nothing else; it is no language model.

It fetches a remedy and brings it to the plant. Which one, it takes from what the prompt remembers about tasks of the
same form: rules, attempts and plans; without any it draws.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memcon import checks
from memcon.control.memory.rendering import ACTION_MARK, OUTCOME_HEADER, PLAN_HEADER, TASK_HEADER
from memcon.protocols import Completion, Message
from memcon.registry import Plugin
from memcon.seeds import SeedTree
from memcon.tokens import estimate_tokens

__all__ = ["PLUGIN", "Gardener", "GardenerConfig"]

_GOAL = re.compile(r"^Goal: (.+)$", re.MULTILINE)
_CHOICE = re.compile(r"^- (.+)$", re.MULTILINE)
_RULE = re.compile(
    r'^In tasks like "(.+?)": after ".+?" do(?: not)? "take (\w+) from .+?"; (\d+) of (\d+) ', re.MULTILINE
)
_TAKE = re.compile(r"take (\w+) from ")
_NUMBER = re.compile(r"\d+")


@dataclass(slots=True, kw_only=True)
class GardenerConfig:
    """How far it trusts what it reads."""

    # Share of choices of a remedy that it draws, whatever the prompt remembers.
    curiosity: float = 0.0

    def __post_init__(self) -> None:
        checks.in_range("curiosity", self.curiosity, 0.0, 1.0)


class Gardener:
    """A `ChatModel`; the only chance is the request's seed."""

    model_id = "gardener/1"
    token_source = "characters/4"

    def __init__(self, config: GardenerConfig) -> None:
        self._config = config

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        """The action that the rules give for `messages`."""
        text = self._action("\n".join(message.content for message in messages), SeedTree((seed,)))
        return Completion(
            text=text,
            prompt_tokens=sum(estimate_tokens(message.content) for message in messages),
            completion_tokens=estimate_tokens(text),
            model_id=self.model_id,
        )

    async def close(self) -> None:
        """Nothing is open."""

    def _action(self, prompt: str, seeds: SeedTree) -> str:
        goal = found[-1] if (found := _GOAL.findall(prompt)) else ""
        choices: list[str] = _CHOICE.findall(prompt.rpartition("Admissible actions:")[2])
        bench = re.search(r"bench \d+", goal)
        ready = [choice for choice in choices if choice.startswith("use ")]
        takes = [choice for choice in choices if choice.startswith("take ")]
        # The shelf cannot be walked to from the shelf: there it shows remedies to take, or the hands are full.
        shelf = [choice for choice in choices if choice.startswith("go to shelf")]
        holds = any(choice.startswith("put ") for choice in choices)
        if ready:
            return ready[0]
        if takes:
            return self._remedy(prompt, goal, takes, seeds)
        if holds and bench is not None:
            return f"go to {bench[0]}"
        if shelf:
            return shelf[0]
        return seeds.child("any").generator().choice(choices) if choices else "look"

    def _remedy(self, prompt: str, goal: str, takes: Sequence[str], seeds: SeedTree) -> str:
        if seeds.child("curious").generator().random() < self._config.curiosity:
            return seeds.child("any").generator().choice(takes)
        won, tried = dict.fromkeys(takes, 0), dict.fromkeys(takes, 0)
        for remedy, successes, attempts in _remembered(prompt, _form(goal)):
            for take in takes:
                if take.startswith(f"take {remedy} "):
                    won[take] += successes
                    tried[take] += attempts
        scores = {take: (won[take] + 1) / (tried[take] + 2) for take in takes}
        best = [take for take in takes if scores[take] == max(scores.values())]
        return seeds.child("tie").generator().choice(best)


def _remembered(prompt: str, form: str) -> Iterator[tuple[str, int, int]]:
    """Remedy, successes and attempts, of all that the prompt remembers about goals of `form`."""
    for goal, remedy, won, tried in _RULE.findall(prompt):
        if _form(goal) == form:
            yield remedy, int(won), int(tried)
    here, won = False, 0
    for line in prompt.splitlines():
        if line.startswith((TASK_HEADER, PLAN_HEADER)):
            here, won = _form(line.partition(": ")[2]) == form, int(line.startswith(PLAN_HEADER))
        elif line.startswith(OUTCOME_HEADER):
            won = int(line.endswith("success"))
        elif here and (taken := _TAKE.search(line)) and (line.startswith(ACTION_MARK) or line[0].isdigit()):
            yield taken[1], won, 1


def _form(goal: str) -> str:
    return _NUMBER.sub("#", goal.strip().lower())


def _build(config: GardenerConfig) -> Gardener:
    return Gardener(config)


PLUGIN = Plugin(config=GardenerConfig, build=_build, summary="a rule program for `greenhouse`; not a language model")
