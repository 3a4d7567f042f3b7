"""The asynchronous client. Its twin in `sync/` is generated; change this one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ApiNotFound, PolicyDenied
from ...models import Change, Execution, KernelSpecInfo, OutputEvent, Readiness, RecordList, ServerLoad, Session
from ..api.event_stream import ChangeFollower
from ..api.execution_operations import FRESH_SESSION, execution_request, new_key, one_timeout
from ..api.operations import ExecApi, FoundExecutions, session_request
from ..api.retries import DEFAULT_OUTAGE_SECONDS, RetryPolicy
from ..api.server_status import ServerStatusApi
from ..local_servers import find_connection
from ..server_connection import JupyterConnectable, JupyterConnectionInfo
from .awaitable_context import awaitable_context
from .driver import AioDriver, AnswerInput
from .execution_handle import AsyncExecutionHandle
from .secrets import AsyncExecSecrets
from .session import AsyncExecSession
from .tokens import AsyncExecApprovals, AsyncExecTokens

if TYPE_CHECKING:
    from typing_extensions import Self

    from .standard_session import AsyncStandardExecSession


class AsyncExecClient:
    """Client of a server's ``exec/v1`` API.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable
        A URL (a ``?token=`` in it is removed and sent as a header), the connection info of a server, or an object
        that has it. By default ``"auto"``: the server that the environment variable ``JUPYTER_EXEC_SERVER`` names or,
        without it, the newest server of this user on this machine that answers ``exec/v1``.
    token : str, optional
        The server's token, if `server` is a URL without one; by default that of ``JUPYTER_TOKEN`` for ``"auto"``.
    max_retries : int
        Number of retries of an idempotent request, with growing pauses.
    outage_seconds : float
        Time in seconds that runs and streams wait for a server that no longer answers, such as behind a proxy that
        restarts. Then they continue, or raise `ConnectionLost`.

    Attributes
    ----------
    tokens : AsyncExecTokens
        The server's scoped tokens and policies.
    approvals : AsyncExecApprovals
        The executions that wait for a person's approval.
    secrets : AsyncExecSecrets
        The secrets that the egress proxy adds to requests of sessions.

    Raises
    ------
    ConnectionFailed
        If no server is named, and none of this user's answers ``exec/v1``; the message says how to start one.
    ValueError
        If `server` is no URL, or the token has characters that no token has.

    Notes
    -----
    Every call may raise the errors of `jupyter_exec_ext.errors`: the server's refusals by their code, and
    `ConnectionFailed` or `ConnectionLost` if the network fails. Calls may be concurrent.

    Examples
    --------
    ::

        async with AsyncExecClient("http://localhost:8888/?token=…") as client, client.session() as session:
            print((await session.run("1 + 1")).outputs)
    """

    def __init__(
        self,
        server: str | JupyterConnectionInfo | JupyterConnectable = "auto",
        token: str | None = None,
        *,
        max_retries: int = 4,
        outage_seconds: float = DEFAULT_OUTAGE_SECONDS,
    ) -> None:
        self.connection_info = find_connection(server, token)
        self._retry = RetryPolicy(max_retries, outage_seconds=outage_seconds, why_lost=self.connection_info.why_lost)
        self._api = ExecApi(self._retry)
        self._status = ServerStatusApi(self._retry)
        self._driver = AioDriver(self.connection_info)
        self.tokens = AsyncExecTokens(self._driver, self._retry)
        self.approvals = AsyncExecApprovals(self._driver, self._retry)
        self.secrets = AsyncExecSecrets(self._driver, self._retry)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection_info.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Sessions continue on the server."""
        await self._driver.close()

    async def info(self) -> dict[str, Any]:
        """Return the server's versions, settings and limits, and the caller's permissions."""
        return await self._driver.perform(self._api.info())

    async def ready(self) -> Readiness:
        """Return whether the server takes new sessions; it needs no token."""
        return await self._driver.perform(self._status.ready())

    async def load(self) -> ServerLoad:
        """Return how loaded the server is, with the sessions of all callers.

        Raises
        ------
        MissingScope
            If the token has no scope ``pool:read``.
        """
        return await self._driver.perform(self._status.load())

    async def drain(self, *, undo: bool = False) -> Readiness:
        """Have the server take no new sessions; those that there are go on, with new executions, too.

        Parameters
        ----------
        undo : bool
            Have it take new sessions again.

        Raises
        ------
        OwnerOnly
            If the token is a scoped one.
        """
        return await self._driver.perform(self._status.drain(undo=undo))

    async def kernelspecs(self) -> RecordList[KernelSpecInfo]:
        """Return the kernelspecs that a session may use."""
        return await self._driver.perform(self._api.kernelspecs())

    async def events(self, after: str = "") -> AsyncIterator[Change]:
        """Yield changes of the sessions, executions and tokens that the caller may see, without end.

        The first change is a reset (`Change.is_reset`): list the current state then, and apply the changes that follow.
        A cut connection is resumed without a gap or, after too many changes, with another reset.

        Parameters
        ----------
        after : str
            The `Change.id` to continue after; there is no reset if no change is missing.
        """
        async for change in self._driver.stream(ChangeFollower(self._retry, after).follow()):
            yield change

    @awaitable_context
    async def session(
        self,
        kernel_name: str | None = None,
        *,
        name: str = "",
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idle_timeout_seconds: float | None = None,
        kernel_id: str | None = None,
        isolation: str | None = None,
        cwd: str | None = None,
        auto_checkpoint: str | None = None,
    ) -> AsyncExecSession:
        """Start a session; as a context manager it is deleted at the end.

        Parameters
        ----------
        kernel_name : str, optional
            A kernelspec; by default the server's default.
        name : str
            A name for lists.
        env : mapping, optional
            Environment variables for the kernel.
        metadata : mapping, optional
            Data to keep with the session.
        idle_timeout_seconds : float, optional
            Idle time after which the server ends the session; 0 for never, None for the server's default.
        kernel_id : str, optional
            A running kernel, such as a notebook's, to share with its user instead of starting one. It continues when
            the session ends.
        isolation : str, optional
            The least isolation of the kernel: ``"landlock"``, ``"sandbox"`` or ``"remote"``. By default that of the
            server and the token's policy.
        cwd : str, optional
            Directory that a Python kernel begins in, below the session's working directory; made if it is missing.
        auto_checkpoint : str, optional
            ``"each_run"`` for a checkpoint before each run; the newest ones are kept. ``"off"`` by default.
        """
        request = session_request(
            kernel_name, name, env, metadata, idle_timeout_seconds, kernel_id, isolation, cwd, auto_checkpoint
        )
        record = await self._driver.perform(self._api.open_session(request))
        return AsyncExecSession(self._driver, self._api, record, is_own=True)

    async def run(
        self,
        code: str,
        *,
        kernel_name: str | None = None,
        env: Mapping[str, str] | None = None,
        isolation: str | None = None,
        timeout: float | None = None,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_event: Callable[[OutputEvent], None] | None = None,
        on_input: AnswerInput | None = None,
        idempotency_key: str | None = None,
        check: bool = False,
    ) -> Execution:
        """Run code in a fresh session, which ends with it, and return the finished execution.

        This is one request, so it is faster than starting a session for one run. As with a session's `run`, the code
        runs once, and Ctrl-C or cancelling the task cancels it.

        Parameters
        ----------
        kernel_name, env, isolation
            As for `session`.
        code, timeout, timeout_seconds, language, metadata, on_event, on_input, idempotency_key, check
            As for `AsyncExecSession.run`.
        """
        session = session_request(kernel_name, "", env, None, None, None, isolation, None)
        seconds = one_timeout(timeout, timeout_seconds)
        request = execution_request(code, seconds, language, metadata, None, on_input is not None)
        request |= {"session": session} if session else {}
        key = idempotency_key or new_key()
        # Without callbacks no event is needed before the end, so requests that wait for it are enough.
        start = self._api.run if on_event is None and on_input is None else self._api.stream
        operation = self._api.in_fresh_session(start(FRESH_SESSION, request, key))
        execution = await self._driver.perform(operation, on_event, on_input)
        return execution.raise_for_error() if check else execution

    @awaitable_context
    async def get_session(self, session_id: str) -> AsyncExecSession:
        """Return an existing session of the caller, also if another program has started it."""
        record = await self._driver.perform(self._api.get_session(session_id))
        return AsyncExecSession(self._driver, self._api, record)

    async def list_sessions(self, *, ended: bool = False, memory: bool = False) -> RecordList[Session]:
        """Return the caller's sessions; with `ended`, also ended ones; with `memory`, the memory that kernels use."""
        return await self._driver.perform(self._api.list_sessions(ended=ended, memory=memory))

    async def search_executions(self, text: str, *, limit: int = 50, before: str | None = None) -> FoundExecutions:
        """Return the newest executions that have a text, newest first, also of sessions that have ended.

        The server looks in the code, the error's name and message, the first 4 KiB of output, and the names of session
        and token. While it still indexes older executions, `complete` of the list is false.

        Parameters
        ----------
        text : str
            At least three characters, which must occur as they are; upper and lower case are the same.
        limit : int
            The greatest number of executions, up to 200.
        before : str, optional
            The id of an execution: only older ones.

        Raises
        ------
        SearchNotAvailable
            If the server's SQLite has no full-text index.
        """
        return await self._driver.perform(self._api.search_executions(text, limit, before))

    async def get_execution(self, execution_id: str) -> AsyncExecutionHandle:
        """Return an existing execution, to read, follow or cancel it."""
        record = await self._driver.perform(self._api.get_execution(execution_id))
        return AsyncExecutionHandle(self._driver, self._api, record)

    @awaitable_context
    async def standard_session(
        self,
        kernel_name: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        max_output_bytes: int = 32 * 1024 * 1024,
    ) -> AsyncStandardExecSession:
        """Start a kernel through the standard Jupyter API, on any Jupyter server, and use it as a session.

        Parameters
        ----------
        kernel_name : str, optional
            A kernelspec; by default the server's default.
        env : mapping, optional
            Environment variables for the kernel, if the server accepts them; Jupyter Server accepts none.
        max_output_bytes : int
            Limit of an execution's output in bytes.
        """
        # Imported here: few servers need them, and importing the client takes 7 ms longer with them (2026-11-27).
        from ..jupyter.standard_session import open_standard_session
        from .standard_session import AsyncStandardExecSession

        operation = open_standard_session(kernel_name, env, self._retry, max_output_bytes)
        return AsyncStandardExecSession(self._driver, await self._driver.perform(operation))


#: An agent may wait for a person; its variables should still be there when it continues.
AGENT_IDLE_TIMEOUT_SECONDS = 24 * 3600.0


async def open_agent_session(
    client: AsyncExecClient,
    kernel_name: str | None,
    name: str,
    idle_timeout_seconds: float = AGENT_IDLE_TIMEOUT_SECONDS,
    env: Mapping[str, str] | None = None,
) -> AsyncExecSession | AsyncStandardExecSession:
    """Open a session with a long idle timeout, or with the server's default if the token's policy allows less.

    On servers without ``exec/v1`` it uses the standard kernels API.
    """
    try:
        return await client.session(kernel_name, name=name, env=env, idle_timeout_seconds=idle_timeout_seconds)
    except PolicyDenied as error:
        # Any other limit, such as that on sessions, would refuse the second request, too.
        if error.limit is None or error.limit.get("name") != "max_idle_seconds":
            raise
        return await client.session(kernel_name, name=name, env=env)
    except ApiNotFound:
        return await client.standard_session(kernel_name, env=env)
