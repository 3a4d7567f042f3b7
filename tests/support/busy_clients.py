"""Clients of all kinds, each with a session of its own, for tests of what becomes of their runs and streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from jupyter_exec_ext import AsyncExecClient, CodeBlock, ExecClient, JupyterCodeExecutor, JupyterConnectionInfo
from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.models import EndEvent, StreamEvent
from jupyter_exec_ext.protocol.record_ids import parse_id

#: Ways to run code: 10 runs and 10 streams.
KINDS = [
    *["async run"] * 4,
    *["blocking run"] * 3,
    *["executor run"] * 3,
    *["async stream"] * 5,
    *["blocking stream"] * 5,
]


class Outcome(NamedTuple):
    """The end of a run: its state, or the class of the error that was raised, what it printed, and the time it took."""

    state: str
    text: str = ""
    seconds: float = 0.0


class BusyClient:
    """One client with a session of its own.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    info : JupyterConnectionInfo
        The server.
    outage_seconds : float
        How long the client waits for a server that does not answer.
    threads : ThreadPoolExecutor
        For blocking calls.
    """

    def __init__(
        self, kind: str, info: JupyterConnectionInfo, outage_seconds: float, threads: ThreadPoolExecutor
    ) -> None:
        self.kind = kind
        self._info = info
        self._outage_seconds = outage_seconds
        self._threads = threads
        self._client: Any = None
        self._session: Any = None

    @property
    def session_id(self) -> str:
        """The id of its session."""
        return str(self._session.id)

    @property
    def server(self) -> str:
        """The name of the server that has its session."""
        parsed = parse_id(self.session_id)
        assert parsed is not None
        return parsed.server_name

    async def open(self) -> None:
        """Open the session."""
        info, seconds = self._info, self._outage_seconds
        if self.kind == "executor run":
            self._client = await self._call(lambda: JupyterCodeExecutor(info, timeout=300, outage_seconds=seconds))
            self._session = self._client._session
        elif self.kind.startswith("async"):
            self._client = AsyncExecClient(info, outage_seconds=seconds)
            self._session = await self._client.session()
        else:
            self._client = ExecClient(info, outage_seconds=seconds)
            self._session = await self._call(self._client.session)
        self._session.detach()

    async def close(self) -> None:
        """Close the connections; the session goes on, unless it is an executor's."""
        if self.kind.startswith("async"):
            await self._client.close()
        else:
            await self._call(self._client.close)

    async def run(self, code: str) -> Outcome:
        """Run code in the client's way, and return how it ended; errors of the API are outcomes, too."""
        began_at = time.monotonic()
        try:
            state, text = await self._run(code)
        except ExecError as error:
            state, text = type(error).__name__, error.message
        return Outcome(state, text, time.monotonic() - began_at)

    async def _run(self, code: str) -> tuple[str, str]:
        if self.kind == "executor run":
            result = await self._call(lambda: self._client.execute_code_blocks([CodeBlock(code, "python")]))
            is_lost = result.output.startswith("Lost: the pool's server")
            return "ok" if result.exit_code == 0 else "server_lost" if is_lost else "error", result.output
        if self.kind.endswith("run"):
            session = self._session
            is_async = self.kind == "async run"
            execution = await (session.run(code) if is_async else self._call(lambda: session.run(code)))
            return execution.state.value, execution.stdout
        if self.kind == "async stream":
            events = [event async for event in self._session.stream(code)]
        else:
            events = await self._call(lambda: list(self._session.stream(code)))
        assert [event.seq for event in events] == list(range(1, len(events) + 1)), "events are missing or doubled"
        assert isinstance(events[-1], EndEvent)
        text = "".join(event.text for event in events if isinstance(event, StreamEvent))
        return events[-1].execution.state.value, text

    async def _call(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
