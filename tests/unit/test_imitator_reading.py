"""The imitator reads names, goals, memory pieces and the prompt as documented, and nothing but the prompt."""

from __future__ import annotations

import pytest

from memcon.control.memory.rendering import render_plan, render_trajectory
from memcon.errors import ConfigError
from memcon.protocols import Message
from memcon.types import Insight, MemoryContext, MemoryItem, Provenance, Step, StepKind, Task, Trajectory
from memcon_workers.backbones.experience import Kind, read_insight, read_plans, read_trajectory
from memcon_workers.backbones.goals import Role, Together, jaccard, open_goal, parse_goal, signature
from memcon_workers.backbones.names import names_in, parse_action
from memcon_workers.backbones.prompt_reader import read_prompt
from memcon_workers.frameworks.prompt import Prompt

BLOCKS = "Rearrange the blocks so that the block 1 is on the block 2, and the block 2 is on the block 13."
MUG = "put a clean mug in shelf."


@pytest.mark.parametrize(
    ("text", "skeleton", "identities"),
    [
        ("take mug 1 from desk 12", "take _ from _", ["mug 1", "desk 12"]),
        ("put mug 1 in/on shelf 2", "put _ in/on _", ["mug 1", "shelf 2"]),
        ("stack b3 on b1", "stack _ on _", ["b 3", "b 1"]),
        ("take [mug A] from [desk]", "take _ from _", ["[mug a]", ""]),
        ("inventory", "inventory", []),
    ],
)
def test_names_are_words_with_numbers_or_placeholders(text: str, skeleton: str, identities: list[str]) -> None:
    action = parse_action(text)
    assert action.skeleton == skeleton
    assert [name.identity for name in action.names] == identities


def test_goal_clauses_are_closed_by_the_observation_that_states_them() -> None:
    goal = parse_goal(BLOCKS)
    assert [clause.text for clause in goal.clauses] == [
        "the block 1 is on the block 2",
        "the block 2 is on the block 13",
    ]
    still = open_goal(goal, "The block 1 is on the block 2. The hand is empty.")
    assert [clause.text for clause in still.clauses] == ["the block 2 is on the block 13"]
    # "block 1" is no part of "block 13".
    assert len(open_goal(parse_goal("x so that the a 1 is on the b 1."), "the a 1 is on the b 13.").clauses) == 1
    assert len(open_goal(parse_goal("x so that ball 1 is red."), "Now football 1 is red.").clauses) == 1
    assert open_goal(parse_goal("x so that ball 1 is red."), "ball 1 is red.").clauses == ()


def test_roles_follow_instances_where_the_goal_names_them_and_kinds_elsewhere() -> None:
    numbered, by_kind = open_goal(parse_goal(BLOCKS), ""), open_goal(parse_goal(MUG), "")
    assert [numbered.role(name) for name in names_in("block 1 block 3 [block]")] == [
        Role.GOAL,
        Role.OTHER,
        Role.UNKNOWN,
    ]
    assert [by_kind.role(name) for name in names_in("mug 7 [shelf A] desk 1")] == [Role.GOAL, Role.GOAL, Role.OTHER]
    assert open_goal(None, "").role(names_in("mug 1")[0]) is Role.UNKNOWN


@pytest.mark.parametrize(
    ("goal", "action", "expected"),
    [
        (BLOCKS, "stack block 1 on block 2", Together.YES),
        (BLOCKS, "stack block 2 on block 1", Together.NO),
        (BLOCKS, "stack block 1 on block 13", Together.NO),
        (BLOCKS, "pick up block 1", Together.NO),
        (BLOCKS, "stack [block] on block 2", Together.UNKNOWN),
        (MUG, "put mug 2 in/on shelf 4", Together.YES),
        (MUG, "take mug 2 from desk 1", Together.NO),
    ],
)
def test_two_names_form_one_clause_in_its_order(goal: str, action: str, expected: Together) -> None:
    assert signature(open_goal(parse_goal(goal), ""), parse_action(action)).together is expected


def test_share_of_clauses_is_over_all_of_both_goals() -> None:
    other = "Rearrange the blocks so that the block 1 is on the block 2."
    assert jaccard(parse_goal(BLOCKS), parse_goal(other)) == pytest.approx(0.5)
    assert jaccard(parse_goal(MUG), parse_goal(MUG)) == 1.0


