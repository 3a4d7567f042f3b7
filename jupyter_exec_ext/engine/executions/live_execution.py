"""Live execution: its record, its event log and that log's readers, its output cap and the waiters for its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from ...models import (
    Approval,
    Execution,
    ExecutionRequest,
    ExecutionState,
    FilesEvent,
    InputRequestEvent,
    JupyterExecutionRequest,
    OutputEvent,
    SessionStateLostEvent,
    SpooledOutput,
    StateEvent,
    StateLoss,
)
from ...protocol.large_values import is_large
from ...protocol.output_cap import OutputLimiter
from ...protocol.output_joining import OutputFold, finished_record
from ...protocol.output_overflow import Overflow
from ...protocol.records_json import utc_timestamp
from ...protocol.strict_json import dump_bytes
from ..change_feed import ChangeFeed
from ..ports import EventLog, ExecutionStore, LogEntry, OutputSpool, WritableLog
from .lifecycle import Verdict, advance


class ExecutionHandle(Protocol):
    """An accepted execution, whether it lives or has ended."""

    @property
    def record(self) -> Execution:
        """The execution as it is now."""

    @property
    def log(self) -> EventLog:
        """Its events."""

    async def durable(self) -> None:
        """Return once the execution would survive a power failure.

        Its caller gets an answer after that or, without it, after its end.
        """

    async def wait(self, timeout_seconds: float | None = None) -> Execution:
        """Return the record once the execution has ended, or as it is when the time is up."""

    async def outcome(self, timeout_seconds: float | None = None) -> Execution:
        """Return what `wait` does: a large finished record as soon as it is made, so that its JSON can be.

        It must not be sent before `wait` has returned: until then it might not survive a power failure.
        """


@dataclass(frozen=True, slots=True)
class PastExecution:
    """An execution that had ended before it was asked for again."""

    record: Execution
    log: EventLog

    async def durable(self) -> None:
        """Return at once: it was, before it was seen to have ended."""

    async def wait(self, timeout_seconds: float | None = None) -> Execution:
        """Return the record."""
        return self.record

    async def outcome(self, timeout_seconds: float | None = None) -> Execution:
        """Return the record."""
        return self.record


class LiveExecution:
    """An accepted execution that has not ended yet.

    Parameters
    ----------
    record : Execution
        As accepted, in the state ``queued`` or ``awaiting_approval``.
    owner : str
        The principal it belongs to.
    log : WritableLog
        Empty and open.
    feed : ChangeFeed
        Gets each change of state.
    max_queue_seconds : float or None
        Longest wait for its turn; None for no limit.
    request : ExecutionRequest
        What was asked for: the code may have been changed since by the person who approved it.

    Attributes
    ----------
    max_output_bytes : int
        Cap on its output.
    user_expressions : mapping
        Values that the kernel has replied with, once the execution has ended.
    """

    def __init__(
        self,
        record: Execution,
        owner: str,
        log: WritableLog,
        store: ExecutionStore,
        *,
        feed: ChangeFeed,
        max_output_bytes: int,
        max_queue_seconds: float | None = None,
        request: ExecutionRequest,
    ) -> None:
        self.record = record
        self.request = request
        self.user_expressions: Mapping[str, Any] = {}
        self.owner = owner
        self.log = log
        self.max_queue_seconds = max_queue_seconds
        self.max_output_bytes = max_output_bytes
        self._store = store
        self._feed = feed
        self._fold = OutputFold()
        self._overflow: Overflow[OutputSpool] = Overflow(self._fold, partial(store.spool, record, owner))
        self._limiter = OutputLimiter(max_output_bytes, self._overflow)
        self._finished: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()
        # Done before `_finished` for a large record: its JSON is made while the log is written to the disk.
        self._outcome: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()
        self._decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begun: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._finishing = False
        self._on_change: list[Callable[[], object]] = []
        self.waits_for_input = False
        self._state_is_news()

    def _state_is_news(self) -> None:
        """Add the state to the log, and publish it in the change feed."""
        self.log.append(StateEvent(self.record.state))  # no output, so it passes neither fold nor cap
        if self._feed.wanted:
            self._feed.note_execution(self.record, self.owner)
        self._changed()

    def _changed(self) -> None:
        for callback in self._on_change:
            callback()

    def on_change(self, callback: Callable[[], object]) -> None:
        """Call `callback` at each change of its state, and when it asks for input or gets it."""
        self._on_change.append(callback)

    def note_input(self, *, wanted: bool) -> None:
        """Note that the code asks for input, or has got it."""
        self.waits_for_input = wanted
        self._changed()

    @property
    def awaits_approval(self) -> bool:
        """True if a person has to decide about it."""
        return self.record.state is ExecutionState.AWAITING_APPROVAL

    def approve(self, approval: Approval, code: str) -> None:
        """Put it in the queue, with the code that a person has approved."""
        self.record = replace(
            self.record, state=advance(self.record.state, ExecutionState.QUEUED), code=code, approval=approval
        )
        self._state_is_news()
        self._decided.set_result(None)

    def note_decision(self, approval: Approval) -> None:
        """Note a decision that ends it."""
        self.record = replace(self.record, approval=approval)

    async def decided(self) -> None:
        """Return once it does not await approval any more: it is queued, or has ended."""
        # A rejected, expired or cancelled execution ends without being approved.
        either: list[asyncio.Future[Any]] = [self._decided, self._finished]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    def start(self, kernel_starts: int, lost: StateLoss | None = None) -> None:
        """Note that the code is being sent to the kernel, a fresh one if the session's state was `lost`."""
        self.record = replace(
            self.record,
            state=advance(self.record.state, ExecutionState.RUNNING),
            started_at=utc_timestamp(time.time()),
            kernel_starts=kernel_starts,
            session_state_lost=lost,
        )
        self._state_is_news()
        if lost is not None:
            # Past the limiter: the cap on output must not cut this event.
            self._log(SessionStateLostEvent(lost.reason, lost.kernel_exit_code, lost.kernel_signal))

    def note_begin(self, execution_count: int | None) -> None:
        """Note that the kernel has begun to run the code, under this count."""
        if not self._begun.done():
            self._begun.set_result(execution_count)

    async def begun(self, timeout_seconds: float) -> int | None:
        """Return the execution count once the kernel runs the code; None if that takes longer, or it has none."""
        either: list[asyncio.Future[Any]] = [self._begun, self._finished]
        await asyncio.wait(either, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        return self._begun.result() if self._begun.done() else self.record.execution_count

    def emit(self, event: OutputEvent) -> None:
        """Log output within the cap; the rest goes to the spool."""
        if self.log.full:
            # The store has no room: from now on only the tail is kept, as if the cap were reached.
            self._limiter.end_head()
        if self._overflow.active:
            self._overflow.see(event)
        for passed in self._limiter.feed(event):
            self._log(passed)
        if event.type == InputRequestEvent.type:
            self.note_input(wanted=True)
        # Asked again: the limiter may just have left something out for the first time.
        if self._overflow.active:
            self._overflow.flush()

    def _log(self, event: OutputEvent) -> None:
        self._fold.add(event)
        self.log.append(event)

    @property
    def finishing(self) -> bool:
        """True once its end is being written."""
        return self._finishing

    def _values_that_fit(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of user expressions, or errors in their places if they exceed the cap on output."""
        if not values or len(dump_bytes(values)) <= self.max_output_bytes:
            return values
        text = f"the values have more than {self.max_output_bytes} bytes (max_output_bytes)"
        error = {"status": "error", "ename": "PayloadTooLarge", "evalue": text, "traceback": []}
        names = self.request.user_expressions if isinstance(self.request, JupyterExecutionRequest) else ()
        return dict.fromkeys(names, error)

    async def finish(self, verdict: Verdict, files: FilesEvent | None = None) -> None:
        """Write the terminal record, once, and wake its waiters; `files` are those that the run has changed."""
        # Before the first await: the expiry of an approval and a forced end check it.
        self._finishing = True
        state = advance(self.record.state, verdict.state)
        spooled = await self._spooled()
        if files is not None:
            files = self._limiter.fit_files(files)
        for event in self._limiter.close(*spooled):
            self._log(event)
        if files is not None:
            self._log(files)
        exit_, self.user_expressions = verdict.exit, self._values_that_fit(verdict.user_expressions)
        self.record = finished_record(
            self.record,
            self._fold,
            state,
            finished_at=utc_timestamp(time.time()),
            execution_count=verdict.execution_count,
            reason=verdict.reason,
            session_state_preserved=verdict.preserved,
            kernel_exit_code=exit_.exit_code if exit_ else None,
            kernel_signal=exit_.signal if exit_ else None,
        )
        if is_large(self.record):
            self._outcome.set_result(self.record)
        try:
            # Before the waiters wake: an end that a client has seen must survive a power failure.
            await self._store.finish(self.record, self.owner, self.log)
        finally:
            # Also if it failed: nothing else would wake the waiters or free the execution's places.
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        self.note_input(wanted=False)
        # They refer to this execution. It would go, with its output, only when the garbage collector finds them.
        self._on_change.clear()
        self._finished.set_result(self.record)
        if not self._outcome.done():
            self._outcome.set_result(self.record)
        if self._feed.wanted:
            self._feed.note_execution(self.record, self.owner)

    async def _spooled(self) -> tuple[Sequence[SpooledOutput], str | None]:
        spool = self._overflow.spool
        written = {} if spool is None else await spool.close()
        return self._overflow.report(written, None if spool is None else spool.problem)

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the execution has ended."""
        self._finished.add_done_callback(lambda _: callback())

    async def durable(self) -> None:
        """Return once it would survive a power failure."""
        await self._store.sync()

    async def wait(self, timeout_seconds: float | None = None) -> Execution:
        """Return the record once the execution has ended, or as it is when the time is up."""
        if not self._finished.done() and timeout_seconds != 0:
            # Unlike `wait_for`, this does not cancel the future, which other waiters share.
            await asyncio.wait([self._finished], timeout=timeout_seconds)
        return self.record

    async def outcome(self, timeout_seconds: float | None = None) -> Execution:
        """Return what `wait` does, a large finished record before it does."""
        if not self._outcome.done() and timeout_seconds != 0:
            await asyncio.wait([self._outcome], timeout=timeout_seconds)
        return self.record


_ENTRIES_PER_READ = 256


async def follow(
    log: EventLog, after: int = 0, *, heartbeat_seconds: float | None = None
) -> AsyncIterator[Sequence[LogEntry]]:
    """Yield the entries that follow number `after`, in batches, until the log's last.

    Parameters
    ----------
    heartbeat_seconds : float, optional
        Yield an empty batch when nothing came for this long, so that the reader can say that it is alive.
    """
    while True:
        batch = await log.read(after, _ENTRIES_PER_READ)
        if batch:
            after = batch[-1].seq
            yield batch
        elif log.closed:
            # An empty batch came without a wait, so no entry can have been added before `closed` was read.
            return
        elif not await _changed(log, after, heartbeat_seconds):
            yield ()


async def _changed(log: EventLog, after: int, timeout_seconds: float | None) -> bool:
    """Wait for news; return False when the time is up first."""
    if timeout_seconds is None:
        await log.changed(after)
        return True
    try:
        await asyncio.wait_for(log.changed(after), timeout_seconds)
    except asyncio.TimeoutError:
        return False
    return True
