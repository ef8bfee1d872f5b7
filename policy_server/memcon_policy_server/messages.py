"""What an owner and the gateway accept, checked field by field while the body is read.

An unknown or missing field, a wrong type, NaN, infinity or a number out of range never reaches a table. The messages
have the fields of the requests in `memcon.policy_types` and go to the owner as they are: a copy into the dataclass
was a fifth of a decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

import msgspec

from memcon import ids, policy_types
from memcon.learning.credit import MAX_ABS_REWARD

__all__ = [
    "Cancel",
    "CancelEpisode",
    "Decide",
    "DecideBatch",
    "FreezeTable",
    "ImportTable",
    "Message",
    "Nothing",
    "OpenTable",
    "Outcome",
    "Outcomes",
    "TablesQuery",
    "check_texts",
]

# Whole numbers that every JSON library keeps exactly.
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
Reward = Annotated[float, msgspec.Meta(ge=-MAX_ABS_REWARD, le=MAX_ABS_REWARD)]
# Any finite number: a bound is what refuses NaN and infinity in msgpack, which has both.
Finite = Annotated[float, msgspec.Meta(ge=-1e308, le=1e308)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
# msgspec has no bound beyond 63 bits; the table refuses a larger draw.
Draw = Annotated[int, msgspec.Meta(ge=0, extra_json_schema={"maximum": (1 << 64) - 1})]


class Message(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of all bodies."""

    def has_text_over(self, limit: int) -> bool:
        """Some text has, or may have, more than `limit` characters: `check_texts` finds it.

        Known here where a batch has many (`check_texts` takes 10 us an item, more than a decide).
        """
        return True


class Nothing(Message, kw_only=True):
    """No parameters."""


class Settings(Message, kw_only=True):
    """Settings of a table (`memcon.policy_types.LearningSettings`)."""

    rule: Name
    rule_parameters: dict[str, Finite | str] = {}
    action_ids: tuple[str, ...]
    priors: tuple[Finite, ...]
    action_set: str
    fingerprint: str
    estimator: str = "ema"
    count_cap: Count | None = None
    alpha: Finite = 0.15
    gamma: Finite = 0.9
    key_schema: str = "paper/1"
    pooling: tuple[str, ...] = ()
    exploration_floor: Finite = 0.0
    frozen: bool = False
    closed_kept: Count | None = None
    schema_version: Count = 1


class OpenTable(Message, kw_only=True):
    """Create a table, or check that it exists with equal settings."""

    table: Name
    settings: Settings

    def learning_settings(self) -> policy_types.LearningSettings:
        """The settings as the shard takes them."""
        return policy_types.LearningSettings(**msgspec.structs.asdict(self.settings))


class Numbers(Message, kw_only=True):
    """What is known of one arm at one key."""

    # Floats as `float.hex`: their bits must arrive.
    q: str
    taken: Count
    credited: Count
    squares: str


class ImportTable(Message, kw_only=True):
    """Let an open table without decisions start from another one's numbers."""

    table: Name
    source: str
    numbers: dict[str, dict[str, Numbers]]

    def request(self) -> policy_types.TableImport:
        """The import as the shard takes it."""
        return policy_types.TableImport(
            table=self.table,
            source=self.source,
            numbers={
                key: {arm: msgspec.structs.asdict(row) for arm, row in arms.items()}
                for key, arms in self.numbers.items()
            },
        )


class FreezeTable(Message, kw_only=True):
    """Freeze a table, or let it learn again."""

    table: Name
    frozen: bool


class Decide(Message, kw_only=True):
    """One decision to take. Without `episode_id` it is an episode of its own; without `draw` its id is hashed."""

    table: Name
    decision_id: Name
    keys: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    episode_id: Name | msgspec.UnsetType = msgspec.UNSET
    position: Count = 0
    draw: Draw | msgspec.UnsetType = msgspec.UNSET
    allowed: tuple[str, ...] | None = None
    explain: bool = False

    def __post_init__(self) -> None:
        if self.episode_id is msgspec.UNSET or self.episode_id == self.decision_id:
            # One text: what is open keeps both.
            self.episode_id = self.decision_id
        if self.draw is msgspec.UNSET:
            self.draw = ids.draw64("decision", self.decision_id)

    def has_text_over(self, limit: int) -> bool:
        """Some text has more than `limit` characters."""
        return (
            len(self.decision_id) > limit
            or len(self.table) > limit
            or len(cast(str, self.episode_id)) > limit
            or max(map(len, self.keys)) > limit
            or (self.allowed is not None and max(map(len, self.allowed), default=0) > limit)
        )


class DecideBatch(Message, kw_only=True):
    """Decisions to take in this order; each sees those before it."""

    decides: tuple[Decide, ...]

    def has_text_over(self, limit: int) -> bool:
        """Some text has more than `limit` characters."""
        for decide in self.decides:
            keys = decide.keys
            # The sum first: nearly all are far below the limit.
            length = len(decide.decision_id) + len(decide.table) + len(cast(str, decide.episode_id)) + len(keys[0])
            if (length > limit or len(keys) > 1 or decide.allowed is not None) and decide.has_text_over(limit):
                return True
        return False


class Outcome(Message, kw_only=True):
    """What an episode ended with, told for one of its decisions."""

    decision_id: Name
    token: str
    reward: Reward
    position: Count
    num_decisions: Annotated[int, msgspec.Meta(ge=1, le=(1 << 53) - 1)]
    cost: Reward = 0.0

    def has_text_over(self, limit: int) -> bool:
        """Some text has more than `limit` characters."""
        return len(self.decision_id) > limit


class Outcomes(Message, kw_only=True):
    """Outcomes to credit; each has its own answer."""

    outcomes: tuple[Outcome, ...]

    def has_text_over(self, limit: int) -> bool:
        """Some text has more than `limit` characters."""
        return any(outcome.has_text_over(limit) for outcome in self.outcomes)


class Cancel(Message, kw_only=True):
    """A decision to take back: nobody will tell its outcome."""

    decision_id: Name
    token: str


class CancelEpisode(Message, kw_only=True):
    """Take an episode's open decisions back and refuse later ones."""

    table: Name
    episode_id: Name


class TablesQuery(Message, kw_only=True):
    """Which table to show whole, or at which keys: `key`, or all that hold it. Without a table all are listed."""

    table: Name | msgspec.UnsetType = msgspec.UNSET
    key: Name | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.table is msgspec.UNSET and self.key is not msgspec.UNSET:
            raise ValueError("it needs the table of the key - at `$.table`")


def check_texts(value: object, limit: int, where: str = "$") -> None:
    """Refuse any text in `value` of more than `limit` characters; tokens are bound by the body's size alone.

    Raises:
        ValueError: names the field.
    """
    if isinstance(value, str):
        if len(value) > limit:
            raise ValueError(f"a text of {len(value)} characters, at most {limit} are allowed - at `{where}`")
    else:
        for place, part in _parts(value):
            check_texts(part, limit, where + place)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, msgspec.Struct):
        yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__ if name != "token")
    elif isinstance(value, tuple):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((" key", key) for key in value)
        yield from (("[...]", item) for item in value.values())
