"""A live agent that asks a served policy what to do with its memory, and tells how the task ended.

    memcon serve configs/serve.yaml
    MEMCON_TOKEN=$(cat serve/agents/token) python examples/live_agent.py http://127.0.0.1:8000

Needs `pip install 'memcon[client]'` only. The "tasks" stand for yours: searching succeeds with deep retrieval, putting
with a plan, which the policy does not know at first.
"""

import sys

from memcon.types import StateFeatures
from memcon_policy_server.client import SyncPolicy

HELPS = {"find": "retrieve_deep", "put": "plan_inject"}


def run_task(goal_type: str, action_id: str) -> bool:
    """Your agent: carry the memory operation out, work on the task, say whether it was solved."""
    return action_id == HELPS[goal_type]


def main(url: str, num_tasks: int) -> None:
    """Play tasks of two kinds in turn."""
    solved = []
    with SyncPolicy.connect(url, fallback="noop", deadline_s=0.5, spool="outcomes.sqlite") as policy:
        for number in range(num_tasks):
            goal_type = ("find", "put")[number % 2]
            state = StateFeatures(
                goal_type=goal_type, step=0, is_stuck=False, objects_held=0, locations_visited=0,
                memory_size=0, plan_available=True, task_number=1,
            )  # fmt: skip
            # One decision a task; later ones of the same task have position=1, 2, ... and its episode_id.
            decision = policy.decide("default", state)
            solved.append(run_task(goal_type, decision.action_id))
            policy.outcome(decision, 1.0 if solved[-1] else -0.5)
        third = num_tasks // 3
        sys.stdout.write(f"solved in the first third {sum(solved[:third])}, in the last {sum(solved[-third:])}\n")
        sys.stdout.write(f"{policy.counters()}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300)
