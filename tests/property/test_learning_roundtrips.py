"""Text forms that must lose nothing: events of the journal, state keys, tokens."""

from __future__ import annotations

import dataclasses

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
    Imported,
    RecoveredDecision,
    decode_event,
    encode_event,
)
from memcon.learning.settings import check_settings
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
    count_cap=st.none() | COUNT,
    pooling=st.just(()) | TEXTS,
    exploration_floor=st.just(0.0) | NUMBER,
    frozen=st.booleans(),
)
CELLS = st.builds(
    lambda q, taken, credited, squares: {"q": q.hex(), "taken": taken, "credited": credited, "squares": squares.hex()},
    NUMBER,
    COUNT,
    COUNT,
    NUMBER,
)
NUMBERS = st.dictionaries(ANY_TEXT, st.dictionaries(ANY_TEXT, CELLS, max_size=2), max_size=2)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Created, table=ANY_TEXT, settings=SETTINGS),
    st.builds(Imported, table=ANY_TEXT, source=ANY_TEXT, numbers=NUMBERS),
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
# Texts in which a separator or an escape of the key's own form stands.
TRICKY = st.text(st.sampled_from("|=%+/:,;ab \n\ud800"))
FEATURES = st.builds(
    StateFeatures,
    goal_type=ANY_TEXT | TRICKY,
    step=COUNT,
    is_stuck=st.booleans(),
    objects_held=COUNT,
    locations_visited=COUNT,
    memory_size=COUNT,
    plan_available=st.booleans(),
    task_number=st.integers(1, 10**6),
    benchmark=ANY_TEXT | TRICKY,
    setup=ANY_TEXT | TRICKY,
)
FIELDS = ("benchmark", "setup", *[field.name for field in state_key.key_schema("paper").fields])
SUBSETS = st.lists(st.sampled_from(FIELDS), min_size=1, unique=True)


@st.composite
def chains(draw: st.DrawFn) -> LearningSettings:
    """Settings over random fields, pooled over ever fewer of them."""
    fields = draw(SUBSETS)
    levels = ["+".join(fields)]
    while len(fields) > 1 and draw(st.booleans()):
        fields = fields[: draw(st.integers(1, len(fields) - 1))]
        levels.append("+".join(fields))
    return LearningSettings(
        rule="uniform",
        action_ids=("a",),
        priors=(0.0,),
        action_set="s",
        fingerprint="f",
        key_schema=levels[0],
        pooling=tuple(levels[1:]),
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


@given(SUBSETS, FEATURES)
def test_key_of_any_schema_gives_back_its_texts_and_its_bins(fields: list[str], features: StateFeatures) -> None:
    text = state_key.key_text("+".join(fields), features)

    key = state_key.parse(text)

    assert text.isascii()
    assert state_key.schema_of(text) == key.schema == state_key.key_schema(key.schema.label)
    assert set(key.values) == set(fields) == key.schema.field_names
    for name in {"goal_type", "benchmark", "setup"} & set(fields):
        assert key.values[name] == getattr(features, name)
    for field in key.schema.fields:
        assert key.values[field.name] == field.value(features)


@given(SUBSETS.flatmap(lambda fields: st.tuples(st.just(fields), st.permutations(fields))))
def test_order_of_the_fields_makes_no_other_schema(orders: tuple[list[str], list[str]]) -> None:
    assert state_key.key_schema("+".join(orders[0])) == state_key.key_schema("+".join(orders[1]))


@given(chains(), FEATURES, FEATURES)
def test_chain_is_the_finest_key_seen_through_ever_fewer_fields(
    settings: LearningSettings, one: StateFeatures, other: StateFeatures
) -> None:
    check_settings(settings)
    schemas = state_key.chain_schemas(settings)

    first, second = state_key.key_chain(settings, one), state_key.key_chain(settings, other)

    for keys in (first, second):
        state_key.check_chain(schemas, keys)
        assert keys == tuple(state_key.project(keys[0], schema) for schema in schemas)
        assert len(set(keys)) == len(keys)
    # The same key at one level means the same keys at all coarser ones, hence one shard for all that count together.
    for level in range(len(schemas)):
        if first[level] == second[level]:
            assert first[level:] == second[level:]


@given(
    ANY_TEXT | TRICKY, ANY_TEXT | TRICKY, st.sampled_from(["paper", "goal_plan", "goal_type", "benchmark+goal_type"])
)
def test_different_goal_types_never_share_a_key(first: str, second: str, schema: str) -> None:
    texts = {
        state_key.key_text(
            schema,
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


@given(FEATURES, st.text(st.sampled_from("|=+/ab%")), st.text(st.sampled_from("|=+/ab%")))
def test_text_never_moves_from_one_field_into_the_next(features: StateFeatures, left: str, right: str) -> None:
    keys = {
        state_key.key_text(
            "benchmark+goal_type", dataclasses.replace(features, benchmark=benchmark, goal_type=goal_type)
        )
        for benchmark, goal_type in ((left, right), (right, left), (left + right, ""))
    }

    assert len(keys) == len({(left, right), (right, left), (left + right, "")})


@given(st.text(), st.lists(st.text(), min_size=1, max_size=3).map(tuple), st.text(), COUNT, st.text(), st.text())
def test_token_gives_back_any_claims(
    table: str, keys: tuple[str, ...], action_id: str, position: int, decision_id: str, episode_id: str
) -> None:
    secret = b"a secret of the tests"
    claims = Claims(
        table=table, keys=keys, action_id=action_id, position=position, decision_id=decision_id, episode_id=episode_id
    )

    assert decision_token.verify(secret, decision_token.sign(secret, claims)) == claims


@given(chains(), FEATURES)
def test_token_gives_back_any_chain(settings: LearningSettings, features: StateFeatures) -> None:
    secret = b"a secret of the tests"
    keys = state_key.key_chain(settings, features)
    claims = Claims(table="t", keys=keys, action_id="a", position=0, decision_id="d", episode_id="e")

    token = decision_token.sign(secret, claims)

    assert decision_token.verify(secret, token) == claims
    # A coarser key costs at most its label and two digits and a comma for each of its components.
    alone = decision_token.sign(secret, dataclasses.replace(claims, keys=keys[:1]))
    labels = sum(len(key.partition("|")[0]) + 6 + 3 * key.count("|") for key in keys[1:])
    assert len(token) - len(alone) <= labels * 4 / 3 + 4
