"""From a config to its outcome matrices and the rules that are replayed on them; and the studies that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcon import codec
from memcon.errors import ConfigError
from memcon_platform.config import RunPlan, load
from memcon_platform.study.matrix_plan import Study, study_of

STUDIES = Path(__file__).parents[2] / "configs" / "studies"
YARDSTICKS = ("retrieve_shallow", "retrieve_deep", "plan_inject", "insight_only", "noop")
BASE = """
run: asked
axes:
  benchmark: [household]
  framework: [{name: lobster, history_window: all, few_shot: 0, list_actions: true, loop_stop: false}]
  backbone: [imitator]
  memory: [metagpt]
  policy: [ucb, "fixed:noop", uniform]
  seed: [0, 3]
embedder: hashing
limit: 5
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "asked.yaml"
    path.write_text(BASE)
    return path


def shapes(study: Study) -> list[tuple[int, int, str, str]]:
    return [(cell.seed, cell.streams, cell.policy.name, cell.control.decision_points) for cell in study.plan.cells]


def test_one_cell_a_seed_plays_every_arm_at_the_start_of_each_task(config: Path) -> None:
    study = study_of(config, ["study.streams=4", "study.groups=[1,8]"])
    assert study.plan.run == "asked-matrix"
    assert shapes(study) == [(0, 4, "every_arm", "start"), (3, 4, "every_arm", "start")]
    assert [cell.stream_tasks for cell in study.plan.cells] == [(5,) * 4] * 2
    assert study.groups == (1, 8)
    (arena,) = study.arenas
    assert arena.cells == study.plan.cells
    assert [learner.label for learner in arena.learners] == ["ucb"]
    assert len(arena.learners[0].allowed) == 9


def test_the_matrix_does_not_depend_on_shapes_and_policies_of_the_config(config: Path) -> None:
    plain = study_of(config)
    other = study_of(
        config,
        [
            "streams=8", "table_scope=stream", "max_open_episodes=1", "axes.policy=[uniform,{name: ucb, c: 0.3}]",
            "control.decision_points=every_step",
        ],
    )  # fmt: skip
    assert [cell.cell_id for cell in other.plan.cells] == [cell.cell_id for cell in plain.plan.cells]


def test_each_memory_and_benchmark_is_a_matrix_of_its_own_and_none_is_left_out(config: Path) -> None:
    memories = "[metagpt,{name: metagpt, preload: {source: attempts, per_type: 2}}]"
    study = study_of(
        config,
        [
            f"axes.memory={memories}", "axes.benchmark=[household,pddl]",
            "include=[{benchmark: household, memory: empty, policy: none, seed: 0}]",
        ],
    )  # fmt: skip
    assert len(study.arenas) == 4
    assert len(study.plan.cells) == 8
    plain, preloaded = (arena.labels["memory"] for arena in study.arenas[:2])
    assert plain == "metagpt"
    assert "preload.source=attempts" in preloaded
    assert {cell.preload is None for cell in study.arenas[0].cells} == {True}
    assert {cell.preload is None for cell in study.arenas[1].cells} == {False}


def test_a_config_without_memory_has_nothing_to_study(config: Path) -> None:
    with pytest.raises(ConfigError, match="every cell has the memory 'empty'"):
        study_of(config, ["axes.memory=[empty]", "axes.policy=[none]"])


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ("[pooled]", "compact"),
        ("[pooled,ucb]", "default"),
        ("[{name: ucb, action_set: retrieval_heavy}]", "retrieval_heavy"),
        ("[none]", "compact"),
    ],
)
def test_the_smallest_action_set_that_holds_all_arms_is_played(config: Path, policies: str, expected: str) -> None:
    (cell, _) = study_of(config, [f"axes.policy={policies}"]).plan.cells
    assert cell.settings["policy"]["action_set"] == expected


