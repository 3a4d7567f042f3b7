"""Usage sampler: processor time and memory of all sessions' kernels, every few seconds, kept for an hour.

Processes are read in a thread. What that costs is bounded: the longer it takes, the rarer it is done.
"""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import psutil

from ...models import SessionState, SessionUsage, UsageSample
from ...protocol.records_json import utc_timestamp
from ..kernels.kernel_processes import memory_bytes, processes_below
from ..kernels.process_limits import limits_of_process
from .session_registry import SessionRegistry

SAMPLE_SECONDS, KEPT_SECONDS = 5.0, 3600.0
_MAX_SHARE = 0.005  # of one processor
_MAX_SAMPLES = int(KEPT_SECONDS / SAMPLE_SECONDS)
_FIELDS = 3  # of a sample: time, memory, processors
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
# When a process started, the processor time and the resident memory that it had; and its memory.
_Known = dict[int, tuple[tuple[float, float, int], int]]


@dataclass(frozen=True, slots=True)
class TreeUse:
    """Use of a process and those below it since its start, at the time `at`."""

    at: float
    pid: int
    started_at: float
    memory_bytes: int
    cpu_seconds: float

    def cpu_since(self, before: TreeUse | None) -> float:
        """Return the processors in use since an earlier look or, if there is none at this process, since its start."""
        began, used = self.started_at, self.cpu_seconds
        if before is not None and (before.pid, before.started_at) == (self.pid, self.started_at):
            began, used = before.at, used - before.cpu_seconds
        # Processes that have left the tree take their time with them, and the clock may have been set.
        return min(max(0.0, used / max(self.at - began, 0.001)), PROCESSORS)


class TreeMeter:
    """Measures process trees again and again; the memory of a process that has not run since is not read again."""

    def __init__(self) -> None:
        self._known: _Known = {}

    def measure(self, roots: Mapping[str, int]) -> tuple[dict[str, TreeUse], float]:
        """Return what each root process and those below it use, and the processor time that this took."""
        began = time.thread_time()
        known, self._known = self._known, {}
        below = processes_below(set(roots.values()))
        found = {name: self._measure(root, below[root], known) for name, root in roots.items()}
        return {name: use for name, use in found.items() if use is not None}, time.thread_time() - began

    def _measure(self, root: int, below: set[int], known: _Known) -> TreeUse | None:
        at, started_at, memory, cpu = time.time(), 0.0, 0, 0.0
        for pid in (root, *below):
            try:
                process = psutil.Process(pid)
                with process.oneshot():
                    # With the time of children that have ended.
                    used, resident = sum(process.cpu_times()[:4]), process.memory_info().rss
                stamp = (process.create_time(), used, resident)
            except psutil.Error:  # it has ended meanwhile
                if pid == root:
                    return None
                continue
            if pid not in known or known[pid][0] != stamp:
                self._known[pid] = stamp, memory_bytes(pid)
            else:
                self._known[pid] = known[pid]
            if pid == root:
                started_at = stamp[0]
            memory += self._known[pid][1]
            cpu += used
        return TreeUse(at, root, started_at, memory, cpu)


class UsageSampler:
    """Samples of all live sessions of a registry; idle while there are none.

    Parameters
    ----------
    registry : SessionRegistry
        Its sessions are measured; samples are kept as long as it has the session.
    """

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._meter = TreeMeter()
        self._samples: dict[str, array[float]] = {}
        self._last: dict[str, TreeUse] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._measuring = False

    def start(self) -> None:
        """Sample from now on, until there is no session any more."""
        if self._timer is None and not self._measuring:
            self._schedule(0.0)

    def close(self) -> None:
        """End the sampling."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._sample)

    def _sample(self) -> None:
        self._timer = None
        sessions = self._registry.sessions
        self._samples = {session_id: kept for session_id, kept in self._samples.items() if session_id in sessions}
        self._last = {session_id: use for session_id, use in self._last.items() if session_id in self._samples}
        live = {id_: live.kernel.pid for id_, live in sessions.items() if live.record.state is not SessionState.ENDED}
        if live:
            pids = {session_id: pid for session_id, pid in live.items() if pid is not None}
            self._measuring = True
            job = asyncio.get_running_loop().run_in_executor(None, partial(self._meter.measure, pids))
            job.add_done_callback(self._note)

    def _note(self, job: asyncio.Future[tuple[dict[str, TreeUse], float]]) -> None:
        self._measuring = False
        if job.cancelled() or self._registry.stopping:
            return
        found, cost_seconds = job.result()
        for session_id, use in found.items():
            kept = self._samples.setdefault(session_id, array("d"))
            kept.extend((use.at, use.memory_bytes, use.cpu_since(self._last.get(session_id))))
            del kept[: -_MAX_SAMPLES * _FIELDS]
            self._last[session_id] = use
        self._schedule(max(SAMPLE_SECONDS, cost_seconds / _MAX_SHARE))

    async def usage(self, session_id: str) -> SessionUsage:
        """Return the samples of a session, and the limits of its kernel."""
        live = self._registry.sessions.get(session_id)
        kept = self._samples.get(session_id, array("d"))
        oldest = time.time() - KEPT_SECONDS
        samples = tuple(
            UsageSample(utc_timestamp(kept[at]), int(kept[at + 1]), round(kept[at + 2], 3))
            for at in range(0, len(kept), _FIELDS)
            if kept[at] >= oldest
        )
        pid = None if live is None else live.kernel.pid
        if pid is None:
            return SessionUsage(False, samples, PROCESSORS)
        limits = await asyncio.to_thread(limits_of_process, pid)
        return SessionUsage(True, samples, PROCESSORS, limits.memory_bytes, limits.cpu_seconds)
