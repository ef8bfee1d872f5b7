"""What a launch and its status say of failed streams: one line a reason, however many streams failed of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["failure_lines"]

# Streams that a line names.
_NAMED = 3


def failure_lines(failures: Iterable[tuple[tuple[str, int], str]]) -> Iterator[str]:
    """One line for each distinct reason, in order of its first stream; failures are ((cell, stream), message)."""
    by_reason: dict[str, list[tuple[str, int]]] = {}
    for name, message in failures:
        by_reason.setdefault(" ".join(message.split()), []).append(name)
    for reason, names in by_reason.items():
        told = ", ".join(f"stream {stream} of cell {cell}" for cell, stream in names[:_NAMED])
        if len(names) == 1:
            yield f"{told} failed: {reason}"
            continue
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield f"{len(names):,} streams failed ({told}{more}): {reason}"
