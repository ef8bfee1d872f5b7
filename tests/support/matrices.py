"""Outcome matrices whose truth is known, and learners to replay on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from memcon.learning.credit import RewardSettings
from memcon.policy_types import LearningSettings
from memcon.seeds import SeedTree
from memcon_platform.study.exact_replay import Learner
from memcon_platform.study.matrix import OutcomeMatrix

ARMS = ("retrieve_shallow", "retrieve_deep", "noop")
# Tokens that each arm injects.
TOKENS = (100, 300, 0)


def outcome_matrix(
    rates: Mapping[str, Sequence[float]],
    *,
    seeds: int = 2,
    streams: int = 3,
    tasks: int = 24,
    arms: Sequence[str] = ARMS,
    unevaluable: float = 0.0,
    settled: float = 0.0,
    place: int = 0,
) -> OutcomeMatrix:
    """Each family of `rates` in turn, its arms with the given success rates; goal types are `<family>_0`, `<family>_1`.

    All streams have the same tasks, each begins with another one. No step budget, so that the reward is that of success
    or failure alone.

    Args:
        settled: share of (task, arm) whose outcome is the same in all streams, drawn once at the rate of the family.
        place: number of the matrix among those of the same shape.
    """
    generator = SeedTree(("support", "matrices", seeds, streams, tasks, *([place] if place else []))).generator()
    units = tuple((seed, stream) for seed in range(seeds) for stream in range(streams))
    shape = (len(units), tasks)
    task = np.add.outer(np.arange(shape[0]), np.arange(tasks)) % tasks
    names = list(rates)
    family = np.array(names)[task % len(names)]
    goal_type = np.char.add(family, np.array(["_0", "_1"])[task // len(names) % 2])
    chance = np.array([rates[names[number % len(names)]] for number in range(tasks)])
    if settled:
        for drawn in np.ndindex(*chance.shape):
            if generator.random() < settled:
                chance[drawn] = float(generator.random() < chance[drawn])
    success = np.empty((*shape, len(arms)))
    for at in np.ndindex(*shape):
        success[at] = [float(generator.random() < rate) for rate in chance[task[at]]]
        if generator.random() < unevaluable:
            success[at] = np.nan
    return OutcomeMatrix(
        action_ids=tuple(arms),
        units=units,
        success=success,
        num_steps=np.full(success.shape, 10, dtype=np.int64),
        tokens=np.broadcast_to(np.array(TOKENS[: len(arms)]), success.shape).astype(np.int64),
        max_steps=np.full(shape, 30, dtype=np.int64),
        has_step_budget=np.zeros(shape, dtype=np.bool_),
        task_ids=tuple(f"task-{number:03d}" for number in range(tasks)),
        task=task,
        benchmark=family,
        goal_type=goal_type,
        plan_available=np.zeros(shape, dtype=np.bool_),
        memory_size=np.broadcast_to(np.arange(tasks), shape).astype(np.int64),
        task_number=np.broadcast_to(np.arange(1, tasks + 1), shape).astype(np.int64),
    )


def table_settings(rule: str, *, arms: Sequence[str] = ARMS, **parameters: float | str) -> LearningSettings:
    """A table over `arms` with a key of the goal type alone, as far as the shipped schemas allow."""
    return LearningSettings(
        rule=rule,
        rule_parameters=parameters,
        action_ids=tuple(arms),
        priors=(0.0,) * len(arms),
        action_set="of the tests",
        fingerprint="of the tests",
        estimator="mean",
        key_schema="goal_plan/1",
    )


def learner_of(settings: LearningSettings, *, token_cost: float = 0.0, label: str = "learner") -> Learner:
    return Learner(
        label=label,
        learning=settings,
        reward=RewardSettings(token_cost=token_cost),
        allowed=settings.action_ids,
        mask_unsupported=False,
    )
