"""The words and numbers of a report: sentences that a reader must know, and how values are printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

from memcon.learning import actions
from memcon_platform.report.comparisons import Comparison
from memcon_platform.report.data import STREAMS, GroupResult, ReportData, Section
from memcon_platform.report.grouping import LEARNED, RANDOM_ARM, STATIC_ARM
from memcon_platform.report.measures import Headroom, PairedDifference, Success
from memcon_platform.report.protocol import LETTERS

__all__ = [
    "ARM_ORDER",
    "CLEAR",
    "NO_HEADROOM",
    "ONE_STREAM",
    "OTHER_SEEDS",
    "PARTIAL",
    "THESE_SEEDS",
    "arm_place",
    "choices",
    "count",
    "footnotes",
    "headroom",
    "interval",
    "interval_method",
    "is_clear",
    "key_values",
    "legend_of_tags",
    "marked_points",
    "of_memory",
    "other_seeds",
    "percent",
    "points",
    "role",
    "short_arms",
    "short_keys",
    "signed",
    "signed_points",
    "success",
    "these_seeds",
    "verdict",
]

# What each interval of a paired difference generalises to.
THESE_SEEDS = "the streams as they ran, on other tasks (tasks resampled, each with all its seeds)"
OTHER_SEEDS = "seeds and tasks that did not run (streams and tasks resampled, streams of one shared table as one)"
NO_HEADROOM = "no headroom: learning cannot show here"
# Marks of paired differences, see `footnotes`.
PARTIAL = "†"
ONE_STREAM = "‡"
# Of a difference whose interval for other seeds excludes 0.
CLEAR = "*"
# Table 7; tables and charts keep this order.
ARM_ORDER = actions.action_set("default").action_ids
_ROLE_WORDS = {STATIC_ARM: "static", RANDOM_ARM: "random", LEARNED: "learned"}


def arm_place(action_id: str) -> tuple[int, str]:
    """Sorting key of an arm: Table 7 first, others after it by name."""
    place = ARM_ORDER.index(action_id) if action_id in ARM_ORDER else len(ARM_ORDER)
    return place, action_id


# --- numbers ----------------------------------------------------------------------------------------------------------


def percent(share: float | None, digits: int = 1) -> str:
    """A share in percent without the sign, "-" when there is none."""
    return "-" if share is None else f"{100 * share:.{digits}f}"


def count(value: float | None, digits: int = 0) -> str:
    """A number with thousands separated, "-" when there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def signed(value: float | None) -> str:
    """A difference of counts, "-" when there is none."""
    # Adding 0 turns a rounded "-0" into "+0".
    return "-" if value is None else f"{round(value) + 0:+,d}"


def interval(low: float, high: float) -> str:
    """An interval in percent points."""
    # Adding 0 turns a rounded "-0.0" into "0.0".
    return f"[{round(100 * low, 1) + 0.0:.1f}, {round(100 * high, 1) + 0.0:.1f}]"


def success(value: Success) -> str:
    """Rate and interval in percent."""
    if value.interval is None:
        return percent(value.rate)
    return f"{percent(value.rate)} {interval(value.interval.low, value.interval.high)}"


def signed_points(mean: float) -> str:
    """A difference of shares in percent points."""
    # Adding 0 turns a rounded "-0.0" into "+0.0".
    return f"{round(100 * mean, 1) + 0.0:+.1f}"


def points(value: PairedDifference | None) -> str:
    """Mean paired difference in percent points."""
    return "-" if value is None else signed_points(value.mean)


def is_clear(low: float, high: float) -> bool:
    """The interval excludes 0, as it is printed: an end at 0.0 does not."""
    return round(100 * low, 1) > 0 or round(100 * high, 1) < 0


def marked_points(value: PairedDifference | None) -> str:
    """`points` with `CLEAR` where the interval for other seeds excludes 0, with a space in its place elsewhere."""
    clear = value is not None and is_clear(value.interval.low, value.interval.high)
    return points(value) + (CLEAR if clear else " ")


def these_seeds(value: PairedDifference | None) -> str:
    """Interval of a paired difference for the streams as they ran."""
    return "-" if value is None else interval(value.interval_these_seeds.low, value.interval_these_seeds.high)


def other_seeds(value: PairedDifference | None) -> str:
    """Interval of a paired difference for other seeds and tasks."""
    return "-" if value is None else interval(value.interval.low, value.interval.high)


# --- words ------------------------------------------------------------------------------------------------------------


def role(group: GroupResult) -> str:
    """The row's role in one word, then a letter for each tag (`legend_of_tags`), such as "learned SK".

    "best" for the best static arm, "" where the row's name says it.
    """
    word = "best" if group.mark.startswith("best") else _ROLE_WORDS.get(group.role, "")
    letters = "".join(LETTERS[tag] for tag in group.tags if tag in LETTERS)
    return " ".join(filter(None, (word, letters)))


def legend_of_tags(groups: Iterable[GroupResult]) -> str:
    """What the letters of tags mean, those that occur; "" without one."""
    found = {tag for group in groups for tag in group.tags}
    told = ", ".join(f"{letter} {tag}" for tag, letter in LETTERS.items() if tag in found)
    return f"{told}: not the paper's protocol" if told else ""


