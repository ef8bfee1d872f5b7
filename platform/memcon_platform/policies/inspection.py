"""What a table would choose by: per key and arm its value, counts, bonus and score (MC-36), for some of its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from memcon.errors import NotFoundError
from memcon.learning import state_key
from memcon.learning.q_table import Numbers
from memcon.learning.scoring import Scoring
from memcon.policy_types import LearningSettings
from memcon_platform.policies.record import TableRecord

__all__ = ["Columns", "inspected", "selected_keys"]

# Arm -> column -> value; None = infinite (an arm that was never taken), or the rule has none.
Columns: TypeAlias = Mapping[str, Mapping[str, float | int | None]]


def selected_keys(record: TableRecord, text: str | None, top: int | None) -> list[str]:
    """The key `text`, or all that hold it; those with the most decisions first, at most `top`.

    Raises:
        NotFoundError: no key holds `text`.
    """
    keys = list(record.numbers) if text is None else state_key.matching(record.numbers, text)
    if text is not None and not keys:
        raise NotFoundError(
            f"table '{record.table}': no key holds '{text}'; without --key those with the most decisions are shown"
        )
    keys.sort(key=lambda key: (-_taken(record.numbers[key]), key))
    return keys[:top]


def inspected(record: TableRecord, keys: Sequence[str]) -> dict[str, Columns]:
    """The columns of `keys`, in their order."""
    needed = {key: record.numbers[key] for key in _with_coarser(record, keys)}
    found = _Reading(record.table, record.settings, needed).inspect()
    return {key: found[key] for key in keys}


class _Reading(Scoring):
    """A table's rule over numbers that were read: it shows, and changes nothing."""

    def __init__(self, table: str, settings: LearningSettings, numbers: Numbers) -> None:
        super().__init__(table, settings)
        self._numbers.load(numbers)


def _with_coarser(record: TableRecord, keys: Sequence[str]) -> dict[str, None]:
    """`keys` and the coarser ones of their chains, without which a pooling rule does not see what it chooses by."""
    schemas = state_key.chain_schemas(record.settings)
    chains = [state_key.chain_from(schemas, key) for key in keys]
    return dict.fromkeys(key for chain in chains for key in chain if key in record.numbers)


def _taken(arms: Mapping[str, Mapping[str, str | int]]) -> int:
    return sum(int(cell["taken"]) for cell in arms.values())
