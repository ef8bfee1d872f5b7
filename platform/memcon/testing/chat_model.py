"""Contract of `ChatModel`, and a scripted model that shows what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from memcon.protocols import ChatModel, Completion, Message
from memcon.tokens import estimate_tokens

__all__ = ["ChatModelContract", "Request", "ScriptedModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call that a model received."""

    messages: tuple[Message, ...]
    seed: int

    @property
    def text(self) -> str:
        """All that the model was shown, in order."""
        return "\n".join(message.content for message in self.messages)


class ScriptedModel:
    """Answers with the given replies in turn (the last one again when they run out), or with a rule over the request.

    A reply that is an exception is raised. `requests` holds every call, so that a test can read the prompts.
    """

    model_id = "scripted"
    token_source = "characters/4"

    def __init__(self, replies: Sequence[str | Exception] | Callable[[Request], str]) -> None:
        self._replies = replies
        self.requests: list[Request] = []
        self.closed = False

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        request = Request(messages=tuple(messages), seed=seed)
        self.requests.append(request)
        answer = self._answer(request)
        if isinstance(answer, Exception):
            raise answer
        return Completion(
            text=answer,
            prompt_tokens=sum(estimate_tokens(message.content) for message in messages),
            completion_tokens=estimate_tokens(answer),
            model_id=self.model_id,
        )

    async def close(self) -> None:
        self.closed = True

    def _answer(self, request: Request) -> str | Exception:
        if callable(self._replies):
            return self._replies(request)
        return self._replies[min(len(self.requests), len(self._replies)) - 1]


class ChatModelContract:
    """What every backbone keeps. Override `model` and `messages` (a request that it can answer)."""

    @pytest.fixture
    def model(self) -> ChatModel:
        raise NotImplementedError

    @pytest.fixture
    def messages(self) -> tuple[Message, ...]:
        raise NotImplementedError

    def test_model_says_who_it_is_and_who_counts_tokens(self, model: ChatModel) -> None:
        assert model.model_id
        assert model.token_source in {"provider", "characters/4"}

    async def test_answer_carries_text_usage_and_model_id(
        self, model: ChatModel, messages: tuple[Message, ...]
    ) -> None:
        completion = await model.complete(messages, seed=1)
        assert completion.model_id
        assert completion.prompt_tokens > 0
        assert completion.completion_tokens == 0 or completion.text

    async def test_equal_request_and_seed_give_the_equal_answer_in_any_order(
        self, model: ChatModel, messages: tuple[Message, ...]
    ) -> None:
        first = [(await model.complete(messages, seed=seed)).text for seed in range(6)]
        again = [(await model.complete(messages, seed=seed)).text for seed in reversed(range(6))]
        assert first == again[::-1]

    async def test_calls_at_the_same_time_do_not_disturb_each_other(
        self, model: ChatModel, messages: tuple[Message, ...]
    ) -> None:
        alone = [(await model.complete(messages, seed=seed)).text for seed in range(4)]
        together = await asyncio.gather(*(model.complete(messages, seed=seed) for seed in range(4)))
        assert [completion.text for completion in together] == alone

    async def test_close_may_be_called_twice(self, model: ChatModel) -> None:
        await model.close()
        await model.close()
