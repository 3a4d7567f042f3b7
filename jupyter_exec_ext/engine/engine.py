"""The engine: every verb of the API, for every host and every face.

It knows who calls (`Caller`) and hides from them what belongs to others; it knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..auth.caller import Caller, owner
from ..auth.policy import check_code, check_env, check_stored
from ..errors import (
    Conflict,
    ExecError,
    ExecutionNotFound,
    LogExpired,
    NoInputRequested,
    PayloadTooLarge,
    PolicyLimitReached,
    QueueFull,
    SessionEnded,
    SessionNotFound,
    ShuttingDown,
    StoreUnavailable,
    TooManySessions,
)
from ..models import (
    Execution,
    ExecutionRequest,
    ExecutionState,
    IdempotencyKey,
    KernelSpecInfo,
    Session,
    SessionRequest,
    SessionState,
    StoredExecution,
    Token,
)
from ..protocol.kernel_environment import inherited_environment, kernel_environment
from ..protocol.languages import source_for_kernel
from ..protocol.records_json import utc_timestamp
from ..protocol.strict_json import utf8_size
from ..system.freed_memory import keep_freed_memory
from ..system.marked_processes import MARK
from ..system.removal import describe_leftovers
from .access.admission import Admission
from .access.effective_limits import (
    idle_seconds,
    output_bytes,
    queue_seconds,
    run_seconds,
    session_settings,
    stored_shares,
)
from .access.fair_turns import FairTurns
from .access.kernel_access import ChosenKernel, KernelAccess
from .access.pending_approvals import ApprovalVerbs, needed_approval
from .access.policy_files import configured_policies
from .access.token_verbs import TokenVerbs
from .access.token_watch import TokenWatch, why_ended
from .change_feed import ChangeFeed
from .executions.idempotency import idempotency_of
from .executions.live_execution import ExecutionHandle, LiveExecution, PastExecution
from .executions.log_reader import OutputVerbs
from .executions.watchdog import WatchdogExpired, ends_within
from .files.file_verbs import FileVerbs
from .files.no_files import NOWHERE, files_of
from .files.quotas import FileLimits
from .files.remote_files import RemoteFiles
from .files.working_directories import LocalFiles
from .kernels.pool_plan import KernelKind, PoolBounds
from .kernels.process_state import MemoryMeter
from .kernels.provisioners import plain_name
from .kernels.shared_resources import EngineResources
from .kernels.warm_pool import KernelPool
from .ports import EventLog, KernelFiles, KernelHost, SessionFiles, Store
from .sessions.fresh_runs import FreshRuns
from .sessions.live_session import LiveSession, SessionSettings, ended_error, new_session_id
from .sessions.named_sessions import NamedSessions
from .sessions.notebook_export import CELLS_AT_ONCE, NotebookExport
from .settings import EngineSettings

_TOUCH_SECONDS = 1.0
_CANCEL_WAIT_SECONDS = 5.0
# For all sessions together, and for what else is to be done at the end. A host waits for about 15 s in all.
_SHUTDOWN_SECONDS, _BACKGROUND_SECONDS = 8.0, 2.0
_MAX_ENDED_SESSIONS = 1000
_MAX_NOTEBOOK_CELLS = 10_000


class ExecEngine(EngineSettings):
    """Runs code in sessions; configured as ``c.ExecEngine``."""

    def __init__(self, host: KernelHost, store: Store, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        keep_freed_memory()
        self.host = host
        self._store = store
        self._sessions = store.sessions
        self._executions = store.executions
        self.audit = store.audit
        self._session_files = self._make_session_files()
        self._access = KernelAccess(host, self)
        self._admission = Admission()
        self.feed = ChangeFeed()
        self._memory = MemoryMeter()
        self._export_turns = FairTurns(per_key=CELLS_AT_ONCE)
        policies = configured_policies(self.policies, self.policy_file, self.offered_policies)
        self.tokens = TokenVerbs(
            store.tokens,
            policies,
            self,
            self.audit,
            feed=self.feed,
            in_background=self.in_background,
            on_end=lambda: self._token_watch.look(),
        )
        self._token_watch = TokenWatch(store.tokens, self.log, self.tokens.note_expired)
        self._files_of = partial(
            files_of,
            here=self._session_files,
            elsewhere=RemoteFiles(self._kernel_files, self._file_limits),
            runs_elsewhere=host.runs_elsewhere,
        )
        self.files = FileVerbs(self._files_of, self.get_session, self.audit)
        self.outputs = OutputVerbs(self._executions)
        self._background: set[asyncio.Task[None]] = set()
        self._resources = EngineResources(
            self.max_output_bytes,
            self._executions.when_few_wait,
            log=self.log,
            max_message_bytes=self.max_message_bytes,
            max_all_messages_bytes=self.max_all_messages_bytes,
        )
        self.pool = KernelPool(
            lambda: PoolBounds(self.pool_size, self.pool_max, self.pool_memory_bytes, self.pool_idle_seconds),
            host,
            self._session_files,
            self._resources,
            store.note_prepared,
            is_busy=self._is_busy,
            start_timeout_seconds=self.kernel_start_timeout_seconds,
            log=self.log,
        )
        self._live: dict[str, LiveSession] = {}
        self.named = NamedSessions(self._live)
        self.fresh = FreshRuns(
            create=self.create_session,
            execute=self._execute,
            earlier=self._earlier,
            end=self._end_session,
            in_background=self.in_background,
        )
        self._running: dict[str, tuple[LiveSession, LiveExecution]] = {}
        self.approvals = ApprovalVerbs(self._executions, self._running, self.audit, self.max_code_bytes)
        self._access.say_what_is_in_force()
        #: What did not work at the start of the server, for `trouble`.
        self.start_problems: Sequence[str] = ()
        self._stopping = False
        self._touch_timer: asyncio.TimerHandle | None = None

    def _make_session_files(self) -> SessionFiles:
        if not self.session_directories:
            return NOWHERE
        root = Path(self.work_root)
        return LocalFiles(
            root,
            self._file_limits,
            max_watched_entries=self.max_watched_entries,
            log=self.log,
            keep_free_bytes=self._store.kept_free_at(root),
        )

    @property
    def _file_limits(self) -> FileLimits:
        return FileLimits(self.max_file_bytes or None, self.max_session_bytes or None, self.max_session_files or None)

    def _kernel_files(self, session_id: str) -> KernelFiles | None:
        live = self._live.get(session_id)
        return None if live is None else live.kernel_files

    # --- sessions ---

    async def create_session(
        self, caller: Caller, request: SessionRequest, *, setup_code: str | None = None
    ) -> Session:
        """Start a session, with a kernel of its own or attached to another's, and wait until the kernel answers.

        Parameters
        ----------
        setup_code : str, optional
            Ours, not the caller's: what a kernel in Python runs, silently, each time it has started. Code on another
            machine's kernel runs in a place of its own, so there it is left out.

        Raises
        ------
        InvalidRequest, KernelSpecNotFound, TooManySessions, TooManyKernels, KernelStartFailed, KernelStartTimeout
        PolicyDenied, PolicyLimitReached
        MissingScope, KernelNotFound, Conflict
        """
        others = () if request.kernel_id is None else await self.list_sessions(caller)
        chosen = await self._access.choose(caller, request, others)
        for policy in caller.policies:
            check_env(policy, request.env)
        env, settings = self._environment(request.env), session_settings(self, caller)
        kind = self._kind(chosen, env, settings) if request.kernel_id is None and not request.env else None
        live = self._place(caller, request, chosen, env, setup_code, settings, kind)
        prepared = live.record.kernel_starts > 0
        self._keep_touching()
        loop = asyncio.get_running_loop()
        self._store.on_forget(lambda session_ids: _post(loop, self._remove_files, session_ids))
        try:
            await live.record_start()
            await live.start()
        except BaseException as error:
            # What was sent to it meanwhile ends too.
            await live.close(f"it did not start: {error}")
            self._live.pop(live.record.id, None)
            raise
        if self._stopping:
            await live.close("the server is shutting down")
            raise ShuttingDown("the server is shutting down")
        if kind is not None and not prepared:
            self.pool.missed(kind)
        self.log.info("session %s: kernel %s (%s)", live.record.id, live.record.kernel_id, chosen.spec.name)
        return live.record

    async def kernelspecs(self, caller: Caller) -> list[KernelSpecInfo]:
        """Return the kernelspecs that a caller may use."""
        return await self._access.kernelspecs(caller)

    def _place(
        self,
        caller: Caller,
        request: SessionRequest,
        chosen: ChosenKernel,
        env: dict[str, str],
        setup_code: str | None,
        settings: SessionSettings,
        kind: KernelKind | None,
    ) -> LiveSession:
        """Take a place among the sessions, before anything is awaited, so that no two requests get the last one."""
        if self._stopping:
            raise ShuttingDown("the server is shutting down")
        self._forget_ended()
        if self.max_sessions and len(self._live) >= self.max_sessions:
            raise TooManySessions(f"this server runs at most {self.max_sessions} sessions; delete one first")
        alive = [live.record for live in self._live.values() if live.record.state is not SessionState.ENDED]
        self._admission.check_session(caller, (session.owner for session in alive))
        moment, spec = utc_timestamp(time.time()), chosen.spec
        idle_timeout_seconds = idle_seconds(self, caller, request.idle_timeout_seconds)
        pooled = None if kind is None else self.pool.take(kind)
        prepared = None if pooled is None else pooled.kernel
        record = Session(
            id=new_session_id() if pooled is None else pooled.session_id,
            owner=caller.principal,
            kernel_name=spec.name,
            language=spec.language or ("" if prepared is None else prepared.language),
            state=SessionState.STARTING if pooled is None else SessionState.IDLE,
            created_at=moment,
            last_activity_at=moment,
            name=request.name,
            isolation=spec.isolation,
            idle_timeout_seconds=idle_timeout_seconds,
            metadata=request.metadata,
            kernel_id=request.kernel_id if pooled is None else pooled.kernel_id,
            kernel_starts=0 if pooled is None else 1,
            attached=request.kernel_id is not None,
        )
        live = self._live[record.id] = LiveSession(
            record,
            {**env, MARK: record.id},
            isolate=chosen.isolate,
            setup_code=setup_code if spec.language == "python" and spec.isolation != "remote" else None,
            host=self.host,
            files=self._files_of(record),
            resources=self._resources,
            store=self._sessions,
            executions=self._executions,
            feed=self.feed,
            settings=settings,
            log=self.log,
            prepared=prepared,
        )
        live.on_end(self.pool.look)  # its kernel leaves room
        if caller.token_id is not None:
            live.on_end(self._token_watch.watch(caller.token_id, lambda token: self._end_session_of(token, live)))
        return live

    def _kind(self, chosen: ChosenKernel, env: dict[str, str], settings: SessionSettings) -> KernelKind | None:
        """Return what a kernel for a session is to be like; None for one that there is nothing gained by keeping."""
        spec = chosen.spec
        if spec.isolation == "remote" or self.host.runs_elsewhere(spec.name):
            return None
        version = self.host.version_of(spec.name)
        return KernelKind(
            spec.name, spec.language, version, chosen.isolate, frozenset(env.items()), settings.process_limits
        )

    def clear_away(self, prepared: Collection[str]) -> None:
        """Remove what an earlier server had prepared for sessions that never came; before any session of this one."""
        self._session_files.remove_unused(prepared)

    def pooled(self) -> int:
        """Return how many kernels are ready for sessions to come."""
        return self.pool.ready

    async def fill_pool(self) -> None:
        """Begin to keep those kernels ready that are to be there from the start (`pool_kernels`)."""
        anybody = owner("pool")
        for name in self.pool_kernels:
            plain = plain_name(name)
            request = SessionRequest(plain, isolation=None if plain == name else name[len(plain) + 1 :])
            try:
                chosen = await self._access.choose(anybody, request, ())
            except ExecError as error:
                self.log.error("ExecEngine.pool_kernels: %s", error.message)
                continue
            kind = self._kind(chosen, self._environment({}), session_settings(self, anybody))
            self.pool.keep([] if kind is None else [kind])

    def _environment(self, asked: Mapping[str, str]) -> dict[str, str]:
        return kernel_environment(
            inherited_environment(os.environ, self.inherited_env), asked, caller_names=self.caller_env
        )

    def _end_session_of(self, token: Token | None, live: LiveSession) -> None:
        """End what was begun in the name of a token that has ended."""
        self._admission.forget(live.record.owner)
        self.in_background(live.close(why_ended(token), cut=ExecutionState.TOKEN_REVOKED, now=True))

    def while_token_is_good(self, caller: Caller, on_end: Callable[[], None]) -> Callable[[], None]:
        """Call `on_end` when the caller's token, if it is one, has been revoked or has expired.

        Returns
        -------
        callable
            Ends the watch.
        """
        if caller.token_id is None:
            return _nothing
        return self._token_watch.watch(caller.token_id, lambda _: on_end())

    def hold_stream(self, caller: Caller) -> Callable[[], None]:
        """Count a request among the caller's that are answered over time, and return what ends it.

        Raises
        ------
        PolicyLimitReached
        """
        return self._admission.enter_stream(caller)

    def _forget_ended(self) -> None:
        for session_id, live in list(self._live.items()):
            if live.record.state is SessionState.ENDED:
                del self._live[session_id]

    async def list_sessions(self, caller: Caller, *, ended: bool = False, memory: bool = False) -> list[Session]:
        """Return the caller's sessions, oldest first; with `ended`, those that have ended too.

        Parameters
        ----------
        memory : bool
            Measure what their kernels use.
        """
        past = await self._sessions.list_ended(_MAX_ENDED_SESSIONS) if ended else ()
        known = {session.id: session for session in [*past, *(live.record for live in self._live.values())]}
        found = [
            session
            for session in sorted(known.values(), key=lambda session: session.created_at)
            if caller.may_see(session.owner) and (ended or session.state is not SessionState.ENDED)
        ]
        return await self._measured(found) if memory else found

    async def get_session(self, caller: Caller, session_id: str, *, memory: bool = False) -> Session:
        """Return a session, ended or not; with `memory`, measure what its kernel uses."""
        live = self._live.get(session_id)
        record = live.record if live is not None else await self._sessions.get(session_id)
        if record is None or not caller.may_see(record.owner):
            raise SessionNotFound(f"no session {session_id!r}")
        return (await self._measured([record]))[0] if memory else record

    async def _measured(self, sessions: Sequence[Session]) -> list[Session]:
        pids = {session.id: self._live[session.id].kernel_pid for session in sessions if session.id in self._live}
        found = await self._memory.measure({session_id: pid for session_id, pid in pids.items() if pid is not None})
        return [replace(session, memory_bytes=found.get(session.id)) for session in sessions]

    async def _live_session(self, caller: Caller, session_id: str) -> LiveSession:
        record = await self.get_session(caller, session_id)
        live = self._live.get(session_id)
        if live is None or record.state is SessionState.ENDED:
            raise ended_error(record)
        return live

    async def delete_session(self, caller: Caller, session_id: str) -> None:
        """Shut a session down; what runs in it ends as cancelled."""
        live = await self._live_session(caller, session_id)
        self.audit.record("session", "delete_asked", caller.principal, session_id)
        await live.close("deleted")
        self._live.pop(session_id, None)

    async def _end_session(self, session_id: str, reason: str) -> None:
        """Shut down a session of which nobody needs to know any more."""
        live = self._live.get(session_id)
        if live is not None:
            await live.close(reason)
            self._live.pop(session_id, None)

    async def interrupt_session(self, caller: Caller, session_id: str) -> Session:
        """Interrupt what runs in the session, as Ctrl-C would."""
        live = await self._live_session(caller, session_id)
        self.audit.record("session", "interrupt_asked", caller.principal, session_id)
        await live.interrupt()
        return live.record

    async def restart_session(self, caller: Caller, session_id: str) -> Session:
        """Give the session a fresh kernel; what runs and what is queued ends as cancelled."""
        live = await self._live_session(caller, session_id)
        if live.record.attached:
            raise Conflict("the kernel is its user's, with whom the session shares it; restart it in the notebook")
        self.audit.record("session", "restart_asked", caller.principal, session_id)
        await live.restart()
        return live.record

    # --- executions ---

    async def execute(
        self, caller: Caller, session_id: str, request: ExecutionRequest, key: str | None = None
    ) -> ExecutionHandle:
        """Accept code into a session's queue.

        The caller may be told of it once it is `durable`, or has ended.

        Parameters
        ----------
        key : str, optional
            With the key of an earlier request to this session, nothing is run: that request's execution is returned.

        Raises
        ------
        SessionNotFound, SessionEnded, PayloadTooLarge, LanguageNotSupported, QueueFull, IdempotencyKeyReused
        PolicyDenied, PolicyLimitReached
        StorageFull, StoreUnavailable
            With nothing accepted.
        """
        return await self._execute(caller, session_id, request, idempotency_of(key, request))

    async def _execute(
        self, caller: Caller, session_id: str, request: ExecutionRequest, idempotency: IdempotencyKey | None
    ) -> ExecutionHandle:
        session = await self.get_session(caller, session_id)
        try:
            execution = await self._accept(caller, session, request, idempotency)
        except (SessionEnded, QueueFull, PolicyLimitReached):
            # It needs no room if it has had its own: an answer that was lost is given again, whatever came after it.
            earlier = await self._earlier(session_id, session.owner, idempotency)
            if earlier is None:
                raise
            return earlier
        if isinstance(execution, StoredExecution):
            return await self._handle_of(execution)
        self._keep_touching()
        return execution

    async def _earlier(self, session_id: str, owner: str, key: IdempotencyKey | None) -> ExecutionHandle | None:
        """Return the execution that an earlier request with the same key was accepted as, if there was one."""
        found = None if key is None else await self._executions.find(session_id, owner, key)
        return None if found is None else await self._handle_of(found)

    async def _accept(
        self, caller: Caller, session: Session, request: ExecutionRequest, key: IdempotencyKey | None
    ) -> LiveExecution | StoredExecution:
        """Record an execution and put it in its session's queue, or find the one that came with the same key."""
        live = self._live.get(session.id)
        if live is None or session.state is SessionState.ENDED:
            raise ended_error(session)
        record = self._new_execution(caller, live, request)
        self._check_stored(caller)
        with live.room():
            ticket = self._admission.enter(caller)
            try:
                log = await self._executions.accept(record, session.owner, key, caller.principal)
            except BaseException:
                ticket.withdraw()
                raise
            if isinstance(log, StoredExecution):
                ticket.withdraw()
                return log
            execution = LiveExecution(
                record,
                session.owner,
                log,
                self._executions,
                feed=self.feed,
                max_output_bytes=output_bytes(self, caller),
                max_queue_seconds=queue_seconds(caller),
            )
            self._running[record.id] = (live, execution)
            execution.on_end(lambda: self._running.pop(record.id))
            execution.on_end(ticket.leave)
            if execution.awaits_approval:
                self.approvals.await_answer(caller, live, execution)
            await live.submit(execution)
        return execution

    def _check_stored(self, caller: Caller) -> None:
        """Refuse what could not be stored, since what runs for the caller takes all of its share."""
        if caller.bounds:
            self._store.set_shares(stored_shares(caller))
        for bound in caller.bounds:
            check_stored(bound.policy, self._store.full_share_of(bound.principal))

    def _new_execution(self, caller: Caller, live: LiveSession, request: ExecutionRequest) -> Execution:
        session = live.record
        code_bytes = utf8_size(request.code)
        if code_bytes > self.max_code_bytes:
            raise PayloadTooLarge(f"'code' may have at most {self.max_code_bytes} bytes")
        for policy in caller.policies:
            check_code(policy, code_bytes)
        source = source_for_kernel(request.code, request.language, session.language)
        approval = needed_approval(caller, request.code, source, first_run=not live.has_run)
        return Execution(
            id=f"exe_{secrets.token_hex(12)}",
            session_id=session.id,
            state=ExecutionState.QUEUED if approval is None else ExecutionState.AWAITING_APPROVAL,
            code=request.code,
            created_at=utc_timestamp(time.time()),
            language=request.language,
            metadata=request.metadata,
            timeout_seconds=run_seconds(self, caller, request.timeout_seconds),
            allow_input=request.allow_input,
            isolation=session.isolation,
            approval=approval,
        )

    async def _handle_of(self, earlier: StoredExecution) -> ExecutionHandle:
        """Return the execution that an earlier request with the same key was accepted as."""
        execution_id = earlier.execution.id
        if execution_id in self._running:
            return self._running[execution_id][1]
        log = await self._executions.log(execution_id)
        # What was found may have been read before the end.
        last = earlier if earlier.execution.state.finished else await self._executions.get(execution_id)
        if log is None or last is None or not last.execution.state.finished:
            raise StoreUnavailable("an execution with this key is just being recorded", retry_after_seconds=1.0)
        return PastExecution(last.execution, log)

    async def list_executions(self, caller: Caller, session_id: str, limit: int) -> Sequence[Execution]:
        """Return the session's newest executions, oldest first."""
        await self.get_session(caller, session_id)
        # Those that end while the store is read are in it as they were before, so they are noted first.
        live = [execution for _, execution in self._running.values() if execution.record.session_id == session_id]
        known = {execution.id: execution for execution in await self._executions.list(session_id, limit)}
        known.update((execution.record.id, execution.record) for execution in live)
        return list(known.values())[-limit:]

    async def notebook(self, caller: Caller, session_id: str) -> NotebookExport:
        """Return the session as a notebook to be written, with the outputs of every execution that is still kept."""
        session = await self.get_session(caller, session_id)
        running = [live.record.id for _, live in self._running.values() if live.record.session_id == session_id]
        stored = await self._executions.list_ids(session_id, _MAX_NOTEBOOK_CELLS)
        names = {spec.name: spec.display_name for spec in await self.host.kernelspecs()}
        return NotebookExport(
            session,
            names.get(session.kernel_name, session.kernel_name),
            list(dict.fromkeys([*stored, *running])),
            self.get_execution,
            caller,
            self._export_turns,
        )

    async def get_execution(self, caller: Caller, execution_id: str, wait_seconds: float = 0.0) -> Execution:
        """Return an execution as it is when it has ended or `wait_seconds` have passed, whichever is first."""
        _, live = self._running.get(execution_id, (None, None))
        if live is not None and caller.may_see(live.owner):
            return await live.wait(wait_seconds)
        stored = await self._executions.get(execution_id) if live is None else None
        if stored is None or not caller.may_see(stored.owner):
            raise ExecutionNotFound(f"no execution {execution_id!r}")
        return stored.execution

    async def open_log(self, caller: Caller, execution_id: str) -> EventLog:
        """Return an execution's event log, to be read with `stream.follow`.

        Raises
        ------
        ExecutionNotFound, LogExpired
        """
        _, live = self._running.get(execution_id, (None, None))
        if live is not None and caller.may_see(live.owner):
            return live.log
        stored = await self._executions.summary(execution_id)
        if stored is None or not caller.may_see(stored.owner):
            raise ExecutionNotFound(f"no execution {execution_id!r}")
        log = await self._executions.log(execution_id)
        if log is None:
            raise LogExpired("the event log of this execution is no longer kept")
        return log

    async def cancel(self, caller: Caller, execution_id: str) -> Execution:
        """Cancel an execution, queued or running, and return it, ended unless its kernel is hard to kill.

        An execution that has ended is returned as it is, so that cancelling twice is no error.
        """
        await self.get_execution(caller, execution_id)
        session, execution = self._running.get(execution_id, (None, None))
        if session is None or execution is None:
            return await self.get_execution(caller, execution_id)
        self.audit.record("execution", "cancel_asked", caller.principal, execution_id, session_id=session.record.id)
        await session.cancel(execution, f"cancelled by {caller.display_name or caller.principal}")
        return await execution.wait(self.interrupt_grace_seconds + _CANCEL_WAIT_SECONDS)

    async def answer_input(self, caller: Caller, execution_id: str, value: str) -> None:
        """Answer an execution's ``input()``.

        Raises
        ------
        ExecutionNotFound, NoInputRequested
        """
        await self.get_execution(caller, execution_id)
        session, execution = self._running.get(execution_id, (None, None))
        if session is None or execution is None or not session.answer_input(execution, value):
            raise NoInputRequested("the execution is not running")

    # --- the whole ---

    def trouble(self) -> str | None:
        """Return what is wrong with this server, if anything is; for an administrator."""
        return "; ".join(filter(None, (self._store.trouble(), *self.start_problems, describe_leftovers()))) or None

    def activity(self) -> dict[str, str]:
        """Return the executions that are running or queued, by id, with their sessions' ids."""
        return {eid: live.record.id for eid, (live, _) in self._running.items()}

    def _is_busy(self) -> bool:
        return bool(self._running) or any(live.record.state is SessionState.STARTING for live in self._live.values())

    def load(self) -> tuple[int, int, int]:
        """Return how many sessions there are, and how many executions run and wait."""
        sessions = sum(live.record.state is not SessionState.ENDED for live in self._live.values())
        running = sum(execution.record.state is ExecutionState.RUNNING for _, execution in self._running.values())
        return sessions, running, len(self._running) - running

    def _keep_touching(self) -> None:
        """While anything runs or starts, keep telling the host so, or it might cull a kernel or stop the server."""
        if self._touch_timer is None:
            self._touch_timer = asyncio.get_running_loop().call_later(_TOUCH_SECONDS, self._touch)

    def _touch(self) -> None:
        self._touch_timer = None
        in_use = [live for live in self._live.values() if live.record.state is SessionState.STARTING]
        in_use += [session for session, _ in self._running.values()]
        for session in in_use:
            session.touch()
        if in_use:
            self._keep_touching()

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for; it is waited for before the engine ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _remove_files(self, session_ids: Sequence[str]) -> None:
        """Remove the files of sessions that are not kept any more."""
        for session_id in session_ids:
            self.in_background(self._session_files.remove(session_id))

    async def shutdown(self) -> None:
        """End every session and execution and close every socket. The engine cannot be used again."""
        self._stopping = True
        closing = [self._close_at_end(session) for session in self._live.values()]
        try:
            await ends_within(_SHUTDOWN_SECONDS, asyncio.gather(*closing, self.pool.close()), cancel=False)
        except WatchdogExpired:  # the next server ends what is still open
            self.log.exception("not all sessions could be ended")
        self.feed.close()
        self._token_watch.close()
        if self._touch_timer is not None:
            self._touch_timer.cancel()
        if self._background:
            await asyncio.wait(self._background, timeout=_BACKGROUND_SECONDS)
        self._session_files.close()
        self._resources.close()
        await asyncio.to_thread(self._store.close)

    async def _close_at_end(self, session: LiveSession) -> None:
        try:
            await session.close("the server was shut down", cut=ExecutionState.SERVER_RESTARTED)
        except Exception:
            self.log.exception("session %s did not shut down cleanly", session.record.id)


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[Sequence[str]], None], session_ids: Sequence[str]) -> None:
    loop.call_soon_threadsafe(call, session_ids)


def _nothing() -> None:
    pass
