"""Tables that pool over coarser keys, and the chains of keys that their decisions have."""

from __future__ import annotations

from memcon.learning import state_key
from memcon.learning.exploration.bayes_ucb import BayesUcbConfig
from memcon.policy_types import LearningSettings
from memcon.types import StateFeatures

# Finer than the preset's by one level, so that each level has one above or below.
POOLED = BayesUcbConfig(
    state_key="benchmark+goal_type+plan_available", pooling=("benchmark+goal_type", "benchmark"), c=1.0
).learning_settings()


def features(*, benchmark: str = "house", goal_type: str = "put", plan: bool = False) -> StateFeatures:
    return StateFeatures(
        goal_type=goal_type,
        step=0,
        is_stuck=False,
        objects_held=0,
        locations_visited=0,
        memory_size=0,
        plan_available=plan,
        task_number=1,
        benchmark=benchmark,
    )


def chain(
    benchmark: str = "house", goal_type: str = "put", *, plan: bool = False, settings: LearningSettings = POOLED
) -> tuple[str, ...]:
    return state_key.key_chain(settings, features(benchmark=benchmark, goal_type=goal_type, plan=plan))
