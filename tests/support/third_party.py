"""The plug-in package of `tests/third_party`, installed as its users do, and small packages that get something wrong.

Installed into folders of their own, never into the tests' environment: a command sees them by its PYTHONPATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BROKEN", "PACKAGE", "PROJECT", "RIVAL", "SmallProject", "environment", "install"]

PROJECT = Path(__file__).resolve().parents[1] / "third_party"
# The package that `PROJECT` installs.
PACKAGE = "memcon_notebook"

_OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check")
_PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"

{entry_points}

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallProject:
    """A package that is no more than its entry points and its modules."""

    name: str
    version: str = "0.3"
    # Kind -> name -> entry point.
    entry_points: Mapping[str, Mapping[str, str]]
    # Module of the package -> its text.
    modules: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """The project's own folder below `folder`, ready for pip."""
        project, package = folder / self.name, self.name.replace("-", "_")
        (project / package).mkdir(parents=True)
        (project / package / "__init__.py").write_text("", encoding="utf-8")
        for module, text in self.modules.items():
            (project / package / f"{module}.py").write_text(text, encoding="utf-8")
        groups = [
            "\n".join([f'[project.entry-points."memcon.{kind}"]', *(f'{name} = "{at}"' for name, at in names.items())])
            for kind, names in self.entry_points.items()
        ]
        text = _PYPROJECT.format(
            name=self.name, version=self.version, package=package, entry_points="\n\n".join(groups)
        )
        (project / "pyproject.toml").write_text(text, encoding="utf-8")
        return project


# One entry point whose module needs a library that is not there, and one that ends the process when it is imported;
# the third is sound.
BROKEN = SmallProject(
    name="memcon-halfway",
    entry_points={
        "memory": {"halfway": "memcon_halfway.memory:PLUGIN", "quitter": "memcon_halfway.quitter:PLUGIN"},
        "benchmark": {"nowhere": "memcon_halfway.memory:PLUGIN", "unbuilt": "memcon_halfway.unbuilt:PLUGIN"},
    },
    modules={
        "memory": "import a_library_that_is_not_there\n",
        "quitter": "raise SystemExit(3)\n",
        "unbuilt": (
            "from dataclasses import dataclass\n\n"
            "from memcon.registry import Plugin\n\n\n"
            "@dataclass(slots=True, kw_only=True)\n"
            "class Config:\n"
            "    size: int = 1\n\n"
            "    def __post_init__(self) -> None:\n"
            "        if self.size > 9:\n"
            '            raise ValueError("size is too large")\n\n\n'
            "def build(config: Config) -> object:\n"
            '    raise OSError("the world file\\nis missing")\n\n\n'
            "PLUGIN = Plugin(config=Config, build=build)\n"
        ),
    },
)
# Registers a name that `PROJECT` registers too, and one in a group that is no kind of plug-in.
RIVAL = SmallProject(
    name="memcon-rival",
    entry_points={
        "memory": {"notebook": "memcon.control.memory.empty:PLUGIN"},
        "memories": {"diary": "memcon.control.memory.empty:PLUGIN"},
    },
)


def install(folder: Path, *projects: SmallProject) -> Path:
    """Install `PROJECT` and `projects` below `folder`, by pip and without a network; returns where they are."""
    site = folder / "site"
    sources = [PROJECT, *(project.write(folder / "sources") for project in projects)]
    command = [sys.executable, "-m", "pip", "install", *_OFFLINE, "--target", str(site), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return site


def environment(site: Path) -> dict[str, str]:
    """What a command needs in its environment to see the packages in `site`."""
    own = os.environ.get("PYTHONPATH")  # noqa: TID251 - the command gets ours too
    return {"PYTHONPATH": os.pathsep.join([str(site), *([own] if own else [])])}
