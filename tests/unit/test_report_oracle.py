"""Headroom: choices that have not seen what they are measured on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memcon.seeds import SeedTree
from memcon_platform.report import ReportData, build, wording
from memcon_platform.report.folds import task_folds
from memcon_platform.report.grouping import group
from memcon_platform.report.measures import Headroom
from memcon_platform.report.oracle import headroom, oracle
from memcon_platform.report.rows import Row
from memcon_platform.report.samples import Matrices
from support.episodes import FakeCell, write_run
from support.report_runs import FAMILIES, Played, Won, by_family, fixed, write_played

SEEDS = (0, 1, 2)
ARMS = ("retrieve_shallow", "retrieve_deep", "noop")


def _random(place: str) -> Won:
    """Outcomes that depend on arm, seed, stream and task, drawn once."""

    def won(cell: FakeCell, stream: int, number: int, family: str) -> bool:
        arm = str(cell.policy_parameters["action_id"])
        chance = {"audit": 0.3, "household": 0.6}[family] + 0.15 * ARMS.index(arm) * (1 if family == "audit" else -1)
        draw = SeedTree((place, arm, cell.seed, stream, number)).generator().random()
        return draw < chance

    return won


def _static(won: Mapping[str, Won], seeds: tuple[int, ...] = SEEDS, **changed: int) -> list[Played]:
    return [one for arm in won for one in fixed(arm, won[arm], seeds=seeds, **changed)]


def _headroom(data: ReportData) -> Headroom:
    (found,) = data.headrooms
    return found


def _best(outcome: Mapping[str, Mapping[int, Mapping[int, bool]]], seeds: Iterable[int], numbers: Iterable[int]) -> str:
    """The arm with the most successes; of equals the first."""
    places = [(seed, number) for seed in seeds for number in numbers]
    won = {arm: sum(of[seed][number] for seed, number in places) for arm, of in outcome.items()}
    return max(ARMS, key=won.__getitem__)


@pytest.mark.parametrize("place", ["a", "b", "c", "d"])
def test_the_oracle_is_what_a_plain_search_over_other_seeds_and_other_tasks_finds(tmp_path: Path, place: str) -> None:
    cells = _static(dict.fromkeys(ARMS, _random(place)), num_tasks=16)
    data = build(write_played(tmp_path / "run", cells))

    # The search, on the outcomes themselves: arm -> seed -> task number -> won.
    outcome: dict[str, dict[int, dict[int, bool]]] = {arm: {} for arm in ARMS}
    for one in cells:
        cell = one.cell
        arm = str(cell.policy_parameters["action_id"])
        outcome[arm][cell.seed] = {n: one.won(cell, 0, n, FAMILIES[n % 2]) for n in range(16)}
    names = [(FAMILIES[n % 2], f"{FAMILIES[n % 2]}:{n % 4}", f"{cells[0].cell.benchmark}-{n:03d}") for n in range(16)]
    fold = [task_folds(names)[name] for _, _, name in names]
    won, chosen = 0, {family: Counter[str]() for family in FAMILIES}
    for seed, own, (f, family) in product(SEEDS, range(5), enumerate(FAMILIES)):
        others = [other for other in SEEDS if other != seed]
        arm = _best(outcome, others, [n for n in range(f, 16, 2) if fold[n] != own])
        here = [n for n in range(f, 16, 2) if fold[n] == own]
        chosen[family][f"fixed:{arm}"] += bool(here)
        won += sum(outcome[arm][seed][n] for n in here)
    single = _best(outcome, SEEDS, range(16))
    alone = sum(sum(outcome[single][seed].values()) for seed in SEEDS)

    found = _headroom(data)
    assert found.by == "family"
    assert found.oracle is not None
    assert found.static is not None
    assert (found.oracle.successes, found.static.successes) == (won, alone)
    assert found.static_arm == f"fixed:{single}"
    assert {family: dict(counts) for family, counts in found.choices.items()} == {
        family: dict(counts) for family, counts in chosen.items()
    }
    assert found.difference is not None
    assert found.difference.mean == pytest.approx((won - alone) / 48)
    assert found.difference.num_streams == 3


def _rows(outcomes: NDArray[np.float64], families: int = 6) -> list[Row]:
    """Static arms with the outcomes of (seeds, tasks, arms), each injecting its own number as tokens.

    Tasks are of `families` in turn, and of 24 goal types.
    """
    seeds, tasks, arms = outcomes.shape
    cells = [
        FakeCell(policy="fixed", policy_parameters={"action_id": arm}, seed=seed).planned(place)
        for place, (arm, seed) in enumerate(product(ARMS[:arms], range(seeds)))
    ]
    return [
        Row(
            planned=planned,
            samples=(),
            matrices=Matrices(
                success=outcomes[:, :, place],
                injected=np.full((seeds, tasks), float(place)),
                quarter=np.zeros((seeds, tasks)),
                units=tuple((seed, 0) for seed in range(seeds)),
                tasks=tuple(f"0/task-{number:03d}" for number in range(tasks)),
                families=tuple(f"family {number % families}" for number in range(tasks)),
                goal_types=tuple(f"type {number % 24}" for number in range(tasks)),
                tables=tuple(str(seed) for seed in range(seeds)),
            ),
        )
        for place, planned in enumerate(group(cells))
    ]


def _alike(seed: int, gap: float = 0.0) -> NDArray[np.float64]:
    """Outcomes of 4 seeds, 134 tasks and 3 arms: half are a matter of task and arm alone, whatever the seed.

    Arms are exchangeable over tasks; with `gap` each family of six and each goal type has an arm that wins more.
    """
    generator = SeedTree(("tests", "alike", seed)).generator()
    chance = np.array([[generator.choice((0.0, 0.5, 0.5, 1.0)) for _ in range(3)] for _ in range(134)])
    best = np.arange(134) % 6 % 3
    chance[np.arange(134), best] += gap * (1 - chance[np.arange(134), best])
    drawn = np.array([generator.random() for _ in range(4 * chance.size)]).reshape(4, *chance.shape)
    found: NDArray[np.float64] = (drawn < chance).astype(np.float64)
    return found


@pytest.mark.parametrize(("families", "by"), [(6, "family"), (1, "goal type")])
def test_arms_that_differ_by_task_alone_have_no_headroom(families: int, by: str) -> None:
    # Given runs whose arms are equal over tasks, but not on a task: there each does much the same under every seed.
    runs = [_rows(_alike(seed), families) for seed in range(30)]
    found = [headroom(rows, oracle(rows)) for rows in runs]

    assert {one.by for one in found} == {by}
    assert sum(one.is_enough for one in found) <= 1
    # An oracle that has seen the tasks gains three points by family and nine by goal type.
    assert np.mean([one.difference.mean for one in found if one.difference]) < 0

    # And where each family wants an arm of its own, that is found.
    apart = [_rows(_alike(seed, gap=0.8), families) for seed in range(5)]
    assert all(headroom(rows, oracle(rows)).is_enough for rows in apart)


@pytest.mark.parametrize("families", [1, 6])
def test_the_oracle_sees_neither_the_seed_nor_the_tasks_that_it_is_measured_on(families: int) -> None:
    outcomes = _alike(1)
    names = [(f"family {n % families}", f"type {n % 24}", f"task-{n:03d}") for n in range(134)]
    own = np.array([task_folds(names)[name] == 2 for _, _, name in names])

    def picks(changed: NDArray[np.float64]) -> NDArray[np.float64]:
        found = oracle(_rows(changed, families)).matrices
        assert found is not None
        return found.injected

    # Whatever the tasks of a fold come to under any seed, or a seed on any task, their own arms stay.
    for place in (np.s_[:, own], np.s_[1, :]):
        altered = outcomes.copy()
        altered[place] = 1 - altered[place]
        assert (picks(altered)[place] == picks(outcomes)[place]).all()
        assert (picks(altered) != picks(outcomes)).any()


def test_folds_part_the_tasks_of_each_goal_type_whatever_else_there_is() -> None:
    tasks = [("f", f"type {number % 7}", f"task-{number}") for number in range(35)]
    found = task_folds(tasks)
    for goal_type in {kind for _, kind, _ in tasks}:
        assert sorted(found[name] for _, kind, name in tasks if kind == goal_type) == [0, 1, 2, 3, 4]
    assert task_folds(reversed(tasks * 2)) == found


def test_an_arm_that_is_best_on_its_own_seed_only_is_not_chosen_there(tmp_path: Path) -> None:
    # Given an arm that wins everything on seed 0 and nothing elsewhere, and one that wins half everywhere.
    lucky: Won = lambda cell, stream, number, family: cell.seed == 0  # noqa: E731
    steady: Won = lambda cell, stream, number, family: number % 4 < 2  # noqa: E731

    found = _headroom(build(write_played(tmp_path, _static({"retrieve_deep": lucky, "noop": steady}))))

    # On seed 0 the steady arm is chosen; elsewhere the two tie on what is seen, and the first stays: it wins nothing.
    assert found.oracle is not None
    assert set(found.choices["audit"]) == {"fixed:noop", "fixed:retrieve_deep"}
    # Five folds a seed: all of seed 0 goes to noop.
    assert found.choices["audit"]["fixed:noop"] >= 5
    assert found.oracle.rate is not None
    assert found.oracle.rate <= 0.5


def test_families_that_want_different_arms_give_headroom(tmp_path: Path) -> None:
    cells = _static(
        {"retrieve_deep": by_family(audit=False, household=True), "noop": by_family(audit=True, household=False)}
    )
    cells.append(Played(cell=FakeCell(policy="ucb"), won=by_family(audit=True, household=False)))

    data = build(write_played(tmp_path / "run", cells))

    found = _headroom(data)
    assert found.is_enough
    assert found.oracle is not None
    assert found.static is not None
    assert (found.oracle.rate, found.static.rate) == (1.0, 0.5)
    assert found.choices == {"audit": {"fixed:noop": 15}, "household": {"fixed:retrieve_deep": 15}}
    assert wording.headroom(found).startswith("headroom +50.0 points")
    assert wording.choices(found) == (
        "Chosen how often, by seeds x folds of tasks: audit noop 15; household retrieve_deep 15."
    )
    yard = next(yard for yard in data.groups[-1].yardsticks if yard.kind == "oracle from other seeds")
    assert (yard.name, yard.rate) == ("per family", 1.0)
    assert yard.difference is not None
    assert yard.difference.mean == -0.5


def test_equal_arms_give_no_headroom_and_the_cheaper_one_is_chosen(tmp_path: Path) -> None:
    won = by_family(audit=True, household=False)
    cells = fixed("retrieve_deep", won, seeds=SEEDS, tokens=400) + fixed("noop", won, seeds=SEEDS, tokens=0)

    found = _headroom(build(write_played(tmp_path / "run", cells)))

    assert not found.is_enough
    assert wording.headroom(found).startswith("no headroom: learning cannot show here")
    assert found.static_arm == "fixed:noop"
    assert (found.oracle_injected, found.static_injected) == (0.0, 0.0)


def test_without_families_goal_types_take_their_place(tmp_path: Path) -> None:
    cells = [
        Played(cell=one.cell, won=one.won)
        for one in _static({"retrieve_deep": by_family(audit=True, household=True), "noop": _random("x")})
    ]
    run = write_played(tmp_path / "run", cells)
    data = build(run)
    assert _headroom(data).by == "family"

    # Given the same outcomes with one family only: the fake cells' own tasks.
    plain = build(write_run(tmp_path / "plain", [one.cell for one in cells]))

    assert _headroom(plain).by == "goal type"
    assert set(_headroom(plain).choices) == {"put", "clean", "heat", "cool"}


@pytest.mark.parametrize(
    ("seeds", "arms", "reason"),
    [
        ((0,), ("noop", "retrieve_deep"), "it chooses on other seeds, and one ran"),
        ((0, 1), ("noop",), "it chooses between static arms, and one ran"),
    ],
)
def test_why_there_is_no_oracle_is_said(
    tmp_path: Path, seeds: tuple[int, ...], arms: tuple[str, ...], reason: str
) -> None:
    won = by_family(audit=True, household=False)
    cells = _static(dict.fromkeys(arms, won), seeds=seeds)
    cells.append(Played(cell=FakeCell(policy="ucb"), won=won))

    data = build(write_played(tmp_path / "run", cells))

    assert wording.headroom(_headroom(data)) == f"headroom cannot be told: {reason}."
    assert f"oracle from other seeds ({reason})" in data.groups[-1].missing_yardsticks
    assert "oracle from other seeds" not in {yard.kind for yard in data.groups[-1].yardsticks}


def test_one_task_cannot_be_held_out(tmp_path: Path) -> None:
    cells = _static(dict.fromkeys(ARMS, by_family(audit=True, household=False)), num_tasks=1)

    found = _headroom(build(write_played(tmp_path / "run", cells)))

    assert wording.headroom(found) == "headroom cannot be told: it chooses on other tasks, and one ran."


def test_tasks_that_an_arm_lacks_are_left_out_of_the_choice(tmp_path: Path) -> None:
    # Given an arm that could not be evaluated on the tasks that it would have lost.
    whole = fixed("noop", by_family(audit=True, household=True), seeds=(0, 1), num_tasks=8)
    broken = fixed("retrieve_deep", by_family(audit=True, household=True), seeds=(0, 1), num_tasks=8, broken=(0, 1, 2))

    found = _headroom(build(write_played(tmp_path / "run", whole + broken)))

    assert found.oracle is not None
    assert found.oracle.num_tasks == 2 * 5
