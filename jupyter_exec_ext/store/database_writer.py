"""Serialised SQLite writes in a worker thread, with retries while the database is locked or the disk is full.

`Writer` meets every storage fault in one place. It waits a bounded time for a lock, sets a damaged database aside and
begins a new one, and gives the reserve up when the disk is full. `store_health` has the present faults.
"""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from ..errors import ExecError, StorageFull, StoreUnavailable
from ..system.regular_file import open_regular_file
from ..system.removal import remove_tree
from .database import LOCK_WAIT_SECONDS, Database, check_file, is_corruption, set_aside, translated
from .store_health import StoreHealth

_RETRY_SECONDS = 1.0
_SYNC_BEHIND_SECONDS = 0.05  # a run that ends sooner is synced once, with its end
_SYNC_THREADS = 4  # a disk takes several files together
# Free pages up to this size stay in the file for the next writes.
_KEPT_FREE_BYTES = 1024 * 1024
_PAGES_GIVEN_BACK = 2000  # 8 MB: other jobs wait for no more at a time
_CHECK_SECONDS = 60.0
_CHECK_REST = 100.0  # times as long as a check has taken: a large database costs one hundredth of a processor
T = TypeVar("T")


class DiskReserve:
    """A file that holds disk space, released when the disk is full so that the last records still fit.

    Parameters
    ----------
    path : Path
        The file.
    size_bytes : int
        0 for no reserve.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self.is_held = self.restore()

    def restore(self) -> bool:
        """Allocate the space, if the disk has it; return whether it is held."""
        try:
            fd = open_regular_file(self._path, os.O_WRONLY | os.O_CREAT)
            try:
                if self._size_bytes:
                    # The file needs real blocks; a sparse file would reserve no space.
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(fd, 0, self._size_bytes)
                    elif os.fstat(fd).st_size < self._size_bytes:
                        os.write(fd, bytes(self._size_bytes))
            finally:
                os.close(fd)
        except OSError:
            self.release()
            return False
        self.is_held = True
        return True

    def release(self) -> None:
        """Give the space back to the disk."""
        self.is_held = False
        remove_tree(self._path)  # code without isolation can put anything there


class Writer:
    """Runs jobs on the database one after the other, in its own thread.

    Parameters
    ----------
    path : Path or None
        The database file; None for a database in memory.
    reserve : DiskReserve or None
        Space for the last records on a full disk.
    health : StoreHealth
        Receives the outcome of writes.

    Attributes
    ----------
    thread : ThreadPoolExecutor
        The one thread that uses the database.
    sync_threads : ThreadPoolExecutor
        Threads that wait for the disk, so that no write waits behind a sync.
    closed : bool
        True once jobs are refused.
    on_retried : callable
        Called in the event loop after each retry of jobs that had failed.
    """

    def __init__(self, path: Path | None, reserve: DiskReserve | None, health: StoreHealth) -> None:
        self.thread = ThreadPoolExecutor(1, "exec-store")
        self.sync_threads = ThreadPoolExecutor(_SYNC_THREADS, "exec-store-sync")
        self.health = health
        self.on_retried: Callable[[], None] = lambda: None
        self._reserve = reserve
        self._unsaved: dict[str, Callable[[Database], object]] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._sync_lock = threading.Lock()
        self._sync_timer: asyncio.TimerHandle | None = None
        self._commits = self._synced = 0
        self._check_at = time.monotonic() + _CHECK_SECONDS
        self.closed = False
        self._database = self._open(path)

    def _open(self, path: Path | None) -> Database:
        try:
            return Database(path)
        except sqlite3.DatabaseError as error:
            if path is None or not is_corruption(error):
                raise translated(error) from error
        return self._replace(path)

    def _replace(self, path: Path) -> Database:
        aside = set_aside(path)
        self.health.raise_alarm(
            f"the database was damaged and has been set aside as {aside}; no record or token in it is used any more"
        )
        return Database(path)

    # --- jobs that may fail ---

    async def run(self, job: Callable[[Database], T], *, write: bool = False) -> T:
        """Run `job` in the store's thread; with `write`, in a transaction.

        Raises
        ------
        StoreUnavailable, StorageFull
            If nothing could be written: the database stays locked or is damaged, or the disk is full.
        """
        if self.closed:
            raise StoreUnavailable("the server is shutting down")
        give_up_at = time.monotonic() + LOCK_WAIT_SECONDS
        return await asyncio.get_running_loop().run_in_executor(self.thread, self.perform, job, write, give_up_at)

    def run_blocking(self, job: Callable[[Database], T], *, write: bool = False) -> T:
        """Run `job` like `run`, without an event loop; for the server's start."""
        return self.thread.submit(self.perform, job, write, time.monotonic() + LOCK_WAIT_SECONDS).result()

    def perform(self, job: Callable[[Database], T], write: bool, give_up_at: float = 0.0) -> T:
        """Run `job` in the store's thread; without `give_up_at` it waits for no lock."""
        self.health.require_undamaged()
        try:
            return self._attempt(job, write, give_up_at)
        except sqlite3.DatabaseError as error:
            path = self._database.path
            if path is None or not is_corruption(error):
                raise translated(error) from error
        with self._sync_lock:  # a sync uses a descriptor of the database that is closed here
            self._database.close()
            self._database = self._replace(path)
        return self._attempt(job, write, give_up_at)

    def _attempt(self, job: Callable[[Database], T], write: bool, give_up_at: float) -> T:
        if not write:
            return job(self._database)
        with self._database.transaction(give_up_at - time.monotonic()):
            result = job(self._database)
        self._commits += 1
        if time.monotonic() >= self._check_at:
            self._check_at = math.inf  # until this check has ended
            self.sync_threads.submit(self.check)  # it reads the whole file
        return result

    # --- jobs that are retried until they succeed ---

    def perform_last(self, key: str, job: Callable[[Database], object]) -> None:
        """Run a writing `job` for something already accepted that has changed or ended; for the store's thread.

        On a full disk it gets the reserve. If that does not help, it is retried until it succeeds, or until a later
        job with the same `key` replaces it.
        """
        give_up_at = time.monotonic() + LOCK_WAIT_SECONDS
        try:
            try:
                self.perform(job, True, give_up_at)
            except StorageFull:
                if self._reserve is None or not self._reserve.is_held:
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
        """Return whether the job with this `key` still waits for a retry."""
        return key in self._unsaved

    def submit_last(self, key: str, job: Callable[[Database], object]) -> asyncio.Future[None]:
        """Run `perform_last` in the store's thread, and schedule its retries in the running loop."""
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self.thread, self.perform_last, key, job)
        done.add_done_callback(lambda _: self.retry_soon(loop))
        return done

    def retry_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule the retry of jobs that failed, if there are any."""
        if self._unsaved and self._retry is None and not self.closed:
            self._retry = loop.call_later(_RETRY_SECONDS, self._retry_now, loop)

    def _retry_now(self, loop: asyncio.AbstractEventLoop) -> None:
        self._retry = None
        loop.run_in_executor(self.thread, self._retry_all).add_done_callback(lambda _: self._end_retry(loop))

    def _end_retry(self, loop: asyncio.AbstractEventLoop) -> None:
        self.on_retried()
        self.retry_soon(loop)

    def _retry_all(self) -> None:
        for key, job in list(self._unsaved.items()):
            self.perform_last(key, job)

    def require_reserve(self) -> None:
        """Check that a job accepted now can also be finished.

        Raises
        ------
        StorageFull
            If the disk has no space for the reserve.
        """
        if self._reserve is not None and not self._reserve.is_held and not self._reserve.restore():
            raise StorageFull("the disk that keeps the executions is full; nothing new is accepted until there is room")

    # --- syncs: commits that must survive a power failure ---

    async def sync(self) -> None:
        """Return once every commit so far survives a power failure. One sync of the disk serves all who wait.

        If the disk fails, it returns, too: `health` then reports the fault until a later sync succeeds.
        """
        if not self.closed:  # `close` syncs
            await asyncio.get_running_loop().run_in_executor(self.sync_threads, self._sync_up_to, self._commits)

    def sync_soon(self) -> None:
        """Sync within a moment, if no other sync comes first; for commits that no caller waits for."""
        if self._sync_timer is None:
            self._sync_timer = asyncio.get_running_loop().call_later(_SYNC_BEHIND_SECONDS, self._sync_behind)

    def _sync_behind(self) -> None:
        self._sync_timer = None
        if not self.closed:
            self.sync_threads.submit(self._sync_up_to, self._commits)

    def _sync_up_to(self, commits: int) -> None:
        with self._sync_lock:
            if self._synced >= commits:
                return  # another sync, made since, was for these commits too
            newest = self._commits  # read before the sync, which may miss later ones
            try:
                self._database.sync()
            except OSError as error:
                # These commits are not counted as synced, so the next sync is for them, too.
                self.health.report(f"the database could not be synced: {error}", "sync")
                return
            self._synced = newest
            self.health.report(None, "sync")

    # --- care of the file ---

    def check(self) -> None:
        """Check the database's file for damage; in any thread."""
        if self._database.path is None:
            return
        began = time.monotonic()
        found = check_file(self._database.path)
        now = time.monotonic()
        self._check_at = now + max(_CHECK_SECONDS, _CHECK_REST * (now - began))
        if found is not None:
            self.health.report_damage(found)

    def shrink_file(self) -> bool:
        """Give some free pages back to the disk, if there are many; return whether there are more; in the thread."""
        if self._database.free_bytes() <= _KEPT_FREE_BYTES:
            return False
        try:
            self._database.give_back(_PAGES_GIVEN_BACK)
        except sqlite3.OperationalError:
            return False  # another server writes; the next eviction tries again
        return self._database.free_bytes() > _KEPT_FREE_BYTES

    def close(self) -> None:
        """Finish the waiting jobs, sync, and close the database."""
        if self.closed:
            return
        self.closed = True
        for timer in (self._retry, self._sync_timer):
            if timer is not None:
                timer.cancel()
        self.thread.submit(self._retry_all)
        self.thread.shutdown(wait=True)  # first: its jobs may still start a check in the other threads
        self.sync_threads.shutdown(wait=True)
        self._sync_up_to(self._commits)
        self._database.close()
        if self._reserve is not None:
            self._reserve.release()
