"""What one table may take over from another: the cap on its counts, the check of its numbers, and the fingerprint.

Pure values: who imports, and when, is decided elsewhere (`memcon.learning.shard`). A warm table is ours, not the
paper's; a wrong one costs more than a right one gains, hence the cap and the fingerprint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from memcon import codec
from memcon.errors import ConfigError, UnknownNameError
from memcon.learning import state_key
from memcon.learning.credit import MAX_ABS_REWARD, RewardSettings
from memcon.learning.q_table import Numbers
from memcon.learning.state_key import KeySchema
from memcon.policy_types import LearningSettings

__all__ = [
    "capped",
    "check_numbers",
    "fingerprint_difference",
    "owning_keys",
    "settings_fingerprint",
    "table_fingerprint",
]

_CELL = frozenset({"q", "taken", "credited", "squares"})
_FINGERPRINT_VERSION = 1
# A table counts in float64 cells, exactly below 2^53: this leaves room for what is still to come.
_MOST_COUNT = 1 << 52
# A return is a discounted reward less a cost; a mean of them is no larger but for roundings.
_MOST_Q = 2 * MAX_ABS_REWARD * (1 + 1e-9)


def capped(numbers: Numbers, cap: int | None, *, count_cap: int | None = None) -> dict[str, dict[str, dict[str, Any]]]:
    """`numbers` with at most `cap` outcomes a (key, arm), n' = min(n, cap), squares scaled alike; None = all.

    Decisions that never got an outcome are left behind: nobody will credit them in the new table. An arm without any
    outcome is left out, so that it has the new table's prior. `count_cap` is that of the table which the numbers are
    of: its squares weigh as many outcomes as that at most.

    Raises:
        ConfigError: `cap` is below 1.
    """
    if cap is not None and cap < 1:
        raise ConfigError(f"cap = {cap}: expected at least 1, or null for all outcomes")
    kept: dict[str, dict[str, dict[str, Any]]] = {}
    for key, arms in numbers.items():
        cells = {arm: _capped_cell(cell, cap, count_cap) for arm, cell in arms.items() if int(cell["credited"])}
        if cells:
            kept[key] = cells
    return kept


def _capped_cell(cell: Mapping[str, str | int], cap: int | None, count_cap: int | None) -> dict[str, Any]:
    credited = int(cell["credited"])
    kept = credited if cap is None else min(credited, cap)
    weight = credited if count_cap is None else min(credited, count_cap)
    squares = float.fromhex(str(cell["squares"]))
    if kept < weight:
        squares *= kept / weight
    return {"q": cell["q"], "taken": kept, "credited": kept, "squares": squares.hex()}


def check_numbers(settings: LearningSettings, numbers: Numbers) -> None:
    """Refuse numbers that no table with `settings` can have.

    Raises:
        ConfigError: names the key and the arm; a key that is none of the chain's schemas where it has several, an
            unknown arm, or impossible values.
    """
    schemas = state_key.chain_schemas(settings)
    for key, arms in numbers.items():
        _check_key(key, schemas)
        for arm, cell in arms.items():
            if arm not in settings.action_ids:
                raise UnknownNameError(f"imported arm at {key!r}", arm, settings.action_ids)
            if not _is_possible(cell):
                raise ConfigError(
                    f"imported numbers of '{arm}' at {key!r}: {dict(cell)}; expected q and squares as float.hex, "
                    f"finite, |q| <= {2 * MAX_ABS_REWARD:g}, squares of so many of such returns, and whole numbers "
                    "0 <= credited <= taken <= 2^52"
                )


def _check_key(key: str, schemas: tuple[KeySchema, ...]) -> None:
    if len(schemas) == 1:
        # As at a decide: one key needs no other to agree with, so its text is the caller's.
        if not key:
            raise ConfigError("imported key '': a key is text of at least one character")
    elif state_key.parse(key).schema not in schemas:
        labels = ", ".join(schema.label for schema in schemas)
        raise ConfigError(f"imported key {key!r}: the table's keys are of {labels}")


def _is_possible(cell: Mapping[str, str | int]) -> bool:
    if set(cell) != _CELL:
        return False
    taken, credited = cell["taken"], cell["credited"]
    if type(taken) is not int or type(credited) is not int or not 0 <= credited <= taken <= _MOST_COUNT:
        return False
    return abs(_value(cell["q"])) <= _MOST_Q and 0 <= _value(cell["squares"]) <= _MOST_Q**2 * credited


def _value(text: str | int) -> float:
    """What `float.hex` wrote as `text`; NaN for any other text: fromhex reads "0.5" too, as 5/16."""
    try:
        value = float.fromhex(text) if isinstance(text, str) else math.nan
    except (ValueError, OverflowError):
        return math.nan
    return value if value.hex() == text else math.nan


def owning_keys(settings: LearningSettings, numbers: Numbers) -> dict[str, str]:
    """The shard key of each key of checked `numbers`: its coarsest projection, since the keys of a chain nest."""
    schemas = state_key.chain_schemas(settings)
    if len(schemas) == 1:
        return {key: key for key in numbers}
    return {key: state_key.project(key, schemas[-1]) for key in numbers}


def settings_fingerprint(settings: LearningSettings) -> dict[str, Any]:
    """What the numbers of a table are, as JSON-able parts: its arms, keys, kind of estimator and discount.

    A moving average holds its prior and is no mean of returns, so one does not become the other; `mean` and
    `capped_mean` are of one kind.
    """
    return {
        "arms": settings.fingerprint,
        "keys": [schema.label for schema in state_key.chain_schemas(settings)],
        "estimator": "average" if settings.estimator == "ema" else "mean",
        "gamma": settings.gamma,
    }


def table_fingerprint(
    *,
    goal_types: Iterable[str],
    settings: LearningSettings,
    reward: RewardSettings,
    control: Mapping[str, Any],
    agent: Mapping[str, Any],
    backend: Mapping[str, Any],
) -> Mapping[str, Any]:
    """What the numbers of a table are about, as JSON-able parts: two tables may share them when all parts are equal.

    Args:
        goal_types: of the benchmark.
        settings: of the table, as far as `settings_fingerprint` takes them in.
        reward: what a return is made of.
        control: settings that change when decisions are taken or what an arm does.
        agent: framework and backbone with their parameters, JSON-able.
        backend: memory, embedder and what the memory began with, JSON-able.
    """
    return {
        "schema_version": _FINGERPRINT_VERSION,
        "goal_types": sorted(set(goal_types)),
        **settings_fingerprint(settings),
        "reward": codec.encode(reward),
        "control": codec.encode(control),
        "agent": codec.encode(agent),
        "backend": codec.encode(backend),
    }


def fingerprint_difference(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """The parts that differ, as "reward.token_cost: recorded 0.0, asked 0.1; goal_types: ..."; "" when equal."""
    return "; ".join(_differences("", dict(recorded), dict(asked)))


def _differences(where: str, recorded: Any, asked: Any) -> list[str]:
    if recorded == asked:
        return []
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping):
        names = [*recorded, *[name for name in asked if name not in recorded]]
        prefix = f"{where}." if where else ""
        return [line for name in names for line in _differences(f"{prefix}{name}", recorded.get(name), asked.get(name))]
    if where == "goal_types" and isinstance(recorded, list) and isinstance(asked, list):
        return [f"goal_types: {_only('recorded', recorded, asked)}{_only('asked', asked, recorded)}".rstrip(", ")]
    return [f"{where}: recorded {recorded}, asked {asked}"]


def _only(side: str, these: list[str], those: list[str]) -> str:
    lone = [name for name in these if name not in those]
    return f"only {side} {', '.join(lone)}, " if lone else ""
