"""How runs in an object store are named, and which folders of a machine stand for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcon.errors import ConfigError
from memcon_platform.config import load
from memcon_platform.run_store.places import local_folder, place_in_store, run_in_store
from support.shell import SMALL, SMOKE


@pytest.mark.parametrize("value", ["s3://bucket/a/b", "s3://bucket/a/b/", "S3://bucket/a/b"])
def test_a_place_has_one_form(value: str) -> None:
    assert place_in_store(value) == "s3://bucket/a/b"


@pytest.mark.parametrize(
    "value",
    [
        "s3://",
        "s3:///a",
        "s3://bucket//a",
        "s3://bucket/../a",
        "s3://bucket/./a",
        "s3://bucket/a b",
        "gs://bucket/a",
        "a",
    ],
)
def test_what_no_folder_can_stand_for_is_refused_with_what_can(value: str) -> None:
    with pytest.raises(ConfigError, match="expected s3://BUCKET/PREFIX of letters") as refused:
        place_in_store(value)
    assert repr(value) in str(refused.value)


def test_credentials_in_a_place_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        place_in_store("s3://AKIAKEY:topsecret@bucket/a")
    assert "topsecret" not in str(refused.value)
    assert "AKIAKEY" not in str(refused.value)


def test_a_bucket_alone_is_no_run() -> None:
    with pytest.raises(ConfigError, match="'s3://bucket' is a bucket, not a run"):
        run_in_store("s3://bucket/")


def test_places_that_differ_have_folders_that_differ() -> None:
    places = ["s3://one/a/b", "s3://one/a.b", "s3://two/a/b", "s3://one/a/B"]
    folders = {local_folder(Path("base"), place) for place in places}
    assert len(folders) == len(places)
    assert Path("base/one/a/b") in folders


def test_a_plan_knows_its_run_in_the_store_and_its_working_copy(tmp_path: Path) -> None:
    plan = load(SMOKE, [*SMALL, "run=one", "root=s3://bucket/team/", f"working_root={tmp_path}"])
    assert plan.uri == "s3://bucket/team/one"
    assert plan.run_dir == tmp_path / "bucket" / "team" / "one"
    assert load(SMOKE, [*SMALL, "root=s3://bucket"]).run_dir == Path("runs/s3/bucket/smoke")


def test_where_a_run_lives_is_no_part_of_its_cells(tmp_path: Path) -> None:
    local, stored = load(SMOKE, [*SMALL, f"root={tmp_path}"]), load(SMOKE, [*SMALL, "root=s3://bucket/a"])
    assert local.uri is None
    assert [cell.cell_id for cell in local.cells] == [cell.cell_id for cell in stored.cells]


def test_credentials_in_an_override_are_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        load(SMOKE, ["root=s3://AKIAKEY:topsecret@bucket/a"])
    assert str(refused.value).startswith("override 'root=...': root: a place in an object store holds no credentials")
    assert "topsecret" not in str(refused.value)
