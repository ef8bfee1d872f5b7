"""Fixtures of several files: a stream's file, backends that count their calls, and an endpoint with its models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from memcon.store import StreamStore
from memcon.testing.memory import SpyBackend
from support.controller import BACKENDS
from support.openai_calls import Models, say_look
from support.openai_server import KEY, ScriptedOpenAI


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StreamStore]:
    store = StreamStore(tmp_path / "stream.sqlite", identity="cell/0")
    yield store
    store.close()


@pytest.fixture(params=list(BACKENDS))
def any_backend(request: pytest.FixtureRequest, store: StreamStore) -> SpyBackend:
    return SpyBackend(BACKENDS[request.param](store))


@pytest.fixture
def metagpt(store: StreamStore) -> SpyBackend:
    return SpyBackend(BACKENDS["metagpt"](store))


@pytest.fixture
def openai_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a user who has a key and names no endpoint."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture(scope="module")
def running_endpoint() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(rule=say_look) as server:
        yield server


@pytest.fixture
def endpoint(running_endpoint: ScriptedOpenAI) -> ScriptedOpenAI:
    """The scripted server without any trace of another test."""
    running_endpoint.forget()
    return running_endpoint


@pytest.fixture
async def models(openai_key: None, endpoint: ScriptedOpenAI) -> AsyncIterator[Models]:
    """Builds models of `endpoint`."""
    models = Models(endpoint.base_url)
    yield models
    await models.close()
