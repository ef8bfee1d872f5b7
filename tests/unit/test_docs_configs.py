"""docs/configs.md tells every key of every config with the default that the code has, and its example loads."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from memcon import codec, registry
from memcon.control.settings import ControlSettings, PreloadSettings
from memcon.learning.credit import RewardSettings
from memcon_platform.config import RunSettings, load, loading
from memcon_platform.config.grid import Shape
from memcon_platform.config.plan import MemoryStart, TableStart

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configs.md"
SECTIONS: dict[str, type[Any]] = {"control": ControlSettings, "reward": RewardSettings, "preload": PreloadSettings}
# A default that no text in the code stands for.
COMPUTED = {"workers": "number of cores", "run": "the file's name"}
NEEDED = "needed"
_ROW = re.compile(r"^\| `([\w.]+)`(?: †)? \| (.*?) \| \S.* \|$")


@cache
def tables() -> dict[str, dict[str, str]]:
    """Heading -> key -> default as it is printed."""
    found: dict[str, dict[str, str]] = {}
    heading = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").replace("`", "")
            found[heading] = {}
        elif row := _ROW.match(line):
            assert row[1] not in found[heading]
            found[heading][row[1]] = row[2].strip().strip("`")
        else:
            assert not line.startswith("| `"), f"no row of a key, a default and its meaning: {line}"
    return found


def defaults(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys of a config dataclass, those of nested ones dotted, with their defaults; NEEDED for a key that has none."""
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from defaults(hints[field.name], f"{prefix}{field.name}.")
        elif field.default is not dataclasses.MISSING:
            yield prefix + field.name, field.default
        elif field.default_factory is not dataclasses.MISSING:
            yield prefix + field.name, field.default_factory()
        else:
            yield prefix + field.name, NEEDED


def expected(config: Any) -> dict[str, str]:
    return {key: _text(COMPUTED.get(key, default)) for key, default in defaults(config)}


def told(heading: str) -> dict[str, str]:
    return {key: _text(_value(text)) for key, text in tables()[heading].items()}


def _text(value: Any) -> str:
    # As text: 1, 1.0 and true are equal in Python, and are different settings.
    return codec.encode_json(value)


def _value(text: str) -> Any:
    document: Any = OmegaConf.to_container(OmegaConf.create(f"value: {text}"))
    return document["value"]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in registry.KINDS for name in registry.names(kind)])
def test_every_plug_in_is_told_with_its_keys_and_defaults(kind: str, name: str) -> None:
    assert told(f"{kind} {name}") == expected(registry.plugin(kind, name).config)


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_every_section_is_told_with_its_keys_and_defaults(name: str) -> None:
    assert told(name) == expected(SECTIONS[name])


def test_every_key_of_a_start_is_told_with_its_default() -> None:
    policy, memory = defaults(TableStart, "policy."), defaults(MemoryStart, "memory.")

    assert told("start_from") == {key: _text(default) for key, default in (*policy, *memory)}


def test_every_key_of_a_file_is_told_with_its_default() -> None:
    top = told("Keys")

    assert list(dict.fromkeys(key.partition(".")[0] for key in top)) == [*loading.KEYS]
    known = {**expected(RunSettings), **expected(Shape)}
    assert {key: top[key] for key in known} == known
    rest = {key: text for key, text in top.items() if key not in known and key not in {"axes", *SECTIONS}}
    assert {key: json.loads(text) for key, text in rest.items()} == {
        "run": COMPUTED["run"], "root": "runs", "working_root": "runs/s3", "include": [], "exclude": [],
        "embedder": "wordllama", "limit": None,
    }  # fmt: skip


def test_the_example_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "example.yaml"
    path.write_text(example, encoding="utf-8")

    plan = load(path)

    assert plan.run == "first_try"
    assert len(plan.cells) == 12
