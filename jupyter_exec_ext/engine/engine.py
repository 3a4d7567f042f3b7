"""Execution engine: the verbs of the API for every host, each a call of one service.

It knows the caller of each request, and hides other callers' sessions and executions. It knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..auth.caller import Caller
from ..models import Execution, ExecutionRequest, KernelSpecInfo, Session, SessionRequest
from ..system.removal import describe_leftovers
from ..system.resources import keep_freed_memory
from .access.caller_limits import Admission
from .access.grant_service import GrantService
from .access.hub_token_service import HubTokenService
from .access.kernel_access import KernelAccess
from .access.secret_service import SecretService
from .access.token_service import TokenService
from .access.token_watch import TokenJournal, TokenWatch
from .change_feed import ChangeFeed
from .concurrency import BackgroundTasks, WatchdogExpired, ends_within
from .executions.live_execution import ExecutionHandle
from .files.file_locator import FileLocator
from .files.remote_files import RemoteFiles
from .kernels.shared_resources import EngineResources
from .kernels.warm_pool import KernelPool
from .kernels.warm_pool_plan import PoolBounds
from .ports import EventLog, FileLimits, KernelHost, MakeProxy, Store
from .sessions.approval_service import ApprovalService
from .sessions.checkpoint_maker import CheckpointMaker
from .sessions.checkpoint_service import CheckpointService
from .sessions.execution_history import ExecutionHistory
from .sessions.execution_service import ExecutionService, OutputVerbs, idempotency_of
from .sessions.file_service import FileService, local_files
from .sessions.fresh_runs import FreshRuns
from .sessions.kernel_message_service import KernelMessageService
from .sessions.notebook_export import NotebookExport, NotebookExporter
from .sessions.package_service import PackageService
from .sessions.server_status import ServerStatus
from .sessions.session_factory import SessionFactory
from .sessions.session_memory import SessionMemory
from .sessions.session_networks import SessionNetworks
from .sessions.session_packages import SessionPackages
from .sessions.session_registry import NamedSessions, SessionRegistry
from .sessions.session_service import SessionService
from .settings import EngineSettings

# A host waits for about 15 s in all when it stops.
_SHUTDOWN_SECONDS, _BACKGROUND_SECONDS = 8.0, 2.0


class ExecEngine(EngineSettings):
    """Code execution in sessions; configured as ``c.ExecEngine``.

    Parameters
    ----------
    host : KernelHost
        Starts kernels.
    store : Store
        Keeps records; closed at `shutdown`.
    make_proxy : callable, optional
        Makes the proxy of sessions with network rules; without one, there can be no such sessions.
    **kwargs
        Traits, and ``parent``, ``config`` and ``log`` as for any configurable.

    Attributes
    ----------
    approvals, checkpoints, files, fresh, grants, history, hub_tokens, messages, named, networks, outputs, packages
    secrets, sessions, status, tokens
        Services whose methods are verbs, too.
    audit : AuditTrail
        Records of who did what.
    feed : ChangeFeed
        Changes of sessions, executions, tokens and grants.
    start_problems : sequence of str
        Optional steps that failed at the server's start, for `trouble`.
    policy_problem : str
        Mistake in the policies; hosts answer every request with it, and no session is created. Empty without one.
    """

    def __init__(self, host: KernelHost, store: Store, *, make_proxy: MakeProxy | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        keep_freed_memory()  # a large picture is copied several times on its way: see `system.resources`
        settings: EngineSettings = self  # services read the traits, and nothing else of the engine
        self.host = host
        self.audit = store.audit
        self.feed = ChangeFeed()
        self.background = BackgroundTasks()
        self.start_problems: Sequence[str] = ()
        self._store = store
        self._registry = SessionRegistry(self.server_name)
        self._admission = Admission()
        self._access = KernelAccess(host, settings)
        journal = TokenJournal(store.tokens, store.audit, self.feed, self.background)
        self._token_watch = TokenWatch(store.tokens, journal, self.log)
        policies, self.policy_problem = self.policies_or_problem()
        self._registry.policy_problem = self.policy_problem
        self.tokens = TokenService(store.tokens, policies, settings, store.audit, self.feed, journal, self._token_watch)
        self.hub_tokens = HubTokenService(store.tokens, self.tokens, settings, journal, self._token_watch)
        self.grants = GrantService(
            host, store.grants, self._access, self.tokens, self._token_watch, store.audit, self.feed, self.background
        )
        self.secrets = SecretService(store.secrets, store.audit)
        self.networks = SessionNetworks(settings, make_proxy, self.secrets, store.audit, self.background, self.log)
        self._resources = EngineResources(
            self.max_output_bytes,
            store.executions,
            log=self.log,
            max_message_bytes=self.max_message_bytes,
            max_all_messages_bytes=self.max_all_messages_bytes,
        )
        limits = FileLimits(self.max_file_bytes or None, self.max_session_bytes or None, self.max_session_files or None)
        files = self._local_files = local_files(settings, limits, store)
        locator = FileLocator(self._local_files, RemoteFiles(self._registry, limits), host)
        store.on_forget(self._local_files.start_removal)
        self.pool = KernelPool(
            PoolBounds(self.pool_size, self.pool_max, self.pool_memory_bytes, self.pool_idle_seconds),
            host,
            self._local_files,
            self._resources,
            store,
            self._registry,
            server_name=self.server_name,
            start_timeout_seconds=self.kernel_start_timeout_seconds,
            log=self.log,
        )
        packages = SessionPackages(settings)
        self._factory = SessionFactory(
            settings,
            host,
            store,
            registry=self._registry,
            access=self._access,
            admission=self._admission,
            token_watch=self._token_watch,
            grants=self.grants,
            networks=self.networks,
            secrets=self.secrets,
            packages=packages,
            locator=locator,
            pool=self.pool,
            resources=self._resources,
            background=self.background,
            feed=self.feed,
            log=self.log,
        )
        memory = SessionMemory(self._registry)
        maker = CheckpointMaker(
            settings, self._registry, self._admission, memory, self.background, store.audit, self.feed, self.log
        )
        self.sessions = SessionService(
            self._factory, self._registry, self.pool, store.sessions, store.audit, memory, maker, self.log
        )
        self.status = ServerStatus(settings, self._registry, self.pool, memory.meter, store.audit, self.log)
        self.approvals = ApprovalService(settings, store, self.sessions, self._registry, self.background)
        self._executions = ExecutionService(
            settings, store, self.sessions, self._registry, self._admission, self.approvals, self.feed
        )
        self.packages = PackageService(settings, host, packages, self.sessions, self._executions, store.audit)
        self.checkpoints = CheckpointService(settings, self.sessions, maker, files, self.background)
        self.named = NamedSessions(self._registry)
        self.messages = KernelMessageService(self.sessions, self._registry, settings, store.audit)
        self.fresh = FreshRuns(self.sessions, self._executions, self.background)
        self.files = FileService(self.sessions, locator, store.audit)
        self.outputs = OutputVerbs(store.executions, self._registry)
        self.history = ExecutionHistory(store.executions, self.sessions, self._registry)
        self._notebooks = NotebookExporter(self.sessions, self._executions, host)
        self._access.log_effective_settings()

    # --- sessions ---

    async def create_session(
        self, caller: Caller, request: SessionRequest, *, setup_code: str | None = None
    ) -> Session:
        """Start a session, with its own kernel or attached to a running one, and wait until the kernel answers.

        Parameters
        ----------
        setup_code : str, optional
            Code of ours that a Python kernel runs, silently, each time it has started. Remote kernels run without it.

        Raises
        ------
        InvalidRequest, KernelSpecNotFound, KernelNotFound, Conflict
            If the requested kernel does not exist or cannot be used.
        MissingScope, PolicyDenied, PolicyLimitReached
            If the caller may not have it.
        TooManySessions, TooManyKernels
            If there is no room for it.
        KernelStartFailed, KernelStartTimeout
            If the kernel does not start.
        """
        return await self.sessions.create(caller, request, setup_code)

    async def kernelspecs(self, caller: Caller) -> list[KernelSpecInfo]:
        """Return the kernelspecs that a caller may use."""
        return await self._access.kernelspecs(caller)

    async def list_sessions(self, caller: Caller, *, ended: bool = False, memory: bool = False) -> Sequence[Session]:
        """Return the caller's sessions, oldest first.

        Parameters
        ----------
        ended, memory : bool
            Include the newest of those that have ended; measure the memory of their kernels.
        """
        return await self.sessions.list(caller, ended=ended, memory=memory)

    async def get_session(self, caller: Caller, session_id: str, *, memory: bool = False) -> Session:
        """Return a session, ended or not; with `memory`, measure the memory of its kernel.

        Raises
        ------
        SessionNotFound
            If there is none that the caller may see.
        """
        return await self.sessions.get(caller, session_id, memory=memory)

    async def delete_session(self, caller: Caller, session_id: str) -> None:
        """Shut a session down; its executions end as cancelled."""
        await self.sessions.delete(caller, session_id)

    async def interrupt_session(self, caller: Caller, session_id: str) -> Session:
        """Interrupt the session's running code, as Ctrl-C would."""
        return await self.sessions.interrupt(caller, session_id)

    async def restart_session(self, caller: Caller, session_id: str) -> Session:
        """Give the session a fresh kernel; running and queued executions end as cancelled."""
        return await self.sessions.restart(caller, session_id)

    async def notebook(self, caller: Caller, session_id: str) -> NotebookExport:
        """Return the session as a notebook to be written, with the outputs of every execution that is still kept."""
        return await self._notebooks.export(caller, session_id)

    def watch_token(self, caller: Caller, on_end: Callable[[], None]) -> Callable[[], None]:
        """Call `on_end` when the caller's token, if any, has ended; return a function that ends the subscription."""
        return self._token_watch.watch_caller(caller, on_end)

    def hold_stream(self, caller: Caller) -> Callable[[], None]:
        """Count one more streamed answer of the caller; return a function that uncounts it.

        Raises
        ------
        PolicyLimitReached
            If a policy of the caller allows no more.
        """
        return self._admission.enter_stream(caller)

    # --- executions ---

    async def execute(
        self, caller: Caller, session_id: str, request: ExecutionRequest, key: str | None = None
    ) -> ExecutionHandle:
        """Accept code into a session's queue.

        Report it to the caller only once it is `durable`, or has ended.

        Parameters
        ----------
        key : str, optional
            Idempotency key. With the key of an earlier request to this session, that request's execution is returned.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        PayloadTooLarge, LanguageNotSupported, IdempotencyKeyReused
            If the request is refused.
        QueueFull, PolicyDenied, PolicyLimitReached
            If a limit of the session or a policy is reached.
        StorageFull, StoreUnavailable
            If the execution cannot be recorded; it is not accepted.
        """
        return await self._executions.execute(caller, session_id, request, idempotency_of(key, request))

    async def get_execution(self, caller: Caller, execution_id: str, wait_seconds: float = 0.0) -> Execution:
        """Return an execution as it is when it has ended or `wait_seconds` have passed, whichever is first."""
        return await self._executions.get(caller, execution_id, wait_seconds)

    async def open_log(self, caller: Caller, execution_id: str) -> EventLog:
        """Return an execution's event log, to be read with `live_execution.follow`.

        Raises
        ------
        ExecutionNotFound
            If there is none that the caller may see.
        LogExpired
            If the log is no longer kept.
        """
        return await self._executions.open_log(caller, execution_id)

    async def cancel(self, caller: Caller, execution_id: str) -> Execution:
        """Cancel an execution, queued or running, and return it, ended unless its kernel is hard to kill.

        An execution that has ended is returned as it is, so that cancelling twice is no error.
        """
        return await self._executions.cancel(caller, execution_id)

    async def answer_input(self, caller: Caller, execution_id: str, value: str) -> None:
        """Answer an execution's ``input()``.

        Raises
        ------
        ExecutionNotFound
            If there is none that the caller may see.
        NoInputRequested
            If it does not wait for input.
        """
        await self._executions.answer_input(caller, execution_id, value)

    # --- the server ---

    def trouble(self) -> str | None:
        """Return the problems of this server for its administrator; None if there are none."""
        return "; ".join(filter(None, (self._store.trouble(), *self.start_problems, describe_leftovers()))) or None

    def activity(self) -> dict[str, str]:
        """Return the executions that are running or queued, by id, with their sessions' ids."""
        return {execution_id: live.record.id for execution_id, (live, _) in self._registry.executions.items()}

    async def fill_pool(self) -> None:
        """Start the kernels that are kept ready from the server's start on (`pool_kernels`)."""
        if not self.policy_problem:
            await self._factory.fill_pool()

    def remove_unused_files(self, session_ids: Collection[str]) -> None:
        """Remove the packages of sessions of an earlier server, and their directories if they are empty."""
        self._local_files.remove_unused(session_ids)

    async def shutdown(self) -> None:
        """End every session and execution and close every socket. The engine cannot be used again."""
        # First, so that no session is created that this would not end.
        self._registry.stopping = True
        try:
            # Not cancelled: half a shutdown leaves a kernel manager with which the server could not stop.
            ends = asyncio.gather(self.sessions.close_all(), self.pool.close())
            await ends_within(_SHUTDOWN_SECONDS, ends, cancel=False)
        except WatchdogExpired:  # the next server ends what is still open
            self.log.exception("not all sessions could be ended")
        # After the sessions, whose ends are published. The store is last: background tasks still write to it.
        for service in (self.messages, self.grants, self.feed, self._token_watch, self._registry):
            service.close()
        await self.background.drain(_BACKGROUND_SECONDS)
        await self.networks.stop()
        self._local_files.close()
        self._resources.close()
        await asyncio.to_thread(self._store.close)
