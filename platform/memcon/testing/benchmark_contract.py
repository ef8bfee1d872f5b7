"""The benchmark port under test: the contract body that every source of tasks passes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

import pytest

from memcon import codec
from memcon.errors import MemconError
from memcon.protocols import Benchmark
from memcon.testing.contract import Contract, accepts, expect, expect_equal, expect_port, refuses, to_give
from memcon.testing.environment import play
from memcon.types import Provenance, Task

__all__ = ["BenchmarkContract"]

# Practice tasks of a goal type that a contract test asks for.
PER_TYPE = 3
_TASKS, _PRACTICE, _PART = "Benchmark.tasks", "Benchmark.practice_tasks", "Benchmark.part_of"


def _check_fits(where: str, task: Task, source: Benchmark) -> None:
    """`task` is as the traits of `source`, and of the part that made it, say."""
    __tracebackhide__ = True
    part = source.part_of(task)
    expect_equal(
        (task.benchmark, task.provenance),
        (part.name, part.provenance),
        where,
        wants=f"gives tasks with the name and provenance of their benchmark; '{task.task_id}' has others",
    )
    for kinds, whose in ((source.goal_types, "Benchmark.goal_types"), (part.goal_types, "the part's goal_types")):
        expect(task.goal_type in kinds, where, f"gives tasks of {whose} only: {', '.join(kinds)}", met=task)
    expect(
        part.vocabulary <= source.vocabulary,
        "Benchmark.vocabulary",
        "holds the words of every part",
        met=sorted(part.vocabulary - source.vocabulary),
    )
    expect(task.goal.strip() != "", where, "gives every task a goal", met=task)
    expect(task.max_steps >= 1, where, "gives every task at least one step", met=task)


class BenchmarkContract(Contract):
    """What every benchmark gives. Override `source`; `samples` says how many tasks are played."""

    samples = 12

    @pytest.fixture
    def source(self) -> Benchmark:
        """The benchmark under test."""
        to_give(self, "source", "Benchmark", "the benchmark under test, as its plug-in builds it")

    @pytest.fixture
    def played(self, source: Benchmark) -> Sequence[Task]:
        """Tasks spread over the whole list."""
        tasks = source.tasks()
        return tasks[:: max(1, len(tasks) // self.samples)]

    def test_tasks_are_distinct_and_fit_the_traits(self, source: Benchmark) -> None:
        expect_port(source, Benchmark)
        tasks = source.tasks()
        expect(
            isinstance(tasks, Sequence) and len(tasks) > 0,
            _TASKS,
            "gives a list or tuple of tasks, not empty",
            met=tasks,
        )
        twice = [name for name, count in Counter(task.task_id for task in tasks).items() if count > 1]
        expect(not twice, _TASKS, "gives every task an id of its own", met=f"more than once: {twice}")
        for task in tasks:
            _check_fits(_TASKS, task, source)

    def test_the_list_is_the_same_every_time(self, source: Benchmark) -> None:
        expect_equal(
            list(source.tasks()),
            list(source.tasks()),
            _TASKS,
            wants="gives the same tasks in the same order every time: a resumed run asks again",
        )

    def test_tasks_survive_json(self, source: Benchmark, played: Sequence[Task]) -> None:
        for task in played:
            wants = "gives tasks whose payload JSON keeps as it is (no sets, no keys but texts)"
            with accepts(_TASKS, wants=wants):
                stored = codec.decode(Task, json.loads(codec.encode_json(task)))
            expect_equal(codec.encode_json(stored), codec.encode_json(task), _TASKS, wants=wants)
            expect_equal(
                source.environment().reset(stored, 1),
                source.environment().reset(task, 1),
                "Environment.reset",
                wants=f"plays task '{task.task_id}' alike after it went through JSON",
            )

    def test_rules_have_their_groups(self, source: Benchmark) -> None:
        rules = source.progress_rules
        wanted = {"take": (rules.take, "object"), "release": (rules.release, "object"), "visit": (rules.visit, "place")}
        for name, (pattern, group) in wanted.items():
            expect(
                group in re.compile(pattern).groupindex,
                "Benchmark.progress_rules",
                f"has the group (?P<{group}>...) in its pattern `{name}`",
                met=pattern,
            )

    def test_goal_types_name_each_other_consistently(self, source: Benchmark) -> None:
        kinds = source.goal_types
        expect_equal(len(set(kinds)), len(kinds), "Benchmark.goal_types", wants="names each goal type once")
        for double, single in source.single_object_types.items():
            expect(
                {double, single} <= set(kinds),
                "Benchmark.single_object_types",
                f"names goal types only: {', '.join(kinds)}",
                met=(double, single),
            )

    def test_vocabulary_is_plain_words(self, source: Benchmark) -> None:
        odd = [word for word in sorted(source.vocabulary) if not re.fullmatch(r"[a-z]+", word)]
        wants = "holds the names of things, each one word of small letters, at least one"
        expect(len(source.vocabulary) > 0 and not odd, "Benchmark.vocabulary", wants, met=odd or source.vocabulary)

    def _check_plan(self, source: Benchmark, task: Task) -> None:
        """The reference plan of `task`, if there is one, solves it within the horizon."""
        __tracebackhide__ = True
        plan = source.reference_plan(task)
        if plan is None:
            return
        environment = source.environment()
        environment.reset(task, 1)
        results = play(environment, plan)
        where = "Benchmark.reference_plan"
        solved = bool(results) and results[-1].success
        expect(solved, where, f"solves its task, here '{task.task_id}' by {list(plan)}", met=results[-1:])
        expect(
            len(plan) <= task.max_steps,
            where,
            f"is no longer than task.max_steps = {task.max_steps}, here of '{task.task_id}'",
            met=len(plan),
        )
        environment.close()
        environment.close()

    def test_reference_plans_solve_within_the_horizon(self, source: Benchmark, played: Sequence[Task]) -> None:
        for task in played:
            self._check_plan(source, task)

    def test_practice_tasks_are_other_tasks_of_the_same_kind(self, source: Benchmark) -> None:
        practice = source.practice_tasks(PER_TYPE)
        ids = [task.task_id for task in practice]
        expect_equal(len(set(ids)), len(ids), _PRACTICE, wants="gives every task an id of its own")
        both = sorted({task.task_id for task in source.tasks()} & set(ids))
        expect(not both, _PRACTICE, "gives none of the tasks: a memory must not begin with what is asked", met=both)
        for task in practice:
            _check_fits(_PRACTICE, task, source)
        counts = Counter(task.goal_type for task in practice)
        expect(
            max(counts.values(), default=0) <= PER_TYPE,
            _PRACTICE,
            f"gives at most per_type = {PER_TYPE} tasks of a goal type",
            met=dict(counts),
        )

    def test_practice_tasks_are_the_same_every_time(self, source: Benchmark) -> None:
        first = list(source.practice_tasks(PER_TYPE))
        expect_equal(list(source.practice_tasks(PER_TYPE)), first, _PRACTICE, wants="gives the same tasks every time")
        expect_equal(list(source.practice_tasks(0)), [], _PRACTICE, wants="gives no task for per_type = 0")
        fewer = [task.task_id for task in source.practice_tasks(1)]
        expect(
            set(fewer) <= {task.task_id for task in first},
            _PRACTICE,
            "gives for a smaller per_type some of the tasks of a larger one",
            met=fewer,
        )

    def test_reference_plans_solve_practice_tasks(self, source: Benchmark) -> None:
        for task in source.practice_tasks(PER_TYPE):
            environment = source.environment()
            environment.reset(task, 1)
            actions = list(environment.valid_actions())
            expect(actions != [], "Environment.valid_actions", f"lists an action in '{task.task_id}'", met=actions)
            self._check_plan(source, task)

    def test_a_part_plays_its_own_tasks(self, source: Benchmark, played: Sequence[Task]) -> None:
        for task in played:
            part = source.part_of(task)
            expect_equal(
                (part.part_of(task).name, part.environment().reset(task, 1), part.reference_plan(task)),
                (part.name, source.environment().reset(task, 1), source.reference_plan(task)),
                _PART,
                wants="gives the benchmark that made the task: itself, or the part of a mix, which plays it alike",
            )

    def test_environments_do_not_share_an_episode(self, source: Benchmark, played: Sequence[Task]) -> None:
        one, other = source.environment(), source.environment()
        one.reset(played[0], 1)
        before = list(one.valid_actions())
        other.reset(played[0], 1)
        play(other, before[:1])
        expect_equal(
            list(one.valid_actions()),
            before,
            "Benchmark.environment",
            wants="gives a fresh environment at each call: what happens in one must not be seen in another",
        )

    def test_a_foreign_payload_is_refused_with_the_task_named(self, source: Benchmark) -> None:
        task = Task(
            task_id="foreign-1",
            benchmark="another",
            goal="do something.",
            goal_type="other",
            payload={"surprise": 1},
            max_steps=1,
            provenance=Provenance.SELF_MADE,
        )
        wants = "refuses the task of another benchmark, and names it"
        with refuses(MemconError, "Environment.reset", wants=wants, naming="foreign-1"):
            source.environment().reset(task, 1)
