"""How a table starts from an exported one: what fits it, how much of it counts, and what it is called then."""

from __future__ import annotations

from dataclasses import replace

from memcon import ids
from memcon.errors import ConfigError
from memcon.learning import actions, transfer
from memcon.learning.settings import check_settings, encode_settings
from memcon.policy_types import LearningSettings, TableImport
from memcon_platform.policies.record import TableRecord

__all__ = ["new_settings", "table_start"]


# Ended decisions that a table remembers where the exported one remembered all, as a sweep's does: `memcon serve` has
# this bound, so that its memory has one.
CLOSED_KEPT = 1_000_000


def new_settings(record: TableRecord, *, frozen: bool) -> LearningSettings:
    """The settings of a new table that goes on as `record` did, whether that was frozen or not.

    Raises:
        ConfigError: no table of this memcon can have them, or the arms of that name are others here.
    """
    closed_kept = record.settings.closed_kept or CLOSED_KEPT
    settings = replace(record.settings, frozen=frozen, closed_kept=closed_kept)
    check_settings(settings)
    if settings.action_set in actions.action_set_names():
        here = replace(settings, fingerprint=actions.fingerprint(actions.action_set(settings.action_set)))
        _check_fit(record, here, f"the action set '{settings.action_set}' of this memcon")
    return settings


def table_start(record: TableRecord, table: str, settings: LearningSettings, *, count_cap: int | None) -> TableImport:
    """What fills `table`, open with `settings` and without decisions, from `record`.

    With `count_cap` each (key, arm) counts as that many outcomes at most. The same record and cap give the same import,
    so that a command that was interrupted can be repeated.

    Raises:
        ConfigError: the numbers are not of such a table; names what differs with both values.
    """
    _check_fit(record, settings, f"table '{table}'")
    numbers = transfer.capped(record.numbers, count_cap, count_cap=record.settings.count_cap)
    if not numbers:
        raise ConfigError(f"table '{record.table}' has no credited decision, so there is nothing to import")
    transfer.check_numbers(settings, numbers)
    content = ids.stable_hash("policy table", encode_settings(record.settings), record.numbers)
    cap = "all outcomes" if count_cap is None else f"at most {count_cap} outcomes a key and arm"
    return TableImport(
        table=table, source=f"exported table '{record.table}', content {content}, {cap}", numbers=numbers
    )


def _check_fit(record: TableRecord, settings: LearningSettings, what: str) -> None:
    differing = transfer.fingerprint_difference(
        transfer.settings_fingerprint(record.settings), transfer.settings_fingerprint(settings)
    )
    if differing:
        raise ConfigError(
            f"exported table '{record.table}' does not fit {what} ({differing}); import it under another name, or "
            "take a table that was learned with the same"
        )
