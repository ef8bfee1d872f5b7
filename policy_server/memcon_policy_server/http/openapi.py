"""The OpenAPI 3.1 document of the wire, made from the types that check its bodies."""

from __future__ import annotations

from typing import Any

import msgspec

from memcon_policy_server.http.routes import ROUTES, Failure, Route

__all__ = ["document"]

WIRE_VERSION = "1"
_REF = "#/components/schemas/{name}"
_MEDIA = ("application/json", "application/msgpack")
_MEANINGS = {
    200: "Done",
    400: "The body is not of this form, or its values are refused; the message names the field",
    401: "No valid token",
    404: "No such thing, or no valid decision token",
    408: "The body did not arrive whole in time",
    409: "It contradicts what is recorded, or would pass a limit",
    413: "The body or the batch is too large",
    415: "The body is neither JSON nor msgpack",
    421: "Another shard, or another process, owns this now: read the shard map again",
    500: "The server failed; see its log",
    503: "No answer now; sending it again is safe",
}
_ALWAYS = (400, 500, 503)
_WITH_BODY = (408, 413, 415)


def document(*, gateway: bool) -> dict[str, Any]:
    """The document of the gateway, or of a shard's own listener (`gateway=False`)."""
    routes = [route for route in ROUTES if gateway or not route.gateway_only]
    kinds = list(dict.fromkeys([Failure, *(kind for route in routes for kind in _kinds(route))]))
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "memcon policy server" if gateway else "memcon policy shard",
            "version": WIRE_VERSION,
            "description": "Decisions of learned policies, and their outcomes. Every request may be sent again.",
        },
        "security": [{"bearer": []}],
        "paths": {route.path: {route.method.lower(): _operation(route, gateway=gateway)} for route in routes},
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _kinds(route: Route) -> list[type]:
    kinds: list[type] = [route.message] if route.method == "POST" else []
    return kinds if route.reply is None else [*kinds, route.reply]


def _operation(route: Route, *, gateway: bool) -> dict[str, Any]:
    statuses = {*_ALWAYS, *route.refusals}
    operation: dict[str, Any] = {
        "operationId": route.path.rpartition("/")[2].partition(".")[0],
        "summary": route.summary,
    }
    if route.public:
        operation["security"] = []
    else:
        statuses.add(401)
    if not gateway:
        statuses.add(421)
    if route.method == "POST":
        statuses.update(_WITH_BODY)
        operation["requestBody"] = {"required": True, "content": _content(_ref(route.message))}
    elif parameters := _parameters(route):
        operation["parameters"] = parameters
    refused = {str(status): _response(status, _ref(Failure)) for status in sorted(statuses)}
    operation["responses"] = {"200": _answer(route), **refused}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    _, schemas = msgspec.json.schema_components([route.message], ref_template=_REF)
    schema = schemas[route.message.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": form}
        for name, form in schema["properties"].items()
    ]


def _answer(route: Route) -> dict[str, Any]:
    if route.text:
        return {"description": _MEANINGS[200], "content": {"text/plain": {"schema": {"type": "string"}}}}
    form: dict[str, Any] = {"type": "object"} if route.reply is None else _ref(route.reply)
    if route.batch:
        items = {"type": "array", "items": {"anyOf": [form, _ref(Failure)]}}
        form = {"type": "object", "properties": {"replies": items}, "required": ["replies"]}
    return _response(200, form)


def _response(status: int, form: dict[str, Any]) -> dict[str, Any]:
    return {"description": _MEANINGS[status], "content": _content(form)}


def _content(form: dict[str, Any]) -> dict[str, Any]:
    return {media: {"schema": form} for media in _MEDIA}


def _ref(kind: type) -> dict[str, Any]:
    return {"$ref": _REF.format(name=kind.__name__)}
