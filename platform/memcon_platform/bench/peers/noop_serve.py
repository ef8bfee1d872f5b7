"""A Ray Serve ingress that does nothing: what is left for a gateway to cost. Bare ASGI, settings of our gateway.

Kept thin: Serve pickles the module of a deployment by value.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PREFIX", "start_noop"]

PREFIX = "/noop"
_APP = "memcon-bench-noop"
_BODY = b'{"decision_id":"0000000000000000","action_id":"noop"}'


class DoNothing:
    """Reads the request's body and gives always the same answer."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As ASGI says."""
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body", False):
            pass
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": _BODY})


def start_noop(gateways: int) -> None:
    """Deploy it at `PREFIX` of the Serve that runs, with as many replicas as our gateway has; ends with its cluster."""
    from ray import serve

    from memcon_policy_server.serving.deployments import LOGGING, MAX_GATEWAY_REQUESTS

    class Noop:
        """The replica; the application is all of it."""

    deployment: Any = serve.deployment(
        serve.ingress(DoNothing())(Noop),
        name="noop",
        num_replicas=gateways,
        max_ongoing_requests=MAX_GATEWAY_REQUESTS,
        ray_actor_options={"num_cpus": 0},
        logging_config=dict(LOGGING),
    )
    serve.run(deployment.bind(), name=_APP, route_prefix=PREFIX)
