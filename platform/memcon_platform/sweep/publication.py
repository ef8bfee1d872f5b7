"""A launch of a run that lives in an object store: who drives it, what is fetched first, and what is published when.

Plan and config are published when they are written, each block when it is whole, and everything when the launch ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memcon.errors import ConflictError, DamagedFileError, MemconError
from memcon_platform.config import RunPlan, has_plan
from memcon_platform.config.plan_file import CONFIG_FILE, PLAN_FILE
from memcon_platform.mirror import publish, read_manifest, unpublished
from memcon_platform.mirror.publishing import Published
from memcon_platform.mirror.selection import publishable_keys
from memcon_platform.mirror.transfers import Progress
from memcon_platform.objects import ObjectStore, open_objects
from memcon_platform.run_store.lock import Driver, driver_of, release, take, this_driver
from memcon_platform.run_store.working_copy import WorkingCopy, may_go, open_working_copy
from memcon_platform.sweep.handover import adopt, close_databases, drop_unbacked_blocks, undelivered
from memcon_platform.sweep.publishing import BlockWatch, Publisher
from memcon_platform.sweep.run_folder import holding
from memcon_platform.sweep.runner import Observer
from memcon_platform.sweep.starts import STARTS_FILE

__all__ = ["Publication", "published"]

_LOCK_FILE = "publication.lock"

Observe = Callable[[RunPlan, bool], Observer]


class Publication:
    """What this launch publishes of the run in `folder` to `store`."""

    def __init__(self, copy: WorkingCopy, store: ObjectStore, driver: Driver, say: Callable[[str], None]) -> None:
        self.uri = store.uri
        # What was lost of the working copy, once that is known; nothing is published after it.
        self.loss: DamagedFileError | None = None
        self._copy, self._folder, self._store, self._driver, self._say = copy, copy.folder, store, driver, say
        self._publisher = Publisher(lambda files: self._publish(files=files), say)
        self._is_finished = False

    def watching(self, observe: Observe) -> Observe:
        """The observer of a launch, with publishing beside it; plan and config are written when it is made."""

        def watched(plan: RunPlan, resumed: bool) -> Observer:
            files = [self._folder / name for name in (PLAN_FILE, CONFIG_FILE, STARTS_FILE)]
            self._publisher.submit([path for path in files if path.exists()])
            return BlockWatch(self._folder, observe(plan, resumed), self._publisher.submit)

        return watched

    def finish(self, tell: Callable[[str], None] | None = None) -> str:
        """Publish everything and give the run free; returns what could not be done, or "".

        `tell` hears after each file how far that is.

        A run that cannot go on elsewhere stays this working copy's: files wait here, or outcomes are not delivered.
        """
        self._is_finished = True
        self._publisher.join()
        try:
            return self._finish(tell)
        except DamagedFileError as error:
            if self._copy.is_gone:
                # Nobody can go on from it, so that it holds nobody up.
                with suppress(MemconError):
                    release(self._store, self._driver)
            return str(error)
        except MemconError as error:
            waiting = self._waiting()
            if not waiting:
                return f"no file of {self._folder} waits, but {self._store.uri} is not free yet: {error}"
            told = f"the run is whole in {self._folder}, and {waiting} files are not in {self._store.uri} yet: {error}"
            # A conflict is not mended by trying again, and most other causes end in the remedy themselves.
            is_told = isinstance(error, ConflictError) or "the same command again" in str(error)
            return told if is_told else f"{told}; run the same command again to publish them"

    def interrupted(self) -> str:
        """What the store has and what it lacks when nobody waits for the end of `finish`."""
        waiting, total = self._waiting(), len(publishable_keys(self._folder))
        lacks = f"{waiting} of its {total} files are not in {self._store.uri} yet"
        return (
            f"stopped while publishing: the run is whole in {self._folder}, and "
            f"{lacks if waiting else f'all in {self._store.uri}, which is not free yet'}; the same command again does "
            "the rest"
        )

    def _publish(self, *, files: Collection[Path] | None = None, progress: Progress | None = None) -> Published:
        """As `publish`, and never with less than the store has of the run.

        Raises:
            DamagedFileError: the folder has lost something.
            MemconError: as in `publish`.
        """
        try:
            self._copy.refuse_gone()
            return publish(self._folder, self._store, files=files, may_go=may_go, progress=progress)
        except DamagedFileError as error:
            self.loss = error
            raise

    def _waiting(self) -> int:
        return len(unpublished(self._folder, self._store.uri))

    def _finish(self, tell: Callable[[str], None] | None) -> str:
        def progress(done: int, total: int) -> None:
            if tell is not None:
                tell(f"publishing to {self._store.uri}: {done} of {total} files")

        # Without a plan nothing was begun, or all of it is lost.
        if has_plan(self._folder) or read_manifest(self._store) is not None:
            close_databases(self._folder)
            skipped = self._publish(progress=progress).skipped
            if skipped:
                return (
                    f"{len(skipped)} files of {self._folder} are open in another process and not in {self._store.uri} "
                    f"yet, {skipped[0]} first: end that process, then run the same command again"
                )
            if waiting := undelivered(self._folder):
                self._say(
                    f"{len(waiting)} streams hold outcomes that the policy has not acknowledged: the run goes on from "
                    f"{self._folder} only, with the same command"
                )
                return ""
        release(self._store, self._driver)
        return ""

    def finish_failed(self) -> None:
        """As `finish`, after an error that is told: what cannot be done is said beside it."""
        with suppress(MemconError):
            if not self._is_finished and (problem := self.finish()) and self.loss is None:
                self._say(problem)

    def abandon(self) -> None:
        """Publish nothing more; what is left to do is the next launch's."""
        self._publisher.stop()


