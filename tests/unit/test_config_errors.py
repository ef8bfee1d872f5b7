"""Every mistake in a config is one line that says what to mend (issue: acceptance 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from memcon.errors import ConfigError
from memcon_platform.config import load
from support.config_plugins import GRID, toy_plugins


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with toy_plugins():
        yield


def message_of(path: Path, *overrides: str, limit: int | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides, limit)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path, {"axes": GRID})


def written(tmp_path: Path, document: Mapping[str, Any]) -> Path:
    path = tmp_path / "trial.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create(dict(document))), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("override", "told"),
    [
        # unknown keys, at every level
        ("axs.policy=[ucb]", ["unknown key 'axs'", "did you mean 'axes'?"]),
        ("axes.polcy=[ucb]", ["axes: unknown key 'polcy'", "did you mean 'policy'?", "allowed: backbone, benchmark"]),
        ("workrs=2", ["unknown key 'workrs'", "did you mean 'workers'?"]),
        ("policy_server.shard=2", ["policy_server: unknown key 'shard'", "did you mean 'shards'?"]),
        ("control.decision_point=events", ["control: unknown key", "did you mean 'decision_points'?"]),
        ("axes.policy=[{name: ucb, alpa: 1}]", ["axes.policy[0]: unknown key 'alpa'", "did you mean 'alpha'?"]),
        (
            "axes.framework=[{name: runner, limits: {thoghts: 3}}]",
            ["axes.framework[0].limits: unknown key 'thoghts'", "did you mean 'thoughts'?"],
        ),
        ("axes.policy=[{name: ucb, control: {plan: 1}}]", ["axes.policy[0].control: unknown key 'plan'"]),
        ("include=[{policy: ucb, seed: 0, stream: 3}]", ["include[0]: unknown key", "did you mean 'streams'?"]),
        ("exclude=[{polcy: ucb}]", ["exclude[0]: unknown key 'polcy'"]),
        # wrong types
        ("axes.policy=[{name: ucb, c: x}]", ["axes.policy[0].c: expected float, got 'x'"]),
        ("axes.framework=[{name: runner, history_window: 1.5}]", ["history_window: expected int or str, got 1.5"]),
        ("axes.framework=[{name: runner, list_actions: 1}]", ["list_actions: expected bool, got 1"]),
        ("axes.framework=[{name: runner, few_shot: true}]", ["few_shot: expected int, got True"]),
        ("axes.framework=[3]", ["axes.framework[0]: expected a name or {name: ..., parameters}, got 3"]),
        ("axes.framework=[{few_shot: 1}]", ["an entry needs a name", "registered as framework: runner"]),
        ("axes.framework=[{name: 3}]", ["name must be text, got 3"]),
        ("axes=3", ["axes: expected a mapping"]),
        ("include=3", ["include: expected a list"]),
        ("workers=two", ["workers: expected int, got 'two'"]),
        ("tracking.enabled=1", ["tracking.enabled: expected bool, got 1"]),
        ("policy_server=3", ["policy_server: expected a mapping"]),
        ("control=[]", ["control: expected a mapping"]),
        ("embedder=0", ["embedder: expected a name"]),
        ("axes.seed=[0.5]", ["axes.seed[0]: expected an integer", "got 0.5"]),
        ("axes.seed=[1,true]", ["axes.seed[1]: expected an integer", "got True"]),
        ("axes.seed=[-1]", ["axes.seed[0]: expected an integer", "got -1"]),
        # NaN and infinity
        ("axes.policy=[{name: ucb, c: .nan}]", ["axes.policy[0].c = nan: expected a finite number"]),
        ("server_wait_s=.inf", ["server_wait_s = inf"]),
        # refused values
        ("axes.policy=[{name: ucb, c: -1}]", ["axes.policy[0]: c = -1.0", "in [0, 1000]"]),
        ("control.decision_points=event", ["control: unknown decision_points 'event'", "did you mean 'events'?"]),
        ("axes.policy=[{name: ucb, reward: {failure_penalty: -1}}]", ["axes.policy[0].reward: failure_penalty = -1.0"]),
        ("workers=0", ["workers = 0", ">= 1"]),
        ("policy_server.shards=0", ["policy_server: shards = 0"]),
        ("task_time_limit_s=0", ["task_time_limit_s = 0"]),
        ("limit=-1", ["limit: expected an integer >= 1, got -1"]),
        ("limit=2.5", ["limit: expected an integer >= 1, got 2.5"]),
        ("streams=0", ["streams: expected an integer in [1,", "got 0"]),
        ("split=replicat", ["split: expected one of replicate, partition, got 'replicat'"]),
        ("table_scope=mine", ["share the table 'mine'", "recorded fixed, asked ucb", "tables of their own"]),
        ("table_scope=streem", ["table_scope: did you mean 'stream'?"]),
        ("table_scope=a/b", ["table_scope: expected one of cell, stream, or the name of a table", "got 'a/b'"]),
        ("table_scope=1", ["table_scope: expected one of cell, stream, or the name", "got 1"]),
        ("max_open_episodes=0", ["max_open_episodes: expected an integer >= 1, got 0"]),
        ("start_from={polcy: {run: a}}", ["start_from: unknown key 'polcy'", "did you mean 'policy'?"]),
        ("start_from={memory: {run: a, cel: b}}", ["start_from.memory: unknown key 'cel'", "did you mean 'cell'?"]),
        ("start_from={memory: {}}", ["start_from.memory", "run"]),
        ("start_from={memory: {run: ' '}}", ["start_from.memory: run: expected the folder of an earlier run"]),
        ("start_from={policy: {run: a, cap: 0}}", ["start_from.policy: cap = 0: expected a finite number >= 1"]),
        (
            "start_from={policy: {run: a}}",
            ["start_from.policy with policy 'fixed:retrieve_shallow', which chooses without its table"],
        ),
        ("study={groups: []}", ["study: groups: expected at least one number"]),
        ("study={groups: [8, 0]}", ["study: groups = 0"]),
        ("axes.memory=[{name: notes, preload: {source: plans}}]", ["axes.memory[0].preload: unknown source 'plans'"]),
        ("axes.memory=[{name: notes, preload: {per_typ: 1}}]", ["axes.memory[0].preload: unknown key 'per_typ'"]),
        ("axes.memory=[{name: empty, preload: {}}]", ["memory 'empty' holds nothing"]),
        ("tracking.experiment=' '", ["tracking: experiment = ' '"]),
        ("root=gs://bucket/runs", ["root: expected a local folder or s3://BUCKET/PREFIX", "'gs:'"]),
        ("root=s3://bucket/a/../b", ["root: expected s3://BUCKET/PREFIX of letters", "'s3://bucket/a/../b'"]),
        ("root=s3://", ["root: expected s3://BUCKET/PREFIX"]),
        ("working_root=s3://bucket/runs", ["working_root: expected a local folder, got a place of 's3:'"]),
        ("run=a/b", ["run: expected a name", "got 'a/b'"]),
        ("run=..", ["run: expected a name", "got '..'"]),
        ("run=''", ["run: expected a name", "got ''"]),
        ("run=", ["run: expected a name", "got None"]),
        # names of plug-ins and arms
        ("axes.policy=[ucbb]", ["axes.policy[0]: unknown policy 'ucbb'", "did you mean 'ucb'?"]),
        ("axes.memory=[nots]", ["axes.memory[0]: unknown memory 'nots'", "allowed: empty, notes"]),
        ("embedder=wordlama", ["embedder: unknown embedder 'wordlama'", "did you mean 'wordllama'?"]),
        ("exclude=[{policy: ucbb}]", ["exclude[0].policy: unknown policy 'ucbb'"]),
        ("axes.policy=[fixed:plan_injct]", ["axes.policy[0]: unknown action_id", "did you mean 'plan_inject'?"]),
        ("axes.policy=[fixed]", ["axes.policy[0]: policy 'fixed' needs action_id"]),
        ("axes.policy=[ucb:3]", ["axes.policy[0]: 'ucb:3': policy 'ucb' has no short form"]),
        # the grid
        ("axes.policy=[]", ["axes.policy: empty", "at least one of: fixed, none, ucb, uniform"]),
        ("axes.seed=", ["axes.seed: empty", "integers"]),
        ("axes.policy=[ucb,ucb]", ["gives the cell 'toy / runner / parrot / notes / ucb / seed 0' twice"]),
        ("include=[{policy: ucb, seed: 1}]", ["include[0]: gives the cell", "which axes gives already"]),
        ("include=[{policy: none}]", ["include[0]: no 'seed', and axes.seed has 2 entries"]),
        ("axes.memory=[empty]", ["memory 'empty'", "'none' is the only policy of 'empty'"]),
        ("exclude=[{}]", ["exclude[0]: names no axis"]),
        ("exclude=[{benchmark: toy}]", ["exclude: removes every cell"]),
        # benchmarks
        ("axes.benchmark=[broken]", ["benchmark 'broken' cannot be built: ValueError: the world file has no goals"]),
        ("axes.benchmark=[absent]", ["alfworld is not installed; run: pip install 'memcon[alfworld]'"]),
        ("axes.benchmark=[{name: toy, num_tasks: 0}]", ["benchmark 'toy' has no task"]),
        # overrides themselves
        ("axes", ["expected key=value"]),
        ("=3", ["expected key=value"]),
        ("axes..policy=3", ["expected key=value"]),
        ("axes.policy=[ucb", ["the value is not valid YAML: line 1, column 5"]),
        ("axes.seed.7=3", ["does not apply to the config"]),
    ],
)
def test_mistake_in_an_override_names_override_key_and_remedy(config: Path, override: str, told: list[str]) -> None:
    message = message_of(config, override)

    assert message.startswith(f"override {override!r}: ")
    for part in told:
        assert part in message


def test_mistake_in_the_file_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, {"axes": {**GRID, "policy": ["ucb", {"name": "ucb", "c": -1}]}})

    assert message_of(path, "workers=2", "axes.policy.1.gamma=0.5").startswith(f"{path}: axes.policy[1]: c = -1.0")


def test_the_override_that_causes_the_error_is_named_among_others(config: Path) -> None:
    assert message_of(config, "workers=2", "streams=99", "split=partition", "seed=1").startswith("override 'seed=1': ")
    assert message_of(config, "streams=99", "split=partition", "workers=2").startswith("override 'split=partition': ")


def test_negative_limit_of_the_command_line_is_refused(config: Path) -> None:
    assert "limit: expected an integer >= 1, got -3" in message_of(config, limit=-3)


def test_credentials_in_the_tracking_uri_are_refused_and_not_repeated(tmp_path: Path) -> None:
    path = written(tmp_path, {"axes": GRID, "tracking": {"uri": "https://ann:secret@host/"}})

    message = message_of(path)

    assert "uri holds credentials" in message
    assert "secret" not in message


def test_environment_values_are_refused_since_the_run_folder_keeps_them(tmp_path: Path) -> None:
    assert "oc.env" in message_of(written(tmp_path, {"axes": GRID, "run": "${oc.env:HOME}"}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- a\n- b\n", "expected a mapping of settings"),
        ("hello", "unknown key 'hello'"),
        ("axes:\n  policy: [ucb\nrun: x\n", "not valid YAML: line 3, column 4"),
        ("run: a\nrun: b\n", "not valid YAML: line 2, column 1: found duplicate key run"),
        ("run: a\n", "axes: missing"),
        ("axes: {policy: [ucb]}\n", "axes: no 'benchmark'; give at least one of: absent, broken, toy"),
        ("include: [{policy: ucb}]\n", "include[0]: no 'benchmark', and axes has none either"),
        ("run: ${missing}\n", "run: Interpolation key 'missing' not found"),
        ("run: ???\n", "run: "),
        ("1: x\n", "unknown key '1'"),
    ],
)
def test_files_that_are_no_config_are_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "trial.yaml"
    path.write_text(text, encoding="utf-8")

    assert message_of(path).startswith(f"{path}: {told}")


def test_missing_file_lists_what_lies_beside(config: Path) -> None:
    message = message_of(config.with_name("trail.yaml"))

    assert "no config file at" in message
    assert f"did you mean '{config}'?" in message


def test_missing_folder_folder_as_file_and_binary_file_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")

    assert "holds no .yaml file" in message_of(tmp_path / "absent" / "trial.yaml")
    assert "cannot read the config" in message_of(tmp_path)
    assert "not UTF-8" in message_of(binary)


def test_a_wrong_limit_of_the_command_line_is_named_as_it_was_typed(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--limit 0: limit: expected an integer >= 1, got 0$"):
        load(config, ["workers=1"], limit=0)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ("reward: {failure_penalty: 5.0}", "reward.failure_penalty"),
        ("control: {plan_injection: false, explain: true}", "control.plan_injection"),
    ],
)
def test_cells_of_one_table_must_mean_the_same_by_a_return(config: Path, own: str, told: str) -> None:
    message = message_of(config, f"axes.policy=[ucb,{{name: ucb, {own}}}]", "table_scope=mine")

    assert f"share the table 'mine' and differ in {told}; give them equal settings" in message


def test_a_memory_cannot_be_filled_from_a_benchmark_without_practice_tasks(tmp_path: Path) -> None:
    axes = {**GRID, "benchmark": [{"name": "toy", "num_tasks": 100}], "memory": [{"name": "notes", "preload": {}}]}

    message = message_of(written(tmp_path, {"axes": axes}))

    assert "benchmark 'toy num_tasks=100', which has no practice tasks" in message
    assert "take preload off the memory" in message


def test_cells_of_one_table_may_differ_in_what_they_record(config: Path) -> None:
    plan = load(config, ["axes.policy=[ucb,{name: ucb, control: {explain: true}}]", "table_scope=mine"])

    assert {cell.table_scope for cell in plan.cells} == {"mine"}
