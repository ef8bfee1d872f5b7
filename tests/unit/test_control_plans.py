"""Plan templates: rewriter, extraction, index (MC-9, MC-39, readings A-7, D26, D27)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memcon.control.plans import PlanIndex, PlanTemplate, Rewriter, extract
from memcon.control.progress import ProgressMatcher
from memcon.errors import DamagedFileError
from memcon.store import StreamStore
from memcon.testing.memory import commit, trajectory_of
from memcon.types import ProgressRules
from support.control import HOUSEHOLD_RULES, SmallBenchmark

REWRITER = Rewriter(SmallBenchmark().vocabulary)
MATCHER = ProgressMatcher(HOUSEHOLD_RULES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StreamStore]:
    store = StreamStore(tmp_path / "stream.sqlite", identity="cell/0")
    yield store
    store.close()


# --- rewriter ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("go to shelf 3", "go to [shelf]"),
        ("take mug 1 from diningtable 2", "take [mug] from [diningtable]"),
        ("open drawer 1", "open [drawer]"),
        ("take pencil 1 from table 2", "take pencil 1 from table 2"),
        ("put the mug in a shelf", "put the mug in a shelf"),
        ("heat mug 12 with microwave 1", "heat [mug] with microwave 1"),
        ("take coffee-mug 1 and mug 1a and mug1", "take coffee-mug 1 and mug 1a and mug1"),
        ("Take MUG 1, then shelf  2.", "Take [mug], then [shelf]."),
    ],
)
def test_bare_form_of_the_paper(text: str, bare: str) -> None:
    assert REWRITER.bare(text) == bare


def test_the_longest_name_wins() -> None:
    rewriter = Rewriter({"table", "coffee table"})
    assert rewriter.bare("go to coffee table 1, then table 2") == "go to [coffee table], then [table]"


def test_letters_go_by_first_appearance_in_each_category() -> None:
    texts = [
        "go to shelf 3",
        "take mug 7 from shelf 3",
        "go to shelf 1",
        "put mug 7 on shelf 1",
        "take mug 2 from shelf 1",
    ]
    assert REWRITER.numbered(texts) == [
        "go to [shelf A]",
        "take [mug A] from [shelf A]",
        "go to [shelf B]",
        "put [mug A] on [shelf B]",
        "take [mug B] from [shelf B]",
    ]


def test_letters_after_z() -> None:
    assert REWRITER.numbered([f"mug {n}" for n in range(28)])[25:] == ["[mug Z]", "[mug AA]", "[mug AB]"]


def test_an_empty_vocabulary_changes_nothing() -> None:
    rewriter = Rewriter(())
    assert rewriter.bare("mug 1") == "mug 1"
    assert rewriter.numbered(["mug 1"]) == ["mug 1"]
    assert rewriter.names("mug 1") == []


def test_the_numbered_form_shares_its_letters_with_the_source_sentence() -> None:
    template = PlanTemplate(source_goal="ball 3 is in room 1", actions=("pick ball 3", "drop ball 3 in room 1"))
    text = Rewriter({"ball", "room"}).render(template, "numbered")
    assert text == "From the solved task: [ball A] is in [room A]\n1. pick [ball A]\n2. drop [ball A] in [room A]"


def test_the_bare_form_is_steps_alone() -> None:
    template = PlanTemplate(source_goal="put a mug on a shelf", actions=("go to shelf 3", "put mug 1 on shelf 3"))
    assert REWRITER.render(template, "bare") == "1. go to [shelf]\n2. put [mug] on [shelf]"


# --- extraction -------------------------------------------------------------------------------------------------------


def kept(goal: str, *actions: str, refused: tuple[str, ...] = (), success: bool = True) -> list[str]:
    attempt = trajectory_of(goal, actions, success=success, refused=refused)
    return list(extract(attempt, rewriter=REWRITER, matcher=MATCHER))


def test_a_search_is_cut_down_to_what_led_to_the_goal() -> None:
    assert kept(
        "put some mug on the shelf",
        "think: where is a mug?",
        "look",
        "go to drawer 1",
        "open drawer 1",
        "close drawer 1",
        "go to drawer 2",
        "open drawer 2",
        "take pen 1 from drawer 2",
        "put pen 1 in drawer 2",
        "go to fridge 1",
        "open fridge 1",
        "take mug 1 from fridge 1",
        "inventory",
        "go to countertop 1",
        "examine countertop 1",
        "go to shelf 1",
        "put mug 1 in/on shelf 1",
    ) == [
        "go to fridge 1",
        "open fridge 1",
        "take mug 1 from fridge 1",
        "go to shelf 1",
        "put mug 1 in/on shelf 1",
    ]


@pytest.mark.parametrize("question", ["look around", "inventory", "examine shelf 1", "check valid actions"])
def test_questions_to_the_world_go(question: str) -> None:
    actions = ["go to shelf 2", "take mug 1 from shelf 2", "go to shelf 1", "put mug 1 on shelf 1"]
    assert kept("put a mug on a shelf", *actions[:2], question, *actions[2:]) == actions


def test_refused_actions_go() -> None:
    actions = ["go to shelf 2", "take mug 1 from shelf 1", "go to shelf 1", "put mug 1 on shelf 1"]
    assert kept("put a mug on a shelf", *actions, refused=("take mug 1 from shelf 1",)) == actions[2:]


def test_a_failed_attempt_leaves_no_plan() -> None:
    assert kept("put a mug on a shelf", "go to shelf 1", success=False) == []


def test_an_attempt_without_valid_actions_leaves_no_plan() -> None:
    assert kept("put a mug on a shelf", "think: done already") == []


def test_a_long_plan_keeps_its_end() -> None:
    # The published form keeps 15 actions and shows 8 (D27).
    actions = [step for n in range(1, 21) for step in (f"go to shelf {n}", f"take mug {n} from shelf {n}")]
    assert kept("take every mug", *actions) == actions


def test_a_step_that_the_next_one_undoes_goes() -> None:
    assert kept(
        "put some mug on the shelf",
        "go to countertop 1",
        "take mug 1 from countertop 1",
        "put mug 1 on countertop 1",
        "take mug 2 from countertop 1",
        "go to shelf 1",
        "put mug 2 on shelf 1",
    ) == ["go to countertop 1", "take mug 2 from countertop 1", "go to shelf 1", "put mug 2 on shelf 1"]


def test_a_step_between_taking_and_putting_back_keeps_both() -> None:
    # The text does not show what is held, so equal-looking moments are not equal states.
    actions = [
        "go to countertop 1",
        "take mug 1 from countertop 1",
        "clean mug 1 with countertop 1",
        "put mug 1 on countertop 1",
    ]
    assert kept("put a clean mug on the countertop", *actions) == actions


def test_the_last_step_stays_whatever_it_is() -> None:
    assert kept("see the book", "go to shelf 1", "examine book 1") == ["go to shelf 1", "examine book 1"]
    assert kept("be at a shelf", "go to drawer 1", "go to shelf 1") == ["go to shelf 1"]


def test_going_back_to_where_one_is_goes() -> None:
    assert kept(
        "put two mugs in the fridge",
        "go to shelf 1",
        "take mug 1 from shelf 1",
        "go to drawer 1",
        "open drawer 1",
        "go to shelf 1",
        "take mug 2 from shelf 1",
    ) == ["go to shelf 1", "take mug 1 from shelf 1", "take mug 2 from shelf 1"]


def test_closing_stays_where_the_goal_asks_for_it() -> None:
    assert kept("the fridge is closed and the mug on a shelf", "close fridge 1", "put mug 1 on shelf 1") == [
        "close fridge 1",
        "put mug 1 on shelf 1",
    ]


def test_legs_that_name_their_start_stay_and_round_trips_go() -> None:
    rules = ProgressRules(
        take=r"pick (?P<object>.+) in .+",
        release=r"drop (?P<object>.+) in .+",
        visit=r"move from .+ to (?P<place>.+)",
    )
    rewriter, matcher = Rewriter({"room", "ball"}), ProgressMatcher(rules)
    actions = (
        "move from room 1 to room 2",
        "move from room 2 to room 1",
        "pick ball 1 in room 1",
        "move from room 1 to room 4",
        "move from room 4 to room 3",
        "drop ball 1 in room 3",
    )
    attempt = trajectory_of("ball 1 is in room 3", actions)
    assert list(extract(attempt, rewriter=rewriter, matcher=matcher)) == list(actions[2:])


def test_things_of_the_way_stay_in_worlds_without_places() -> None:
    # Blocksworld: block 1 is no goal thing, but it lies on one.
    rules = ProgressRules(
        take=r"(?:unstack|pick up) (?P<object>block \d+).*",
        release=r"(?:stack|put down) (?P<object>block \d+).*",
        visit=r"(?P<place>$^)",
    )
    actions = ("unstack block 1 from block 2", "put down block 1", "pick up block 2", "stack block 2 on block 3")
    attempt = trajectory_of("block 2 is on block 3", actions)
    found = extract(attempt, rewriter=Rewriter({"block"}), matcher=ProgressMatcher(rules))
    assert found == actions


# --- index ------------------------------------------------------------------------------------------------------------


def template(*actions: str) -> PlanTemplate:
    return PlanTemplate(source_goal="put a mug on a shelf", actions=actions)


def test_shortest_keeps_the_older_of_equals(store: StreamStore) -> None:
    plans = PlanIndex(store, choice="shortest")
    answers: list[bool] = []
    for offered in (template("a", "b"), template("c", "d"), template("e"), template("f", "g"), template()):
        commit(store, lambda offered=offered: answers.append(plans.offer("put", offered)))  # type: ignore[misc]
    assert answers == [True, False, True, False, False]
    assert plans.get("put") == template("e")


def test_latest_takes_the_last_one(store: StreamStore) -> None:
    plans = PlanIndex(store, choice="latest")
    for offered in (template("a"), template("b", "c")):
        commit(store, lambda offered=offered: plans.offer("put", offered))  # type: ignore[misc]
    assert plans.get("put") == template("b", "c")


def test_templates_are_kept_by_goal_type_and_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    store = StreamStore(path, identity="cell/0")
    commit(store, lambda: PlanIndex(store, choice="shortest").offer("put", template("go to shelf 1")))
    store.close()
    store = StreamStore(path, identity="cell/0")
    plans = PlanIndex(store, choice="shortest")
    assert plans.get("put") == template("go to shelf 1")
    assert plans.get("heat") is None
    store.close()


def test_a_template_of_a_failed_commit_is_gone(store: StreamStore) -> None:
    plans = PlanIndex(store, choice="shortest")

    def write() -> None:
        plans.offer("put", template("a"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        commit(store, write)
    assert plans.get("put") is None


@pytest.mark.parametrize("text", ["no json", "[]", '["a", 1]', '{"a": 1}'])
def test_a_damaged_template_is_refused(store: StreamStore, text: str) -> None:
    commit(store, lambda: PlanIndex(store, choice="shortest").offer("put", template("a")))
    store.connection.execute("UPDATE plan_templates SET actions = ?", (text,))
    with pytest.raises(DamagedFileError, match="goal type 'put'"):
        PlanIndex(store, choice="shortest")
