"""The loop of `lobster`: bounds on thoughts, loop stop, window, few-shot, and what it asks of an environment."""

from __future__ import annotations

import pytest

from memcon import registry
from memcon.errors import ConfigError
from memcon.testing.chat_model import ScriptedModel
from memcon.testing.framework import FixedMemory, Switches, play, switch_task
from memcon.types import StepKind
from memcon_workers.frameworks.few_shot import EXAMPLES
from memcon_workers.frameworks.lobster import Lobster, LobsterConfig
from memcon_workers.frameworks.replies import is_looping, read_reply


class CountingClock:
    """A clock whose every look is one second later."""

    def __init__(self) -> None:
        self.now = 0.0

    def wall(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


def a_lobster(config: LobsterConfig) -> Lobster:
    return Lobster(config, clock=CountingClock())


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("go to desk 1", ("go to desk 1", False)),
        ("\n  > go  to desk 1 \nbecause", ("go to desk 1", False)),
        ("Action: look", ("look", False)),
        ("think: where is it?", ("where is it?", True)),
        ("Thought: hm", ("hm", True)),
        ("", ("look", False)),
        ("  \n ", ("look", False)),
        (">", ("look", False)),
    ],
)
def test_reply_is_read_as_one_action_or_thought(reply: str, expected: tuple[str, bool]) -> None:
    assert read_reply(reply) == expected


def test_loops_are_three_of_one_or_three_pairs() -> None:
    assert is_looping(["a", "a", "a"])
    assert is_looping(["x", "a", "b", "a", "b", "a", "b"])
    assert not is_looping(["a", "a"])
    assert not is_looping(["a", "b", "a", "b", "a"])
    assert not is_looping(["a", "a", "b", "a", "a", "b"])


async def test_two_thoughts_in_a_row_are_free_and_later_ones_use_up_steps() -> None:
    # BE-10: 4 steps = 1 action, the third and fourth thought of a row, 1 action.
    replies = ["press switch 1", *["think: hm"] * 4, "dance", "think: never asked"]
    model = ScriptedModel(replies)
    run = await play(a_lobster(LobsterConfig()), model, task=switch_task(max_steps=4))
    assert [step.kind for step in run.steps] == [StepKind.ACTION, *[StepKind.THOUGHT] * 4, StepKind.ACTION]
    assert "Notice" not in model.requests[2].text
    assert "the next reply must be an action" in model.requests[3].text


async def test_free_thoughts_between_actions_use_up_no_step() -> None:
    replies = [reply for n in (1, 2, 3) for reply in ("think: a", "think: b", f"press switch {n}")]
    run = await play(a_lobster(LobsterConfig()), ScriptedModel(replies), task=switch_task(max_steps=6))
    assert run.success
    assert len(run.steps) == 9


async def test_thoughts_are_bounded_in_a_row_and_over_the_attempt() -> None:
    in_a_row = await play(a_lobster(LobsterConfig()), ScriptedModel(["think: x"]), task=switch_task(max_steps=30))
    assert len(in_a_row.steps) == 5
    replies = ["think: x", "think: y", "dance"] * 10
    config = LobsterConfig(loop_stop=False)
    overall = await play(a_lobster(config), ScriptedModel(replies), task=switch_task(max_steps=6))
    assert len(overall.steps) == 12


async def test_memory_sees_two_equal_actions_before_the_loop_stop_can_end_the_attempt() -> None:
    # MC-4 with BE-10: is_stuck must be reachable.
    memory, model = FixedMemory(), ScriptedModel(["dance", "think: again", "Dance"])
    run = await play(a_lobster(LobsterConfig()), model, memory=memory, task=switch_task(max_steps=9))
    assert [step.action for step in run.steps] == ["dance", "again", "Dance", "Dance"]
    assert [step.action for step in memory.seen[-1]] == ["dance", "again", "Dance"]
    assert "twice in a row" in model.requests[-1].text


async def test_alternating_actions_stop_the_attempt_after_three_pairs() -> None:
    model = ScriptedModel(["dance", "sing"] * 9)
    run = await play(a_lobster(LobsterConfig()), model, task=switch_task(max_steps=9))
    assert len(run.steps) == 6
    assert "back and forth" in model.requests[4].text


async def test_without_loop_stop_the_attempt_runs_to_its_horizon() -> None:
    run = await play(a_lobster(LobsterConfig(loop_stop=False)), ScriptedModel(["dance"]), task=switch_task(max_steps=9))
    assert len(run.steps) == 9


@pytest.mark.parametrize("listed", [True, False])
async def test_valid_actions_are_asked_for_only_when_they_are_shown(listed: bool) -> None:
    environment, model = Switches(), ScriptedModel(["press switch 1", "press switch 2", "press switch 3"])
    await play(a_lobster(LobsterConfig(list_actions=listed)), model, environment=environment)
    assert environment.calls.count("valid_actions") == (3 if listed else 0)
    assert ("- press switch 3" in model.requests[0].text) is listed


async def test_window_hides_older_steps() -> None:
    model = ScriptedModel([f"try {n}" for n in range(10)])
    await play(a_lobster(LobsterConfig(history_window=7)), model)
    assert "> try 2" in model.requests[-1].text
    assert "> try 1\n" not in model.requests[-1].text


async def test_few_shot_is_chosen_by_goal_type() -> None:
    own = LobsterConfig(few_shot_examples={"press": "Task: press switch 1.\n> press switch 1"})
    model = ScriptedModel(["press switch 1"])
    await play(a_lobster(own), model)
    assert "# Example\nTask: press switch 1." in model.requests[0].text
    for config in (LobsterConfig(few_shot=0, few_shot_examples=own.few_shot_examples), LobsterConfig()):
        model = ScriptedModel(["press switch 1"])
        await play(a_lobster(config), model)
        assert "# Example" not in model.requests[0].text


def test_shipped_examples_have_the_form_of_a_memory_item() -> None:
    for text in EXAMPLES.values():
        lines = text.split("\n")
        assert lines[0].startswith("Task: ")
        assert lines[1] == "Outcome: success"
        assert lines[2].startswith("Observation: ")
        assert all(line.startswith("> ") for line in lines[3::2])


async def test_seconds_come_from_the_given_clock() -> None:
    run = await play(
        a_lobster(LobsterConfig(list_actions=True)),
        ScriptedModel(["press switch 1", "dance"]),
        task=switch_task(max_steps=2),
    )
    # Model: one look before and one after. Environment: reset + list + step, then list + step.
    assert [step.model_s for step in run.steps] == [1.0, 1.0]
    assert [step.environment_s for step in run.steps] == [3.0, 2.0]


@pytest.mark.parametrize(
    "wrong",
    [{"history_window": 0}, {"history_window": "some"}, {"few_shot": 2}, {"max_thoughts": 2}, {"free_thoughts": -1}],
)
def test_wrong_settings_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        registry.configure("framework", "lobster", wrong)


def test_plugin_loads_by_entry_point_and_takes_a_clock() -> None:
    plugin = registry.plugin("framework", "lobster")
    config = registry.configure("framework", "lobster", {"history_window": "all", "few_shot": 0})
    assert isinstance(plugin.build(config), Lobster)
    assert isinstance(plugin.build(config, clock=CountingClock()), Lobster)
