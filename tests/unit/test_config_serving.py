"""The config of `memcon serve`: what it gives, and how each mistake is named."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from memcon.errors import ConfigError
from memcon_platform.config.serving import SERVING_KEYS, load_serving
from memcon_policy_server.options import Limits, OwnerOptions
from support.shell import ROOT

SHIPPED = ROOT / "configs" / "serve.yaml"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text("tables: {one: ucb, two: {name: ucb, c: 0.5}}\n", encoding="utf-8")
    return path


def test_the_shipped_config_serves_one_table_on_the_loopback() -> None:
    plan = load_serving(SHIPPED)
    assert (plan.name, plan.host, plan.port, plan.shards, plan.ray_address) == ("agents", "127.0.0.1", 8000, 2, None)
    assert not plan.options.durable_decides
    assert plan.tables["default"].closed_kept == 1_000_000


def test_the_shipped_config_names_no_value_that_is_not_the_default(tmp_path: Path) -> None:
    bare = tmp_path / "agents.yaml"
    bare.write_text("tables: {default: ucb}\n", encoding="utf-8")
    assert load_serving(SHIPPED) == load_serving(bare)


def test_a_folder_keeps_the_number_of_shards_that_it_was_made_with(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    for shard in range(3):
        (folder / f"shard-{shard}.sqlite").touch()
    assert load_serving(config, [f"directory={folder}"]).shards == 3
    assert load_serving(config, [f"directory={folder}", "shards=4"]).shards == 4


def test_name_and_folder_come_from_the_file_s_name(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config.parent)
    plan = load_serving(config)
    assert plan.name == "mine"
    assert plan.directory == config.parent / "serve" / "mine"


def test_all_options_of_an_owner_can_be_set(config: Path) -> None:
    plan = load_serving(
        config,
        ["durable_decides=true", "expire_after_s=60", "default_reward=-0.5", "snapshot_every=50", "flush_every_s=0.2",
         "limits.max_batch=8", "limits.request_timeout_s=2.5"],
    )  # fmt: skip
    assert plan.options == OwnerOptions(
        durable_decides=True,
        expire_after_s=60.0,
        default_reward=-0.5,
        snapshot_every=50,
        flush_every_s=0.2,
        limits=Limits(max_batch=8, request_timeout_s=2.5),
    )


def test_tables_are_policies_as_in_a_sweep(config: Path) -> None:
    plan = load_serving(config, ["tables.three=pooled", "closed_kept=null"])
    assert {name: settings.rule for name, settings in plan.tables.items()} == {
        "one": "ucb",
        "two": "ucb",
        "three": plan.tables["three"].rule,
    }
    assert plan.tables["two"].rule_parameters["c"] == 0.5
    assert plan.tables["three"].pooling
    assert plan.tables["one"].closed_kept is None


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("prot=1", "unknown key 'prot'; allowed: .*did you mean 'port'"),
        ("limits.max_batc=1", "limits: unknown key 'max_batc'.*did you mean 'max_batch'"),
        ("port=0", r"port = 0: expected .* in \[1, 65535\]"),
        ("shards=0", "shards = 0"),
        ("gateways=0", "gateways = 0"),
        ("shards=two", "shards: expected int, got 'two'"),
        ("host=''", "host = ''"),
        ("name=a/b", "name: expected a name of letters"),
        ("directory=s3://bucket/x", "directory: expected a local folder"),
        ("default_reward=1", "default_reward: decisions never expire; set expire_after_s too"),
        ("closed_kept=0", "closed_kept = 0"),
        ("limits.max_tables=1", "tables: 2 of them; limits.max_tables allows 1"),
        ("tables.x=none", "tables.x: policy 'none' keeps no table.*take ucb"),
        ("tables.x={name: ucb, control: {plan_injection: false}}", "tables.x: control belongs to a sweep's tasks"),
        ("tables.x={name: ucb, alhpa: 1}", "tables.x: unknown key 'alhpa'.*did you mean 'alpha'"),
        ("tables.x=ubc", "tables.x: .*'ubc'.*did you mean 'ucb'"),
        ("tables=[ucb]", "does not apply to the config"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_override(config: Path, override: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        load_serving(config, [override])
    assert str(caught.value).startswith(f"override {override!r}: ")
    assert "\n" not in str(caught.value)


def test_a_wrong_value_of_the_file_names_the_file(config: Path) -> None:
    config.write_text("tables: {x: ubc}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="did you mean 'ucb'") as caught:
        load_serving(config)
    assert str(caught.value).startswith(f"{config}: tables.x")


def test_every_key_is_told_with_the_default_that_the_code_has(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "configs.md").read_text(encoding="utf-8").partition("## Keys of `memcon serve`")[2]
    told = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \| \S.* \|$", page, re.MULTILINE))
    assert {key.partition(".")[0] for key in told} == set(SERVING_KEYS)
    # Laid over a file that gives nothing, every default that is a value leaves the plan as it is.
    bare = tmp_path / "bare.yaml"
    bare.write_text("tables: {}\n", encoding="utf-8")
    values = [f"{key}={text.strip('`')}" for key, text in told.items() if text.startswith("`")]
    assert load_serving(bare, values) == load_serving(bare)
    assert len(values) == len(told) - 2
    limits = {key.partition(".")[2] for key in told if key.startswith("limits.")}
    assert limits == {field.name for field in dataclasses.fields(Limits)}
