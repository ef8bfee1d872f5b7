"""The backbone `openai` keeps the contract of a chat model, over real HTTP against the scripted server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memcon import registry
from memcon.protocols import ChatModel, Message
from memcon.testing.chat_model import ChatModelContract
from memcon.testing.contract import Run
from memcon.types import MemoryContext
from memcon_workers.frameworks.prompt import Prompt
from support.openai_server import KEY, ScriptedOpenAI

pytest.importorskip("openai", reason="the extra `openai` is not installed; EXTRAS=all make test")


@pytest.fixture
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI() as server:
        yield server


class TestOpenAIChat(ChatModelContract):
    @pytest.fixture
    def model(self, run: Run, server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatModel]:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        parameters = {"profile": "gpt-4.1-mini", "base_url": server.base_url, "max_retries": 0}
        model: ChatModel = registry.build("backbone", "openai", parameters)
        yield model
        run(model.close())

    @pytest.fixture
    def messages(self) -> tuple[Message, ...]:
        prompt = Prompt(
            goal="put a mug in shelf.", first_observation="You see a shelf 1.", window="all", list_actions=True
        )
        return prompt.messages(MemoryContext(), actions=["go to desk 1", "go to desk 2", "go to shelf 1", "look"])
