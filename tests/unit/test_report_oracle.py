"""Headroom: choices that have not seen what they are measured on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from memcon.seeds import SeedTree
from memcon_platform.report import ReportData, build, wording
from memcon_platform.report.measures import Headroom
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


def _best(outcome: Mapping[str, Mapping[int, Mapping[int, bool]]], seed: int, numbers: range) -> str:
    """The arm with the most successes on the other seeds; of equals the first."""
    won = {arm: sum(of[other][n] for other in SEEDS if other != seed for n in numbers) for arm, of in outcome.items()}
    return max(ARMS, key=won.__getitem__)


@pytest.mark.parametrize("place", ["a", "b", "c", "d"])
def test_the_oracle_is_what_a_plain_search_over_the_other_seeds_finds(tmp_path: Path, place: str) -> None:
    cells = _static(dict.fromkeys(ARMS, _random(place)), num_tasks=16)
    data = build(write_played(tmp_path / "run", cells))

    # The search, on the outcomes themselves: arm -> seed -> task number -> won.
    outcome: dict[str, dict[int, dict[int, bool]]] = {arm: {} for arm in ARMS}
    for one in cells:
        cell = one.cell
        arm = str(cell.policy_parameters["action_id"])
        outcome[arm][cell.seed] = {n: one.won(cell, 0, n, FAMILIES[n % 2]) for n in range(16)}
    won = {"oracle": 0, "static": 0}
    chosen: dict[str, Counter[str]] = {family: Counter() for family in FAMILIES}
    for seed in SEEDS:
        for f, family in enumerate(FAMILIES):
            arm = _best(outcome, seed, range(f, 16, 2))
            chosen[family][f"fixed:{arm}"] += 1
            won["oracle"] += sum(outcome[arm][seed][n] for n in range(f, 16, 2))
        won["static"] += sum(outcome[_best(outcome, seed, range(16))][seed].values())

    found = _headroom(data)
    assert found.by == "family"
    assert found.oracle is not None
    assert found.static is not None
    assert (found.oracle.successes, found.static.successes) == (won["oracle"], won["static"])
    assert {family: dict(counts) for family, counts in found.choices.items()} == {
        family: dict(counts) for family, counts in chosen.items()
    }
    assert found.difference is not None
    assert found.difference.mean == pytest.approx((won["oracle"] - won["static"]) / 48)
    assert found.difference.num_streams == 3


def test_an_arm_that_is_best_on_its_own_seed_only_is_not_chosen_there(tmp_path: Path) -> None:
    # Given an arm that wins everything on seed 0 and nothing elsewhere, and one that wins half everywhere.
    lucky: Won = lambda cell, stream, number, family: cell.seed == 0  # noqa: E731
    steady: Won = lambda cell, stream, number, family: number % 4 < 2  # noqa: E731

    found = _headroom(build(write_played(tmp_path, _static({"retrieve_deep": lucky, "noop": steady}))))

    # On seed 0 the steady arm is chosen; elsewhere the two tie on what is seen, and the first stays: it wins nothing.
    assert found.oracle is not None
    assert found.choices["audit"] == {"fixed:noop": 1, "fixed:retrieve_deep": 2}
    assert found.oracle.successes == 6


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
    assert found.choices == {"audit": {"fixed:noop": 3}, "household": {"fixed:retrieve_deep": 3}}
    assert wording.headroom(found).startswith("headroom +50.0 points")
    assert wording.choices(found) == (
        "Chosen for how many seeds: audit noop 3; household retrieve_deep 3; one arm for all retrieve_deep 3."
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
    assert found.static_choices == {"fixed:noop": 3}
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


def test_tasks_that_an_arm_lacks_are_left_out_of_the_choice(tmp_path: Path) -> None:
    # Given an arm that could not be evaluated on the tasks that it would have lost.
    whole = fixed("noop", by_family(audit=True, household=True), seeds=(0, 1), num_tasks=8)
    broken = fixed("retrieve_deep", by_family(audit=True, household=True), seeds=(0, 1), num_tasks=8, broken=(0, 1, 2))

    found = _headroom(build(write_played(tmp_path / "run", whole + broken)))

    assert found.oracle is not None
    assert found.oracle.num_tasks == 2 * 5
