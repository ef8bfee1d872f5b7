"""Events survive their packed form, to the last bit and in their order."""

from __future__ import annotations

from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memcon.codec import CodecError
from memcon.errors import UnknownNameError
from memcon.learning.events import (
    KINDS,
    Cancelled,
    Created,
    Credited,
    Decided,
    EpisodeClosed,
    Event,
    Expired,
    Imported,
    Recorded,
    RecoveredDecision,
    SettingsChanged,
)
from memcon.learning.exploration import UcbConfig
from memcon_policy_server.journal.packing import kind_of, pack, unpack

TEXT = st.text(max_size=20)
PLACE = st.integers(0, 2**31 - 1)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
SETTINGS = st.builds(UcbConfig, c=st.floats(0.1, 9), gamma=st.floats(0, 1), alpha=st.floats(0.01, 1)).map(
    lambda config: config.learning_settings()
)
KEYS = st.lists(TEXT, min_size=1, max_size=3).map(tuple)
RECOVERED = st.builds(RecoveredDecision, episode_id=TEXT, keys=KEYS, action_id=TEXT)
TERMS = {
    "table": TEXT,
    "decision_id": TEXT,
    "reward": NUMBER,
    "position": PLACE,
    "num_decisions": PLACE,
    "cost": NUMBER,
}
NUMBERS = st.dictionaries(
    TEXT, st.dictionaries(TEXT, st.fixed_dictionaries({"q": NUMBER.map(float.hex), "taken": PLACE}))
)
# Of a run of decides, at its second place.
RUN_ROW = [1, "decision", "episode", 0, 7, None, "noop"]
EVENTS: dict[type[Event], st.SearchStrategy[Event]] = {
    Created: st.builds(Created, table=TEXT, settings=SETTINGS),
    SettingsChanged: st.builds(SettingsChanged, table=TEXT, settings=SETTINGS),
    Imported: st.builds(Imported, table=TEXT, source=TEXT, numbers=NUMBERS),
    Decided: st.builds(
        Decided,
        table=TEXT,
        decision_id=TEXT,
        episode_id=TEXT,
        position=PLACE,
        keys=KEYS,
        draw=st.integers(0, 2**64 - 1),
        allowed=st.none() | st.lists(TEXT).map(tuple),
        action_id=TEXT,
    ),
    Credited: st.builds(Credited, **TERMS, recovered=st.none() | RECOVERED, late=st.booleans()),
    Recorded: st.builds(Recorded, **TERMS),
    Cancelled: st.builds(Cancelled, table=TEXT, decision_id=TEXT, reason=TEXT),
    Expired: st.builds(Expired, table=TEXT, decision_id=TEXT, default_reward=st.none() | NUMBER),
    EpisodeClosed: st.builds(EpisodeClosed, table=TEXT, episode_id=TEXT),
}


def test_every_kind_of_event_is_among_those_tried() -> None:
    assert set(EVENTS) == set(KINDS.values())


@settings(deadline=None)
@given(st.lists(st.one_of(*EVENTS.values()), max_size=8))
def test_events_come_back_as_they_were(events: list[Event]) -> None:
    body = pack(events)

    again = unpack(body)

    assert again == events
    # Equal values may differ in bits: 0.0 and -0.0, 1 and 1.0.
    assert pack(again) == body
    assert [kind_of(event) for event in again] == [kind_of(event) for event in events]


@settings(deadline=None, max_examples=50)
@given(st.lists(EVENTS[Decided], min_size=8, max_size=20), st.lists(st.one_of(*EVENTS.values()), max_size=3))
def test_runs_of_decides_come_back_as_they_were(decides: list[Event], others: list[Event]) -> None:
    events = [*others, *decides, *others, *decides]

    again = unpack(pack(events))

    assert again == events
    assert pack(again) == pack(events)


def test_a_run_of_decides_names_each_chain_of_keys_once() -> None:
    keys = ("a long key " * 20,)
    decides = [Decided("table", f"decision-{n}", "episode", 0, keys, 2**64 - 1, None, "noop") for n in range(100)]

    assert len(pack(decides)) < 100 * 60


def test_a_body_that_was_written_before_there_were_runs_is_read_the_same() -> None:
    decides = [Decided("table", f"decision-{n}", "episode", n, ("key",), n, ("noop",), "noop") for n in range(20)]
    body = msgspec.msgpack.encode([["decided", decided] for decided in decides])

    assert unpack(body) == unpack(pack(decides)) == decides


def test_read_only_mappings_are_packed_like_dicts() -> None:
    cell: dict[str, str | int] = {"q": (0.5).hex(), "taken": 1}
    numbers = {"key": {"noop": cell}}
    shielded = MappingProxyType({key: MappingProxyType(arms) for key, arms in numbers.items()})
    assert unpack(pack([Imported(table="t", source="s", numbers=shielded)])) == [
        Imported(table="t", source="s", numbers=numbers)
    ]


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (msgspec.msgpack.encode([["cancelled", {"table": "t", "decision_id": "d"}]]), CodecError, "reason"),
        (
            msgspec.msgpack.encode([["cancelled", {"table": "t", "decision_id": "d", "reason": "r", "why": 1}]]),
            CodecError,
            "unknown fields",
        ),
        (msgspec.msgpack.encode([["cancelled", {"table": 1, "decision_id": "d", "reason": "r"}]]), CodecError, "str"),
        (msgspec.msgpack.encode([["forgotten", {"table": "t"}]]), UnknownNameError, "forgotten"),
        (
            msgspec.msgpack.encode(
                [["credited", {"table": "t", "decision_id": "d", "recovered": {"why": 1}, "reward": 1.0}]]
            ),
            CodecError,
            "missing fields",
        ),
        (msgspec.msgpack.encode([["decides", {"places": [["t", ["k"]]], "rows": [RUN_ROW]}]]), CodecError, "range"),
        (
            msgspec.msgpack.encode([["decides", {"places": [["t", ["k"]]], "rows": [[-1, *RUN_ROW[1:]]]}]]),
            CodecError,
            ">= 0",
        ),
        (msgspec.msgpack.encode([["decides", {"places": [], "rows": [RUN_ROW[:-1]]}]]), CodecError, "length 7"),
        (msgspec.msgpack.encode([["decides", {"places": [], "rows": [], "why": 1}]]), CodecError, "unknown field"),
        (msgspec.msgpack.encode({"a": 1}), CodecError, "body of a commit"),
        (b"\x91", CodecError, "body of a commit"),
    ],
)
def test_a_body_of_another_form_is_refused(body: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        unpack(body)
