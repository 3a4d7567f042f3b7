"""Tools for sessions: start, list, end, interrupt, restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from ..errors import Conflict
from ..models import Session
from ..protocol.request_parsing import MAX_REQUIREMENT_CHARACTERS, MAX_REQUIREMENTS
from ..server.rights import RUN_CODE
from .session_choice import make_session, resolve_session_id
from .tool_call import Arguments, ToolCall, make_result

_MAX_MESSAGE_CHARACTERS = 2000
Requirement = Annotated[str, Field(min_length=1, max_length=MAX_REQUIREMENT_CHARACTERS)]


class StartSessionArguments(Arguments):
    """Arguments of `start_session`."""

    kernel_name: str = Field("", description="Kernelspec, such as 'python3' or 'ir'; by default the server's.")
    name: str = Field("", max_length=256, description="Name for people, shown in lists.")
    packages: list[Requirement] = Field(
        default_factory=list,
        max_length=MAX_REQUIREMENTS,
        description="Packages to install for this session alone, such as 'pandas==2.2'; if the policy allows it.",
    )


class NoArguments(Arguments):
    """Arguments of a tool that takes none."""


class SessionArguments(Arguments):
    """Arguments of a tool for one session."""

    session: str = Field("", description="Id of the session; by default the one that this client uses.")


class EndSessionArguments(Arguments):
    """Arguments of `end_session`."""

    session: str = Field(min_length=1, description="Id of the session.")


class SessionResult(BaseModel):
    """A session, as tools describe it."""

    session: str = Field(description="Id of the session.")
    name: str
    state: str = Field(description="starting, idle, busy, restarting or ended.")
    kernel_name: str
    language: str
    isolation: str = Field(description="Isolation of its kernel: none, landlock, sandbox or remote.")
    kernel_starts: int = Field(description="Number of kernels it has had; where it grows, variables are gone.")
    idle_timeout_seconds: float = Field(description="The session ends after this idle time; 0 for never.")

    @classmethod
    def of(cls, session: Session) -> SessionResult:
        """Return the description of a session."""
        return cls(
            session=session.id,
            name=session.name,
            state=session.state.value,
            kernel_name=session.kernel_name,
            language=session.language,
            isolation=session.isolation,
            kernel_starts=session.kernel_starts,
            idle_timeout_seconds=session.idle_timeout_seconds,
        )

    def to_text(self) -> str:
        """Return one line."""
        return f"{self.session}: {self.state}, {self.kernel_name}, isolation {self.isolation}, name {self.name!r}"


class SessionsResult(BaseModel):
    """Structured content of `list_sessions` and `branch_session`."""

    sessions: list[SessionResult]


class EndedResult(BaseModel):
    """Structured content of `end_session`."""

    session: str
    ended: bool


async def start_session(call: ToolCall, arguments: StartSessionArguments) -> CallToolResult:
    """Start a session with a kernel of its own."""
    if arguments.packages:
        await call.request.check(RUN_CODE)
    session, notes = await make_session(call, arguments.kernel_name, arguments.name)
    try:
        await _install(call, session.id, arguments.packages)
    except BaseException:  # also if cancelled: the client would not know of the session
        call.engine.background.start(call.engine.sessions.end(session.id, "its packages could not be installed"))
        raise
    return describe_session(session, notes)


async def _install(call: ToolCall, session_id: str, packages: Sequence[str]) -> None:
    """Install packages in a new session.

    Raises
    ------
    Conflict
        If the installer fails, with its messages.
    """
    if not packages:
        return
    execution = await call.engine.packages.install(call.caller, session_id, packages)
    record = await execution.wait(None)
    if not record.ok:
        raise Conflict(f"the packages were not installed: {record.text[-_MAX_MESSAGE_CHARACTERS:]}")


def describe_session(session: Session, notes: Sequence[str] = ()) -> CallToolResult:
    """Return the result of a tool that describes one session, with notes for the model."""
    found = SessionResult.of(session)
    return make_result(found, [TextContent(text=text) for text in (found.to_text(), *notes)])


async def list_sessions(call: ToolCall, arguments: NoArguments) -> CallToolResult:
    """List the caller's sessions."""
    return describe_sessions(await call.engine.list_sessions(call.caller))


def describe_sessions(sessions: Sequence[Session]) -> CallToolResult:
    """Return the result of a tool that describes sessions, one a line."""
    found = [SessionResult.of(session) for session in sessions]
    text = "\n".join(session.to_text() for session in found) or "(no sessions)"
    return make_result(SessionsResult(sessions=found), [TextContent(text=text)])


async def end_session(call: ToolCall, arguments: EndSessionArguments) -> CallToolResult:
    """End a session."""
    await call.engine.delete_session(call.caller, arguments.session)
    return make_result(
        EndedResult(session=arguments.session, ended=True), [TextContent(text=f"{arguments.session} has ended")]
    )


async def interrupt_session(call: ToolCall, arguments: SessionArguments) -> CallToolResult:
    """Interrupt a session's running code."""
    return describe_session(
        await call.engine.interrupt_session(call.caller, resolve_session_id(call, arguments.session))
    )


async def restart_session(call: ToolCall, arguments: SessionArguments) -> CallToolResult:
    """Give a session a fresh kernel."""
    return describe_session(await call.engine.restart_session(call.caller, resolve_session_id(call, arguments.session)))
