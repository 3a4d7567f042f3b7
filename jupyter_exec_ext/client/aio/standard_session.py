"""Sessions on servers without ``exec/v1``, of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from ...models import Execution, OutputEvent
from ..api.execution_operations import one_timeout
from ..api.package_operations import pip_code
from ..api.steps import Operation
from ..jupyter.standard_session import StandardSession
from .driver import AioDriver, AnswerInput, RunLock
from .session_base import AsyncExecSessionBase


class AsyncStandardExecSession(AsyncExecSessionBase):
    """A kernel of a server without ``exec/v1``, with the methods of a session. It runs one execution at a time."""

    def __init__(self, driver: AioDriver, session: StandardSession) -> None:
        super().__init__(driver, is_own=True)
        self._session = session
        self._lock = RunLock()

    @property
    def id(self) -> str:
        """The kernel's id."""
        return self._session.kernel_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, kernel_name={self._session.spec.name!r})"

    def _closing(self, *, is_hurried: bool) -> Operation[None]:
        return self._session.close(hurried=is_hurried)

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_event: Callable[[OutputEvent], None] | None = None,
        on_input: AnswerInput | None = None,
        check: bool = False,
    ) -> Execution:
        """Run code and return the finished execution; see `AsyncExecSession.run`."""
        seconds = one_timeout(timeout, timeout_seconds)
        options: dict[str, Any] = {"timeout_seconds": seconds, "language": language, "metadata": metadata}
        async with self._lock:
            await self._driver.wait_until_tidy()  # until then, a cancelled run reads the same WebSocket
            operation = self._session.run(code, allow_input=on_input is not None, **options)
            execution = await self._driver.perform(operation, on_event, on_input)
        return execution.raise_for_error() if check else execution

    async def stream(
        self,
        code: str,
        *,
        timeout: float | None = None,
        timeout_seconds: float | None = None,
        language: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_input: AnswerInput | None = None,
    ) -> AsyncIterator[OutputEvent]:
        """Run code and yield its output events as they arrive; see `AsyncExecSession.stream`."""
        seconds = one_timeout(timeout, timeout_seconds)
        options: dict[str, Any] = {"timeout_seconds": seconds, "language": language, "metadata": metadata}
        async with self._lock:
            await self._driver.wait_until_tidy()  # until then, a cancelled run reads the same WebSocket
            operation = self._session.run(code, allow_input=on_input is not None, **options)
            async for event in self._driver.stream(operation, on_input):
                yield event

    async def install(self, *packages: str) -> Execution:
        """Install packages with pip into the kernel's environment; see `AsyncExecSession.install`."""
        return await self.run(pip_code(packages), check=True)

    async def interrupt(self) -> None:
        """Interrupt the running code, as Ctrl-C would."""
        await self._driver.perform(self._session.interrupt())

    async def restart(self) -> None:
        """Start a fresh kernel; running code ends as cancelled."""
        await self._driver.perform(self._session.restart())
