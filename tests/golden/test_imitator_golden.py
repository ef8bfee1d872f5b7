"""The imitator's choices on fixed prompts, pinned: a change of its rules must be meant, and named `imitator-2`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from memcon.types import MemoryContext, MemoryItem, Step, StepKind
from memcon_workers.backbones.imitator import MODEL_ID, Imitator, ImitatorConfig
from memcon_workers.frameworks.prompt import Prompt

ACTIONS = [
    "go to bed 1",
    "go to bed 2",
    "go to drawer 2",
    "go to drawer 3",
    "go to sink 1",
    "go to sink 2",
    "go to desk 1",
    "go to drawer 1",
    "go to shelf 1",
    "open drawer 1",
    "take mug 1 from desk 1",
    "take pen 1 from desk 1",
    "look",
    "inventory",
]
EXPERIENCE = """Task: put a clean cup in shelf.
Outcome: success
Observation: You see a bed 1, and a sink 1.
> go to desk 2
On the desk 2, you see a cup 1.
> take cup 1 from desk 2
You pick up the cup 1 from the desk 2.
> go to sink 1
You arrive at sink 1.
> clean cup 1 with sink 1
You clean the cup 1.
> go to shelf 1
On the shelf 1, you see nothing.
> put cup 1 in/on shelf 1
You put the cup 1 in/on the shelf 1."""


# Where nothing is at hand.
MOVES = [action for action in ACTIONS if not action.startswith(("take", "open"))]


async def choices(
    context: MemoryContext, history: list[tuple[str, str]], *, actions: Sequence[str] = ACTIONS
) -> list[str]:
    prompt = Prompt(
        goal="put a clean mug in shelf.",
        first_observation="You see a bed 1, a desk 1, a drawer 1, and a shelf 1.",
        window="all",
        list_actions=True,
    )
    for index, (action, observation) in enumerate(history):
        step = Step(
            index=index,
            kind=StepKind.ACTION,
            action=action,
            observation=observation,
            valid=True,
            progress=0.0,
            prompt_tokens=0,
            completion_tokens=0,
        )
        prompt.add(step)
    model = Imitator(ImitatorConfig())
    messages = prompt.messages(context, actions=actions)
    return [(await model.complete(messages, seed=seed)).text for seed in range(8)]


async def test_choices_are_pinned() -> None:
    memory = MemoryContext(items=(MemoryItem(item_id="1", source="success", score=1.0, text=EXPERIENCE),))
    seen = [("go to shelf 1", "On the shelf 1, you see nothing.")]
    visits = [*seen, ("go to bed 1", "On the bed 1, you see a pen 2."), ("go to drawer 1", "The drawer 1 is closed.")]
    at_desk = [*visits, ("go to desk 1", "On the desk 1, you see a mug 1, and a pen 1.")]
    got = {
        "start": await choices(MemoryContext(), []),
        "searching": await choices(MemoryContext(), seen, actions=MOVES),
        "searching, memory": await choices(memory, seen, actions=MOVES),
        "at a drawer": await choices(MemoryContext(), visits),
        "at the mug": await choices(MemoryContext(), at_desk),
        "mug taken, memory": await choices(memory, [*at_desk, ("take mug 1 from desk 1", "You pick up the mug 1.")]),
    }
    assert got == GOLDEN


def test_weights_of_the_named_model_are_pinned() -> None:
    assert MODEL_ID == "imitator-1"
    assert dataclasses.asdict(ImitatorConfig()) == {
        "beta": 3.0,
        "failure_factor": 0.3,
        "insight_factor": 0.3,
        "memory_weight": 4.0,
        "repeat_penalty": 0.5,
        "visit_penalty": 1.5,
        "visit_decay": 0.95,
        "noise": 0.3,
    }


GOLDEN = {
    "start": [
        "go to shelf 1",
        "go to shelf 1",
        "go to shelf 1",
        "go to shelf 1",
        "go to shelf 1",
        "go to shelf 1",
        "go to shelf 1",
        "go to shelf 1",
    ],
    "searching": ["look", "inventory", "inventory", "look", "inventory", "inventory", "inventory", "look"],
    "searching, memory": ["look", "inventory", "inventory", "look", "inventory", "inventory", "inventory", "look"],
    "at a drawer": ["look", "look", "inventory", "look", "inventory", "look", "inventory", "look"],
    "at the mug": [
        "take mug 1 from desk 1",
        "take mug 1 from desk 1",
        "take mug 1 from desk 1",
        "take mug 1 from desk 1",
        "take mug 1 from desk 1",
        "take mug 1 from desk 1",
        "take mug 1 from desk 1",
        "take mug 1 from desk 1",
    ],
    "mug taken, memory": [
        "go to sink 2",
        "go to sink 1",
        "go to sink 1",
        "go to sink 1",
        "go to sink 2",
        "go to sink 2",
        "go to sink 2",
        "go to sink 1",
    ],
}
