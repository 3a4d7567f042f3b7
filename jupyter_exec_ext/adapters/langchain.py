"""LangChain and LangGraph: a tool that runs Python code in a Jupyter kernel, for any agent that takes tools.

For example::

    with JupyterCodeTool("http://localhost:8888/?token=…") as tool:
        agent = create_agent(model, [tool])
        agent.invoke({"messages": [("user", "What is the 14th Fibonacci number?")]})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, ToolException
from pydantic import BaseModel, Field, PrivateAttr

from ..models import Execution, ImageContent
from ._code_session import TIMEOUT_SECONDS, Server, Session
from ._session_portal import SessionPortal
from ._tool_text import TOOL_DESCRIPTION, TOOL_NAME, NotRun

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["JupyterCodeTool"]


class CodeInput(BaseModel):
    """Arguments of the tool."""

    code: str = Field(description="The code to run.")


class JupyterCodeTool(BaseTool):
    """Runs an agent's code in a kernel that keeps its state between calls. Close it, or use it as a context manager.

    A tool message holds the text for the model, and the whole `Execution` as its artifact. Code that fails is an
    answer like any other, with the error in it. May be used synchronously and asynchronously, in the same session.

    Parameters
    ----------
    server, token
        The Jupyter server, as for `CodeSession`.
    images : bool
        Whether messages contain pictures, for models that see pictures in the results of tools. Otherwise the text
        names them, and only the artifact contains them.
    kernel_name, timeout_seconds, session_id, session
        As for `CodeSession`.
    **tool_options
        Options of every LangChain tool, such as ``name`` and ``description``.
    """

    name: str = TOOL_NAME
    description: str = TOOL_DESCRIPTION
    args_schema: Any = CodeInput
    response_format: Any = "content_and_artifact"
    handle_tool_error: Any = True
    images: bool = False
    _session: SessionPortal = PrivateAttr()

    def __init__(
        self,
        server: Server | None = None,
        token: str | None = None,
        *,
        images: bool = False,
        kernel_name: str | None = None,
        timeout_seconds: float | None = TIMEOUT_SECONDS,
        session_id: str | None = None,
        session: Session | None = None,
        **tool_options: Any,
    ) -> None:
        super().__init__(images=images, **tool_options)
        self._session = SessionPortal(
            server,
            token,
            name=f"LangChain {self.name}",
            kernel_name=kernel_name,
            timeout_seconds=timeout_seconds,
            session_id=session_id,
            session=session,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session, unless it was given; calling it again does nothing."""
        self._session.close()

    def _run(self, code: str) -> tuple[Any, Execution]:
        return self._answer(self._session.run(code))

    async def _arun(self, code: str) -> tuple[Any, Execution]:
        return self._answer(await self._session.run_async(code))

    def _answer(self, outcome: Execution | NotRun) -> tuple[Any, Execution]:
        if isinstance(outcome, NotRun):
            raise ToolException(outcome.to_text())  # LangChain passes it to the model, and the agent goes on
        return self._content(outcome), outcome

    def _content(self, execution: Execution) -> str | list[dict[str, str]]:
        if not self.images:
            return execution.to_text()
        return [
            {"type": "image", "base64": content.base64, "mime_type": content.mime_type}
            if isinstance(content, ImageContent)
            else {"type": "text", "text": content.text}
            for content in execution.to_content()
        ]
