"""Calls of the backbone `openai` as its tests make them: built by the plug-in, against the scripted server."""

from __future__ import annotations

from typing import Any

import pytest

from memcon import registry
from memcon.errors import MemconError
from memcon.protocols import Message
from memcon_workers.backbones.openai_chat import OpenAIChat
from support.openai_server import KEY, Asked

__all__ = ["HELLO", "SWEEP", "Models", "assert_no_secret", "refused", "say_look"]

# One cell over the profile that needs no base URL, whose prompts show all of a task; tests add what they need.
SWEEP = """
axes:
  benchmark: [household]
  framework: [{name: lobster, history_window: all, few_shot: 0, list_actions: true, loop_stop: false}]
  backbone: [{name: openai, profile: gpt-4.1-mini, max_retries: 0}]
  memory: [metagpt]
  policy: [ucb]
  seed: [0]
embedder: hashing
workers: 1
tracking: {enabled: false}
"""
HELLO = (Message(role="system", content="You act."), Message(role="user", content="Goal: put a mug in shelf."))
# As long a part of a key would tell.
_TELLING = 6


def say_look(_asked: Asked) -> str:
    """A rule that answers any prompt."""
    return "look at shelf 1"


class Models:
    """Builds models by the plug-in, closes them at the end."""

    def __init__(self, base_url: str) -> None:
        self._base_url, self._built = base_url, list[OpenAIChat]()

    def __call__(self, **parameters: Any) -> OpenAIChat:
        given = {"model": "m-1", "base_url": self._base_url, "max_retries": 0, **parameters}
        model: OpenAIChat = registry.build("backbone", "openai", given)
        self._built.append(model)
        return model

    async def close(self) -> None:
        for model in self._built:
            await model.close()


async def refused(model: OpenAIChat) -> MemconError:
    """The error of one call."""
    with pytest.raises(MemconError) as caught:
        await model.complete(HELLO, seed=1)
    return caught.value


def assert_no_secret(text: str, secret: str = KEY) -> None:
    """No telling part of `secret` stands in `text`."""
    parts = {secret[at : at + _TELLING] for at in range(len(secret) - _TELLING + 1)}
    assert [part for part in sorted(parts) if part in text] == []
