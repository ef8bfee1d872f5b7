"""The benchmark `trivia`: questions that never repeat and whose document names the answer. Constructed by us.

Built to show a family in which memory is USELESS and only costs tokens: no two questions are alike, so nothing that was
stored bears on the next one. In a quarter of the tasks the document names another vault beside the right one. The
family shows a mechanism and says nothing about how often real tasks are like this.
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

__all__ = ["PLUGIN", "TriviaBenchmark", "TriviaConfig"]

NAME = "trivia"
GOAL = "say which vault holds ledger {ledger}."
PAGE = "The register: ledger {ledger} lies in {{}}."
ASIDE = "The {} is under repair."


@dataclass(slots=True, kw_only=True)
class TriviaConfig:
    """How many questions, and how plain the document is."""

    num_tasks: int = 24
    # Share of documents that name another vault too.
    distractor_share: float = 0.25
    # Another number, other questions; independent of the seed axis of a sweep, so that cells stay paired.
    task_seed: int = 0

    def __post_init__(self) -> None:
        in_range("num_tasks", self.num_tasks, 1, 5000)
        in_range("distractor_share", self.distractor_share, 0.0, 1.0)
        in_range("task_seed", self.task_seed, 0)


class TriviaBenchmark(QuestionBenchmark):
    """Ledgers, each asked for once."""

    name = NAME
    thing = "vault"
    purpose = "memory is useless"

    def __init__(self, config: TriviaConfig) -> None:
        super().__init__()
        self._config = config
        self.vocabulary = frozenset({self.thing, "ledger"})

    def tasks(self) -> Sequence[Task]:
        """One ledger a task."""
        root = SeedTree(("benchmark", NAME, self._config.task_seed))
        return [self._ask(number, root.child("ask", number)) for number in range(self._config.num_tasks)]

    def _ask(self, number: int, place: SeedTree) -> Task:
        generator, choices = place.generator(), self.choices()
        # The place in the list keeps the numbers apart, the drawn digits those of other lists.
        ledger = f"{generator.randint(100, 999)}{number:04d}"
        answer = generator.choice(choices)
        share = self._config.distractor_share
        opening = document(
            PAGE.format(ledger=ledger), ASIDE, answer=answer, choices=choices, share=share, generator=generator
        )
        goal = GOAL.format(ledger=ledger)
        listed = (self._config.task_seed, number)
        return question_task(NAME, listed, goal=goal, opening=opening, choices=choices, answer=answer)


def build(config: TriviaConfig) -> Benchmark:
    """The benchmark of `config`."""
    return TriviaBenchmark(config)


PLUGIN = Plugin(
    config=TriviaConfig,
    build=build,
    summary="constructed by us to show that memory can be useless: no question comes twice, the document answers",
)
