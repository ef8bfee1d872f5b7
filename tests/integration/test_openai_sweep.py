"""Sweeps over the backbone `openai` against the scripted server: what its log shows is what the run recorded.

Two records that know nothing of each other are held together: the prompts and usage that the server logged, and the
Parquet of the run. One stream runs at a time, so that the calls lie in the order of the tasks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from memcon_platform.config import load, read_record
from memcon_platform.sweep.launch import Launch, launch, open_local
from memcon_platform.sweep.runner import RunEnd
from memcon_platform.sweep.status import stream_status
from memcon_platform.trajectory import compare, read_run
from memcon_workers.spec import TaskEnded
from support.openai_calls import SWEEP
from support.openai_server import KEY, Fault, LoggedCall, ScriptedOpenAI

pytest.importorskip("openai", reason="the extra `openai` is not installed; EXTRAS=all make test")

# Successes and plans from the first task on: two of each goal type.
PRELOADED = "axes.memory=[{name: metagpt, preload: {source: reference_plans, per_type: 2}}]"
# Arm -> items of its block with the memory `metagpt`, which has no insights and no hooks (Table 7).
ITEMS = {
    "retrieve_shallow": 1, "retrieve_medium": 2, "retrieve_deep": 3, "plan_inject": 1, "re_retrieve": 2,
    "insight_only": 1, "consolidate": 0, "forget": 0, "noop": 0,
}  # fmt: skip
_HEADING = re.compile(r"^## (Experience|Insight|Plan|Hint)(?: \d+)?$", re.MULTILINE)


class NoObserver:
    def task_ended(self, _task: TaskEnded) -> None:
        return

    def cell_ended(self, _cell: str) -> None:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task in both records."""

    episode: dict[str, Any]
    steps: list[dict[str, Any]]
    decisions: list[dict[str, Any]]
    calls: list[LoggedCall]


def sweep(root: Path, name: str, *overrides: str) -> tuple[Path, RunEnd]:
    config = root / "config.yaml"
    config.write_text(SWEEP + "streams_per_worker: 1\n")
    plan = load(config, [f"run={name}", f"root={root / 'runs'}", *overrides])
    how = Launch(open_pool=open_local, observe=lambda _plan, _resumed: NoObserver(), console=Console(quiet=True))
    written, end = asyncio.run(launch(plan, how))
    return written.run_dir, end


def tasks_of(run_dir: Path, calls: list[LoggedCall]) -> list[Task]:
    """The tasks in the order in which they were played, each with its part of the log."""
    tables = read_run(run_dir)

    def place(row: dict[str, Any]) -> tuple[str, int, int]:
        return row["cell"], row["stream"], row["ordinal"]

    steps = {key: list(rows) for key, rows in groupby(tables.steps.to_pylist(), place)}
    decisions = {key: list(rows) for key, rows in groupby(tables.decisions.to_pylist(), place)}
    found, at = [], 0
    for episode in sorted(tables.episodes.to_pylist(), key=lambda row: row["started_at"]):
        mine = steps.get(place(episode), [])
        found.append(
            Task(
                episode=episode,
                steps=mine,
                decisions=decisions.get(place(episode), []),
                calls=calls[at : at + len(mine)],
            )
        )
        at += len(mine)
    assert at == len(calls), "a call that is no step"
    return found


def blocks(call: LoggedCall) -> dict[str, list[str]]:
    """Heading -> texts below it, of the memory part of a prompt."""
    _, _, memory = call.messages[0].content.partition("\n# Memory\n")
    parts = _HEADING.split(memory)
    found: dict[str, list[str]] = {"Experience": [], "Insight": [], "Plan": [], "Hint": []}
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        found[heading].append(text.strip())
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(reports="gpt-4.1-mini-2025-04-14") as server:
        yield server


@pytest.fixture(autouse=True)
def endpoint(server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    server.forget()
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)


def assert_tokens_are_the_servers(tasks: list[Task]) -> None:
    for task in tasks:
        asked = [(call.prompt_tokens, call.completion_tokens) for call in task.calls]
        assert [(step["prompt_tokens"], step["completion_tokens"]) for step in task.steps] == asked
        assert task.episode["tokens_agent_prompt"] == sum(call.prompt_tokens for call in task.calls)
        assert task.episode["tokens_agent_completion"] == sum(call.completion_tokens for call in task.calls)
        # It was this task that was asked about.
        assert all(f"Goal: {task.episode['goal']}\n" in call.text for call in task.calls)
        assert task.episode["model_ids"] == ["gpt-4.1-mini-2025-04-14"]


def test_every_arm_is_seen_in_the_prompts_and_every_token_in_the_log(server: ScriptedOpenAI, tmp_path: Path) -> None:
    policies = ",".join(f"fixed:{arm}" for arm in ITEMS)
    run_dir, end = sweep(tmp_path, "arms", f"axes.policy=[{policies}]", PRELOADED, "limit=1")

    assert not end.failures
    tasks = tasks_of(run_dir, server.replies)
    assert len(server.replies) == len(server.log) > 9 * 5
    assert_tokens_are_the_servers(tasks)
    total = sum(task.episode["tokens_agent_prompt"] for task in tasks)
    assert total == sum(call.prompt_tokens for call in server.log)
    shown: dict[str, set[tuple[int, int, int]]] = {arm: set() for arm in ITEMS}
    for task in tasks:
        (arm,) = {decision["action_id"] for decision in task.decisions}
        for call in task.calls:
            block = blocks(call)
            shown[arm].add((len(block["Experience"]), len(block["Plan"]), len(block["Insight"])))
    assert shown == {arm: {(items, int(arm == "plan_inject"), 0)} for arm, items in ITEMS.items()}
    # Which endpoint the environment named is in no setting, and on record all the same.
    asked = f"backbone 'openai profile=gpt-4.1-mini max_retries=0' at {server.base_url}"
    assert read_record(run_dir).provenance["endpoints"] == [asked]


