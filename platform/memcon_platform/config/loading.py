"""`load`: a YAML file and overrides to a `RunPlan`, with every mistake named in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from memcon import codec, registry
from memcon.control.settings import OBSERVING, PreloadSettings
from memcon.errors import ConfigError
from memcon.learning.settings import difference
from memcon.policy_types import LearningSettings
from memcon.types import Operation
from memcon_platform.config.entries import POLICY_SECTIONS, PRELOAD, Choice, parse_entry
from memcon_platform.config.grid import SHAPE, Draft, Shape, expand, parse_shape
from memcon_platform.config.identity import cell_id, non_defaults
from memcon_platform.config.plan import Cell, Entry, RunPlan, RunSettings
from memcon_platform.config.policies import policy_config, policy_learning
from memcon_platform.config.sections import KeyPathError, as_mapping, check_keys, refusing, section, whole_number
from memcon_platform.config.tasks import has_practice, horizons, stream_sizes
from memcon_platform.objects import is_uri
from memcon_platform.run_store.places import SCHEME, local_folder, place_in_store

__all__ = ["KEYS", "check_name", "explained", "load", "working_root"]

PlanT = TypeVar("PlanT")

_RUN_KEYS = tuple(field.name for field in fields(RunSettings))
# All keys of a config file.
KEYS = (
    "run",
    "root",
    "working_root",
    "axes",
    "include",
    "exclude",
    "embedder",
    *POLICY_SECTIONS,
    *SHAPE,
    "limit",
    *_RUN_KEYS,
)
_DEFAULT_EMBEDDER = "wordllama"
_DEFAULT_ROOT = "runs"
_DEFAULT_WORKING_ROOT = "runs/s3"
# The name is a folder, a Ray Serve application and an MLflow run.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def load(path: Path, overrides: Sequence[str] = (), limit: int | None = None) -> RunPlan:
    """The plan of the config at `path`, with `key=value` overrides and `limit` (first N tasks) laid over it.

    The run's name defaults to the file's.

    Raises:
        ConfigError: anything is wrong with file, overrides or values; one line that names the key path, the value, what
            is allowed and the nearest name.
    """
    texts = list(overrides) if limit is None else [*overrides, f"limit={limit}"]
    names = {len(overrides): f"--limit {limit}"}
    return explained(path, texts, _plan, names)


def explained(
    path: Path,
    overrides: Sequence[str],
    build: Callable[[Path, Sequence[str]], PlanT],
    names: Mapping[int, str] = MappingProxyType({}),
) -> PlanT:
    """What `build` makes of file and overrides; `names` says what some override is called on the command line.

    Raises:
        ConfigError: as `build`, with the file or the override that is to blame named first.
    """
    try:
        return build(path, overrides)
    except KeyPathError as error:
        culprit = _culprit(path, overrides, build, str(error))
        origin = str(path) if culprit is None else names.get(culprit, f"override {_shown(overrides[culprit])!r}")
        raise ConfigError(f"{origin}: {error}") from error


def _shown(override: str) -> str:
    """The override as an error may name it: what may hold credentials is not repeated, since a log may keep it."""
    key, _, value = override.partition("=")
    return f"{key}=..." if "://" in value and "@" in value else override


def _culprit(
    path: Path, overrides: Sequence[str], build: Callable[[Path, Sequence[str]], object], message: str
) -> int | None:
    """The last override without which the error is another one or gone; None when the file itself is wrong."""
    for i in reversed(range(len(overrides))):
        try:
            build(path, [*overrides[:i], *overrides[i + 1 :]])
        except ConfigError as error:
            if str(error) == message:
                continue
        return i
    return None


def _plan(path: Path, overrides: Sequence[str]) -> RunPlan:
    # OmegaConf takes 50 ms to import, and those who only read a plan have no use for it.
    from memcon_platform.config.source import read_source

    document = read_source(path, overrides)
    check_keys(document, KEYS, "")
    given = {key: document[key] for key in _RUN_KEYS if key in document}
    # A null is the default: the number of cores, no time limit.
    given = {key: value for key, value in given.items() if value is not None}
    settings = section(RunSettings, {"workers": _cores(), **given}, "")
    run = check_name(document.get("run", path.stem), "run")
    root, root_uri = _root(document)
    # The name is written down: the run folder's config.yaml would default to another one.
    resolved = {"run": run, **document}
    cells = _cells(document)
    return RunPlan(run=run, root=root, root_uri=root_uri, cells=cells, settings=settings, resolved=resolved)


def _cells(document: Mapping[str, Any]) -> tuple[Cell, ...]:
    document = {key: value for key, value in document.items() if value is not None}
    sections = {name: as_mapping(document.get(name, {}), name) for name in POLICY_SECTIONS}
    for name, values in sections.items():
        section(POLICY_SECTIONS[name], values, name)
    embedder = parse_entry("embedder", document.get("embedder", _DEFAULT_EMBEDDER), "embedder")
    limit = document.get("limit")
    if limit is not None:
        whole_number(limit, "limit", low=1)
    drafts = expand(document, parse_shape(document, "", Shape()))
    _check_pairs(drafts)
    cells = []
    for place, draft in enumerate(drafts):
        own = {name: _merged(name, values, draft.choices["policy"]) for name, values in sections.items()}
        cells.append(_cell(draft, place, embedder=embedder, sections=own, limit=limit))
    _check_distinct(cells, drafts)
    _check_shared_tables(cells, drafts)
    _check_schedules(cells, drafts)
    return tuple(cells)


def _merged(name: str, values: Mapping[str, Any], policy: Choice) -> Any:
    own = {**policy.preset.get(name, {}), **policy.sections.get(name, {})}
    return section(POLICY_SECTIONS[name], {**values, **own}, f"policy '{policy.entry.label}': {name}" if own else name)


def _cell(draft: Draft, place: int, *, embedder: Choice, sections: Mapping[str, Any], limit: int | None) -> Cell:
    shape = {name: getattr(draft.shape, name) for name in SHAPE}
    preload = _preload(draft.choices["memory"])
    axes: dict[str, Any] = {kind: [c.entry.name, c.entry.parameters] for kind, c in draft.choices.items()}
    options: dict[str, Any] = {name: own for name, value in sections.items() if (own := non_defaults(value))}
    options |= non_defaults(draft.shape)
    if limit is not None:
        options["limit"] = limit
    if preload is not None:
        # Whole: what a preload holds is no default of a cell.
        options[PRELOAD] = codec.encode(preload)
    if (embedder.entry.name, embedder.entry.parameters) != (_DEFAULT_EMBEDDER, {}):
        options["embedder"] = [embedder.entry.name, embedder.entry.parameters]
    plugins = {**draft.choices, "embedder": embedder}
    entries: dict[str, Any] = {kind: choice.entry for kind, choice in plugins.items()}
    settings: dict[str, Any] = {
        kind: {"name": choice.entry.name, **choice.resolved} for kind, choice in plugins.items()
    }
    settings |= {"seed": draft.seed, **codec.encode(draft.shape), "limit": limit}
    if preload is not None:
        settings["memory"] = {**settings["memory"], PRELOAD: codec.encode(preload)}
    settings |= {name: codec.encode(value) for name, value in sections.items()}
    with refusing(draft.origin):
        total = len(horizons(plugins["benchmark"].entry)[:limit])
        sizes = stream_sizes(total, streams=draft.shape.streams, split=draft.shape.split)
    return Cell(
        cell_id=cell_id({**axes, "seed": draft.seed}, options),
        place=place,
        seed=draft.seed,
        limit=limit,
        stream_tasks=sizes,
        settings=settings,
        preload=preload,
        control=sections["control"],
        reward=sections["reward"],
        **entries,
        **shape,
    )


def _preload(memory: Choice) -> PreloadSettings | None:
    given = memory.sections.get(PRELOAD)
    return None if given is None else section(PreloadSettings, given, f"memory '{memory.entry.label}': {PRELOAD}")


def _check_pairs(drafts: Iterable[Draft]) -> None:
    for draft in drafts:
        memory, policy = draft.choices["memory"].entry, draft.choices["policy"].entry
        if memory.name == "empty" and PRELOAD in draft.choices["memory"].sections:
            raise KeyPathError(draft.origin, f"{draft.origin}: memory 'empty' holds nothing; take {PRELOAD} off it")
        if PRELOAD in draft.choices["memory"].sections and not _has_practice(draft):
            raise KeyPathError(
                draft.origin,
                f"{draft.origin}: memory '{draft.choices['memory'].entry.label}' over benchmark "
                f"'{draft.choices['benchmark'].entry.label}', which has no practice tasks to fill it with; "
                f"take {PRELOAD} off the memory, or mix that benchmark with one that has some",
            )
        if draft.shape.start_from.policy is not None and not _uses_table(policy):
            raise KeyPathError(
                draft.origin,
                f"{draft.origin}: start_from.policy with policy '{policy.label}', which chooses without its table; "
                "give the learned policies an include of their own with start_from",
            )
        if memory.name == "empty" and policy.name != "none":
            raise KeyPathError(
                draft.origin,
                f"{draft.origin}: memory 'empty' with policy '{policy.label}': 'none' is the only policy of 'empty'; "
                "exclude the pair, or give 'empty' an include of its own with policy: none",
            )


def _check_distinct(cells: Sequence[Cell], drafts: Sequence[Draft]) -> None:
    seen: dict[str, str] = {}
    for cell, draft in zip(cells, drafts, strict=True):
        if cell.cell_id in seen:
            earlier = seen[cell.cell_id]
            again = " twice" if earlier == draft.origin else f", which {earlier} gives already"
            raise KeyPathError(
                draft.origin, f"{draft.origin}: gives the cell '{cell.label}'{again}; remove one of them"
            )
        seen[cell.cell_id] = draft.origin


def _has_practice(draft: Draft) -> bool:
    with refusing(draft.origin):
        return has_practice(draft.choices["benchmark"].entry)


def _check_shared_tables(cells: Sequence[Cell], drafts: Sequence[Draft]) -> None:
    """Cells of one named table must learn alike, and bound it alike."""
    first: dict[str, tuple[Cell, LearningSettings]] = {}
    for cell, draft in zip(cells, drafts, strict=True):
        learning = policy_learning(cell.policy)
        if cell.table_scope in {"cell", "stream"} or learning is None:
            continue
        earlier, expected = first.setdefault(cell.table_scope, (cell, learning))
        differing = difference(expected, learning)
        for name in _unlike(earlier, cell):
            differing += f"{'; ' if differing else ''}{name}"
        if differing:
            raise KeyPathError(
                draft.origin,
                f"{draft.origin}: the cells {_told_apart(earlier, cell)} share the table '{cell.table_scope}' "
                f"and differ in {differing}; give them equal settings, or tables of their own",
            )


def _told_apart(one: Cell, other: Cell) -> str:
    """Two cells for people; their labels may be one, since they leave parameters out."""
    same = one.label == other.label
    return " and ".join(
        f"'{cell.label}'" + (f" (framework '{cell.framework.label}', backbone '{cell.backbone.label}')" if same else "")
        for cell in (one, other)
    )


def _unlike(one: Cell, other: Cell) -> Iterator[str]:
    """Key paths in which two cells differ that share a table, and must not: a return would mean two things."""
    for part in POLICY_SECTIONS:
        for field in fields(getattr(one, part)):
            values = {getattr(getattr(cell, part), field.name) for cell in (one, other)}
            if field.name not in OBSERVING and len(values) > 1:
                yield f"{part}.{field.name}"
    for name in ("max_open_episodes", "start_from"):
        if getattr(one, name) != getattr(other, name):
            yield name


def _check_schedules(cells: Sequence[Cell], drafts: Sequence[Draft]) -> None:
    """A schedule that the memory cannot keep would fail every stream."""
    for cell, draft in zip(cells, drafts, strict=True):
        memory = registry.configure("memory", cell.memory.name, cell.memory.parameters)
        # A memory that does not say in its config is asked when a stream opens it.
        maintains = getattr(memory, "maintains", None)
        for operation in (Operation.FORGET, Operation.CONSOLIDATE):
            key = f"{operation.value}_every"
            if maintains is None or getattr(cell.control, key) is None or operation in maintains:
                continue
            raise KeyPathError(
                draft.origin,
                f"{draft.origin}: control.{key} with memory '{cell.memory.label}', which has no {operation.value} hook "
                "here; take the schedule out, or a memory that has it (metagpt: maintenance: true)",
            )


def _uses_table(policy: Entry) -> bool:
    # A rule of another package that does not say is one that learns.
    return bool(getattr(policy_config(policy), "uses_table", True))


def check_name(name: Any, key: str) -> str:
    """`name`, the value of `key`, if it can name a folder and a Ray Serve application.

    Raises:
        KeyPathError: it cannot; says what can.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        allowed = "letters, digits, '.', '_' and '-', first a letter or digit, at most 100"
        raise KeyPathError(key, f"{key}: expected a name of {allowed}; got {name!r}")
    return name


def _root(document: Mapping[str, Any]) -> tuple[Path, str | None]:
    """The folder that holds the run folders, and the place in an object store that it stands for, if it does."""
    given = document.get("root", _DEFAULT_ROOT)
    working = working_root(document)
    if not isinstance(given, str) or not is_uri(given):
        return _folder("root", given, or_else=f" or {SCHEME}BUCKET/PREFIX"), None
    with refusing("root"):
        place = place_in_store(given)
    return local_folder(working, place), place


def working_root(document: Mapping[str, Any]) -> Path:
    """The folder for the working copies of runs in an object store, by the config `document`.

    Raises:
        KeyPathError: it names none.
    """
    return _folder("working_root", document.get("working_root", _DEFAULT_WORKING_ROOT))


def _folder(key: str, value: Any, or_else: str = "") -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise KeyPathError(key, f"{key}: expected a folder{or_else}, got {value!r}")
    if "://" in value:
        raise KeyPathError(key, f"{key}: expected a local folder{or_else}, got a place of '{value.partition(':')[0]}:'")
    return Path(value).expanduser()


def _cores() -> int:
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
