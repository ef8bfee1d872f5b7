"""What a report measures, as values. Rates and shares are 0..1; a value is None where nothing could be counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memcon_platform.report.statistics import Interval

__all__ = [
    "ArmShare",
    "Context",
    "ContextLevel",
    "CurvePoint",
    "DecisionSummary",
    "FamilyGain",
    "Gains",
    "Headroom",
    "HeatCell",
    "HeatMap",
    "HeatRow",
    "PairedDifference",
    "Success",
    "Tokens",
    "Yardstick",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """Success rate over evaluated tasks; unevaluable ones are outside the denominator (HX-5)."""

    num_tasks: int
    successes: int
    unevaluable: int = 0
    # None without tasks.
    interval: Interval | None = None

    @property
    def rate(self) -> float | None:
        """Successes per evaluated task."""
        return self.successes / self.num_tasks if self.num_tasks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Mean difference of success on the same (seed, stream, task), pooled over streams, with two 95 % intervals.

    The mean is one, the questions are two (coverage of both: `memcon_platform.report.statistics`).
    """

    mean: float
    # For these seeds: how sure the difference is for the streams as they ran, had they met other tasks of the kind.
    interval_these_seeds: Interval
    # For other seeds too: what to expect of streams, tables and tasks that were not run.
    interval: Interval
    num_pairs: int
    # (seed, stream)s that have pairs.
    num_streams: int
    # What counts as one repetition: streams, those that share a learned table taken as one; with one, both intervals
    # are the same, that of these seeds.
    num_tables: int
    # Standard error of the mean for other seeds; None for one task, which says nothing about others.
    standard_error: float | None
    # Mean difference of the tokens that memory put into prompts, on the same tasks.
    injected: float
    # The same over the tasks that are in the last quarter of the stream of both; None when there is none, and in a last
    # quarter itself.
    last_quarter: PairedDifference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """What a learned policy is measured against; reported, not arranged."""

    # "best static arm" ("only static arm" where one ran), "random arm", "no memory", "default static arm", "noop arm",
    # "oracle from other seeds" or "reference", which the plan names.
    kind: str
    # The row's, or what the oracle chooses by: "per family".
    name: str
    label: str
    rate: float | None
    # Learned minus yardstick; None when no task is in both.
    difference: PairedDifference | None
    last_quarter_rate: float | None = None
    # Tokens that memory put into the prompts of a task.
    injected: float | None = None
    # Settings beside the policy in which the two rows differ, as "path=value" of the yardstick.
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """How much a choice of arm by context can gain over the best arm for all.

    The arms of contexts are chosen on other seeds and other tasks than those that they are measured on, the one for all
    in hindsight: the difference is a lower bound of what the best arm of each family gives.
    """

    arena: tuple[str, str, str]
    memory: str
    streams: int
    # "family" or "goal type".
    by: str
    # Static arms that it could choose from, by name.
    arms: tuple[str, ...]
    # Why there is none; "" when there is one.
    missing: str = ""
    oracle: Success | None = None
    # The static arm that is best over all families in hindsight, and its name.
    static: Success | None = None
    static_arm: str = ""
    # Tokens that memory put into the prompts of a task.
    oracle_injected: float | None = None
    static_injected: float | None = None
    # Oracle minus static.
    difference: PairedDifference | None = None
    # Family -> arm -> for how many seeds x folds of tasks it was chosen.
    choices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def is_enough(self) -> bool:
        """The difference is at least two standard errors above nothing: learning can show."""
        found = self.difference
        if found is None or found.standard_error is None:
            return False
        return found.mean > 0 and found.mean >= 2 * found.standard_error


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyGain:
    """A learned row against one other row, within a family of tasks."""

    family: str
    rate: float | None
    other_rate: float | None
    # None when no task is in both.
    difference: PairedDifference | None
    # Pooled over all other families, against the static arm that is best on these; and its name.
    without: PairedDifference | None
    rest_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """Where a learned row gains and loses against its best static arm."""

    # "family" or "goal type".
    by: str
    # Kind and name of the other row.
    kind: str
    name: str
    families: tuple[FamilyGain, ...]
    # All families together, in each quarter of the stream; None where a quarter has no pair.
    quarters: tuple[PairedDifference | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A state key with the decisions of evaluated tasks that its row's tables took there."""

    key: str
    # Tables of the row that met it, and the decisions of all of them.
    tables: int
    count: int
    # Decisions a table, mean over these tables; and those of each arm.
    per_table: float
    by_arm: Mapping[str, float]
    # Share of these tables with fewer than LEARNED_FROM decisions there.
    not_learned: float

    @property
    def learned(self) -> bool:
        """Every table that met it has learned it."""
        return self.not_learned == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLevel:
    """The contexts of one state-key schema: that of the decisions, or a coarser one that they are pooled over."""

    schema: str
    # Names of the components of a key, in its order; empty when the schema is not known here.
    fields: tuple[str, ...]
    num_tables: int
    # Share of decisions that a table took in a context which it has learned.
    learned_share: float
    # Those with the most decisions a table first.
    contexts: tuple[Context, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """An arm's numbers at a state key."""

    q: float
    taken: int
    # None = infinite (the arm was never taken there), or the rule has no bonus.
    bonus: float | None
    # Mean shrunk towards the coarser keys and the prior, and its standard deviation, where the rule has them.
    mean: float | None = None
    deviation: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A state key of a served table, its arms in arm order."""

    key: str
    # Label of the key's schema.
    schema: str
    cells: tuple[HeatCell, ...]

    @property
    def taken(self) -> int:
        """Decisions of all arms."""
        return sum(cell.taken for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """What one table of a row held when it was last served."""

    # Why there is none; "" when there is one.
    missing: str = ""
    table: str = ""
    seed: int = 0
    rule: str = ""
    # Fingerprint of the arms (MC-13).
    fingerprint: str = ""
    # Where its first numbers came from; "" = it began with the priors.
    source: str = ""
    arms: tuple[str, ...] = ()
    # The coarsest schema of a chain first, within it those with the most decisions.
    rows: tuple[HeatRow, ...] = ()
    # Keys and decisions that are not among `rows`; other tables of the row.
    other_keys: int = 0
    other_decisions: int = 0
    other_tables: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Success in one window of the stream."""

    # Windows are numbered from 0; share of the stream at the window's middle.
    position: float
    num_tasks: int
    rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Means per evaluated task: by purpose (HX-4) and, for what memory put into prompts, by source (MC-42)."""

    by_purpose: Mapping[str, float] = field(default_factory=dict)
    by_source: Mapping[str, float] = field(default_factory=dict)

    @property
    def injected(self) -> float:
        """Tokens that memory put into prompts, all sources."""
        return sum(self.by_source.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmShare:
    """How often an arm was chosen."""

    action_id: str
    count: int
    # Share of all decisions, and of those in each quarter of the stream.
    share: float
    by_quarter: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """What the policy did."""

    num_decisions: int
    per_task: float
    # Share of decisions that were forced first visits of an arm at its key.
    forced_share: float
    # Distinct state keys a table, mean over tables; and how many keys there can be (MC-10).
    keys_visited: float
    keys_possible: int
    num_tables: int
    fallbacks: int
    hook_errors: int
    # Reason -> decisions whose arm did less than it says.
    degraded: Mapping[str, int]
    arms: tuple[ArmShare, ...]
