"""The database, and the thread that has the patience for it.

Short writes are made on the spot, in the event loop's thread: a commit is a write to a file that is open, and takes
less time than the way to another thread and back. What is long, what has to wait and what fails is the store's thread's
to do.

What goes wrong with the storage is met here, once: a lock is waited for, for a bounded time; a damaged database is set
aside and a new one begun; a full disk gets the reserve. `StoreHealth` says what is the matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ExecError, StorageFull, StoreUnavailable
from .database import (
    LOCK_WAIT_SECONDS,
    Database,
    check_file,
    damage_message,
    is_corruption,
    is_damage,
    set_aside,
    translated,
)
from .disk_reserve import Reserve

_RETRY_SECONDS = 1.0
_SYNC_BEHIND_SECONDS = 0.05
_SYNCERS = 4  # a disk takes several files together
_CHECKPOINT_COMMITS = 200  # where they never rest
_RESTED_CHECKPOINT_COMMITS = 16
_REST_SECONDS = 0.3
# Free pages up to so much stay in the file, for what is written next; a turn gives so many back.
_KEPT_FREE_BYTES = 1024 * 1024
_PAGES_GIVEN_BACK = 500
_CHECK_SECONDS = 60.0
_CHECK_REST = 100.0  # times as long as a check has taken: a large database costs one hundredth of a processor
_QUICK_SECONDS = 0.002  # less than what others wait for anyway, and not much more than the way to a thread and back
#: What has more is not written on the spot.
SHORT_CHARACTERS = 32 * 1024
T = TypeVar("T")
Log = logging.Logger | logging.LoggerAdapter[Any]


class Busy(Exception):
    """What was to be done on the spot is to be done in the store's thread."""


