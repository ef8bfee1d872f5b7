"""How an owner runs one command on its shard: under its lease, never after a fault, with the events queued in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from memcon.errors import ConflictError, InvariantError, MemconError
from memcon.learning.events import Event
from memcon.learning.shard import Handled
from memcon_policy_server.owner.group_commit import GroupCommit
from memcon_policy_server.owner.lease import Lease
from memcon_policy_server.owner.metrics import Counts
from memcon_policy_server.wire import MovedError

__all__ = ["Execution"]

A = TypeVar("A")
T = TypeVar("T")


class Execution:
    """Applies commands to the shard in memory. `follow` is told of each event that was applied, in order."""

    def __init__(
        self,
        shard: int,
        commits: GroupCommit,
        lease: Lease,
        counts: Counts,
        *,
        follow: Callable[[Event], None] | None = None,
    ) -> None:
        self._shard, self._commits, self._lease, self._counts = shard, commits, lease, counts
        self.follow = follow

    def check_answers(self) -> None:
        """Refuse to answer after a fault, at the end and without the lease.

        Raises:
            MemconError: the fault, or that of the end; `MovedError` without the lease.
        """
        refusal = self._commits.refusal
        if refusal is not None:
            raise refusal
        if not self._lease.held:
            raise MovedError(
                f"shard {self._shard} has not seen its journal for {self._lease.age_s:.1f} s and may have another "
                "owner; read the shard map again"
            )

    async def renewed(self) -> None:
        """Look at the epoch if the last look is too old: mostly it was this process that had to wait."""
        if not self._lease.held and self._commits.fault is None:
            await self._lease.renewal()

    def apply(self, command: Callable[..., Handled[T]], *arguments: object) -> Handled[T]:
        """Run `command` and queue its events; see `GroupCommit.add` for what must follow.

        Raises:
            MemconError: what the command raised, or `check_answers`. Anything that is not a refusal is a fault: the
                shard may have changed without its events.
        """
        self.check_answers()
        try:
            handled = command(*arguments)
        except InvariantError as error:
            self._commits.fail(error)
            raise
        except MemconError as error:
            if isinstance(error, ConflictError):
                self._counts.conflicts += 1
            raise
        except Exception as error:
            fault = InvariantError(f"shard {self._shard} failed: {type(error).__name__}: {error}")
            self._commits.fail(fault)
            raise fault from error
        if handled.events:
            self._commits.add(handled.events)
            if self.follow is not None:
                for event in handled.events:
                    self.follow(event)
        return handled

    def apply_each(
        self, command: Callable[[Sequence[A]], Handled[list[T | MemconError]]], requests: Sequence[A]
    ) -> Handled[list[T | MemconError]]:
        """`apply` a command that takes one request after the other and puts a refusal in the place of its reply.

        Raises:
            MemconError: why none of them is answered.
        """
        # The lease once for all of them: a batch takes milliseconds, a lease lasts a second.
        handled = self.apply(command, requests)
        self._counts.conflicts += sum([isinstance(reply, ConflictError) for reply in handled.reply])
        return handled

    async def in_thread(self, question: Callable[..., T], *arguments: object) -> T | MemconError:
        """Answer a slow question, which changes nothing, beside the event loop; a refusal stands in place of it."""
        try:
            return await asyncio.to_thread(question, *arguments)
        except MemconError as error:
            return error

    async def durably(self, command: Callable[..., Handled[T]], *arguments: object) -> T:
        """`apply` a command and return its reply once all before and in it is durable."""
        await self.renewed()
        try:
            return self.apply(command, *arguments).reply
        finally:
            # A refusal, too, may rest on an event that is not durable yet.
            await self._commits.settled()
