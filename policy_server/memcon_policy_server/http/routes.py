"""The paths of a listener and of the gateway: method, body, reply and refusals. One list for routing and OpenAPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from memcon.policy_types import DecideReply, OutcomeReply
from memcon_policy_server import messages, wire
from memcon_policy_server.shard_map import ShardMap

__all__ = ["ROUTES", "Cancelled", "CancelledEpisode", "Changed", "Done", "Failure", "Route"]


class Failure(msgspec.Struct, kw_only=True, gc=False):
    """Why a request, or one of a batch, was refused. It changed nothing."""

    error: str
    message: str


class Done(msgspec.Struct, kw_only=True, gc=False):
    """It is so, durably."""


class Cancelled(msgspec.Struct, kw_only=True, gc=False):
    """Whether the decision was open."""

    cancelled: bool


class CancelledEpisode(msgspec.Struct, kw_only=True, gc=False):
    """How many decisions of the episode were open."""

    cancelled: int


class Changed(msgspec.Struct, kw_only=True, gc=False):
    """Whether the table was not so before."""

    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One path with its only method."""

    method: str
    path: str
    summary: str
    # Body of a POST, query of a GET.
    message: type[messages.Message] = messages.Nothing
    # Form of the reply; None = an object without a fixed form. With `batch`: of each item of "replies", or `Failure`.
    reply: Any = None
    batch: bool = False
    # Of its own; those that any path may answer are not here.
    refusals: tuple[int, ...] = ()
    # Answered without a token: nothing learned stands in it.
    public: bool = False
    # Prometheus text instead of JSON or msgpack.
    text: bool = False
    gateway_only: bool = False


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path=wire.OPEN_TABLE,
        summary="Create a table, or check that it exists with equal settings",
        message=messages.OpenTable,
        reply=Done,
        refusals=(409,),
    ),
    Route(
        method="POST",
        path=wire.IMPORT_TABLE,
        summary="Let an open table without decisions start from another one's numbers",
        message=messages.ImportTable,
        reply=Done,
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=wire.FREEZE_TABLE,
        summary="Freeze a table, or let it learn again",
        message=messages.FreezeTable,
        reply=Changed,
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=wire.DECIDE,
        summary="Choose an action; the same decision id again gives the same answer",
        message=messages.Decide,
        reply=DecideReply,
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=wire.DECIDE_BATCH,
        summary="Choose for each in order, as if they came one by one",
        message=messages.DecideBatch,
        reply=DecideReply,
        batch=True,
    ),
    Route(
        method="POST",
        path=wire.OUTCOME,
        summary="Credit a decision durably; the same outcome again changes nothing",
        message=messages.Outcome,
        reply=OutcomeReply,
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=wire.OUTCOMES,
        summary="Credit decisions durably, each with its own answer",
        message=messages.Outcomes,
        reply=OutcomeReply,
        batch=True,
    ),
    Route(
        method="POST",
        path=wire.CANCEL,
        summary="Take an open decision back; without effect on an ended one",
        message=messages.Cancel,
        reply=Cancelled,
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=wire.CANCEL_EPISODE,
        summary="Take an episode's open decisions back and refuse later ones",
        message=messages.CancelEpisode,
        reply=CancelledEpisode,
        refusals=(404, 409),
    ),
    Route(
        method="GET",
        path=wire.TABLES,
        summary="List the tables, or show one, whole or at some keys",
        message=messages.TablesQuery,
        refusals=(404,),
    ),
    Route(method="GET", path=wire.HEALTH, summary="Who answers, and how far it came", public=True),
    Route(method="GET", path=wire.METRICS, summary="Counters and gauges for Prometheus", public=True, text=True),
    Route(method="GET", path=wire.OPENAPI, summary="This document", public=True),
    Route(
        method="GET", path=wire.SHARD_MAP, summary="Where the owner of each shard is", reply=ShardMap, gateway_only=True
    ),
)