class StoreHealth:
    """What is wrong with the store now, and what has been; said in the log when it changes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.trouble: str | None = None
        self.alarm: str | None = None
        #: Says that the database in use is damaged, and what to do; nothing but a restart takes it back.
        self.damage: str | None = None

    def report(self, trouble: str | None) -> None:
        """Take in the outcome of a write: what was wrong with it, or None."""
        if trouble != self.trouble:
            self.trouble = trouble
            if trouble is not None:
                self._log.error("store: %s", trouble)
            else:
                self._log.warning("store: works again")

    def raise_alarm(self, alarm: str) -> None:
        """Take in what an administrator must know and no later success undoes."""
        self.alarm = alarm
        self._log.critical("store: %s", alarm)

    def report_damage(self, found: str) -> None:
        """Take in what shows that the database in use is damaged."""
        if self.damage is None:
            self.damage = damage_message(found)
            self._log.critical("store: %s", self.damage)

    def require_undamaged(self) -> None:
        """Refuse to use a damaged database: whatever is written to it is lost.

        Raises
        ------
        StoreUnavailable
        """
        if self.damage is not None:
            raise StoreUnavailable(self.damage)


class Writer:
    """Runs jobs on the database, one after the other.

    Parameters
    ----------
    path : Path or None
        The database file; None for a database in memory.

    Attributes
    ----------
    closed : bool
        No more jobs are taken.
    commits : int
        Counts the transactions.
    generation : int
        Counts the databases that there have been: a damaged one is replaced.
    """

    def __init__(self, path: Path | None, reserve: Reserve | None, health: StoreHealth) -> None:
        self.thread = ThreadPoolExecutor(1, "exec-store")
        self.syncer = ThreadPoolExecutor(_SYNCERS, "exec-store-sync")
        self.health = health
        self._reserve = reserve
        self._unsaved: dict[str, Callable[[Database], object]] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._in_use = threading.Lock()
        self.commits = self._synced = self._checkpointed = 0
        self._check_at = time.monotonic() + _CHECK_SECONDS
        self._sync: asyncio.Future[None] | None = None
        self._syncs_quickly = False
        self._sync_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None
        self.closed = False
        self.generation = 0
        self._database = self._opened(path)

    def _opened(self, path: Path | None) -> Database:
        try:
            return Database(path)
        except sqlite3.DatabaseError as error:
            if path is None or not is_corruption(error):
                raise translated(error) from error
        return self._renewed(path)

    def _renewed(self, path: Path) -> Database:
        self.generation += 1
        aside = set_aside(path)
        self.health.raise_alarm(
            f"the database was damaged and has been set aside as {aside}; no record or token in it is used any more"
        )
        return Database(path)

    async def run(self, job: Callable[[Database], T], *, write: bool = False) -> T:
        """Run `job` in the store's thread; with `write`, in a transaction.

        Raises
        ------
        StoreUnavailable, StorageFull
            With nothing written.
        """
        if self.closed:
            raise StoreUnavailable("the server is shutting down")
        give_up_at = time.monotonic() + LOCK_WAIT_SECONDS
        return await asyncio.get_running_loop().run_in_executor(self.thread, self.perform, job, write, give_up_at)

    def perform_now(self, job: Callable[[Database], T]) -> T:
        """Run a short `job` on the spot, in a transaction.

        Raises
        ------
        Busy
            With nothing written: the database is in use, or something is the matter with it.
        """
        if self.closed or self._unsaved or self.health.trouble is not None or self.health.damage is not None:
            raise Busy
        if not self._in_use.acquire(blocking=False):
            raise Busy
        try:
            return self._attempt(job, True, 0.0)
        except sqlite3.DatabaseError as error:
            raise Busy from error
        finally:
            self._in_use.release()

    async def write(self, job: Callable[[Database], T], *, short: bool) -> T:
        """Run `job` in a transaction: in the store's thread or, if it is short and nothing is in the way, on the spot.

        Raises
        ------
        StoreUnavailable, StorageFull
            With nothing written.
        """
        if short:
            with contextlib.suppress(Busy):
                return self.perform_now(job)
        return await self.run(job, write=True)

    def perform(self, job: Callable[[Database], T], write: bool, give_up_at: float = 0.0) -> T:
        """Run `job`. For the store's thread, and for start-up before there is any other."""
        self.health.require_undamaged()
        with self._in_use:
            try:
                return self._attempt(job, write, give_up_at)
            except sqlite3.DatabaseError as error:
                if not is_corruption(error) or self._database.path is None:
                    raise translated(error) from error
            path = self._database.path
            self._database.close()
            self._database = self._renewed(path)
            return self._attempt(job, write, give_up_at)

    def _attempt(self, job: Callable[[Database], T], write: bool, give_up_at: float) -> T:
        if not write:
            return job(self._database)
        with self._database.transaction(give_up_at - time.monotonic()):
            result = job(self._database)
        self.commits += 1
        return result

    # --- what must be written ---

    def perform_last(self, key: str, job: Callable[[Database], object]) -> None:
        """Run a writing `job` for something that was accepted and has changed or ended; for the store's thread.

        With a full disk it gets the reserve. If even that does not help, it is tried again until it works, or until
        a later job with the same `key` takes its place.
        """
        give_up_at = time.monotonic() + LOCK_WAIT_SECONDS
        try:
            try:
                self.perform(job, True, give_up_at)
            except StorageFull:
                if self._reserve is None or not self._reserve.held:
                    raise
                self._reserve.release()
                self.perform(job, True, give_up_at)
        except ExecError as error:
            self._unsaved[key] = job
            self.health.report(error.message)
            return
        self._unsaved.pop(key, None)
        if not self._unsaved:
            self.health.report(None)

    def has_unsaved(self, key: str) -> bool:
        """Whether the job with this `key` has not worked yet."""
        return key in self._unsaved

    async def run_last(self, key: str, job: Callable[[Database], object]) -> None:
        """Run `perform_last` in the store's thread."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.thread, self.perform_last, key, job)
        self.retry_soon(loop)

    def retry_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Try again what could not be written, if there is anything."""
        if self._unsaved and self._retry is None:
            self._retry = loop.call_later(_RETRY_SECONDS, self._retry_now, loop)

    def _retry_now(self, loop: asyncio.AbstractEventLoop) -> None:
        self._retry = None
        loop.run_in_executor(self.thread, self._retry_all).add_done_callback(lambda _: self.retry_soon(loop))

    def _retry_all(self) -> None:
        for key, job in list(self._unsaved.items()):
            self.perform_last(key, job)

    def require_reserve(self) -> None:
        """Make sure that what is accepted now can also be finished.

        Raises
        ------
        StorageFull
        """
        if self._reserve is not None and not self._reserve.held and not self._reserve.restore():
            raise StorageFull("the disk that keeps the executions is full; nothing new is accepted until there is room")

    # --- what must survive a power failure ---

    async def synced(self, commits: int | None = None, *, alone: bool = False) -> None:
        """Return once so many commits, by default all so far, would survive a power failure.

        Who is `alone`, so that no other commits are to be expected which one sync could be for as well, is spared the
        way to the store's thread if the disk was quick the last time.
        """
        wanted = self.commits if commits is None else commits
        if alone and self._synced < wanted:
            self._sync_here()
        while self._synced < wanted and not self.closed:
            # One sync at a time: the next is for all who have come meanwhile.
            await asyncio.shield(self._sync or self._begin_sync(asyncio.get_running_loop()))

    def _sync_here(self) -> None:
        if self.closed or self._sync is not None or not self._syncs_quickly or not self._in_use.acquire(blocking=False):
            return
        commits = self.commits
        try:
            self._sync_timed()
        finally:
            self._in_use.release()
        self._synced = commits
        if self._checkpoint_is_due:
            self.thread.submit(self._checkpoint)

    def begin_sync(self, commits: int) -> None:
        """Let the store's thread see to it that so many commits would survive a power failure; wait with `synced`."""
        if self._synced < commits and self._sync is None and not self.closed:
            self._begin_sync(asyncio.get_running_loop())

    def _begin_sync(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        self._sync = loop.create_future()
        # What is to happen next, such as sending accepted code, comes first: the thread would compete with it.
        loop.call_soon(self._sync_now, loop, self._sync)
        return self._sync

    def _sync_now(self, loop: asyncio.AbstractEventLoop, noted: asyncio.Future[None]) -> None:
        if self.closed:  # which syncs
            noted.set_result(None)
            return
        job = loop.run_in_executor(self.thread, self.sync)
        job.add_done_callback(partial(self._note_synced, noted, self.commits))

    def _note_synced(self, noted: asyncio.Future[None], commits: int, job: asyncio.Future[None]) -> None:
        self._sync = None
        self._synced = commits
        noted.set_result(None)
        job.result()

    def sync_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sync in a moment what nobody waits for, if no other sync has come by then."""
        if self._sync_timer is None:
            self._sync_timer = loop.call_later(_SYNC_BEHIND_SECONDS, self._sync_behind)
        if self._rest_timer is None:
            self._look_for_rest(loop)

    def _look_for_rest(self, loop: asyncio.AbstractEventLoop) -> None:
        self._rest_timer = loop.call_later(_REST_SECONDS, self._checkpoint_at_rest, loop, self.commits)

    def _checkpoint_at_rest(self, loop: asyncio.AbstractEventLoop, commits: int) -> None:
        """Take the log of writes into the database while nobody writes, so that it begins anew.

        To write over what the file has costs a disk less than to let it grow, and the next sync less time.
        """
        self._rest_timer = None
        if self.closed:
            return
        if commits != self.commits:
            self._look_for_rest(loop)
        elif self.commits - self._checkpointed >= _RESTED_CHECKPOINT_COMMITS:
            self.thread.submit(self._checkpoint)

    def _sync_behind(self) -> None:
        self._sync_timer = None
        self.begin_sync(self.commits)

    def sync(self) -> None:
        """Make what was committed survive a power failure; in the store's thread."""
        self._sync_timed()
        if self._checkpoint_is_due:
            self._checkpoint()

    def _sync_timed(self) -> None:
        began = time.perf_counter()
        try:
            self._database.sync()
        except OSError as error:
            self.health.report(f"the database could not be synced: {error}")
        self._syncs_quickly = time.perf_counter() - began < _QUICK_SECONDS

    @property
    def _checkpoint_is_due(self) -> bool:
        return self.commits - self._checkpointed >= _CHECKPOINT_COMMITS

    def _checkpoint(self) -> None:
        """Take the log of writes into the database; in the store's thread, so that no transaction waits for it."""
        self._checkpointed = self.commits
        try:
            self._database.checkpoint()
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                self.health.report_damage(str(error))
            else:
                self.health.report(translated(error).message)
        if not self.closed and time.monotonic() >= self._check_at:
            self._check_at = math.inf
            self.syncer.submit(self.check)

    def check(self) -> None:
        """Look for damage in the database's file; in any thread."""
        path = self._database.path
        if path is None:
            return
        began = time.monotonic()
        found = check_file(path)
        now = time.monotonic()
        self._check_at = now + max(_CHECK_SECONDS, _CHECK_REST * (now - began))
        if found is not None:
            self.health.report_damage(found)

    def give_back(self) -> None:
        """Give free space of the database back to the disk, if it is much; in the store's thread."""
        try:
            with self._in_use:
                if self._database.free_bytes() <= _KEPT_FREE_BYTES:
                    return
            while self._give_back_some():
                time.sleep(0)  # others may write between
            self._checkpoint()
        except sqlite3.OperationalError:
            return  # another server writes; the next eviction tries again

    def _give_back_some(self) -> bool:
        with self._in_use:
            return self._database.give_back(_PAGES_GIVEN_BACK)

    def close(self) -> None:
        """Finish the jobs that wait, and close the database."""
        if self.closed:
            return
        self.closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        if self._rest_timer is not None:
            self._rest_timer.cancel()
        self.thread.submit(self._retry_all)
        self.thread.submit(self.sync)
        self.thread.shutdown(wait=True)
        self.syncer.shutdown(wait=True)
        self._database.close()
        if self._reserve is not None:
            self._reserve.release()