def test_requests_of_paired_cells_sample_alike(server: ScriptedOpenAI, tmp_path: Path) -> None:
    run_dir, _ = sweep(tmp_path, "alike", "axes.policy=[fixed:noop,fixed:retrieve_deep]", PRELOADED, "limit=1")

    assert {(call.model, call.temperature, call.max_tokens) for call in server.log} == {("gpt-4.1-mini", 0.0, 256)}
    # A seed is the request's place: the same in both cells, another one at each step.
    first, second = (task.calls for task in tasks_of(run_dir, server.replies))
    assert [call.seed for call, _ in zip(first, second, strict=False)] == [
        call.seed for call, _ in zip(second, first, strict=False)
    ]
    assert len({call.seed for call in first}) == len(first)


def test_each_decision_of_ucb_is_what_the_next_prompts_show(server: ScriptedOpenAI, tmp_path: Path) -> None:
    run_dir, end = sweep(tmp_path, "ucb", PRELOADED, "limit=4", "control.decision_points=every_step")

    assert not end.failures
    tasks = tasks_of(run_dir, server.replies)
    assert_tokens_are_the_servers(tasks)
    texts: dict[str, str] = {}
    played = set()
    for task in tasks:
        at_step = {decision["feature_step"]: decision for decision in task.decisions}
        standing: dict[str, Any] | None = None
        for index, call in enumerate(task.calls):
            decision = at_step[index]
            if decision["item_ids"] or decision["tokens_plan"] or decision["tokens_hint"]:
                standing = decision
            elif not decision["context_kept"]:
                standing = None
            played.add((decision["action_id"], standing is decision))
            block = blocks(call)
            ids = standing["item_ids"] if standing else []
            assert len(block["Experience"]) == len(ids)
            assert bool(block["Plan"]) == bool(standing and standing["tokens_plan"])
            assert not block["Plan"] or (standing or {})["action_id"] == "plan_inject"
            # An id stands for one text, wherever it is shown.
            for name, text in zip(ids, block["Experience"], strict=True):
                assert texts.setdefault(name, text) == text
    assert len(texts) >= 3
    brought = {arm for arm, fresh in played if fresh}
    assert {"retrieve_shallow", "retrieve_medium", "retrieve_deep", "plan_inject", "re_retrieve"} <= brought
    assert ("noop", False) in played


def test_a_provider_that_stops_a_stream_costs_no_task(server: ScriptedOpenAI, tmp_path: Path) -> None:
    undisturbed, _ = sweep(tmp_path, "undisturbed", "limit=5")

    # The n-th request of each launch meets another model behind the name, then a key that was taken back.
    launches = [
        ({40: Fault(model="claude-sonnet-4-20250514")}, "reports 'claude-sonnet-4-20250514'"),
        ({20: Fault(status=401, message=f"expired: {KEY}")}, "refuses the key in OPENAI_API_KEY (401)"),
    ]
    seen = [0]
    for faults, reason in launches:
        server.forget()
        server.faults = faults
        run_dir, end = sweep(tmp_path, "disturbed", "limit=5")
        (((cell, stream), message),) = end.failures.items()
        assert reason in message
        status = stream_status(run_dir, cell, stream)
        assert status.num_unevaluable == 0
        assert reason in status.error
        seen.append(status.num_ended)
    assert seen[0] < seen[1] < 5
    assert seen[1] <= seen[2] < 5

    server.forget()
    run_dir, end = sweep(tmp_path, "disturbed", "limit=5")
    assert not end.failures
    assert compare(undisturbed, run_dir) == []
    assert [path for path in run_dir.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()] == []


def test_an_outage_costs_two_tasks_and_the_same_command_plays_the_rest(server: ScriptedOpenAI, tmp_path: Path) -> None:
    server.faults = lambda asked: Fault(status=503, message="overloaded") if asked.number > 40 else None

    run_dir, end = sweep(tmp_path, "outage", "axes.seed=[0,1,2,3]", "limit=4", "streams_per_worker=4")

    assert len(end.failures) == 4
    assert len(set(end.failures.values())) == 1
    played = [stream_status(run_dir, cell, stream) for cell, stream in end.failures]
    assert sum(status.num_unevaluable for status in played) == 2
    assert sum(status.num_ended for status in played) < 16

    server.forget()
    run_dir, end = sweep(tmp_path, "outage", "axes.seed=[0,1,2,3]", "limit=4", "streams_per_worker=4")
    assert not end.failures
    classes = [episode["outcome_class"] for episode in read_run(run_dir).episodes.to_pylist()]
    assert (len(classes), classes.count("unevaluable")) == (16, 2)


def test_a_request_that_fails_for_good_costs_its_task_and_no_other(server: ScriptedOpenAI, tmp_path: Path) -> None:
    server.faults = {3: Fault(status=400, message=f"context of {KEY} is too long")}

    run_dir, end = sweep(tmp_path, "failing", "limit=3")

    assert not end.failures
    episodes = read_run(run_dir).episodes.to_pylist()
    assert [episode["outcome_class"] == "unevaluable" for episode in episodes] == [True, False, False]
    assert episodes[0]["error_boundary"] == "backbone"
    assert "answers 400: context of *** is too long" in episodes[0]["error"]
