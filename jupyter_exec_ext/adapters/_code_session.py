"""What the asynchronous adapters share: an agent's one session, and what a model is told where code was not run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from ..client.aio import AsyncExecClient, AsyncExecSession, AsyncStandardExecSession
from ..client.connection import JupyterConnectable, JupyterConnectionInfo, connection_to
from ..errors import (
    ApiNotFound,
    ConnectionFailed,
    ConnectionLost,
    InvalidRequest,
    LimitReached,
    PayloadTooLarge,
    PolicyDenied,
    SessionEnded,
    SessionNotFound,
)
from ..models import Execution
from ..models.content import Content, TextContent

if TYPE_CHECKING:
    from typing_extensions import Self

Server = str | JupyterConnectionInfo | JupyterConnectable
Session = AsyncExecSession | AsyncStandardExecSession

#: What a model reads about the tool.
TOOL_NAME = "execute_code"
TOOL_DESCRIPTION = """\
Run code in a Jupyter session and return what it prints and shows, including pictures, and any error.
Variables, imports and definitions are kept from one call to the next. The value of the last expression is shown."""


@dataclass(frozen=True, slots=True)
class NotRun:
    """Code that the server did not run, for a reason that the model can do something about.

    Parameters
    ----------
    reason : str
        For the model to read.
    """

    reason: str

    ok = False

    def to_text(self) -> str:
        """Return the reason, marked as one."""
        return f"Not run: {self.reason}"

    def to_content(self) -> list[Content]:
        """Return the same, as `Execution.to_content` would."""
        return [TextContent(self.to_text())]


class CodeSession:
    """One session for an agent: opened when first used, replaced when the server has ended it, closed at the end.

    Runs are made one after the other, in the order in which they were asked for. It can be used again after `close`,
    also on another event loop; that is a new session then. As a context manager it is closed at the end.

    Parameters
    ----------
    server : str, JupyterConnectionInfo or JupyterConnectable, optional
        Where the server is; a URL may hold the token (``?token=``).
    token : str, optional
        The server's token.
    kernel_name : str, optional
        A kernelspec; without it, the server's default.
    timeout_seconds : float, optional
        Run time of one piece of code, after which it is stopped; None for the server's default.
    session : AsyncExecSession or AsyncStandardExecSession, optional
        A session to use instead of opening one. Whoever opened it closes it.
    name : str
        What the session is called on the server.

    Raises
    ------
    ValueError
        If neither a server nor a session is given, or both.
    """

    def __init__(
        self,
        server: Server | None = None,
        token: str | None = None,
        *,
        kernel_name: str | None = None,
        timeout_seconds: float | None = None,
        session: Session | None = None,
        name: str = "agent",
    ) -> None:
        if (server is None) == (session is None):
            raise ValueError("give a server, or a session that is open already")
        if session is not None and (token is not None or kernel_name is not None):
            raise ValueError("an open session has its token and kernel already")
        self.connection_info = None if server is None else connection_to(server, token)
        self.kernel_name = kernel_name
        self.timeout_seconds = timeout_seconds
        self._given = session
        self._name = name
        self._opened: tuple[AsyncExecClient, Session] | None = None
        self._turn = asyncio.Lock()  # there is another one after each `close`

    def __repr__(self) -> str:
        where = self._given if self.connection_info is None else self.connection_info.url
        return f"{type(self).__name__}({where!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the session, if it is not open."""
        async with self._in_turn():
            pass

    async def run(self, code: str, language: str | None = None) -> Execution | NotRun:
        """Run code and return the finished execution; whoever leaves early stops the code on the server.

        Parameters
        ----------
        language : str, optional
            The code's language; None for the kernel's own.

        Returns
        -------
        Execution or NotRun
            The latter where the server refused this code or has ended the session. The next run then gets a new one.

        Raises
        ------
        ExecError
            If the server cannot be reached or does not let the agent in.
        """
        async with self._in_turn() as session:
            try:
                return await session.run(code, timeout_seconds=self.timeout_seconds, language=language)
            except (SessionEnded, SessionNotFound) as error:
                if session is self._given:
                    raise
                await self._leave(session)
                return NotRun(
                    f"{error.message}. The next run gets a fresh session: variables, imports and definitions are gone; "
                    "run what is needed again."
                )
            except (InvalidRequest, PolicyDenied, LimitReached, PayloadTooLarge) as error:
                return NotRun(error.message)

    async def restart(self) -> None:
        """Start over with a fresh kernel; code that runs ends as cancelled."""
        session = self._given or (self._opened and self._opened[1])
        if session is None:
            return  # the next run gets a fresh one anyway
        try:
            await session.restart()
        except (SessionEnded, SessionNotFound):
            if session is self._given:
                raise
            await self._leave(session)

    async def close(self) -> None:
        """Shut the session down, unless it was given; code that runs or waits ends. Again, it does nothing.

        A server that is gone is no error: so is the session, or it will be when it has been idle for long.
        """
        self._turn = asyncio.Lock()
        opened, self._opened = self._opened, None
        if opened is not None:
            await _close(*opened)

    async def _leave(self, session: Session) -> None:
        """Forget a session that has ended, unless another one is in its place already."""
        if self._opened is not None and self._opened[1] is session:
            client, self._opened = self._opened[0], None
            await client.close()

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[Session]:
        """Wait for one's turn, and give the session; whoever waits when it is closed must not open another."""
        turn = self._turn
        async with turn:
            if self._given is not None:
                yield self._given
                return
            opened = self._opened
            if opened is None and turn is self._turn:
                assert self.connection_info is not None
                opened = await self._open(AsyncExecClient(self.connection_info))
                if turn is not self._turn:
                    await _close(*opened)
            if opened is None or turn is not self._turn:
                raise SessionEnded("the session was closed")
            self._opened = opened
            yield opened[1]

    async def _open(self, client: AsyncExecClient) -> tuple[AsyncExecClient, Session]:
        try:
            try:
                return client, await client.session(self.kernel_name, name=self._name)
            except ApiNotFound:
                return client, await client.standard_session(self.kernel_name)
        except BaseException:
            await client.close()
            raise


async def _close(client: AsyncExecClient, session: Session) -> None:
    try:
        with contextlib.suppress(ConnectionFailed, ConnectionLost, SessionEnded, SessionNotFound):
            await session.close()
    finally:
        await client.close()
