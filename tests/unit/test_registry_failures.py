"""What packages of others get wrong: each is one line that names the package, the entry point and the cause."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memcon import registry
from memcon.errors import ConfigError, UnknownNameError
from memcon.registry import Registered

HEAD = (
    "from dataclasses import dataclass\nfrom typing import TYPE_CHECKING, Any\n\nfrom memcon.registry import Plugin\n"
)
SOUND = f"""{HEAD}from memcon.testing.memory import ToyBackend


@dataclass(slots=True, kw_only=True)
class Config:
    size: int = 1

    def __post_init__(self) -> None:
        if self.size > 9:
            raise ValueError("size is\\ntoo large")


def build(config: Config, **collaborators: Any) -> Any:
    if config.size > 5:
        raise KeyError("no room")
    built = ToyBackend()
    built.given = config, collaborators
    return None if config.size == 5 else built


PLUGIN = Plugin(config=Config, build=build)
"""
HIDDEN_TYPE = f"""{HEAD}
if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True, kw_only=True)
class Config:
    place: "Path | None" = None


PLUGIN = Plugin(config=Config, build=lambda config: config)
"""


class Packages:
    """A folder on the path with distributions as pip leaves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, module: str, text: str, **entry_points: str) -> None:
        """One distribution of one module; `entry_points`: kind -> "name = module:attribute" lines."""
        information = self.folder / f"{name}-2.5.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n", encoding="utf-8")
        groups = [f"[memcon.{kind}]\n{lines}\n" for kind, lines in entry_points.items()]
        (information / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
        (self.folder / f"{module}.py").write_text(text, encoding="utf-8")
        _forget()


def _forget() -> None:
    registry._declared.cache_clear()
    registry._entry_points.cache_clear()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Packages(tmp_path)
    monkeypatch.undo()
    _forget()
    for name in [
        name for name, module in sys.modules.items() if str(tmp_path) in (getattr(module, "__file__", "") or "")
    ]:
        del sys.modules[name]


def the_line(kind: str, name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        registry.plugin(kind, name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_entry_point_is_told_with_its_package_and_nothing_is_imported(packages: Packages) -> None:
    packages.add("zoo", "zoo_module", "raise SystemExit", memory="aardvark = zoo_module:PLUGIN")

    found = registry.registered("memory")

    assert found[0] == Registered(
        kind="memory", name="aardvark", entry_point="zoo_module:PLUGIN", package="zoo", version="2.5"
    )
    assert [entry.name for entry in found] == registry.names("memory")
    assert {entry.package for entry in found[1:]} == {"memcon"}
    assert "zoo_module" not in sys.modules
    with pytest.raises(UnknownNameError, match="unknown plug-in kind 'zoo'"):
        registry.registered("zoo")


def test_a_name_of_two_packages_is_refused_and_both_are_named(packages: Packages) -> None:
    packages.add("left", "left_module", SOUND, memory="twice = left_module:PLUGIN")
    packages.add("right", "right_module", SOUND, memory="twice = right_module:PLUGIN\nempty = right_module:PLUGIN")

    assert the_line("memory", "twice") == (
        "memory 'twice' is registered 2 times: left_module:PLUGIN of left 2.5 and right_module:PLUGIN of right 2.5; "
        "uninstall all but one of them"
    )
    # Nobody takes a name of ours in silence, and what has one name goes on.
    assert "memcon.control.memory.empty:PLUGIN of memcon " in the_line("memory", "empty")
    assert registry.plugin("memory", "metagpt").summary
    assert [entry.package for entry in registry.registered("memory") if entry.name == "twice"] == ["left", "right"]
    assert registry.names("memory").count("twice") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_this_name", r"cannot be imported: ModuleNotFoundError: No module named 'nothing_of_this"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3; mend or uninstall that package"),
        ("def broken(:", "cannot be imported: SyntaxError: "),
        ("raise RuntimeError('two\\nlines')", "cannot be imported: RuntimeError: two lines; mend"),
        ("PLUGINS = 1", "cannot be imported: AttributeError: "),
        ("PLUGIN = dict()", r"is a dict, not a memcon\.registry\.Plugin"),
        (f"{HEAD}PLUGIN = Plugin(config=dict, build=dict)", "has the config <class 'dict'>; it must be a dataclass"),
        (
            HIDDEN_TYPE,
            "whose annotations cannot be read: NameError: name 'Path' is not defined; import its types at run",
        ),
    ],
)
def test_a_broken_entry_point_names_its_package_and_the_cause(text: str, message: str, packages: Packages) -> None:
    packages.add("half", "half_module", text, framework="half = half_module:PLUGIN")

    line = the_line("framework", "half")

    assert "half_module:PLUGIN of half 2.5" in line
    assert re.search(message, line)


def test_a_policy_without_settings_of_a_table_is_none(packages: Packages) -> None:
    packages.add(
        "rules", "rules_module", SOUND, policy="bare = rules_module:PLUGIN", memory="bare = rules_module:PLUGIN"
    )

    assert "Config without learning_settings(), which every policy needs" in the_line("policy", "bare")
    assert registry.plugin("memory", "bare").config.__name__ == "Config"


def test_a_value_that_a_config_refuses_in_its_own_way_is_told_by_its_path(packages: Packages) -> None:
    packages.add("sound", "sound_module", SOUND, memory="sound = sound_module:PLUGIN")

    with pytest.raises(
        ConfigError, match=r"^axes\.memory\[0\]: memory 'sound' refuses its parameters: ValueError: size is too"
    ):
        registry.configure("memory", "sound", {"size": 10}, where="axes.memory[0]")


def test_build_gives_what_the_plug_in_makes_of_its_parameters_and_names_what_it_cannot(packages: Packages) -> None:
    packages.add("sound", "sound_module", SOUND, memory="sound = sound_module:PLUGIN")

    config, collaborators = registry.build("memory", "sound", {"size": 4}, store="store").given
    assert (config.size, collaborators) == (4, {"store": "store"})
    with pytest.raises(
        ConfigError,
        match=r"^memory 'sound' cannot be built: KeyError: 'no room' \(sound_module:PLUGIN of sound 2\.5\)$",
    ):
        registry.build("memory", "sound", {"size": 6})
    with pytest.raises(ConfigError, match="unknown key 'sise'"):
        registry.build("memory", "sound", {"sise": 6})


def test_what_a_plug_in_builds_has_all_that_its_port_has(packages: Packages) -> None:
    packages.add("sound", "sound_module", SOUND, memory="sound = sound_module:PLUGIN")

    with pytest.raises(
        ConfigError,
        match=r"^memory 'sound': its build gives a NoneType without name, capabilities, .*maintain, size, which "
        r"memcon\.protocols\.MemoryBackend has \(sound_module:PLUGIN of sound 2\.5\)$",
    ):
        registry.build("memory", "sound", {"size": 5})


def test_what_a_module_prints_when_it_is_imported_is_kept_from_stdout(
    packages: Packages, capsys: pytest.CaptureFixture[str]
) -> None:
    packages.add("loud", "loud_module", f"print('welcome')\n{SOUND}", memory="loud = loud_module:PLUGIN")

    assert registry.plugin("memory", "loud").config.__name__ == "Config"

    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "welcome\n")


def test_an_entry_point_in_a_group_of_no_kind_is_a_stray(packages: Packages) -> None:
    packages.add(
        "astray", "astray_module", SOUND, memories="notes = astray_module:PLUGIN", memory="x = astray_module:P"
    )

    assert [(entry.kind, entry.name, entry.package) for entry in registry.strays()] == [("memories", "notes", "astray")]
