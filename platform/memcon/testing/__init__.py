"""Contract bodies for every kind of plug-in; shipped, so that plug-in authors run the same suites.

An author's test is a subclass that gives what is to be tested; plain pytest runs it (extra `testing`):

    class TestNotebook(MemoryBackendContract):
        @pytest.fixture
        def make(self) -> MakeBackend:
            return lambda store: build(NotebookConfig(), store=store, embedder=...)

Each body: the fixtures to give (in brackets those that have a default), and what it wants, in short.

MemoryBackendContract: `make`. Each attempt is there once and comes best first; writes go through the store and are
    never committed; a rollback leaves no trace; equal histories give equal memories; declared limits and hooks only.
BenchmarkContract: `source`. Tasks are fixed, with ids of their own, and none of them is a practice task; reference
    plans solve them within `max_steps`.
EnvironmentContract: `environment`, `task` (`solution`). One line of text a step; a refused action is valid=False and
    changes nothing; progress never falls; an equal seed is an equal episode; an end is an end.
ChatModelContract: `model` (`messages`). Usage and model id in each answer; an equal seed gives an equal text; calls at
    the same time do not mix.
AgentFrameworkContract: `framework`. Memory is asked before every model call, and all of its block is in the prompt;
    seeds, step budget, tokens and boundaries are as the platform counts them.
LearningRuleContract: `plugin` (`config`). Chances sum to 1 over the allowed arms and are those of the draws; a rule
    remembers nothing, so that a journal folds to the same table; NaN is refused.
EmbedderContract: `embedder`. Unit vectors, float32, with the same bits in any batch.

A failure names the method of the port, what the contract wants of it, and what was met. Fakes lie in `chat_model`,
`framework`, `environment`, `memory` and `embedder`. The bodies of the ports that nobody plugs in (policy client, sink,
memory reader, clock) lie in their own modules, for memcon's own tests.

Raises:
    MissingExtraError: pytest is not installed.
"""

from __future__ import annotations

from importlib.util import find_spec

from memcon.errors import MissingExtraError

if find_spec("pytest") is None:
    raise MissingExtraError("pytest", "testing")

from memcon.testing.benchmark_contract import BenchmarkContract
from memcon.testing.chat_model import ChatModelContract
from memcon.testing.contract import Run
from memcon.testing.embedder import EmbedderContract
from memcon.testing.environment_contract import EnvironmentContract
from memcon.testing.framework_contract import AgentFrameworkContract
from memcon.testing.learning_rule import LearningRuleContract
from memcon.testing.memory_case import MakeBackend
from memcon.testing.memory_contract import MemoryBackendContract

__all__ = [
    "AgentFrameworkContract",
    "BenchmarkContract",
    "ChatModelContract",
    "EmbedderContract",
    "EnvironmentContract",
    "LearningRuleContract",
    "MakeBackend",
    "MemoryBackendContract",
    "Run",
]
