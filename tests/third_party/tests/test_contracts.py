"""Each plug-in of this package keeps the contract of its kind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from memcon_notebook.backbone import Gardener, GardenerConfig
from memcon_notebook.benchmark import Greenhouse, GreenhouseConfig
from memcon_notebook.framework import Dialogue, DialogueConfig
from memcon_notebook.memory import NotebookConfig, NotebookMemory
from memcon_notebook.rule import PLUGIN as BOLTZMANN

from memcon.clock import SystemClock
from memcon.protocols import AgentFramework, Benchmark, ChatModel, Environment, Message
from memcon.registry import Plugin, build
from memcon.testing import (
    AgentFrameworkContract,
    BenchmarkContract,
    ChatModelContract,
    EnvironmentContract,
    LearningRuleContract,
    MakeBackend,
    MemoryBackendContract,
)
from memcon.types import Task


class TestNotebook(MemoryBackendContract):
    @pytest.fixture
    def make(self) -> MakeBackend:
        embedder = build("embedder", "hashing", {})
        return lambda store: NotebookMemory(NotebookConfig(), store=store, embedder=embedder)


class TestGreenhouse(BenchmarkContract):
    @pytest.fixture
    def source(self) -> Benchmark:
        return Greenhouse(GreenhouseConfig())


class TestGreenhouseEnvironment(EnvironmentContract):
    @pytest.fixture
    def environment(self) -> Environment:
        return Greenhouse(GreenhouseConfig()).environment()

    @pytest.fixture
    def task(self) -> Task:
        return Greenhouse(GreenhouseConfig()).tasks()[0]

    @pytest.fixture
    def solution(self, task: Task) -> Sequence[str] | None:
        return Greenhouse(GreenhouseConfig()).reference_plan(task)


class TestGardener(ChatModelContract):
    @pytest.fixture
    def model(self) -> ChatModel:
        return Gardener(GardenerConfig(curiosity=0.5))

    @pytest.fixture
    def messages(self) -> tuple[Message, ...]:
        # At the shelf it draws a remedy.
        remedies = ("rainwater", "tapwater", "mist")
        choices = "\n".join(["Admissible actions:", *(f"- take {remedy} from shelf 1" for remedy in remedies)])
        return (Message(role="user", content="Goal: water fern 2 on bench 1."), Message(role="user", content=choices))


class TestDialogue(AgentFrameworkContract):
    @pytest.fixture
    def framework(self) -> AgentFramework:
        return Dialogue(DialogueConfig(), clock=SystemClock())


class TestBoltzmann(LearningRuleContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return BOLTZMANN
