"""Messages are the requests of the library, and the OpenAPI document is made of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest

from memcon import policy_types
from memcon.errors import ConflictError, MemconError, NotFoundError, UnavailableError
from memcon_policy_server import messages, wire
from memcon_policy_server.http import openapi
from memcon_policy_server.http.routes import ROUTES


@pytest.mark.parametrize(
    ("message", "request_type"),
    [
        (messages.Decide, policy_types.DecideRequest),
        (messages.Outcome, policy_types.OutcomeRequest),
        (messages.Cancel, policy_types.CancelRequest),
        (messages.ImportTable, policy_types.TableImport),
        (messages.Settings, policy_types.LearningSettings),
    ],
)
def test_a_message_has_exactly_the_fields_of_its_request(message: type[messages.Message], request_type: Any) -> None:
    assert set(message.__struct_fields__) == {field.name for field in dataclasses.fields(request_type)}


def test_settings_left_out_are_those_of_the_library() -> None:
    needed = {"rule": "ucb", "action_ids": ["a"], "priors": [0], "action_set": "s", "fingerprint": "f"}

    read = msgspec.json.decode(json.dumps({"table": "t", "settings": needed}), type=messages.OpenTable)

    assert read.learning_settings() == policy_types.LearningSettings(
        rule="ucb", action_ids=("a",), priors=(0.0,), action_set="s", fingerprint="f"
    )


def test_texts_are_measured_wherever_they_stand() -> None:
    row = messages.Numbers(q="x" * 9, taken=1, credited=1, squares="0")
    message = messages.ImportTable(table="t", source="s", numbers={"key": {"arm": row}})

    messages.check_texts(message, 9)
    with pytest.raises(ValueError, match=r"\$\.numbers\[\.\.\.\]\[\.\.\.\]\.q"):
        messages.check_texts(message, 8)
    with pytest.raises(ValueError, match=r"\$\.numbers key"):
        messages.check_texts(messages.ImportTable(table="t", source="s", numbers={"x" * 9: {}}), 8)
    decide = messages.Decide(table="t", decision_id="d", keys=("key",), allowed=("noop",))
    for changed in ({"table": "x" * 9}, {"decision_id": "x" * 9}, {"episode_id": "x" * 9}, {"keys": ("a", "x" * 9)}):
        long = msgspec.structs.replace(decide, **changed)
        batch = messages.DecideBatch(decides=(decide, long))
        assert batch.has_text_over(8)
        with pytest.raises(ValueError, match=rf"\$\.decides\[1\]\.{next(iter(changed))}"):
            messages.check_texts(batch, 8)
        assert not batch.has_text_over(9)
    assert msgspec.structs.replace(decide, allowed=("a", "x" * 9)).has_text_over(8)
    # A token holds keys, and is bound by the body's size.
    messages.check_texts(messages.Cancel(decision_id="d", token="x" * 9), 8)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (wire.UnauthorizedError("x"), 401),
        (NotFoundError("x"), 404),
        (wire.MethodError("x"), 405),
        (wire.SlowRequestError("x"), 408),
        (ConflictError("x"), 409),
        (wire.LimitError("x"), 409),
        (wire.TooLargeError("x"), 413),
        (wire.MediaTypeError("x"), 415),
        (wire.MovedError("x"), 421),
        (UnavailableError("x"), 503),
    ],
)
def test_an_error_travels_as_what_it_is(error: MemconError, status: int) -> None:
    found, code = wire.status_of(error)

    assert found == status
    assert type(wire.error_of(code, "x")) is type(error)


@pytest.mark.parametrize("gateway", [True, False])
def test_the_document_names_every_route_and_defines_all_it_refers_to(gateway: bool) -> None:
    document = openapi.document(gateway=gateway)

    expected = {route.path for route in ROUTES if gateway or not route.gateway_only}
    assert set(document["paths"]) == expected
    text = json.dumps(document)
    defined = set(document["components"]["schemas"])
    assert {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} == defined
    decide = document["paths"][wire.DECIDE]["post"]
    assert {"200", "400", "401", "404", "409", "413", "415"} <= set(decide["responses"])
    assert document["components"]["schemas"]["Decide"]["required"] == ["table", "decision_id", "keys"]