def test_a_policy_that_the_matrix_cannot_replay_is_named_with_its_reason(config: Path) -> None:
    policies = (
        "[ucb,{name: ucb, action_set: retrieval_heavy},{name: ucb, control: {plan_injection: false}},"
        "{name: ucb, reward: {failure_penalty: 1.0}},{name: ucb, control: {decision_points: every_step}}]"
    )
    (arena,) = study_of(config, [f"axes.policy={policies}"]).arenas
    # Rewards are computed anew, and a replay decides once a task whatever the config says.
    assert [learner.label for learner in arena.learners] == ["ucb", "ucb reward.failure_penalty=1.0"]
    assert [learner.reward.failure_penalty for learner in arena.learners] == [0.5, 1.0]
    heavy, planless = arena.skipped
    assert "its arms retrieve_wide, retrieve_widest are not in the matrix" in heavy.reason
    assert "control.plan_injection = False changes what arms do; the matrix has True" in planless.reason


@pytest.mark.parametrize(
    "where", ["control.unsupported_arms=mask", "axes.policy=[{name: ucb, control: {unsupported_arms: mask}}]"]
)
def test_the_matrix_has_all_arms_where_policies_mask_those_that_the_memory_lacks(config: Path, where: str) -> None:
    study = study_of(config, [where])
    assert {cell.control.unsupported_arms for cell in study.plan.cells} == {"noop"}
    (arena,) = study.arenas
    assert arena.skipped == ()
    assert [learner.mask_unsupported for learner in arena.learners] == [True]
    # A config that masks nothing keeps the ids of its matrix.
    plain = study_of(config).plan.cells[0]
    assert "unsupported_arms" not in plain.policy.label
    assert "unsupported_arms" not in codec.encode_json(plain.policy.parameters)


def test_arms_for_a_stuck_agent_are_not_chosen_at_the_start(config: Path) -> None:
    (arena,) = study_of(config, ["axes.policy=[pooled,ucb]"]).arenas
    pooled, ucb = arena.learners
    assert "re_retrieve" not in pooled.allowed
    assert "re_retrieve" in ucb.allowed


# --- the studies that ship --------------------------------------------------------------------------------------------


@pytest.fixture(params=sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def shipped(request: pytest.FixtureRequest) -> RunPlan:
    path: Path = request.param
    plan = load(path)
    assert plan.run == path.stem
    return plan


def test_a_shipped_study_has_several_seeds_and_every_yardstick_beside_each_learner(shipped: RunPlan) -> None:
    places: dict[tuple[str, str], list[str]] = {}
    for cell in shipped.cells:
        if cell.memory.name != "empty":
            arms = places.setdefault((cell.benchmark.label, cell.memory.label), [])
            arms.append(cell.policy.parameters.get("action_id", cell.policy.name))
    assert len({cell.seed for cell in shipped.cells}) > 1
    learning = [found for found in places.values() if set(found) - {*YARDSTICKS, "none"}]
    # The ladder compares memories: nothing learns in it.
    assert bool(learning) == (shipped.run != "ladder")
    for found in learning:
        assert {*YARDSTICKS, "uniform"} <= set(found)


def test_a_shipped_study_is_small_enough_for_two_cores(shipped: RunPlan) -> None:
    # About 80 tasks a second; an outcome matrix plays some seven arms a task, at 35 tasks a second.
    tasks = sum(cell.num_tasks for cell in shipped.cells)
    assert tasks < 35_000
    if "study" in shipped.resolved:
        matrix = study_of(STUDIES / f"{shipped.run}.yaml").plan
        assert sum(cell.num_tasks for cell in matrix.cells) < 20_000


def test_studies_with_a_matrix_replay_what_they_compare() -> None:
    pooling = study_of(STUDIES / "pooling.yaml")
    (arena,) = pooling.arenas
    assert [learner.label for learner in arena.learners] == ["ucb", "pooled"]
    assert arena.skipped == ()
    # Two tables of 64 streams: one alone says nothing of others.
    assert sum(cell.streams for cell in arena.cells) // max(pooling.groups) >= 2
    # Two seeds end to end would be two tables, whose intervals leave everything open.
    assert len(arena.cells) >= 3
