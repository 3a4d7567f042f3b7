"""ag2 1.x: a `CodeEnvironment` on a Jupyter kernel, and a tool whose results have pictures.

For example::

    async with JupyterCodeEnvironment("http://localhost:8888/?token=…") as environment:
        agent = Agent("coder", config=config, tools=[SandboxCodeTool(environment)])
        await agent.ask("What is the 14th Fibonacci number?")
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ag2 import ImageInput, ToolResult, tool
from ag2.tools.code import CodeLanguage, CodeRunResult

from ..models import ImageContent
from ._session import ToolSession
from ._shared import TIMEOUT_SECONDS, TOOL_DESCRIPTION, NotRun, Server, Session

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["JupyterCodeEnvironment"]

_DESCRIPTION = TOOL_DESCRIPTION + "\nSupported languages: {languages}."


class JupyterCodeEnvironment:
    """Runs an agent's code in a kernel that keeps its state between calls. Close it, or use it as a context manager.

    An agent is given it as ``SandboxCodeTool(environment)``, whose results are text, or as ``environment.tool()``,
    whose results have pictures.

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
    session_id : str, optional
        A session of the server, to be used instead of a new one. It is neither replaced nor ended.
    session : ExecSession, AsyncExecSession or StandardExecSession, optional
        The same, as an object, which knows its server.
    languages : tuple of str
        What models are told that the kernel runs. A Python kernel runs bash as well.
    """

    def __init__(
        self,
        server: Server | None = None,
        token: str | None = None,
        *,
        kernel_name: str | None = None,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
        session_id: str | None = None,
        session: Session | None = None,
        languages: tuple[CodeLanguage, ...] = ("python", "bash"),
    ) -> None:
        self._languages = languages
        self._session = ToolSession(
            server,
            token,
            kernel_name=kernel_name,
            timeout_seconds=timeout_seconds,
            session_id=session_id,
            session=session,
            name="ag2",
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session, unless it was there before; calling it again does nothing."""
        await asyncio.to_thread(self._session.close)

    async def aclose(self) -> None:
        """Do the same as `close`, by ag2's name."""
        await self.close()

    @property
    def supported_languages(self) -> tuple[CodeLanguage, ...]:
        """What models are told that the kernel runs."""
        return self._languages

    async def run(self, code: str, language: CodeLanguage, *, context: Any = None) -> CodeRunResult:
        """Run code; cancelling the task stops it.

        Returns
        -------
        ag2.tools.code.CodeRunResult
            What a model can use of it as text, and 0 if it ran to its end without an error, 1 otherwise.
        """
        outcome = await self._session.run_async(code, language)
        return CodeRunResult(output=outcome.to_text(), exit_code=0 if outcome.ok else 1)

    def tool(self, name: str = "run_code", description: str = _DESCRIPTION) -> Any:
        """Return a tool that runs code here and gives texts and pictures, for models that see pictures.

        The results' metadata has the ``execution_id``, with which a client gets the whole execution, and its ``state``.

        Parameters
        ----------
        description : str
            For the model; ``{languages}`` in it stands for those of the environment.
        """

        async def run_code(code: str, language: CodeLanguage = "python") -> ToolResult:
            outcome = await self._session.run_async(code, language)
            if isinstance(outcome, NotRun):
                return ToolResult(outcome.to_text())
            parts = [
                ImageInput(data=content.data, media_type=content.mime_type)
                if isinstance(content, ImageContent)
                else content.text
                for content in outcome.to_content()
            ]
            return ToolResult(parts=parts, metadata={"execution_id": outcome.id, "state": outcome.state.value})

        return tool(run_code, name=name, description=description.format(languages=", ".join(self._languages)))
