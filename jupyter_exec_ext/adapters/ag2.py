"""ag2 1.x: a `CodeEnvironment` on a Jupyter kernel, and a tool that returns pictures.

For example::

    async with JupyterCodeEnvironment("http://localhost:8888/?token=…") as environment:
        agent = Agent("coder", config=config, tools=[SandboxCodeTool(environment)])
        await agent.ask("What is the 14th Fibonacci number?")
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ag2 import ImageInput, ToolResult, tool
from ag2.tools.code import CodeLanguage, CodeRunResult

from ..models import ImageContent
from ._code_session import Server, SessionOptions
from ._session_portal import SessionPortal
from ._tool_text import TOOL_DESCRIPTION, NotRun

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["JupyterCodeEnvironment"]

_DESCRIPTION = TOOL_DESCRIPTION + "\nSupported languages: {languages}."


class JupyterCodeEnvironment:
    """Runs an agent's code in a kernel that keeps its state between calls. Close it, or use it as a context manager.

    Give it to an agent as ``SandboxCodeTool(environment)``, whose results are text, or as ``environment.tool()``, whose
    results have pictures.

    Parameters
    ----------
    server, token
        The Jupyter server, as for `CodeSession`.
    languages : tuple of str
        Languages that models are told of. A Python kernel runs bash as well.
    **session_options
        ``kernel_name``, ``timeout_seconds``, ``session_id`` and ``session``, as for `CodeSession`.
    """

    def __init__(
        self,
        server: Server | None = None,
        token: str | None = None,
        *,
        languages: tuple[CodeLanguage, ...] = ("python", "bash"),
        **session_options: Unpack[SessionOptions],
    ) -> None:
        self._languages = languages
        self._session = SessionPortal(server, token, name="ag2", **session_options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session, unless it was given; calling it again does nothing."""
        await asyncio.to_thread(self._session.close)  # it blocks until the session has ended

    async def aclose(self) -> None:
        """Call `close`; ag2's name for it."""
        await self.close()

    @property
    def supported_languages(self) -> tuple[CodeLanguage, ...]:
        """Languages that models are told of."""
        return self._languages

    async def run(self, code: str, language: CodeLanguage, *, context: Any = None) -> CodeRunResult:
        """Run code; cancelling the task stops it.

        Parameters
        ----------
        code : str
            The code.
        language : str
            Its language.
        context : object
            ag2's context, which is not used.

        Returns
        -------
        ag2.tools.code.CodeRunResult
            The output as text for a model, and exit code 0 if the code ran to its end without an error, otherwise 1.
        """
        outcome = await self._session.run_async(code, language)
        return CodeRunResult(output=outcome.to_text(), exit_code=0 if outcome.ok else 1)

    def tool(self, name: str = "run_code", description: str = _DESCRIPTION) -> Any:
        """Return a tool that runs code and returns texts and pictures, for models that see pictures.

        The results' metadata has the ``execution_id``, with which a client gets the whole execution, and its ``state``.

        Parameters
        ----------
        name : str
            Name of the tool.
        description : str
            Description for the model; ``{languages}`` in it stands for those of the environment.
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
