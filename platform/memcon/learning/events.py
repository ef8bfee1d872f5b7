"""What a policy shard journals. Owns the event types and their text form; knows nothing of files or tables.

The journal is the truth: a table is the fold of its events (`memcon.learning.shard`). Per-arm values and probabilities
are not journaled, since they are recomputed. A field that is added later needs a default, so that old journals stay
readable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, TypeAlias

from memcon import codec
from memcon.errors import UnknownNameError
from memcon.learning.q_table import Numbers
from memcon.learning.settings import encode_settings
from memcon.policy_types import LearningSettings

__all__ = [
    "KINDS",
    "Cancelled",
    "Created",
    "Credited",
    "Decided",
    "EpisodeClosed",
    "Event",
    "Expired",
    "Imported",
    "Recorded",
    "RecoveredDecision",
    "SettingsChanged",
    "decode_event",
    "encode_event",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A table began with these settings."""

    table: str
    settings: LearningSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A table took over the numbers of another one before its first decision."""

    table: str
    # Where they come from, for people; the same in the journals of all shards.
    source: str
    # Those at the keys that this shard owns.
    numbers: Numbers


# Neither frozen nor keyword-only, as `Credited`: one is made in each decide, and that is a microsecond.
@dataclass(slots=True)
class Decided:
    """An arm was chosen and counted; all that the choice depended on, besides the table, stands here."""

    table: str
    decision_id: str
    episode_id: str
    # 0-based place inside the episode.
    position: int
    # Pooling chain, finest first; the last is the shard key.
    keys: tuple[str, ...]
    # 64 bits: the source of every draw of this choice.
    draw: int
    # Arms that could be chosen; None = all.
    allowed: tuple[str, ...] | None
    action_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredDecision:
    """A decision that an outcome brings back from its signed token: the table has it no more, or never had it."""

    episode_id: str
    keys: tuple[str, ...]
    action_id: str


@dataclass(slots=True)
class Credited:
    """A decision got its outcome; the raw reward, before discounting (Eq. 5)."""

    table: str
    decision_id: str
    reward: float
    position: int
    num_decisions: int
    cost: float
    # Set when the decision was not open: this event is its decide and its outcome in one.
    recovered: RecoveredDecision | None = None
    # It had expired before; else a recovered one was unknown: its `Decided` died with a process.
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """An open decision was taken back: its count is gone, and it teaches nothing."""

    table: str
    decision_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """An open decision had no outcome in time; what a clock said enters the journal as this event only."""

    table: str
    decision_id: str
    # The return that it teaches instead, undiscounted: how long its episode was is not known. None = its count is
    # taken back, and an outcome may still come.
    default_reward: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An outcome came after its decision had learned the default one: kept, and never applied."""

    table: str
    decision_id: str
    reward: float
    position: int
    num_decisions: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged:
    """A table goes on under these settings, which differ from those before in `frozen` only.

    What was counted depends on which decides came before it: journals of several shards with such an event fold one
    by one, and not merged into one.
    """

    table: str
    settings: LearningSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeClosed:
    """An episode was cancelled: later decides under its id are refused."""

    table: str
    episode_id: str


Event: TypeAlias = (
    Created | Imported | Decided | Credited | Cancelled | Expired | Recorded | SettingsChanged | EpisodeClosed
)

# Kind as it stands in the journal -> type of the event.
KINDS: Mapping[str, type[Event]] = MappingProxyType(
    {
        "created": Created,
        "imported": Imported,
        "decided": Decided,
        "credited": Credited,
        "cancelled": Cancelled,
        "expired": Expired,
        "recorded": Recorded,
        "settings_changed": SettingsChanged,
        "episode_closed": EpisodeClosed,
    }
)


def _encode_nested(value: Any) -> Any:
    return encode_settings(value) if isinstance(value, LearningSettings) else codec.encode(value)


# Events are flat but for few nested values, which `default` turns into dicts; ASCII, so that any store takes it.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_encode_nested)
_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {kind: tuple(field.name for field in fields(event_type)) for kind, event_type in KINDS.items()}
)
_KIND_OF: Mapping[type[Event], str] = MappingProxyType({event_type: kind for kind, event_type in KINDS.items()})


def encode_event(event: Event) -> tuple[str, str]:
    """The kind of `event` and its JSON text; floats keep all their bits."""
    kind = _KIND_OF[type(event)]
    values = {name: getattr(event, name) for name in _FIELDS[kind]}
    if isinstance(event, Credited) and not event.late:
        # Came after journals had been written: the text of the others stays what it was.
        del values["late"]
    return kind, _ENCODER.encode(values)


def decode_event(kind: str, text: str) -> Event:
    """The event that `encode_event` wrote.

    Raises:
        UnknownNameError: `kind` is no kind of event.
        CodecError: `text` does not have the form of its kind.
    """
    event_type = KINDS.get(kind)
    if event_type is None:
        raise UnknownNameError(
            "kind of journal event", kind, KINDS, hint="the journal is damaged or newer than this memcon"
        )
    return codec.decode_json(event_type, text)
