"""Requests that schemathesis makes from a server's own OpenAPI document, good and bad, and what answers must be."""

from __future__ import annotations

from typing import Any

import msgspec

from support.wire_fuzz import packed

__all__ = ["conforms"]


def conforms(base_url: str, *, token: str, max_examples: int) -> set[str]:
    """Try every operation of the document at `base_url`; returns the paths.

    An answer is never the server's fault, has a status and a form that the document names, and refuses what the
    document forbids.

    Raises:
        Exception: schemathesis' own, with the request that shows it.
    """
    # Optional, as are its checks.
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    _speak_msgpack(schemathesis)
    schema: Any = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
    always: list[Any] = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    forbidden = [*always, checks.negative_data_rejection]

    def _try(operation: Any, mode: Any, expected: list[Any]) -> None:
        @seed(4)
        @settings(
            max_examples=max_examples,
            deadline=None,
            database=None,
            # A failure is told as it was found: to make it smaller takes minutes.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def _ask(case: Any) -> None:
            response = case.call(headers={"authorization": f"Bearer {token}"})
            case.validate_response(response, checks=expected)

        try:
            _ask()
        except Unsatisfiable:
            # Nothing that the document forbids can be said here: an operation without parameters.
            assert mode is GenerationMode.NEGATIVE, operation.path

    tried = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        _try(operation, GenerationMode.POSITIVE, always)
        _try(operation, GenerationMode.NEGATIVE, forbidden)
        tried.add(operation.path)
    return tried


def _speak_msgpack(schemathesis: Any) -> None:
    def _write(_: Any, value: Any) -> bytes:
        return value if isinstance(value, bytes) else packed(value)

    def _read(_: Any, response: Any) -> Any:
        return msgspec.msgpack.decode(response.content)

    schemathesis.serializer("application/msgpack")(_write)
    schemathesis.deserializer("application/msgpack")(_read)