@contextmanager
def published(plan: RunPlan, say: Callable[[str], None]) -> Iterator[Publication | None]:
    """Drive the run of `plan` in its working copy while the block runs; None for a run without an object store.

    A block that ends without `finish` (stopped at once) leaves the run to this working copy.

    Raises:
        LockedError: the run has another driver.
        ConflictError: store and working copy have both gone on, or outcomes wait at another machine.
        ObjectStoreError: the store cannot be used; nothing was begun.
        StorageError: the working copy cannot be written.
        DamagedFileError: it was emptied while the block ran, of whose error that is the cause.
    """
    if plan.uri is None:
        yield None
        return
    with open_objects(plan.uri) as store:
        # Before the folder is made: a store that cannot be used leaves nothing here.
        driver_of(store)
        held = f"run {plan.uri} is driven from {plan.run_dir}"
        with holding(plan.run_dir / _LOCK_FILE, held, "set working_root="):
            copy = open_working_copy(plan.run_dir)
            driver = this_driver(plan.run_dir, copy.name)
            take(store, driver)
            try:
                _make_ready(store, copy, say)
            except MemconError:
                with suppress(MemconError):
                    release(store, driver)
                raise
            publication = Publication(copy, store, driver, say)
            try:
                yield publication
            except Exception as error:
                # A bug too, such as in a report: what was played must not wait here for its repair.
                publication.finish_failed()
                if publication.loss is not None:
                    # The other one is what came of it.
                    raise publication.loss from error
                raise
            finally:
                publication.abandon()


def _make_ready(store: ObjectStore, copy: WorkingCopy, say: Callable[[str], None]) -> None:
    """Bring the working copy to where the run can go on from it."""
    there = read_manifest(store)
    if there is None and not store.honours_conditions():
        say(
            f"the store of {store.uri} ignores conditions: two machines could drive one run and not notice; launch it "
            "from one machine only (docs/storage.md)"
        )
    copy.bring_up_to_date(store, there, say)
    if copy.is_raw:
        adopt(copy.folder)
        if dropped := drop_unbacked_blocks(copy.folder):
            # There too, or the next launch would find them lost.
            publish(copy.folder, store, files=dropped)
        copy.is_ready()
