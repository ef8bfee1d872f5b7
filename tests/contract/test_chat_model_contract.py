"""Every chat model passes the one contract, the fake included."""

from __future__ import annotations

import pytest

from memcon.protocols import ChatModel, Message
from memcon.testing import ChatModelContract
from memcon.testing.chat_model import ScriptedModel
from memcon.types import MemoryContext
from memcon_workers.backbones.imitator import Imitator, ImitatorConfig
from memcon_workers.frameworks.prompt import Prompt


@pytest.fixture
def listed_prompt() -> tuple[Message, ...]:
    prompt = Prompt(
        goal="put a mug in shelf.",
        first_observation="You see a desk 1, a desk 2, and a shelf 1.",
        window="all",
        list_actions=True,
    )
    return prompt.messages(MemoryContext(), actions=["go to desk 1", "go to desk 2", "go to shelf 1", "look"])


class TestImitator(ChatModelContract):
    @pytest.fixture
    def model(self) -> ChatModel:
        return Imitator(ImitatorConfig())

    @pytest.fixture
    def messages(self, listed_prompt: tuple[Message, ...]) -> tuple[Message, ...]:
        return listed_prompt


class TestScriptedModel(ChatModelContract):
    @pytest.fixture
    def model(self) -> ChatModel:
        return ScriptedModel(lambda request: f"go to desk {1 + request.seed % 2}")

    @pytest.fixture
    def messages(self, listed_prompt: tuple[Message, ...]) -> tuple[Message, ...]:
        return listed_prompt
