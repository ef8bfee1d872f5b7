"""Every framework passes the one contract."""

from __future__ import annotations

import pytest

from memcon.clock import SystemClock
from memcon.protocols import AgentFramework
from memcon.testing import AgentFrameworkContract
from memcon_workers.frameworks.lobster import Lobster, LobsterConfig


class TestLobsterAsPublished(AgentFrameworkContract):
    @pytest.fixture
    def framework(self) -> AgentFramework:
        return Lobster(LobsterConfig(), clock=SystemClock())


class TestLobsterForTheImitator(AgentFrameworkContract):
    @pytest.fixture
    def framework(self) -> AgentFramework:
        config = LobsterConfig(history_window="all", few_shot=0, list_actions=True, loop_stop=False)
        return Lobster(config, clock=SystemClock())
