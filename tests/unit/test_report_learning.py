"""What the report tells of learned rows: yardsticks, gains, contexts, protocol, and what counts as one repetition."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from memcon.types import Episode
from memcon_platform.config.plan import MemoryStart, StartFrom, TableStart
from memcon_platform.report import GroupResult, ReportData, build
from memcon_platform.report.comparisons import comparisons
from memcon_platform.report.grouping import is_exact, table_of
from memcon_platform.report.json_form import to_json
from memcon_platform.report.statistics import TASKS_ONLY, TWO_WAY
from support.episodes import FakeCell, write_run
from support.report_runs import Played, Won, by_family, fixed, write_played

AUDIT = by_family(audit=True, household=False)
HOUSEHOLD = by_family(audit=False, household=True)
ALL = by_family(audit=True, household=True)
NOTHING = by_family(audit=False, household=False)


def _learned(won: Won = ALL, **changed: Any) -> Played:
    played = {name: changed.pop(name) for name in ("planned", "settings", "key", "table", "tokens") if name in changed}
    return Played(cell=FakeCell(**changed), won=won, **played)


def _empty(won: Won = NOTHING, **changed: Any) -> Played:
    return Played(cell=FakeCell(memory="empty", policy="none", **changed), won=won)


def _last(data: ReportData) -> GroupResult:
    return data.groups[-1]


# --- yardsticks ------------------------------------------------------------------------------------------------------


def test_every_yardstick_stands_beside_a_learner_with_its_tokens(tmp_path: Path) -> None:
    cells = [_empty(seed=seed) for seed in (0, 1)]
    for arm, won, tokens in (
        ("retrieve_shallow", AUDIT, 100),
        ("retrieve_deep", HOUSEHOLD, 300),
        ("noop", NOTHING, 0),
    ):
        cells += fixed(arm, won, seeds=(0, 1), tokens=tokens)
    cells += [Played(cell=FakeCell(policy="uniform", seed=seed), won=AUDIT, tokens=50) for seed in (0, 1)]
    cells += [_learned(ALL, seed=seed, tokens=200) for seed in (0, 1)]

    data = build(write_played(tmp_path / "run", cells))

    found = {yard.kind: yard for yard in _last(data).yardsticks}
    assert {kind: (yard.name, yard.rate, yard.injected) for kind, yard in found.items()} == {
        # Equal rates: the first is named.
        "best static arm": ("fixed:retrieve_shallow", 0.5, 200.0),
        "default static arm": ("fixed:retrieve_shallow", 0.5, 200.0),
        "noop arm": ("fixed:noop", 0.0, 0.0),
        "random arm": ("uniform", 0.5, 100.0),
        "no memory": ("no memory", 0.0, 0.0),
        "oracle from other seeds": ("per family", 1.0, 400.0),
    }
    assert _last(data).missing_yardsticks == ()
    oracle = found["oracle from other seeds"].difference
    assert oracle is not None
    assert (oracle.mean, oracle.injected) == (0.0, 0.0)
    # An arm that is two yardsticks at once is one difference.
    told = [one.subtrahend for one in comparisons(data.sections[0]) if one.group is _last(data)]
    assert told == [
        "no memory",
        "best static, default static (fixed:retrieve_shallow)",
        "noop (fixed:noop)",
        "random arm",
        "oracle from other seeds (per family)",
    ]


def test_a_difference_has_its_last_quarter_and_its_tokens_beside_it(tmp_path: Path) -> None:
    # Given 8 tasks in one order for both: the learner wins the last three, no memory the first and the last.
    def at(*ordinals: int) -> Won:
        return lambda cell, stream, number, family: order.index(number) in ordinals

    plain = FakeCell(num_tasks=8)
    run = write_run(tmp_path / "order", [plain])
    order = [int(task[-3:]) for task in _tasks(run)]
    cells = [_empty(at(0, 7), num_tasks=8), _learned(at(5, 6, 7), num_tasks=8, tokens=30)]

    found = _last(build(write_played(tmp_path / "run", cells))).difference

    assert found is not None
    assert (found.mean, found.num_pairs, found.injected) == (1 / 8, 8, 60.0)
    assert found.last_quarter is not None
    assert (found.last_quarter.mean, found.last_quarter.num_pairs, found.last_quarter.injected) == (1 / 2, 2, 60.0)
    assert found.last_quarter.last_quarter is None


def _tasks(run: Path) -> list[str]:
    from memcon_platform.trajectory import read_run

    tasks: list[str] = read_run(run, tables=("episodes",)).episodes["task_id"].to_pylist()
    return tasks


def test_rows_that_ran_under_other_conditions_are_compared_and_named(tmp_path: Path) -> None:
    start_only = {"control": {"decision_points": "start"}}
    cells = [*fixed("noop", AUDIT), *fixed("retrieve_shallow", HOUSEHOLD), _learned(settings=start_only)]

    data = build(write_played(tmp_path / "run", cells))

    yard = _last(data).yardsticks[0]
    assert yard.kind == "best static arm"
    assert any(text.startswith("decision_points=") for text in yard.differs)
    assert any("since none ran as this row did" in note for note in data.notes)


def test_static_arms_that_ran_as_the_learner_did_come_before_others(tmp_path: Path) -> None:
    cells = [*fixed("retrieve_deep", ALL), *fixed("noop", AUDIT, streams=2), _learned(AUDIT, streams=2)]

    yard = _last(build(write_played(tmp_path / "run", cells))).yardsticks[0]

    assert (yard.kind, yard.name, yard.differs) == ("only static arm", "fixed:noop, 2 streams", ())


# --- gains -----------------------------------------------------------------------------------------------------------


def test_gains_are_told_by_family_and_without_each(tmp_path: Path) -> None:
    # Given a learner that wins all, and a best static arm that loses audit.
    cells = fixed("retrieve_deep", HOUSEHOLD, seeds=(0, 1)) + fixed("noop", NOTHING, seeds=(0, 1))
    cells += [_learned(ALL, seed=seed) for seed in (0, 1)]

    gains = _last(build(write_played(tmp_path / "run", cells))).gains

    assert gains is not None
    assert (gains.by, gains.kind, gains.name) == ("family", "best static arm", "fixed:retrieve_deep")
    audit, household = gains.families
    assert (audit.family, audit.rate, audit.other_rate) == ("audit", 1.0, 0.0)
    assert (household.family, household.rate, household.other_rate) == ("household", 1.0, 1.0)
    assert audit.difference is not None
    assert household.difference is not None
    assert (audit.difference.mean, audit.difference.num_pairs) == (1.0, 12)
    assert household.difference.mean == 0.0
    # All of the gain is audit: without it nothing is left.
    assert audit.without is not None
    assert household.without is not None
    assert (audit.without.mean, household.without.mean) == (0.0, 1.0)
    # In audit alone both arms lose all: the first stays.
    assert (audit.rest_name, household.rest_name) == ("fixed:retrieve_deep", "fixed:retrieve_deep")
    assert sum(one.num_pairs for one in gains.quarters if one) == 24


def test_without_a_family_the_row_stands_beside_the_arm_that_is_best_on_the_rest(tmp_path: Path) -> None:
    # Given an arm that is best through audit alone, and one that wins the rest where a learner wins half of it.
    audit_wins = fixed("noop", AUDIT, seeds=(0, 1))
    rest_wins = fixed(
        "retrieve_deep", lambda cell, stream, number, family: family != "audit" and number < 9, seeds=(0, 1)
    )
    half: Won = lambda cell, stream, number, family: family == "audit" or number % 4 == 1  # noqa: E731

    gains = _last(
        build(
            write_played(tmp_path / "run", [*audit_wins, *rest_wins, *[_learned(half, seed=seed) for seed in (0, 1)]])
        )
    ).gains

    assert gains is not None
    assert gains.name == "fixed:noop"
    audit, household = gains.families
    assert (audit.rest_name, household.rest_name) == ("fixed:retrieve_deep", "fixed:noop")
    assert audit.without is not None
    assert household.without is not None
    # Of six tasks of household the learner wins three and the best arm there four; against noop it would gain a half.
    assert audit.without.mean == pytest.approx(-1 / 6)
    assert household.without.mean == 0.0


def test_without_a_static_arm_there_are_no_gains(tmp_path: Path) -> None:
    found = _last(build(write_played(tmp_path, [_learned()])))

    assert found.gains is None
    assert "best static arm (no static arm ran)" in found.missing_yardsticks


# --- contexts --------------------------------------------------------------------------------------------------------


def _key(episode: Episode) -> str:
    goal_type = episode.task.goal_type.replace(":", "%3A")
    return f"benchmark+goal_type/1|benchmark={episode.task.benchmark}|goal_type={goal_type}"


def test_contexts_below_30_decisions_a_table_are_not_learned(tmp_path: Path) -> None:
    # Given two tables; a third of the tasks in a context of its own.
    def key(episode: Episode) -> str:
        return f"goal_type/1|goal_type={'rare' if episode.ordinal % 3 == 0 else 'often'}"

    cells = [_learned(seed=seed, num_tasks=24, key=key, broken=(0, 1)) for seed in (0, 1)]

    (level,) = _last(build(write_played(tmp_path / "run", cells))).contexts

    often, rare = level.contexts
    # 24 tasks, 16 of them often; one unevaluable task of each; two decisions a task.
    assert (often.key, often.count, often.per_table, often.learned) == ("goal_type/1|goal_type=often", 60, 30.0, True)
    assert (rare.count, rare.per_table, rare.learned) == (28, 14.0, False)
    assert (level.schema, level.fields, level.num_tables) == ("goal_type/1", ("goal_type",), 2)
    assert level.learned_share == pytest.approx(60 / 88)
    # Contexts and arms are counted alike: a table.
    assert sum(often.by_arm.values()) == pytest.approx(often.per_table)


def test_a_context_is_learned_where_every_table_that_met_it_has_learned_it(tmp_path: Path) -> None:
    # Given two tables of 24 tasks; one meets `big` 48 times, the other 4 times, and all of `own`.
    def key(episode: Episode) -> str:
        is_big = episode.seed == 0 or episode.ordinal < 2
        return f"goal_type/1|goal_type={'big' if is_big else 'own'}"

    cells = [_learned(seed=seed, num_tasks=24, key=key) for seed in (0, 1)]

    (level,) = _last(build(write_played(tmp_path / "run", cells))).contexts

    own, big = level.contexts
    assert (own.key, own.tables, own.per_table, own.not_learned, own.learned) == (
        "goal_type/1|goal_type=own",
        1,
        44.0,
        0.0,
        True,
    )
    assert (big.tables, big.per_table, big.not_learned, big.learned) == (2, 26.0, 0.5, False)
    assert level.learned_share == pytest.approx(92 / 96)


def test_a_pooled_chain_has_its_contexts_level_by_level(tmp_path: Path) -> None:
    settings = {"policy": {"name": "ucb", "state_key": "benchmark+goal_type", "pooling": ["benchmark"]}}
    cells = [_learned(num_tasks=16, key=_key, settings=settings)]

    data = build(write_played(tmp_path / "run", cells))

    finest, coarse = _last(data).contexts
    assert (finest.schema, coarse.schema) == ("benchmark+goal_type/1", "benchmark/1")
    assert {one.key: one.count for one in coarse.contexts} == {
        "benchmark/1|benchmark=audit": 16,
        "benchmark/1|benchmark=household": 16,
    }
    assert sum(one.count for one in finest.contexts) == 32
    form = to_json(data)["groups"][-1]["contexts"]
    assert [level["learned_from"] for level in form] == [30, 30]
    assert form[1]["contexts"][0]["n"] == 16
    assert sum(form[1]["contexts"][0]["by_arm"].values()) == 16


def test_a_named_table_has_the_decisions_of_all_cells_that_share_it(tmp_path: Path) -> None:
    def key(episode: Episode) -> str:
        return "goal_type/1|goal_type=put"

    shared: dict[str, Any] = {"key": key, "table": "named/house", "table_scope": "house", "num_tasks": 8}
    cells = [_learned(**shared), _learned(memory="other", **shared)]

    data = build(write_played(tmp_path / "run", cells))

    for group in data.groups:
        (level,) = group.contexts
        assert (level.num_tables, level.contexts[0].count, level.contexts[0].learned) == (1, 32, True)


# --- protocol --------------------------------------------------------------------------------------------------------


def test_pooled_and_warm_rows_are_marked_with_where_they_come_from(tmp_path: Path) -> None:
    table = StartFrom(policy=TableStart(run="runs/before", cell="abc", cap=20, frozen=True))
    store = StartFrom(memory=MemoryStart(run="runs/before"))
    cells = [
        *fixed("noop", ALL, streams=2),
        _learned(),
        _learned(seed=5, planned={"start_from": table}),
        _learned(seed=6, planned={"start_from": store}),
        _learned(streams=2),
        _learned(policy="pooled", settings={"policy": {"name": "pooled", "pooling": ["benchmark"]}}, key=_key),
    ]

    data = build(write_played(tmp_path / "run", cells))

    tags = [(group.name.split(" start")[0], group.tags) for group in data.groups]
    assert ("fixed:noop, 2 streams", ()) in tags
    assert ("ucb, 2 streams, 1 table", ("shared table",)) in tags
    assert ("pooled (ours)", ("pooled keys", "ours")) in tags
    assert sorted(found for name, found in tags if name.startswith("ucb") and "streams" not in name) == [
        (),
        ("warm",),
        ("warm",),
    ]
    notes = " ".join(data.notes)
    assert (
        "warm: starts from the table of runs/before, cell abc, counts capped at 20, frozen: ucb start=table:" in notes
    )
    assert "warm: starts from the memory of runs/before, its matching cell: ucb start=memory:runs/before." in notes
    assert "ucb start=empty" in [group.name for group in data.groups]
    shared = (
        "shared table: 2 streams share one, which sees 2 times the feedback of one stream: ucb, 2 streams, 1 table."
    )
    assert shared in data.notes
    assert "pooled keys: statistics of its state key are pooled over benchmark: pooled (ours)." in data.notes
    assert "ours: policy 'pooled' is defined by this project, not by the paper: pooled (ours)." in data.notes
    assert "another protocol than the paper's" in notes


def test_a_bound_of_one_open_episode_makes_a_shared_table_exact() -> None:
    shared = FakeCell(streams=3).planned(0)

    assert not is_exact(shared)
    assert is_exact(dataclasses.replace(shared, max_open_episodes=1))
    assert not is_exact(dataclasses.replace(shared, max_open_episodes=2))
    assert not is_exact(dataclasses.replace(shared, table_scope="house"))
    assert is_exact(dataclasses.replace(shared, table_scope="house", max_open_episodes=1))


def test_an_outcome_matrix_stands_in_no_row(tmp_path: Path) -> None:
    cells = [_empty(), _learned(ALL), _learned(NOTHING, policy="every_arm")]

    data = build(write_played(tmp_path / "run", cells))

    assert [group.name for group in data.groups] == ["no memory", "ucb"]
    assert [cell.group for cell in data.cells] == ["no memory", "metagpt ucb", "outcome matrix"]
    assert any("`memcon study headroom` reads it" in note for note in data.notes)


def test_a_run_of_outcome_matrices_alone_is_reported(tmp_path: Path) -> None:
    data = build(write_played(tmp_path / "run", [_learned(policy="every_arm")]))

    assert (data.groups, data.sections) == ((), ())
    assert data.cells[0].success.num_tasks == 12


# --- repetitions -----------------------------------------------------------------------------------------------------


def _of_seed(cell: FakeCell, stream: int, number: int, family: str) -> bool:
    # All streams of a seed do alike: only seeds repeat.
    return (number + 3 * cell.seed) % 5 < 2 + cell.seed


def test_streams_of_one_table_are_one_repetition(tmp_path: Path) -> None:
    seeds = (0, 1, 2)
    own = [_learned(_of_seed, seed=seed, num_tasks=20) for seed in seeds]
    shared = [_learned(_of_seed, seed=seed, num_tasks=20, streams=4) for seed in seeds]
    apart = [_learned(_of_seed, seed=seed, num_tasks=20, streams=4, table_scope="stream") for seed in seeds]

    alone, together, independent = (
        _last(build(write_played(tmp_path / name, cells)))
        for name, cells in (("own", own), ("shared", shared), ("apart", apart))
    )

    assert [(one.num_streams, one.num_tables) for one in (alone, together, independent)] == [(3, 3), (12, 3), (12, 12)]
    # Four streams that only repeat what their table did tell no more than one.
    assert alone.success.interval is not None
    assert together.success.interval is not None
    assert independent.success.interval is not None
    ends = [(one.low, one.high) for one in (alone.success.interval, together.success.interval)]
    assert ends[1][0] <= ends[0][0] < ends[0][1] <= ends[1][1]
    assert independent.success.interval.high - independent.success.interval.low < 0.9 * (ends[0][1] - ends[0][0])


def test_one_shared_table_says_nothing_about_others(tmp_path: Path) -> None:
    cells = [*fixed("noop", AUDIT, streams=3), _learned(_of_seed, streams=3)]

    data = build(write_played(tmp_path / "run", cells))

    found = _last(data).yardsticks[0].difference
    assert found is not None
    assert (found.num_streams, found.num_tables) == (3, 1)
    assert found.interval == found.interval_these_seeds
    assert found.interval.method == TASKS_ONLY
    assert any("one shared table only" in note for note in data.notes)


def test_a_table_that_seeds_share_is_one_repetition_and_a_static_arm_none(tmp_path: Path) -> None:
    seeds = (0, 1, 2)
    cells = fixed("noop", AUDIT, seeds=seeds, streams=2)
    cells += [_learned(_of_seed, seed=seed, streams=2, table_scope="house") for seed in seeds]

    data = build(write_played(tmp_path / "run", cells))

    static, learned = data.groups
    assert (static.num_streams, static.num_tables) == (6, 6)
    assert (learned.num_streams, learned.num_tables) == (6, 1)
    assert learned.name == "ucb, 2 streams, table house"
    assert static.success.interval is not None
    assert static.success.interval.method == TWO_WAY
    cell = FakeCell(streams=2, table_scope="stream").planned(0)
    assert table_of(cell, 0) != table_of(cell, 1)
