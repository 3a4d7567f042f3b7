"""Pydantic AI: a toolset with one tool, `execute_code`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pydantic_ai import RunContext
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, WrapperToolset

from ..models import Execution, ImageContent
from ._code_session import CodeSession, Server, SessionOptions
from ._conversations import CONVERSATION_IDLE_SECONDS, MAX_CONVERSATIONS, Conversations
from ._tool_text import TOOL_DESCRIPTION, TOOL_NAME, NotRun

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["JupyterToolset"]

DepsT = TypeVar("DepsT")


class JupyterToolset(FunctionToolset[DepsT]):
    """Toolset for ``Agent(toolsets=[…])`` that runs code in a Jupyter session of the agent's conversation.

    Variables are kept during a run. While the agent or the toolset is entered with ``async with``, they are kept from
    run to run of the same conversation, by Pydantic AI's ``conversation_id``. Cancelling a run stops its
    code on the server.

    The model gets text and pictures. The application finds the whole `Execution` as the tool return's ``metadata``.

    Parameters
    ----------
    server, token
        The Jupyter server, as for `CodeSession`.
    max_conversations : int
        Largest number of conversations that have a Jupyter session at once. One more closes the least recently used
        session. If its conversation goes on, the model is told that its variables are gone.
    idle_timeout_seconds : float
        Idle time after which the server ends a session, if it has ``exec/v1``.
    requires_approval : bool
        Whether each call needs approval; the run then ends with ``DeferredToolRequests``.
    id : str, optional
        The toolset's id, for durable execution.
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
        requires_approval: bool = False,
        id: str | None = None,  # noqa: A002  # Pydantic AI's name
        **session_options: Unpack[SessionOptions],
    ) -> None:
        new_session = partial(
            CodeSession, server, token, idle_timeout_seconds=idle_timeout_seconds, name="Pydantic AI", **session_options
        )
        self._where = repr(new_session())  # raises for wrong arguments now, and not in the first run
        self.conversations = Conversations(new_session, max_conversations)
        super().__init__(
            [Tool(self._execute_code, takes_ctx=True, name=TOOL_NAME, description=TOOL_DESCRIPTION)],
            sequential=True,  # two pieces of code of one answer may build on each other
            requires_approval=requires_approval,
            id=id,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._where})"

    async def _execute_code(self, ctx: RunContext[DepsT], code: str) -> ToolReturn:
        return _tool_return(await self.conversations.run(ctx.conversation_id, code))

    async def for_run(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        """Return a toolset that keeps the conversation's session open during the run."""
        return _OfOneRun(self, self.conversations, ctx.conversation_id)

    async def __aenter__(self) -> Self:
        self.conversations.retain_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.conversations.release_all()

    async def close(self) -> None:
        """Shut down the sessions of all conversations; one that goes on gets a fresh session."""
        await self.conversations.close_all()

    async def close_conversation(self, conversation_id: str) -> None:
        """Shut down the session of a finished conversation, for an agent that stays entered."""
        await self.conversations.close(conversation_id)


@dataclass  # Pydantic AI copies wrappers with `dataclasses.replace`
class _OfOneRun(WrapperToolset[DepsT]):
    """The toolset in one run: it retains one conversation instead of all."""

    conversations: Conversations
    conversation_id: str | None

    async def __aenter__(self) -> Self:
        # Not by the wrapped toolset, whose `__aenter__` retains all conversations.
        self.conversations.retain(self.conversation_id)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.conversations.release(self.conversation_id)


def _tool_return(outcome: Execution | NotRun) -> ToolReturn:
    content = [
        BinaryContent(data=part.data, media_type=part.mime_type) if isinstance(part, ImageContent) else part.text
        for part in outcome.to_content()
    ]
    return ToolReturn(
        return_value=content[0] if len(content) == 1 else content,
        metadata=outcome if isinstance(outcome, Execution) else None,
    )
