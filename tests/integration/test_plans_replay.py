"""The template of a successful attempt, played again on its own task, reaches the goal: nothing needed was cut."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memcon import registry
from memcon.control.plans import Rewriter, extract
from memcon.control.progress import ProgressMatcher
from memcon.protocols import Benchmark, Environment
from memcon.seeds import Generator, SeedTree
from memcon.types import Step, StepKind, Task, Trajectory

# Chance of a random admissible action before each step of the reference plan.
DETOUR = 0.15
MAX_ACTIONS = 60


def wander(environment: Environment, task: Task, plan: Sequence[str], generator: Generator) -> list[Step]:
    """The reference plan with random detours; its steps are refused where a detour has spoilt them."""
    environment.reset(task, 0)
    steps: list[Step] = []
    left = list(plan)
    while left and len(steps) < MAX_ACTIONS:
        admissible = list(environment.valid_actions())
        detour = admissible and generator.random() < DETOUR
        action = admissible[int(generator.random() * len(admissible))] if detour else left.pop(0)
        result = environment.step(action)
        steps.append(
            Step(
                index=len(steps),
                kind=StepKind.ACTION,
                action=action,
                observation=result.observation,
                valid=result.valid,
                progress=result.progress,
                prompt_tokens=0,
                completion_tokens=0,
            )
        )
        if result.done:
            break
    return steps


def solves(environment: Environment, task: Task, actions: Sequence[str]) -> bool:
    environment.reset(task, 0)
    return any(environment.step(action).success for action in actions)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("household", {}), ("pddl", {"goals": "ladder"}), ("pddl", {"goals": "full"})],
    ids=["household", "pddl-ladder", "pddl-full"],
)
def test_a_template_solves_the_task_that_it_came_from(name: str, parameters: dict[str, str]) -> None:
    benchmark: Benchmark = registry.plugin("benchmark", name).build(registry.configure("benchmark", name, parameters))
    rewriter, matcher = Rewriter(benchmark.vocabulary), ProgressMatcher(benchmark.progress_rules)
    environment = benchmark.environment()
    num_templates = num_cut = 0
    for task in benchmark.tasks():
        plan = benchmark.reference_plan(task)
        assert plan is not None
        for attempt in range(3):
            generator = SeedTree(("wander", task.task_id, attempt)).generator()
            steps = wander(environment, task, plan, generator)
            actions = [step.action for step in steps]
            if not solves(environment, task, actions):
                continue
            trajectory = Trajectory(task=task, first_observation="", steps=tuple(steps), success=True)
            template = extract(trajectory, rewriter=rewriter, matcher=matcher)
            assert solves(environment, task, template), (task.goal, actions, template)
            num_templates += 1
            num_cut += len(template) < len(actions)
    environment.close()
    # The test has teeth: many attempts succeeded, and templates are shorter than they were.
    assert num_templates > len(benchmark.tasks()) / 2
    assert num_cut > num_templates / 4
