"""The chat that every framework shows: complete, in one form, and cheap to extend."""

from __future__ import annotations

import pytest

from memcon.types import Insight, MemoryContext, MemoryItem, Step, StepKind
from memcon_workers.frameworks.prompt import INSTRUCTIONS, Prompt


def a_step(index: int, action: str, observation: str = "", *, thought: bool = False) -> Step:
    return Step(
        index=index,
        kind=StepKind.THOUGHT if thought else StepKind.ACTION,
        action=action,
        observation=observation,
        valid=not thought,
        progress=0.0,
        prompt_tokens=1,
        completion_tokens=1,
    )


def a_context(*, items: int = 0, insights: int = 0, plan: str = "", hint: str = "") -> MemoryContext:
    return MemoryContext(
        items=tuple(
            MemoryItem(item_id=f"i{n}", source="success", score=1.0, text=f"item text {n}") for n in range(items)
        ),
        insights=tuple(Insight(insight_id=f"r{n}", score=1.0, text=f"rule text {n}") for n in range(insights)),
        plan=plan,
        hint=hint,
    )


def test_prompt_has_the_documented_form() -> None:
    prompt = Prompt(
        goal="put a\nmug in shelf.", first_observation="A room.", window="all", example="Task: x", list_actions=True
    )
    prompt.add(a_step(0, "look around", thought=True))
    prompt.add(a_step(1, "go to desk 1", "On the desk 1, you see a mug 1."))
    prompt.add(a_step(2, "the mug is here", thought=True))
    system, user = prompt.messages(
        a_context(items=1, insights=1, plan="1. go", hint="one by one"), actions=["look", "go"], notice="hm"
    )
    assert system.content.removeprefix(INSTRUCTIONS).split("\n") == [
        "",
        "# Example",
        "Task: x",
        # PlanInject prepends the plan to what the backend found (MC-18).
        "# Memory",
        "## Plan",
        "1. go",
        "## Experience 1",
        "item text 0",
        "## Insight 1",
        "rule text 0",
        "## Hint",
        "one by one",
    ]
    assert user.content.split("\n") == [
        "Goal: put a mug in shelf.",
        "First observation: A room.",
        "History (1 actions):",
        "> think: look around",
        "OK.",
        "> go to desk 1",
        "On the desk 1, you see a mug 1.",
        "> think: the mug is here",
        "OK.",
        "Notice: hm",
        "Admissible actions:",
        "- look",
        "- go",
        "Next action:",
    ]


def test_empty_memory_leaves_no_trace_in_the_prompt() -> None:
    prompt = Prompt(goal="g", first_observation="o", window="all", list_actions=False)
    system, user = prompt.messages(MemoryContext())
    assert system.content == INSTRUCTIONS
    assert "Admissible" not in user.content


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("insight_k", [2, 3, 5, 8])
def test_every_item_and_insight_is_shown(top_k: int, insight_k: int) -> None:
    # MC-15: what the policy chose must reach the prompt, never cut to a fixed number.
    prompt = Prompt(goal="g", first_observation="o", window=7, list_actions=False)
    system, _ = prompt.messages(a_context(items=top_k, insights=insight_k))
    lines = system.content.split("\n")
    assert sum(line.startswith("item text") for line in lines) == top_k
    assert sum(line.startswith("rule text") for line in lines) == insight_k


def test_window_shows_the_last_pairs_with_their_thoughts_and_says_how_many_there_were() -> None:
    prompt = Prompt(goal="g", first_observation="o", window=2, list_actions=False)
    for number in range(4):
        prompt.add(a_step(2 * number, f"do {number}", f"saw {number}"))
        prompt.add(a_step(2 * number + 1, f"idea {number}", thought=True))
    _, user = prompt.messages(MemoryContext())
    assert "History (4 actions, the last 2 shown):\n> do 2\nsaw 2\n> think: idea 2\nOK.\n> do 3" in user.content
    assert "do 1" not in user.content
    assert "idea 1" not in user.content


def test_a_new_block_replaces_the_old_one() -> None:
    prompt = Prompt(goal="g", first_observation="o", window="all", list_actions=False)
    with_plan, _ = prompt.messages(a_context(plan="1. old"))
    kept, _ = prompt.messages(a_context(plan="1. old"))
    replaced, _ = prompt.messages(a_context(plan="1. new"))
    assert kept == with_plan
    assert "1. new" in replaced.content
    assert "1. old" not in replaced.content
