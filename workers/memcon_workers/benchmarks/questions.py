"""One-shot questions: the world shows one line, the agent names one of a few things, and the episode is over.

What `habit`, `audit` and `trivia` share. They are constructed by us to show what memory can do to a question, and are
no measure of any real set of questions; each of their modules says what it is built to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memcon import codec, ids
from memcon.control.memory.rendering import one_line
from memcon.errors import ConfigError, InvariantError
from memcon.protocols import Benchmark, Environment, Observation, StepResult
from memcon.seeds import Generator
from memcon.types import ProgressRules, Provenance, Task
from memcon_workers.benchmarks.planning_environment import REFUSAL

__all__ = ["NO_PROGRESS", "Question", "QuestionBenchmark", "QuestionEnvironment", "document", "question_task"]

SCHEMA_VERSION = 1
NUM_CHOICES = 6
# One answer ends the episode; the others are for replies that are no answer.
MAX_STEPS = 3
ANSWER = "answer "
RIGHT, WRONG = "That is right.", "That is not right."

# A world in which nothing is held or visited: no action is a progress.
NO_PROGRESS = ProgressRules(take=r"(?!)(?P<object>)", release=r"(?!)(?P<object>)", visit=r"(?!)(?P<place>)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Payload of a task: all that its environment needs."""

    schema_version: int
    benchmark: str
    # All that the world shows, one line.
    opening: str
    # What can be named, such as "depot 1"; and the one that is right.
    choices: tuple[str, ...]
    answer: str


class QuestionEnvironment:
    """Plays the questions of one benchmark. All is in the payload: the seed of `reset` has nothing to drive."""

    blocking = False

    def __init__(self, benchmark: str) -> None:
        self._benchmark = benchmark
        self._question: Question | None = None

    def reset(self, task: Task, seed: int) -> Observation:
        """Show the question's document.

        Raises:
            ConfigError: the task's payload is not one of this benchmark, or is damaged.
        """
        del seed
        self._question = _question(task, self._benchmark)
        return Observation(text=self._question.opening)

    def step(self, action: str) -> StepResult:
        """Take an answer, which ends the episode; any other text is refused and changes nothing.

        Raises:
            InvariantError: no episode runs.
        """
        question = self._running()
        text = one_line(action).lower().removesuffix(".")
        named = text.removeprefix(ANSWER)
        if named == text or named not in question.choices:
            return StepResult(observation=REFUSAL, valid=False, done=False, success=False, progress=0.0)
        self._question = None
        success = named == question.answer
        text = RIGHT if success else WRONG
        return StepResult(observation=text, valid=True, done=True, success=success, progress=float(success))

    def valid_actions(self) -> Sequence[str]:
        """One answer a choice; none when no episode runs."""
        return [ANSWER + choice for choice in self._question.choices] if self._question else []

    def close(self) -> None:
        """Forget the question; may be called twice."""
        self._question = None

    def _running(self) -> Question:
        if self._question is None:
            raise InvariantError(
                "environment: no episode runs (not reset, answered or closed); call reset with a task first"
            )
        return self._question


class QuestionBenchmark:
    """What the benchmarks of one-shot questions share; a subclass gives `name`, `thing`, `purpose` and `tasks`."""

    name: str
    # What an answer names: its numbered instances are the choices.
    thing: str
    # What the questions were built to show.
    purpose: str
    provenance = Provenance.SELF_MADE
    progress_rules = NO_PROGRESS
    has_step_budget = False

    def __init__(self) -> None:
        self.goal_types: tuple[str, ...] = (self.name,)
        self.vocabulary: frozenset[str] = frozenset({self.thing})
        self.single_object_types: Mapping[str, str] = {}
        self.constructed: Mapping[str, str] = {self.name: self.purpose}

    def tasks(self) -> Sequence[Task]:
        """The questions; a longer list starts with the shorter one."""
        raise NotImplementedError

    def practice_tasks(self, per_type: int) -> Sequence[Task]:
        """None: nothing that was asked before helps."""
        del per_type
        return ()

    def environment(self) -> Environment:
        """A fresh environment for any of the questions."""
        return QuestionEnvironment(self.name)

    def reference_plan(self, task: Task) -> Sequence[str] | None:
        """The right answer."""
        return [ANSWER + _question(task, self.name).answer]

    def part_of(self, task: Task) -> Benchmark:
        """This benchmark."""
        del task
        return self

    def choices(self) -> tuple[str, ...]:
        """What can be named, in order."""
        return tuple(f"{self.thing} {number}" for number in range(1, NUM_CHOICES + 1))


def document(text: str, aside: str, *, answer: str, choices: Sequence[str], share: float, generator: Generator) -> str:
    """`text` with the answer filled in, followed with probability `share` by `aside` about another of `choices`."""
    shown = text.format(answer)
    if generator.random() < share:
        shown += " " + aside.format(generator.choice([choice for choice in choices if choice != answer]))
    return shown


def question_task(
    benchmark: str, place: tuple[int, int | str], *, goal: str, opening: str, choices: tuple[str, ...], answer: str
) -> Task:
    """A task of a one-shot question.

    `place` is its list's task seed and its number there: it keeps ids apart where the same is asked again.
    """
    question = Question(
        schema_version=SCHEMA_VERSION, benchmark=benchmark, opening=opening, choices=choices, answer=answer
    )
    payload = codec.encode(question)
    return Task(
        task_id=f"{benchmark}-{place[1]}-{ids.stable_hash(benchmark, place, goal, payload)}",
        benchmark=benchmark,
        goal=goal,
        goal_type=benchmark,
        payload=payload,
        max_steps=MAX_STEPS,
        provenance=Provenance.SELF_MADE,
    )


def _question(task: Task, benchmark: str) -> Question:
    try:
        question = codec.decode(Question, task.payload, "payload")
    except codec.CodecError as error:
        raise _refused(task, benchmark, str(error)) from error
    if question.schema_version != SCHEMA_VERSION or question.benchmark != benchmark:
        raise _refused(
            task,
            benchmark,
            f"payload version {question.schema_version} of '{question.benchmark}'; "
            f"this memcon plays version {SCHEMA_VERSION} of '{benchmark}'",
        )
    if question.answer not in question.choices or not question.opening.strip():
        raise _refused(task, benchmark, f"no choice is the answer '{question.answer}', or nothing is shown")
    return question


def _refused(task: Task, benchmark: str, problem: str) -> ConfigError:
    return ConfigError(
        f"benchmark {benchmark}: starting task '{task.task_id}': {problem}; play tasks of the benchmark's own list only"
    )
