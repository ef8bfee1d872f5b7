"""Backbone `imitator`: a rule-based in-context agent for machines without key or network. It is NOT a language model.

It picks, out of the admissible actions that its prompt lists, the one with the best score of hand-written rules: copy
what memory shows for a like goal, handle what the goal names, else look around. It sees the messages that a model would
see and nothing else, and the only randomness is a keyed hash of the request's seed. No success probability stands
anywhere; how much memory helps it is a consequence of its rules and says nothing about any language model.

Owns the score and the config; the parts are `prompt_reader`, `votes`, `exploring`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from memcon.checks import in_range
from memcon.protocols import Completion, Message
from memcon.registry import Plugin
from memcon.tokens import estimate_tokens
from memcon_workers.backbones.exploring import History, explore, fold
from memcon_workers.backbones.goals import OpenGoal, Role, Signature, Together, open_goal, parse_goal, signature
from memcon_workers.backbones.names import ParsedAction, parse_action
from memcon_workers.backbones.prompt_reader import PromptView, read_prompt
from memcon_workers.backbones.votes import Ballot, attention

__all__ = ["PLUGIN", "Imitator", "ImitatorConfig"]

# Answer when nothing is admissible.
NO_CHOICE = "look"
MODEL_ID = "imitator-1"
# The goal term: first name, a later name, two names of one clause, a word of the verb part.
FIRST_NAME, LATER_NAME, ONE_CLAUSE, VERB_WORD = 1.0, 0.5, 1.0, 0.5
# Uses of an action at one observation that still raise its penalty.
MOST_REPEATS = 3


@dataclass(slots=True, kw_only=True)
class ImitatorConfig:
    """Weights of the score. The defaults are `imitator-1`; they were set before any policy was compared.

    Raises:
        ConfigError: a value is outside its range.
    """

    # Sharpness of attention over memory pieces (dilution: 3 is mild, 2 steep).
    beta: float = 3.0
    # Attention of pieces labelled as failures, and of insights.
    failure_factor: float = 0.3
    insight_factor: float = 0.3
    # Wm, weight of memory's votes against the goal term's 1.
    memory_weight: float = 4.0
    # Penalties: same action at the same observation, and recent use of an action (decayed a step).
    repeat_penalty: float = 0.5
    visit_penalty: float = 1.5
    visit_decay: float = 0.95
    # U, width of the keyed noise.
    noise: float = 0.3

    def __post_init__(self) -> None:
        for name in ("beta", "memory_weight", "repeat_penalty", "visit_penalty", "noise"):
            in_range(name, getattr(self, name), 0.0, 100.0)
        for name in ("failure_factor", "insight_factor", "visit_decay"):
            in_range(name, getattr(self, name), 0.0, 1.0)


class Imitator:
    """The rule-based agent as a `memcon.protocols.ChatModel`. Stateless: equal messages and seed, equal answer."""

    model_id = MODEL_ID
    token_source = "characters/4"

    def __init__(self, config: ImitatorConfig) -> None:
        self._config = config

    async def complete(self, messages: Sequence[Message], *, seed: int) -> Completion:
        """Answer with one of the admissible actions that the prompt lists.

        Raises:
            ConfigError: the prompt lists no actions or has another form.
        """
        answer = self.choose(read_prompt(messages), seed=seed)
        return Completion(
            text=answer,
            prompt_tokens=sum(estimate_tokens(message.content) for message in messages),
            completion_tokens=estimate_tokens(answer),
            model_id=self.model_id,
        )

    async def close(self) -> None:
        """Nothing to free."""

    def choose(self, view: PromptView, *, seed: int) -> str:
        """The admissible action with the best score; the first of them at a tie."""
        config = self._config
        goal = parse_goal(view.goal)
        history = fold(goal, view.first_observation, view.history, trace_decay=config.visit_decay)
        ballot = Ballot(goal, history.steps)
        weights = attention(goal, view.memory, config.beta, config.insight_factor, config.failure_factor)
        for piece, weight in zip(view.memory, weights, strict=True):
            ballot.add(piece, weight)
        now = open_goal(goal, history.observation)
        place = f"{seed}/{view.num_actions}/".encode()
        best, best_score = NO_CHOICE, float("-inf")
        for text in view.admissible:
            action = parse_action(text)
            step = signature(now, action)
            score = self._score(action, step, ballot=ballot, history=history, goal=now)
            score += config.noise * _uniform(place + text.encode())
            if score > best_score:
                best, best_score = text, score
        return best

    def _score(
        self, action: ParsedAction, step: Signature, *, ballot: Ballot, history: History, goal: OpenGoal
    ) -> float:
        config = self._config
        return (
            config.memory_weight * ballot.votes(step, action.text)
            + _goal_term(action, step, goal)
            + explore(action, step, history)
            - config.repeat_penalty * min(MOST_REPEATS, history.times_tried(action))
            - config.visit_penalty * min(1.0, history.visit_trace(action))
        )


def _goal_term(action: ParsedAction, step: Signature, goal: OpenGoal) -> float:
    """What the goal's own words say for an action (facts on the offline signal, section 5.6)."""
    value = 0.0
    if step.roles:
        value += FIRST_NAME * (step.roles[0] is Role.GOAL) + LATER_NAME * (Role.GOAL in step.roles[1:])
        value += ONE_CLAUSE * (step.together is Together.YES)
    if goal.goal is not None and not action.verb.isdisjoint(goal.goal.words):
        value += VERB_WORD
    return value


def _uniform(place: bytes) -> float:
    """A number in [0, 1) drawn by `place` alone: no generator, no `hash()`, equal on every machine."""
    return int.from_bytes(hashlib.blake2b(place, digest_size=7).digest(), "big") / 2**56


def _build(config: ImitatorConfig) -> Imitator:
    return Imitator(config)


PLUGIN = Plugin(
    config=ImitatorConfig,
    build=_build,
    summary="rule-based in-context agent, embedded; not a language model, its success rates say nothing about one",
)
