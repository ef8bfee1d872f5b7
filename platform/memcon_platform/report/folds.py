"""Folds of tasks: what a choice of arms leaves out beside the seed that it is measured on.

All seeds have the same list of tasks, and what an arm comes to depends on the task: an arm that was best on other seeds
has seen the very tasks, so that on them it looks better than it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from memcon import ids

__all__ = ["FOLDS", "task_folds"]

FOLDS = 5


def task_folds(tasks: Iterable[tuple[str, str, str]]) -> dict[str, int]:
    """Fold of each task, 0..FOLDS - 1.

    Tasks of one goal type are dealt out in the order of a stable hash of their ids, so that two of them are never in
    the same fold while another fold has none.

    Args:
        tasks: family, goal type and id of each task; repeats are one task.
    """
    dealt = sorted(set(tasks), key=lambda task: (task[0], task[1], ids.stable_hash("task fold", task[2]), task[2]))
    return {task: place % FOLDS for place, (_, _, task) in enumerate(dealt)}
