"""Text forms that must lose nothing: events of the journal, state keys, tokens."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from memcon.learning import decision_token, state_key
from memcon.learning.decision_token import Claims
from memcon.learning.events import (
    KINDS,
    Cancelled,
    Created,
    Credited,
    Decided,
    EpisodeClosed,
    Event,
    RecoveredDecision,
    decode_event,
    encode_event,
)
from memcon.policy_types import LearningSettings
from memcon.types import StateFeatures

# Lone surrogates included: they come from file names and from models.
ANY_TEXT = st.text(st.characters(exclude_categories=()))
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
COUNT = st.integers(0, 10**6)
TEXTS = st.lists(ANY_TEXT, min_size=1, max_size=3).map(tuple)
SETTINGS = st.builds(
    LearningSettings,
    rule=ANY_TEXT,
    rule_parameters=st.dictionaries(ANY_TEXT, NUMBER | ANY_TEXT, max_size=3),
    action_ids=TEXTS,
    priors=st.lists(NUMBER, max_size=3).map(tuple),
    action_set=ANY_TEXT,
    fingerprint=ANY_TEXT,
    alpha=NUMBER,
    gamma=NUMBER,
)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Created, table=ANY_TEXT, settings=SETTINGS),
    st.builds(
        Decided,
        table=ANY_TEXT,
        decision_id=ANY_TEXT,
        episode_id=ANY_TEXT,
        position=COUNT,
        keys=TEXTS,
        draw=st.integers(0, 2**64 - 1),
        allowed=st.none() | TEXTS,
        action_id=ANY_TEXT,
    ),
    st.builds(
        Credited,
        table=ANY_TEXT,
        decision_id=ANY_TEXT,
        reward=NUMBER,
        position=COUNT,
        num_decisions=COUNT,
        cost=NUMBER,
        recovered=st.none() | st.builds(RecoveredDecision, episode_id=ANY_TEXT, keys=TEXTS, action_id=ANY_TEXT),
    ),
    st.builds(Cancelled, table=ANY_TEXT, decision_id=ANY_TEXT, reason=ANY_TEXT),
    st.builds(EpisodeClosed, table=ANY_TEXT, episode_id=ANY_TEXT),
)
FEATURES = st.builds(
    StateFeatures,
    goal_type=ANY_TEXT,
    step=COUNT,
    is_stuck=st.booleans(),
    objects_held=COUNT,
    locations_visited=COUNT,
    memory_size=COUNT,
    plan_available=st.booleans(),
    task_number=st.integers(1, 10**6),
)


@given(EVENTS)
def test_event_survives_its_text_form_with_every_bit(event: Event) -> None:
    kind, text = encode_event(event)

    assert KINDS[kind] is type(event)
    assert text.isascii()
    decoded = decode_event(kind, text)
    assert decoded == event
    # Equality takes -0.0 for 0.0; the text does not.
    assert encode_event(decoded) == (kind, text)


@given(FEATURES)
@example(
    StateFeatures(
        goal_type="a|b=c%7C/1|goal_type=\ud800\n",
        step=8,
        is_stuck=True,
        objects_held=0,
        locations_visited=0,
        memory_size=0,
        plan_available=False,
        task_number=1,
    )
)
def test_key_gives_back_any_goal_type_and_its_bins(features: StateFeatures) -> None:
    text = state_key.key_text("paper/1", features)

    values = state_key.parse(text).values

    assert text.isascii()
    assert values["goal_type"] == features.goal_type
    assert values["is_stuck"] is features.is_stuck
    assert values["memory_size"] == min(features.memory_size // 10, 5)
    assert len(values) == 8


@given(ANY_TEXT, ANY_TEXT)
def test_different_goal_types_never_share_a_key(first: str, second: str) -> None:
    texts = {
        state_key.key_text(
            "paper",
            StateFeatures(
                goal_type=goal_type,
                step=0,
                is_stuck=False,
                objects_held=0,
                locations_visited=0,
                memory_size=0,
                plan_available=False,
                task_number=1,
            ),
        )
        for goal_type in (first, second)
    }

    assert len(texts) == len({first, second})


@given(ANY_TEXT, TEXTS, ANY_TEXT, COUNT, ANY_TEXT, ANY_TEXT)
def test_token_gives_back_any_claims(
    table: str, keys: tuple[str, ...], action_id: str, position: int, decision_id: str, episode_id: str
) -> None:
    secret = b"a secret of the tests"
    claims = Claims(
        table=table, keys=keys, action_id=action_id, position=position, decision_id=decision_id, episode_id=episode_id
    )

    assert decision_token.verify(secret, decision_token.sign(secret, claims)) == claims
