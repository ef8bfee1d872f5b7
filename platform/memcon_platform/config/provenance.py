"""Where a run's numbers come from: versions and commit. No host, user or path of the machine."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import memcon
from memcon import registry

__all__ = ["provenance"]

_GIT_TIMEOUT_S = 10


def provenance(plugins: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """Versions of memcon, Python and numpy, the platform, and the commit of the source tree (None outside of one).

    With `plugins` (kind, name), also the packages and versions of those that are not memcon's own, if any are.
    """
    commit, changed = _commit(Path(memcon.__file__).parent)
    packages = _packages(plugins)
    return {
        "memcon_version": _version("memcon"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "platform": f"{platform.system()} {platform.machine()}",
        "git_commit": commit,
        # Tracked files differ from the commit.
        "git_changed": changed,
        **({"plugin_packages": ", ".join(packages)} if packages else {}),
    }


def _packages(plugins: Iterable[tuple[str, str]]) -> list[str]:
    found = {
        f"{entry.package} {entry.version}"
        for kind, name in sorted(set(plugins))
        for entry in registry.registered(kind)
        if entry.name == name and entry.package not in {"", "memcon"}
    }
    return sorted(found)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(folder: Path) -> tuple[str | None, bool | None]:
    # An installed memcon may lie in somebody else's repository: only a tracked file shows that the commit is ours.
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    commit, status = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--untracked-files=no")
    return commit, None if status is None else bool(status)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
