"""One short worked example a goal type, in the form of a memory item. A config may replace or add any of them.

Written by hand for the goal types of the built-in benchmarks; a goal type without an example gets none.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXAMPLES"]


def _example(task: str, first: str, *turns: tuple[str, str]) -> str:
    lines = [f"Task: {task}", "Outcome: success", f"Observation: {first}"]
    for action, observation in turns:
        lines += [f"> {action}", observation]
    return "\n".join(lines)


_KITCHEN = (
    "You are in the middle of a room. Looking quickly around you, you see a countertop 1, a fridge 1, a microwave 1, "
    "a shelf 1, and a sinkbasin 1."
)
_AT_COUNTER = ("go to countertop 1", "You arrive at countertop 1. On the countertop 1, you see a cup 1.")
_TAKE_CUP = ("take cup 1 from countertop 1", "You pick up the cup 1 from the countertop 1.")
_AT_SHELF = ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see nothing.")
_MOVE_CUP = ("move cup 1 to shelf 1", "You move the cup 1 to the shelf 1.")


def _changed_cup(word: str, place: str) -> str:
    return _example(
        f"put a {'cool' if word == 'cool' else 'hot' if word == 'heat' else 'clean'} cup in shelf.",
        _KITCHEN,
        _AT_COUNTER,
        _TAKE_CUP,
        (f"go to {place} 1", f"You arrive at {place} 1."),
        (f"{word} cup 1 with {place} 1", f"You {word} the cup 1 using the {place} 1."),
        _AT_SHELF,
        _MOVE_CUP,
    )


EXAMPLES: Mapping[str, str] = {
    "put": _example("put a cup in shelf.", _KITCHEN, _AT_COUNTER, _TAKE_CUP, _AT_SHELF, _MOVE_CUP),
    "clean": _changed_cup("clean", "sinkbasin"),
    "heat": _changed_cup("heat", "microwave"),
    "cool": _changed_cup("cool", "fridge"),
    "examine": _example(
        "look at book under the desklamp.",
        "You are in the middle of a room. Looking quickly around you, you see a bed 1, a desk 1, and a drawer 1.",
        ("go to bed 1", "You arrive at bed 1. On the bed 1, you see a book 1."),
        ("take book 1 from bed 1", "You pick up the book 1 from the bed 1."),
        ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a desklamp 1."),
        ("use desklamp 1", "You turn on the desklamp 1."),
    ),
    "puttwo": _example(
        "put two cup in shelf.",
        _KITCHEN,
        ("go to countertop 1", "You arrive at countertop 1. On the countertop 1, you see a cup 1, and a cup 2."),
        _TAKE_CUP,
        _AT_SHELF,
        _MOVE_CUP,
        ("go to countertop 1", "You arrive at countertop 1. On the countertop 1, you see a cup 2."),
        ("take cup 2 from countertop 1", "You pick up the cup 2 from the countertop 1."),
        ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see a cup 1."),
        ("move cup 2 to shelf 1", "You move the cup 2 to the shelf 1."),
    ),
    "blocksworld": _example(
        "Rearrange the blocks so that the block 2 is on the block 1.",
        "Now the block 1 is on the block 2, the block 2 is on the table, the block 1 is clear, the arm is empty.",
        (
            "unstack block 1 from block 2",
            "Now the block 2 is on the table, the block 2 is clear, the arm holds the block 1.",
        ),
        (
            "put down block 1",
            "Now the block 1 is on the table, the block 2 is on the table, the block 1 is clear, the block 2 is clear, "
            "the arm is empty.",
        ),
        ("pick up block 2", "Now the block 1 is on the table, the block 1 is clear, the arm holds the block 2."),
        (
            "stack block 2 on block 1",
            "Now the block 2 is on the block 1, the block 1 is on the table, the block 2 is clear, the arm is empty.",
        ),
    ),
    "gripper": _example(
        "Carry the balls between the rooms so that the ball 1 is at the room 2.",
        "Now the robot is in the room 2, the ball 1 is at the room 1, the arm 1 is free, the arm 2 is free.",
        (
            "move from room 2 to room 1",
            "Now the robot is in the room 1, the ball 1 is at the room 1, the arm 1 is free, the arm 2 is free.",
        ),
        (
            "grab ball 1 in room 1 with arm 1",
            "Now the robot is in the room 1, the arm 1 carries the ball 1, the arm 2 is free.",
        ),
        (
            "move from room 1 to room 2",
            "Now the robot is in the room 2, the arm 1 carries the ball 1, the arm 2 is free.",
        ),
        (
            "drop ball 1 in room 2 with arm 1",
            "Now the robot is in the room 2, the ball 1 is at the room 2, the arm 1 is free, the arm 2 is free.",
        ),
    ),
    "barman": _example(
        "Mix drinks at the bar so that the shot 1 contains the ingredient 1.",
        "Now the hand 1 is free, the hand 2 is free, the shot 1 stands on the bar, the shot 1 is empty, "
        "the shot 1 is clean.",
        (
            "grasp shot 1 with hand 1",
            "Now the hand 1 holds the shot 1, the hand 2 is free, the shot 1 is empty, the shot 1 is clean.",
        ),
        (
            "fill shot 1 with ingredient 1 by hand 1",
            "Now the hand 1 holds the shot 1, the hand 2 is free, the shot 1 contains the ingredient 1, "
            "the shot 1 was filled with the ingredient 1.",
        ),
    ),
    "tyreworld": _example(
        "Get the car ready to drive so that the wheel 1 is inflated.",
        "Always the wheel 1 is intact. Now the boot 1 is closed, the wheel 1 is in the boot 1, "
        "the pump 1 is in the boot 1, the wheel 1 is flat.",
        (
            "open boot 1",
            "Now the boot 1 is open, the wheel 1 is in the boot 1, the pump 1 is in the boot 1, the wheel 1 is flat.",
        ),
        (
            "fetch pump 1 from boot 1",
            "Now the boot 1 is open, the wheel 1 is in the boot 1, you have the pump 1, the wheel 1 is flat.",
        ),
        (
            "fetch wheel 1 from boot 1",
            "Now the boot 1 is open, you have the wheel 1, you have the pump 1, the wheel 1 is flat.",
        ),
        (
            "inflate wheel 1 with pump 1",
            "Now the boot 1 is open, you have the wheel 1, you have the pump 1, the wheel 1 is inflated.",
        ),
    ),
}
