"""Which process took how much of a core: this one and all below it, Ray's included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from memcon.errors import MissingExtraError

__all__ = ["CpuSeconds", "cpu_seconds", "cpu_shares"]

# Process id -> (name, seconds of CPU so far).
CpuSeconds: TypeAlias = Mapping[int, tuple[str, float]]


def cpu_seconds() -> CpuSeconds:
    """This process ("driver") and all below it; one that ends meanwhile is left out.

    Raises:
        MissingExtraError: psutil is not installed.
    """
    try:
        import psutil
    except ImportError as error:
        raise MissingExtraError("psutil", "bench") from error
    own = psutil.Process()
    found = {own.pid: ("driver", _seconds(own))}
    for process in own.children(recursive=True):
        try:
            found[process.pid] = (_name(process), _seconds(process))
        except psutil.Error:
            continue
    return found


def cpu_shares(before: CpuSeconds, after: CpuSeconds, elapsed_s: float) -> dict[str, float]:
    """Share of one core by process between two looks; numbered where several have one name."""
    shares: dict[str, float] = {}
    for process, (name, seconds) in sorted(after.items()):
        spent = seconds - before.get(process, ("", 0.0))[1]
        number = 1 + sum(known.partition(" #")[0] == name for known in shares)
        shares[f"{name} #{number}" if number > 1 else name] = spent / elapsed_s
    return shares


def _seconds(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _name(process: Any) -> str:
    # Ray puts actor and present method of a process into its command line.
    words = " ".join(process.cmdline()).split()
    title = words[0].rpartition("/")[2].partition(".")[0] if words else ""
    if title.startswith("ray::"):
        return title
    if "spawn_main" in " ".join(words):
        return "generator"
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1].rpartition(".")[2]
    return str(process.name())
