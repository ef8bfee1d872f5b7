"""What an arm asks of a memory with insights is in the prompt, no more and no less (MC-15): the limits 2, 3, 5 and 8.

The memory is the one of the package in `tests/third_party`: memcon's own have none.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memcon import registry
from memcon.control.memory.embedder_hashing import HashingConfig, HashingEmbedder
from memcon.control.memory.rendering import EXPERIENCE_HEADING, INSIGHT_HEADING, PLAN_HEADING
from memcon.learning import actions
from memcon.protocols import AgentFramework, MemoryBackend
from memcon.store import StreamStore
from memcon.testing.chat_model import ScriptedModel
from memcon.testing.framework import play
from memcon.testing.memory import commit, trajectory_of
from support.control import ScriptedPolicy
from support.controller import TASK, begin, controller_of
from support.shell import memcon
from support.third_party import PACKAGE, environment, install

# Arm -> insights that it asks for, of the arms that bring any; and the others.
LIMITS = {arm.action_id: arm.insight_k for arm in actions.action_set("default").actions if arm.insight_k is not None}
BARE = ("noop", "forget")
# A rule as the memory words it, from its first word to its last.
RULE = re.compile(r'In tasks like ".+?": after ".+?" do(?: not)? ".+?"; \d+ of \d+ attempts with this step succeeded\.')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("packages"))


def one_cell_an_arm(folder: Path) -> Path:
    """A sweep over a filled memory, in which the model of a cell is named as its arm; "all" takes what there is."""
    filled = {"name": "notebook", "preload": {"per_type": 4, "frozen": True}}
    arms = [
        {"memory": filled, "backbone": {"name": "openai", "model": arm}, "policy": f"fixed:{arm}"}
        for arm in (*LIMITS, *BARE)
    ]
    config = {
        "axes": {
            "benchmark": ["greenhouse"],
            "framework": ["dialogue"],
            "backbone": [{"name": "openai", "model": "all"}],
            "memory": [{**filled, "insight_k": 1000}],
            "policy": ["none"],
            "seed": [0],
        },
        "include": arms,
        "embedder": "hashing",
        "limit": 1,
        "workers": 1,
        "tracking": {"enabled": False},
    }
    path = folder / "arms.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def test_the_insight_limit_of_every_arm_shows_in_the_prompts_of_an_endpoint(site: Path, tmp_path: Path) -> None:
    # Given an endpoint whose answer solves nothing
    pytest.importorskip("openai", reason="the backbone 'openai' needs its extra; EXTRAS=all make test")
    from support.openai_server import KEY, ScriptedOpenAI

    config = one_cell_an_arm(tmp_path)

    # When
    with ScriptedOpenAI(rule=lambda _asked: "go to bench 1") as server:
        sees = environment(site) | {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url}
        swept = memcon("sweep", config, "--local", f"root={tmp_path}", environment=sees)
        calls = list(server.replies)

    # Then each prompt has as many whole insights as its arm asks for, the first of all that the memory has
    assert (swept.code, swept.err) == (0, "")
    assert sorted(set(LIMITS.values())) == [2, 3, 5, 8]
    first = {call.model: call.text for call in reversed(calls)}
    insights = {model: RULE.findall(text) for model, text in first.items()}
    assert set(insights) == {"all", *LIMITS, *BARE}
    assert len(insights["all"]) > 8
    for arm in LIMITS:
        # Re-Retrieve asks with other words, so that other rules may be nearer.
        if arm != "re_retrieve":
            assert insights[arm] == insights["all"][: LIMITS[arm]], arm
    # And it is so in every call of an arm, not only in its first: nothing is cut, nothing slips in
    expected = {"all": len(insights["all"]), **LIMITS, **dict.fromkeys(BARE, 0)}
    assert len(calls) > 3 * len(expected)
    for call in calls:
        counts = (call.text.count(INSIGHT_HEADING), len(RULE.findall(call.text)))
        assert counts == (expected[call.model], expected[call.model]), call.model
    items = {arm.action_id: arm.top_k or 0 for arm in actions.action_set("default").actions}
    for call in calls:
        assert call.text.count(EXPERIENCE_HEADING) == items.get(call.model, 1), call.model
    assert {call.model for call in calls if PLAN_HEADING in call.text} == {"plan_inject"}


@pytest.fixture
def here(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as installed for this process."""
    caches = (registry._declared, registry._entry_points)
    monkeypatch.syspath_prepend(str(site))
    for cached in caches:
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[module]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("known", [0, 1, 4, 8, 12])
async def test_a_prompt_has_no_more_insights_than_the_memory(known: int, tmp_path: Path) -> None:
    framework: AgentFramework = registry.build("framework", "dialogue", {})
    # As many rules as pairs of actions in a row.
    attempt = trajectory_of(TASK, [f"open {letter}" for letter in "abcdefghijklm"[: known + 1]])
    for arm, limit in LIMITS.items():
        store, model = StreamStore(tmp_path / f"{arm}.sqlite", identity="cell/2"), ScriptedModel(["press switch 1"])
        backend: MemoryBackend = registry.build(
            "memory", "notebook", {}, store=store, embedder=HashingEmbedder(HashingConfig())
        )
        commit(store, lambda backend=backend: backend.record(attempt))  # type: ignore[misc]
        memory = begin(controller_of(backend, store, ScriptedPolicy(arm)), ordinal=1)

        await play(framework, model, memory=memory)

        store.close()
        assert model.requests
        for request in model.requests:
            assert len(RULE.findall(request.text)) == min(limit, known), arm
