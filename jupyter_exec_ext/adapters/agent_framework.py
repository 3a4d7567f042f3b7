"""Microsoft Agent Framework: the function tool `execute_code`, and a context provider with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from agent_framework import AgentSession, Content, ContextProvider, FunctionTool, SessionContext, SupportsAgentRun

from ..models import Execution, ImageContent
from ._code_session import CodeSession, Server, SessionOptions
from ._conversations import CONVERSATION_IDLE_SECONDS, MAX_CONVERSATIONS, Conversations
from ._tool_text import TOOL_DESCRIPTION, TOOL_NAME, NotRun

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["CodeSession", "JupyterCodeActProvider", "execute_code_tool"]

ApprovalMode = Literal["always_require", "never_require"]

INSTRUCTIONS = """\
To compute something, or to work with data or files, run code with the tool `execute_code`. Variables, imports and
definitions are kept between calls, so go step by step and look at intermediate results."""


def execute_code_tool(session: CodeSession, *, approval_mode: ApprovalMode = "never_require") -> FunctionTool:
    """Return a tool for ``Agent(tools=[…])`` that runs code in a session.

    The model gets text and pictures. The application finds the whole `Execution` as the ``raw_representation`` of the
    result's first item. Cancelling a run stops its code on the server.

    Parameters
    ----------
    session : CodeSession
        The session of one conversation; variables are kept until it is closed.
    approval_mode : str
        ``"always_require"`` if a person must approve each call.
    """
    return _tool(session.run, approval_mode)


class JupyterCodeActProvider(ContextProvider):
    """Gives an agent `execute_code`, with a Jupyter session for each of its conversations.

    A conversation is an ``AgentSession`` of Agent Framework. Runs with the same one share variables. A run without one
    gets a session of its own. Leaving the provider as a context manager, or `close`, closes all sessions;
    `close_session` closes that of one conversation.

    Parameters
    ----------
    server, token
        The Jupyter server, as for `CodeSession`.
    max_conversations : int
        Largest number of conversations that have a Jupyter session at once. One more closes the least recently used
        session. If its conversation goes on, the model is told that its variables are gone.
    idle_timeout_seconds : float
        Idle time after which the server ends a session, if it has ``exec/v1``.
    approval_mode : str
        ``"always_require"`` if a person must approve each call.
    instructions : str
        Instructions on the tool for the model, in addition to its description; may be empty.
    source_id : str
        Name by which the agent knows the provider.
    **session_options
        ``kernel_name``, ``timeout_seconds``, ``session_id`` and ``session``, as for `CodeSession`. A given session is
        used for all conversations.
    """

    def __init__(
        self,
        server: Server | None = None,
        token: str | None = None,
        *,
        max_conversations: int = MAX_CONVERSATIONS,
        idle_timeout_seconds: float = CONVERSATION_IDLE_SECONDS,
        approval_mode: ApprovalMode = "never_require",
        instructions: str = INSTRUCTIONS,
        source_id: str = "jupyter_code_act",
        **session_options: Unpack[SessionOptions],
    ) -> None:
        super().__init__(source_id)
        new_session = partial(
            CodeSession,
            server,
            token,
            idle_timeout_seconds=idle_timeout_seconds,
            name="Agent Framework",
            **session_options,
        )
        self._where = repr(new_session())  # raises for wrong arguments now, and not in the first run
        self._conversations = Conversations(new_session, max_conversations)
        self._approval_mode = approval_mode
        self._instructions = instructions

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._where})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Add the tool of this conversation, and the instructions, to a run."""
        conversation = session.session_id

        async def run(code: str) -> Execution | NotRun:
            return await self._conversations.run(conversation, code)

        context.extend_tools(self.source_id, [_tool(run, self._approval_mode)])
        if self._instructions:
            context.extend_instructions(self.source_id, self._instructions)

    async def close_session(self, session: AgentSession) -> None:
        """Shut down the Jupyter session of a finished conversation."""
        await self._conversations.close(session.session_id)

    async def close(self) -> None:
        """Shut down the Jupyter sessions of all conversations."""
        await self._conversations.close_all()


def _tool(run: Callable[[str], Awaitable[Execution | NotRun]], approval_mode: ApprovalMode) -> FunctionTool:
    async def execute_code(code: str) -> list[Content]:
        return _contents(await run(code))

    return FunctionTool(name=TOOL_NAME, description=TOOL_DESCRIPTION, func=execute_code, approval_mode=approval_mode)


def _contents(outcome: Execution | NotRun) -> list[Content]:
    contents = [
        Content.from_data(part.data, part.mime_type) if isinstance(part, ImageContent) else Content.from_text(part.text)
        for part in outcome.to_content()
    ]
    if isinstance(outcome, Execution):
        contents[0].raw_representation = outcome  # never empty: "(no output)" is content, too
    return contents
