"""The benchmark `habit`: which depot serves a client; no document tells, only the past does. Constructed by us.

Built to show a family in which MORE memory is better: each client has a usual depot, which serves with probability
`usual_share` (otherwise one of the six, drawn evenly, which may be the usual one again). One past record is right about
half the time; the majority of three is right more often; without memory one answer in six is. Its practice tasks are
past records ("logs"). The family shows a mechanism and says nothing about how often real tasks are like this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memcon.checks import in_range
from memcon.protocols import Benchmark
from memcon.registry import Plugin
from memcon.seeds import SeedTree
from memcon.types import Task
from memcon_workers.benchmarks.questions import QuestionBenchmark, question_task

__all__ = ["PLUGIN", "HabitBenchmark", "HabitConfig"]

NAME = "habit"
GOAL = "say which depot serves client {client}."
OPENING = "The order book lists no depot for today."


@dataclass(slots=True, kw_only=True)
class HabitConfig:
    """Which clients there are, and how they behave."""

    # Dealt over the clients in turn.
    num_tasks: int = 24
    num_clients: int = 5
    # Past records of each client; `practice_tasks` gives them as far as its bound allows.
    logs_per_client: int = 5
    # Probability of the usual depot before the even draw.
    usual_share: float = 0.65
    # Another number, other habits; independent of the seed axis of a sweep, so that cells stay paired.
    task_seed: int = 0

    def __post_init__(self) -> None:
        in_range("num_tasks", self.num_tasks, 1, 5000)
        in_range("num_clients", self.num_clients, 1, 500)
        in_range("logs_per_client", self.logs_per_client, 0, 100)
        in_range("usual_share", self.usual_share, 0.0, 1.0)
        in_range("task_seed", self.task_seed, 0)


class HabitBenchmark(QuestionBenchmark):
    """Clients with a usual depot."""

    name = NAME
    thing = "depot"
    purpose = "more memory is better"

    def __init__(self, config: HabitConfig) -> None:
        super().__init__()
        self._config = config
        self._root = SeedTree(("benchmark", NAME, config.task_seed))
        self.vocabulary = frozenset({self.thing, "client"})

    def tasks(self) -> Sequence[Task]:
        """One day a task, clients in turn."""
        clients = self._config.num_clients
        return [
            self._day(number % clients, f"{number}", self._root.child("day", number))
            for number in range(self._config.num_tasks)
        ]

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """Past records, the first of each client before the second of any; at most `per_type`."""
        config = self._config
        logs = [
            self._day(client, f"log-{client + 1}-{place + 1}", self._root.child("log", client, place))
            for place in range(config.logs_per_client)
            for client in range(config.num_clients)
        ]
        return logs[:per_type]

    def _day(self, client: int, number: str, place: SeedTree) -> Task:
        choices = self.choices()
        usual = self._root.child("usual", client).generator().choice(choices)
        generator = place.generator()
        is_usual = generator.random() < self._config.usual_share
        answer = usual if is_usual else generator.choice(choices)
        goal = GOAL.format(client=client + 1)
        listed = (self._config.task_seed, number)
        return question_task(NAME, listed, goal=goal, opening=OPENING, choices=choices, answer=answer)


def build(config: HabitConfig) -> Benchmark:
    """The benchmark of `config`."""
    return HabitBenchmark(config)


PLUGIN = Plugin(
    config=HabitConfig,
    build=build,
    summary="constructed by us to show that more memory can be better: only a majority over past records answers",
)
