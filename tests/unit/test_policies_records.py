"""Tables as values: counted, inspected, compared, written to a file and taken over from one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memcon import ids
from memcon.errors import (
    ConfigError,
    DamagedFileError,
    NotFoundError,
    SchemaVersionError,
    StorageError,
    UnavailableError,
    UnknownNameError,
)
from memcon.learning import transfer
from memcon.learning.shard import PolicyShard
from memcon.policy_types import LearningSettings
from memcon_platform.policies.differences import table_difference
from memcon_platform.policies.inspection import inspected, selected_keys
from memcon_platform.policies.record import TableRecord, record_of_dump, summary_of_listed
from memcon_platform.policies.start import CLOSED_KEPT, new_settings, table_start
from memcon_platform.policies.table_file import TableFile, write_tables
from support.key_chains import POOLED
from support.shards import SETTINGS, new_shard
from support.table_records import (
    CHAINS,
    KEYS,
    POOLED_CHAINS,
    learned,
    learned_pooled,
    learned_shard,
    record_of,
    summary_of_shard,
)

# --- as a value --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "chains"), [(SETTINGS, CHAINS), (POOLED, POOLED_CHAINS)])
def test_every_decision_counts_once_however_many_keys_it_has(
    settings: LearningSettings, chains: list[tuple[str, ...]]
) -> None:
    shard = learned_shard(settings, chains)

    # By its owner, which has them as one array, and of what was read.
    assert record_of(shard).totals() == (30, 29)
    assert shard.totals("table") == {"taken": 30, "credited": 29}
    assert record_of(shard).open == 1


def test_a_table_of_another_form_is_told_with_its_place() -> None:
    shard = learned_shard()
    dump = shard.dump("table")
    del dump["numbers"]

    with pytest.raises(UnavailableError, match=r"http://127.0.0.1:1 gives a table without the form of this memcon's"):
        record_of_dump(dump, summary_of_shard(shard), where="http://127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"KeyError: 'taken'.; use the memcon that serves it"):
        summary_of_listed("table", {"settings": dump["settings"], "keys": 1}, where="http://127.0.0.1:1")


# --- inspected ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "chains"), [(SETTINGS, CHAINS), (POOLED, POOLED_CHAINS), (SETTINGS, [("a text of the caller's own",)])]
)
def test_a_key_is_shown_as_its_owner_would(settings: LearningSettings, chains: list[tuple[str, ...]]) -> None:
    shard = learned_shard(settings, chains)
    owners = shard.inspect("table")
    assert len(owners) >= len(chains)

    # One by one: the coarser keys of a chain must come along.
    assert {key: inspected(record_of(shard), [key])[key] for key in owners} == owners


def test_keys_with_the_most_decisions_come_first() -> None:
    record = learned()
    taken = {key: sum(int(cell["taken"]) for cell in arms.values()) for key, arms in record.numbers.items()}
    assert taken == {KEYS[0]: 10, KEYS[1]: 20}

    assert selected_keys(record, None, None) == [KEYS[1], KEYS[0]]
    assert selected_keys(record, None, 1) == [KEYS[1]]
    assert selected_keys(record, "type 0", None) == selected_keys(record, KEYS[0], 5) == [KEYS[0]]
    with pytest.raises(NotFoundError, match="no key holds 'type 9'; without --key those with the most decisions"):
        selected_keys(record, "type 9", None)


def test_at_some_keys_a_pooling_rule_still_sees_what_it_chooses_by() -> None:
    shard = learned_shard(POOLED, POOLED_CHAINS)
    key = POOLED_CHAINS[1][0]

    at_one = record_of_dump(shard.dump_keys("table", key), summary_of_shard(shard), where="a test")

    assert set(at_one.numbers) == set(POOLED_CHAINS[1])
    assert inspected(at_one, [key])[key] == shard.inspect("table")[key]
    assert at_one.open == 1


# --- compared ----------------------------------------------------------------------------------------------------


def test_a_table_is_equal_to_itself_under_another_name() -> None:
    assert table_difference(learned(), replace(learned(), table="other", version=9, open=0)).equal


def test_cells_that_differ_come_by_their_difference_of_q() -> None:
    before, after = record_of(learned_shard(decisions=12)), record_of(learned_shard(decisions=40))

    found = table_difference(before, after)

    differing = {
        (key, arm)
        for key in after.numbers
        for arm in SETTINGS.action_ids
        if before.numbers[key][arm] != after.numbers[key][arm]
    }
    assert {(cell.key, cell.arm) for cell in found.cells} == differing
    assert len(differing) > 5
    sizes = [abs(cell.q_difference) for cell in found.cells]
    assert sizes == sorted(sizes, reverse=True)
    largest = found.cells[0]
    assert largest.first is not None
    assert largest.second is not None
    assert largest.second.q - largest.first.q == largest.q_difference != 0.0
    assert not found.settings


def test_a_key_that_one_table_never_met_has_its_priors_there() -> None:
    whole = record_of(learned_shard(decisions=12))
    known = {key: arms for key, arms in whole.numbers.items() if key != KEYS[0]}

    found = table_difference(replace(whole, numbers=known), whole)

    touched = [arm for arm, cell in whole.numbers[KEYS[0]].items() if cell["taken"]]
    assert 0 < len(touched) < len(SETTINGS.action_ids)
    assert sorted(cell.arm for cell in found.cells) == sorted(touched)
    shallow = next(cell for cell in found.cells if cell.arm == "retrieve_shallow")
    assert shallow.first is not None
    assert (shallow.first.q, shallow.first.taken) == (0.5, 0)


def test_settings_and_arms_of_one_table_alone_differ() -> None:
    first = learned()
    fewer = replace(SETTINGS, action_ids=SETTINGS.action_ids[:-1], priors=SETTINGS.priors[:-1], alpha=0.3, frozen=True)
    second = replace(
        first,
        settings=fewer,
        numbers={
            key: {arm: cell for arm, cell in arms.items() if arm != "noop"} for key, arms in first.numbers.items()
        },
    )

    found = table_difference(first, second)

    assert set(found.settings) == {"action_ids", "priors", "alpha", "frozen"}
    assert found.settings["alpha"] == (0.15, 0.3)
    assert {(cell.arm, cell.second) for cell in found.cells} == {("noop", None)}


# --- in a file ---------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "made" / "tables.json"
    write_tables(path, [learned(), replace(learned_pooled(), table="pooled", source="elsewhere")])
    return path


def test_a_file_gives_back_what_was_written(file: Path) -> None:
    read = TableFile(file)

    assert read.tables() == ["pooled", "table"]
    assert read.table("table") == learned()
    assert read.table("pooled") == replace(learned_pooled(), table="pooled", source="elsewhere")
    with pytest.raises(UnknownNameError, match=r"unknown table in .*tables.json 'tble'; allowed: pooled, table"):
        read.table("tble")


def altered(file: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    return file


def test_an_altered_file_is_refused(file: Path) -> None:
    def _more(document: dict[str, Any]) -> None:
        document["tables"]["table"]["numbers"][KEYS[0]]["noop"]["credited"] += 1

    with pytest.raises(DamagedFileError, match="its checksum does not fit: it was altered or torn; export it again"):
        TableFile(altered(file, _more))


def test_a_file_of_another_form_is_refused_though_its_checksum_fits(file: Path) -> None:
    document = json.loads(file.read_text())
    for change in ({"numbers": {KEYS[0]: {"noop": {"q": 0.5}}}}, {"numbers": [1]}, {"settings": {"rule": "ucb"}}):
        tables = {"table": {**document["tables"]["table"], **change}}
        checksum = ids.stable_hash("memcon policy tables", tables, size=16)
        file.write_text(json.dumps({**document, "tables": tables, "checksum": checksum}))
        with pytest.raises(DamagedFileError, match=r"Error: .*; export it again"):
            TableFile(file)


def test_a_torn_file_and_another_one_are_refused(file: Path) -> None:
    content = file.read_text()
    file.write_text(content[: len(content) // 2])
    with pytest.raises(DamagedFileError, match="no JSON"):
        TableFile(file)
    file.write_text("[]")
    with pytest.raises(DamagedFileError, match="holds no exported tables; give a file that `memcon policy export`"):
        TableFile(file)
    with pytest.raises(StorageError, match="cannot read"):
        TableFile(file.parent / "none.json")


def test_a_file_of_another_version_is_refused(file: Path) -> None:
    with pytest.raises(SchemaVersionError, match="has schema version 2, this memcon reads 1"):
        TableFile(altered(file, lambda document: document.update(schema_version=2)))


# --- a table that starts from one --------------------------------------------------------------------------------


def started(record: TableRecord, *, count_cap: int | None = None) -> PolicyShard:
    settings = new_settings(record, frozen=False)
    shard = new_shard(settings)
    shard.import_table(table_start(record, "table", settings, count_cap=count_cap))
    return shard


@pytest.mark.parametrize("record", [learned(), learned_pooled()])
def test_a_new_table_has_what_the_old_one_was_taught(record: TableRecord) -> None:
    taught = record_of(started(record)).numbers

    for key, arms in record.numbers.items():
        for arm, cell in arms.items():
            assert taught[key][arm] == {**cell, "taken": cell["credited"]}


def test_a_cap_bounds_what_each_arm_counts() -> None:
    counts = {
        cell["credited"]
        for arms in record_of(started(learned(), count_cap=1)).numbers.values()
        for cell in arms.values()
    }

    assert counts == {1}
    assert max(int(cell["credited"]) for arms in learned().numbers.values() for cell in arms.values()) > 1


def test_a_new_table_goes_on_under_the_old_settings_with_a_bounded_memory() -> None:
    frozen = replace(learned(), settings=replace(SETTINGS, frozen=True))
    assert new_settings(frozen, frozen=False) == replace(SETTINGS, closed_kept=CLOSED_KEPT)
    kept = replace(learned(), settings=replace(SETTINGS, closed_kept=7))
    assert new_settings(kept, frozen=True) == replace(SETTINGS, closed_kept=7, frozen=True)


def test_the_same_import_may_be_repeated_and_another_cap_is_another_import() -> None:
    record = learned()
    first = table_start(record, "table", SETTINGS, count_cap=5)
    assert table_start(record, "table", SETTINGS, count_cap=5) == first
    assert table_start(record, "table", SETTINGS, count_cap=6).source != first.source
    other = replace(record, numbers={KEYS[0]: record.numbers[KEYS[0]]})
    assert table_start(other, "table", SETTINGS, count_cap=5).source != first.source


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"fingerprint": "0" * 16}, "arms: recorded ee81b01a0b2ea8ec, asked 0000000000000000"),
        ({"key_schema": "goal_plan/1"}, r"keys: recorded \['paper/1'\], asked \['goal_plan/1'\]"),
        ({"gamma": 0.5}, "gamma: recorded 0.9, asked 0.5"),
        ({"estimator": "mean"}, "estimator: recorded average, asked mean"),
    ],
)
def test_a_table_that_is_about_something_else_is_refused_with_both_values(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=f"'table' does not fit table 'new' \\({told}\\)"):
        table_start(learned(), "new", replace(SETTINGS, **change), count_cap=None)


def test_arms_that_mean_something_else_here_are_refused() -> None:
    record = replace(learned(), settings=replace(SETTINGS, fingerprint="f" * 16))
    with pytest.raises(
        ConfigError, match=r"action set 'default' of this memcon .arms: recorded f+, asked ee81b01a0b2ea"
    ):
        new_settings(record, frozen=False)
    own = replace(record, settings=replace(record.settings, action_set="ours"))
    assert new_settings(own, frozen=False).fingerprint == "f" * 16


def test_a_table_without_an_outcome_is_refused() -> None:
    with pytest.raises(ConfigError, match="no credited decision, so there is nothing to import"):
        table_start(record_of(learned_shard(decisions=1)), "new", SETTINGS, count_cap=None)


def test_a_table_of_an_agents_own_keys_goes_on_too() -> None:
    record = learned(chains=[("my key",), ("paper/1|of mine",)])

    taught = record_of(started(record)).numbers

    assert taught.keys() == record.numbers.keys()
    assert {arm: cell["credited"] for arm, cell in taught["my key"].items()} == {
        arm: cell["credited"] for arm, cell in record.numbers["my key"].items()
    }


def test_the_fingerprint_of_settings_is_part_of_a_tables() -> None:
    assert transfer.settings_fingerprint(POOLED) == {
        "arms": POOLED.fingerprint,
        "keys": ["benchmark+goal_type+plan_available/1", "benchmark+goal_type/1", "benchmark/1"],
        "estimator": "mean",
        "gamma": POOLED.gamma,
    }