def a_trajectory(*, success: bool) -> Trajectory:
    task = Task(task_id="t", benchmark="b", goal=MUG, goal_type="clean", max_steps=9, provenance=Provenance.SELF_MADE)
    steps = tuple(
        Step(
            index=n,
            kind=kind,
            action=action,
            observation=seen,
            valid=True,
            progress=0.0,
            prompt_tokens=0,
            completion_tokens=0,
        )
        for n, (kind, action, seen) in enumerate(
            [
                (StepKind.ACTION, "go to desk 1", "On the desk 1, you see a mug 1."),
                (StepKind.THOUGHT, "there it is", ""),
                (StepKind.ACTION, "take mug 1 from desk 1", "You pick up the mug 1."),
            ]
        )
    )
    return Trajectory(task=task, first_observation="A room.", steps=steps, success=success)


@pytest.mark.parametrize("success", [True, False])
def test_rendered_trajectory_is_read_back(success: bool) -> None:
    piece = read_trajectory(render_trajectory(a_trajectory(success=success)))
    assert piece.kind is Kind.TRAJECTORY
    assert piece.goal is parse_goal(MUG)
    assert piece.failed is not success
    assert piece.texts == ("go to desk 1", "take mug 1 from desk 1")


def test_rendered_plans_are_read_back_one_a_source_sentence() -> None:
    first = render_plan(MUG, ["go to [desk A]", "take [mug A] from [desk A]"])
    text = first + "\n" + render_plan("put a cup in shelf.", ["go to [shelf A]"])
    pieces = read_plans(text)
    assert [piece.texts for piece in pieces] == [("go to [desk a]", "take [mug a] from [desk a]"), ("go to [shelf a]",)]
    assert pieces[0].signatures[1].roles == (Role.GOAL, Role.OTHER)
    bare = read_plans("1. take [mug] from [desk]")[0]
    assert bare.signatures[0].roles == (Role.UNKNOWN, Role.UNKNOWN)
    assert read_plans("object 1 fully, then object 2") == ()


def test_insight_pair_is_read_and_other_rules_hold_no_step() -> None:
    pair = read_insight("put a clean mug in shelf: after 'take mug 1 from desk 1' do 'go to sinkbasin 1'.")
    assert pair.texts == ("take mug 1 from desk 1", "go to sinkbasin 1")
    assert read_insight("always look around first").texts == ()


def test_prompt_is_read_back_with_window_and_thoughts() -> None:
    prompt = Prompt(goal=MUG, first_observation="A room.", window=2, list_actions=True)
    for step in (*a_trajectory(success=True).steps, *a_trajectory(success=True).steps):
        prompt.add(step)
    context = MemoryContext(
        items=(
            MemoryItem(item_id="1", source="failure", score=1.0, text=render_trajectory(a_trajectory(success=False))),
        ),
        insights=(Insight(insight_id="2", score=1.0, text="after 'look' do 'go to desk 1'"),),
        plan=render_plan(MUG, ["go to [desk A]"]),
        hint="object 1 fully, then object 2",
    )
    view = read_prompt(prompt.messages(context, actions=["look", "go to desk 1"], notice="hm"))
    assert (view.goal, view.first_observation, view.num_actions) == (MUG, "A room.", 4)
    assert view.history == (
        ("go to desk 1", "On the desk 1, you see a mug 1."),
        ("take mug 1 from desk 1", "You pick up the mug 1."),
    )
    assert view.admissible == ("look", "go to desk 1")
    assert [piece.kind for piece in view.memory] == [Kind.PLAN, Kind.TRAJECTORY, Kind.INSIGHT]
    assert [piece.failed for piece in view.memory] == [False, True, False]


def test_empty_list_of_actions_is_read_as_such() -> None:
    prompt = Prompt(goal=MUG, first_observation="A room.", window="all", list_actions=True)
    assert read_prompt(prompt.messages(MemoryContext())).admissible == ()


@pytest.mark.parametrize(
    ("user", "advice"),
    [
        ("Goal: x\nFirst observation: y\nHistory (0 actions):\nNext action:", "list_actions: true"),
        ("Hello\nAdmissible actions:\n- go\nNext action:", "take one of its frameworks"),
    ],
)
def test_other_prompts_are_refused_with_advice(user: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        read_prompt([Message(role="user", content=user)])
