"""What a model reads before one reply. Owns the headings and the form of the chat; holds no agent logic.

The form, which every framework shares and `memcon_workers.backbones.prompt_reader` reads back:

    system:  instructions
             # Example                    only with a few-shot
             # Memory                     only when the decision put something here (`memcon.control.memory.rendering`)
    user:    Goal: <one line>
             First observation: <one line>
             History (<n> actions[, the last <w> shown]):
             > <action>
             <observation>
             > think: <thought>
             OK.
             Notice: <what the loop wants the model to know>
             Admissible actions:          only with list_actions
             - <action>
             Next action:
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from memcon.control.memory.rendering import ACTION_MARK, one_line, render_memory
from memcon.protocols import Message
from memcon.types import MemoryContext, Step, StepKind

__all__ = [
    "ACTIONS_HEADER",
    "ASK",
    "CHOICE_MARK",
    "EXAMPLE_HEADING",
    "FIRST_OBSERVATION_HEADER",
    "GOAL_HEADER",
    "HISTORY_HEADER",
    "INSTRUCTIONS",
    "NOTICE_HEADER",
    "THOUGHT_MARK",
    "Prompt",
]

INSTRUCTIONS = (
    "You act in a world of text. Reply with exactly one line: one action, in the words that the world uses.\n"
    "You may reply with a thought instead (think: ...), but a thought changes nothing in the world."
)
EXAMPLE_HEADING = "# Example"

GOAL_HEADER = "Goal: "
FIRST_OBSERVATION_HEADER = "First observation: "
HISTORY_HEADER = "History ("
NOTICE_HEADER = "Notice: "
ACTIONS_HEADER = "Admissible actions:"
CHOICE_MARK = "- "
ASK = "Next action:"
THOUGHT_MARK = "think: "
_THOUGHT_ANSWER = "OK."


class Prompt:
    """The prompt of one attempt: the system text is kept per memory block, the history grows by what is new."""

    def __init__(
        self, *, goal: str, first_observation: str, window: int | Literal["all"], example: str = "", list_actions: bool
    ) -> None:
        self._head = f"{GOAL_HEADER}{one_line(goal)}\n{FIRST_OBSERVATION_HEADER}{one_line(first_observation)}"
        self._window = None if window == "all" else window
        self._list_actions = list_actions
        self._instructions = f"{INSTRUCTIONS}\n{EXAMPLE_HEADING}\n{example}" if example else INSTRUCTIONS
        self._context = MemoryContext()
        self._system = Message(role="system", content=self._instructions)
        # One entry an action with the thoughts after it: what a window keeps or drops together.
        self._turns: list[str] = []
        self._thoughts_before: str = ""

    def add(self, step: Step) -> None:
        """Append one finished step to the history."""
        if step.kind is StepKind.ACTION:
            self._turns.append(f"\n{ACTION_MARK}{step.action}\n{step.observation}")
            return
        text = f"\n{ACTION_MARK}{THOUGHT_MARK}{step.action}\n{_THOUGHT_ANSWER}"
        if self._turns:
            self._turns[-1] += text
        else:
            self._thoughts_before += text

    def messages(self, context: MemoryContext, *, actions: Sequence[str] = (), notice: str = "") -> tuple[Message, ...]:
        """System and user message for the next model call.

        `actions` are shown only with `list_actions`.
        """
        parts = [self._head, self._history()]
        if notice:
            parts.append(NOTICE_HEADER + notice)
        if self._list_actions:
            parts.append(ACTIONS_HEADER)
            parts += [CHOICE_MARK + action for action in actions]
        parts.append(ASK)
        return self._system_message(context), Message(role="user", content="\n".join(parts))

    def _history(self) -> str:
        number = len(self._turns)
        if self._window is None or number <= self._window:
            return f"{HISTORY_HEADER}{number} actions):{self._thoughts_before}{''.join(self._turns)}"
        shown = "".join(self._turns[-self._window :])
        return f"{HISTORY_HEADER}{number} actions, the last {self._window} shown):{shown}"

    def _system_message(self, context: MemoryContext) -> Message:
        if context is not self._context:
            memory = render_memory(context)
            content = f"{self._instructions}\n{memory}" if memory else self._instructions
            self._context, self._system = context, Message(role="system", content=content)
        return self._system
