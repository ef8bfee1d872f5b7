"""The benchmark `audit`: where a parcel stands today; today's sheet tells, the past misleads. Constructed by us.

Built to show a family in which memory does HARM: the same four questions come again and again, and the answer is drawn
anew every time. A record of an earlier task has the very same question and, five times in six, another answer. Today's
sheet names the right bay; in a quarter of the tasks it names another one beside it. The family shows a mechanism and
says nothing about how often real tasks are like this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memcon.checks import in_range
from memcon.protocols import Benchmark
from memcon.registry import Plugin
from memcon.seeds import SeedTree
from memcon.types import Task
from memcon_workers.benchmarks.questions import QuestionBenchmark, document, question_task

__all__ = ["PLUGIN", "AuditBenchmark", "AuditConfig"]

NAME = "audit"
GOAL = "say in which bay parcel {parcel} stands today."
SHEET = "Today's sheet: parcel {parcel} stands in {{}}."
ASIDE = "The {} is being swept."


@dataclass(slots=True, kw_only=True)
class AuditConfig:
    """How often the same is asked, and how plain the sheet is."""

    # Dealt over the parcels in turn.
    num_tasks: int = 24
    num_parcels: int = 4
    # Share of sheets that name another bay too.
    distractor_share: float = 0.25
    # Another number, other answers; independent of the seed axis of a sweep, so that cells stay paired.
    task_seed: int = 0

    def __post_init__(self) -> None:
        in_range("num_tasks", self.num_tasks, 1, 5000)
        in_range("num_parcels", self.num_parcels, 1, 5000)
        in_range("distractor_share", self.distractor_share, 0.0, 1.0)
        in_range("task_seed", self.task_seed, 0)


class AuditBenchmark(QuestionBenchmark):
    """Parcels that are moved every day."""

    name = NAME
    thing = "bay"
    purpose = "memory does harm"

    def __init__(self, config: AuditConfig) -> None:
        super().__init__()
        self._config = config
        self.vocabulary = frozenset({self.thing, "parcel"})

    def tasks(self) -> Sequence[Task]:
        """One day a task, parcels in turn."""
        root = SeedTree(("benchmark", NAME, self._config.task_seed))
        return [self._day(number, root.child("day", number)) for number in range(self._config.num_tasks)]

    def _day(self, number: int, place: SeedTree) -> Task:
        parcel = number % self._config.num_parcels + 1
        generator, choices = place.generator(), self.choices()
        answer = generator.choice(choices)
        share = self._config.distractor_share
        opening = document(
            SHEET.format(parcel=parcel), ASIDE, answer=answer, choices=choices, share=share, generator=generator
        )
        goal = GOAL.format(parcel=parcel)
        listed = (self._config.task_seed, number)
        return question_task(NAME, listed, goal=goal, opening=opening, choices=choices, answer=answer)


def build(config: AuditConfig) -> Benchmark:
    """The benchmark of `config`."""
    return AuditBenchmark(config)


PLUGIN = Plugin(
    config=AuditConfig,
    build=build,
    summary="constructed by us to show that memory can do harm: the same questions, the answer drawn anew every time",
)