def interval_method(data: ReportData) -> str:
    """How the intervals of the report were made."""
    return f"{100 * data.level:.0f} % bootstrap interval, {data.resamples:,} resamples"


def footnotes(found: Sequence[Comparison]) -> tuple[str, ...]:
    """What the marks of the paired differences mean, those that occur, each beginning with its mark."""
    known = [one.difference for one in found if one.difference]
    single = [one for one in known if one.num_tables == 1]
    told = {
        f"{PARTIAL} only the tasks that both rows ran": any(one.is_partial for one in found),
        f"{ONE_STREAM} {_single(single)}: both intervals are the same and say nothing about other seeds": bool(single),
        "[0.0, 0.0]: no pair differs, those of other tasks may": any(
            one.mean == one.interval_these_seeds.low == one.interval_these_seeds.high for one in known
        ),
    }
    return tuple(note for note, occurs in told.items() if occurs)


def _single(single: Sequence[PairedDifference]) -> str:
    kinds = {"one stream": 1 in {one.num_streams for one in single}}
    kinds["one shared table"] = any(one.num_streams > 1 for one in single)
    return " or ".join(kind for kind, occurs in kinds.items() if occurs) + " only"


# --- learning ---------------------------------------------------------------------------------------------------------


def verdict(found: Headroom) -> str:
    """Whether there is anything to learn, with the interval of what an oracle gains; one short sentence."""
    gain = found.difference
    if gain is None or found.oracle is None or found.static is None:
        return f"headroom cannot be told: {found.missing or 'no task is in both'}."
    return (
        f"{'headroom:' if found.is_enough else f'{NO_HEADROOM};'} the oracle per {found.by} has {points(gain)} points "
        f"{other_seeds(gain)} over {_bare(found.static_arm)}, the best arm in hindsight; last quarter "
        f"{points(gain.last_quarter)}."
    )


def headroom(found: Headroom) -> str:
    """What the oracle gains over one arm for all, what both come to, and whether learning can show, as one sentence."""
    if found.difference is None or found.oracle is None or found.static is None:
        return verdict(found)
    gain, last = found.difference, found.difference.last_quarter
    told = (
        f"{points(gain)} points {other_seeds(gain)}, last quarter {points(last)}: the arm of each {found.by}, chosen "
        f"on other seeds and other tasks, {percent(found.oracle.rate)} %; the best arm for all, in hindsight "
        f"{_bare(found.static_arm)}, {percent(found.static.rate)} %; injected tokens {count(found.oracle_injected)} "
        f"against {count(found.static_injected)}."
    )
    if found.is_enough:
        return f"headroom {told}"
    error = "" if gain.standard_error is None else f", {percent(2 * gain.standard_error)} points"
    return f"{NO_HEADROOM} (below two standard errors{error}): {told}"


def choices(found: Headroom) -> str:
    """How often which arm was chosen, family by family, as one sentence; "" without an oracle."""
    if not found.choices:
        return ""
    told = [f"{family} {_ranked(arms)}" for family, arms in found.choices.items()]
    return f"Chosen how often, by seeds x folds of tasks: {'; '.join(told)}."


def _ranked(arms: Mapping[str, int]) -> str:
    ranked = sorted(arms.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{_bare(name)} {number}" for name, number in ranked)


def _bare(name: str) -> str:
    """A static arm's row without its streams and its policy."""
    return STREAMS.sub("", name).removeprefix("fixed:")


def of_memory(section: Section, found: Headroom) -> str:
    """Which rows a headroom is of, as the begin of its sentence; "" where there is one."""
    parts = [section.memory_names[found.memory]] if len(section.memories) > 1 else []
    if len({other.streams for other in section.headrooms}) > 1:
        parts.append(f"{found.streams} stream{'s' if found.streams > 1 else ''}")
    return ", ".join(parts) + ": " if parts else ""


def key_values(key: str) -> str:
    """The values of a state key without the names of its components, joined by "/"."""
    parts = [part.partition("=")[2] or part for part in key.split("|")[1:]]
    return "/".join(unquote(part) for part in parts) or key


def short_keys(keys: Sequence[str]) -> list[str]:
    """`key_values` of keys of one schema, without the values after the first that all of them share."""
    parts = [key_values(key).split("/") for key in keys]
    if len(parts) < 2 or len({len(part) for part in parts}) > 1:
        return [key_values(key) for key in keys]
    kept = [place for place in range(len(parts[0])) if place == 0 or len({part[place] for part in parts}) > 1]
    return ["/".join(part[place] for place in kept) for part in parts]


def short_arms(action_ids: Iterable[str]) -> dict[str, str]:
    """Four letters for each arm, for the head of a column; numbers where these are not enough."""
    arms = list(action_ids)
    letters = [arm.removeprefix("retrieve_").replace("_", "-")[:4] for arm in arms]
    if len(set(letters)) < len(letters):
        letters = [f"a{place}" for place in range(1, len(arms) + 1)]
    return dict(zip(arms, letters, strict=True))
