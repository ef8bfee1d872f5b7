"""Contract of `ChatModel`, and a scripted model that shows what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from memcon.protocols import ChatModel, Completion, Message
from memcon.testing.contract import Contract, Run, accepts, expect, expect_equal, expect_kind, expect_port, to_give
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

    A reply that is an exception is raised. `requests` holds every call, so that a test can read the prompts, and
    `answers` every completion.
    """

    model_id = "scripted"
    token_source = "characters/4"

    def __init__(self, replies: Sequence[str | Exception] | Callable[[Request], str]) -> None:
        self._replies = replies
        self.requests: list[Request] = []
        self.answers: list[Completion] = []
        self.closed = False

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        request = Request(messages=tuple(messages), seed=seed)
        self.requests.append(request)
        answer = self._answer(request)
        if isinstance(answer, Exception):
            raise answer
        completion = Completion(
            text=answer,
            prompt_tokens=sum(estimate_tokens(message.content) for message in messages),
            completion_tokens=estimate_tokens(answer),
            model_id=self.model_id,
        )
        self.answers.append(completion)
        return completion

    async def close(self) -> None:
        self.closed = True

    def _answer(self, request: Request) -> str | Exception:
        if callable(self._replies):
            return self._replies(request)
        return self._replies[min(len(self.requests), len(self._replies)) - 1]


class ChatModelContract(Contract):
    """What every backbone keeps. Override `model`, and `messages` where it cannot answer just any request."""

    # False for a provider that samples anew at each call, whatever the seed.
    deterministic = True

    @pytest.fixture
    def model(self) -> ChatModel:
        """The backbone under test."""
        to_give(self, "model", "ChatModel", "the backbone under test, as its plug-in builds it")

    @pytest.fixture
    def messages(self) -> tuple[Message, ...]:
        """A request that the model can answer."""
        return (
            Message(role="system", content="You press switches. Answer with one action."),
            Message(role="user", content="You see 3 switches. Your task is to: press all switches in order."),
        )

    def test_model_says_who_it_is_and_who_counts_tokens(self, model: ChatModel) -> None:
        expect_port(model, ChatModel)
        expect(
            isinstance(model.model_id, str) and model.model_id != "",
            "ChatModel.model_id",
            "is the id of the model that is asked, and not empty",
            met=model.model_id,
        )
        expect(
            model.token_source in {"provider", "characters/4"},
            "ChatModel.token_source",
            "is 'provider' when the provider counts tokens, or 'characters/4' when they are estimated",
            met=model.token_source,
        )

    def test_answer_carries_text_usage_and_model_id(
        self, run: Run, model: ChatModel, messages: tuple[Message, ...]
    ) -> None:
        with accepts(
            "ChatModel.complete", wants="answers the request of the fixture `messages` (give one that it can)"
        ):
            answer = run(model.complete(messages, seed=1))
        expect_kind(answer, Completion, "ChatModel.complete")
        expect(
            answer.model_id != "",
            "ChatModel.complete",
            "names the id of the model that answered, as the provider reports it",
            met=answer.model_id,
        )
        expect(
            answer.prompt_tokens > 0,
            "ChatModel.complete",
            "counts the tokens of the request: prompt_tokens is above 0",
            met=answer.prompt_tokens,
        )
        expect(
            answer.completion_tokens >= (1 if answer.text else 0),
            "ChatModel.complete",
            "counts the tokens of the answer: completion_tokens is above 0 when there is text",
            met=answer,
        )

    def test_estimated_tokens_are_characters_by_four(
        self, run: Run, model: ChatModel, messages: tuple[Message, ...]
    ) -> None:
        if model.token_source != "characters/4":
            pytest.skip("the provider counts")
        answer = run(model.complete(messages, seed=1))
        expect_equal(
            (answer.prompt_tokens, answer.completion_tokens),
            (sum(estimate_tokens(message.content) for message in messages), estimate_tokens(answer.text)),
            "ChatModel.complete",
            wants="estimates tokens by memcon.tokens.estimate_tokens, message by message: token_source says so",
        )

    def test_equal_request_and_seed_give_the_equal_answer_in_any_order(
        self, run: Run, model: ChatModel, messages: tuple[Message, ...]
    ) -> None:
        if not self.deterministic:
            pytest.skip("samples anew at each call")
        first = [run(model.complete(messages, seed=seed)).text for seed in range(6)]
        again = [run(model.complete(messages, seed=seed)).text for seed in reversed(range(6))]
        expect_equal(
            again[::-1],
            first,
            "ChatModel.complete",
            wants="gives the equal text for equal messages and an equal seed, whatever was asked in between (where the "
            "provider cannot, set deterministic = False in your class)",
        )

    def test_calls_at_the_same_time_do_not_disturb_each_other(
        self, run: Run, model: ChatModel, messages: tuple[Message, ...]
    ) -> None:
        requests = [(*messages[:-1], _longer(messages[-1], blanks)) for blanks in range(4)]
        alone = [run(model.complete(request, seed=seed)) for seed, request in enumerate(requests)]

        async def at_once() -> list[Completion]:
            return await asyncio.gather(
                *(model.complete(request, seed=seed) for seed, request in enumerate(requests)),
            )

        together = run(at_once())
        expect_equal(
            [answer.prompt_tokens for answer in together],
            [answer.prompt_tokens for answer in alone],
            "ChatModel.complete",
            wants="gives each of the calls that are open at the same time its own answer: usage was mixed up",
        )
        if self.deterministic:
            expect_equal(
                [answer.text for answer in together],
                [answer.text for answer in alone],
                "ChatModel.complete",
                wants="gives each of the calls that are open at the same time its own answer: texts were mixed up",
            )

    def test_close_may_be_called_twice(self, run: Run, model: ChatModel) -> None:
        run(model.close())
        with accepts("ChatModel.close", wants="may be called twice"):
            run(model.close())


def _longer(message: Message, blanks: int) -> Message:
    """`message` with blanks at its end: another request, which means the same."""
    return Message(role=message.role, content=message.content + " " * 4 * blanks)
