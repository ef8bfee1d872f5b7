"""Whatever worlds and models say, the imitator reads back the turns and the choices that the prompt shows."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from memcon.control.memory.rendering import one_line
from memcon.types import MemoryContext, Step, StepKind
from memcon_workers.backbones.prompt_reader import read_prompt
from memcon_workers.frameworks.prompt import ACTIONS_HEADER, ASK, HISTORY_HEADER, NOTICE_HEADER, Prompt

AWKWARD = st.sampled_from(
    [ACTIONS_HEADER, HISTORY_HEADER + "3 actions):", NOTICE_HEADER + "x", "> go", "- go", "Goal: x"]
)
LINES = st.one_of(AWKWARD, st.text(max_size=20).map(one_line))
WORDS = LINES.filter(lambda line: bool(line) and line != ASK and not line.startswith("think:"))
TURNS = st.lists(st.tuples(st.booleans(), WORDS, LINES), max_size=8)

WINDOWS: st.SearchStrategy[int | Literal["all"]] = st.sampled_from([1, 3, "all"])


@given(
    turns=TURNS,
    choices=st.lists(WORDS, max_size=4),
    first=WORDS,
    notice=st.sampled_from(["", "hm"]),
    window=WINDOWS,
)
def test_prompt_is_read_back(
    turns: list[tuple[bool, str, str]], choices: list[str], first: str, notice: str, window: int | Literal["all"]
) -> None:
    prompt = Prompt(goal="put a mug in shelf.", first_observation=first, window=window, list_actions=True)
    for index, (is_thought, action, observation) in enumerate(turns):
        step = Step(
            index=index,
            kind=StepKind.THOUGHT if is_thought else StepKind.ACTION,
            action=action,
            observation="" if is_thought else observation,
            valid=True,
            progress=0.0,
            prompt_tokens=0,
            completion_tokens=0,
        )
        prompt.add(step)
    view = read_prompt(prompt.messages(MemoryContext(), actions=choices, notice=notice))
    pairs = [(action, observation) for is_thought, action, observation in turns if not is_thought]
    assert view.num_actions == len(pairs)
    assert list(view.history) == (pairs if isinstance(window, str) else pairs[-window:])
    assert list(view.admissible) == choices
    assert view.first_observation == first
