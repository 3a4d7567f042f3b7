"""What the adapters have in common: the tool's words, what a model is told of, and which session is meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..client.aio.client import AsyncExecSession, AsyncStandardExecSession
from ..client.server_connection import JupyterConnectable, JupyterConnectionInfo, connection_to
from ..client.sync.client import ExecSession, StandardExecSession
from ..errors import ExecError, SessionEnded
from ..executors.stateful_executor import REFUSALS as REFUSALS
from ..models.model_content import Content, TextContent
from ..models.plain_text import TextCleaner

Server = str | JupyterConnectionInfo | JupyterConnectable
Session = ExecSession | AsyncExecSession | StandardExecSession | AsyncStandardExecSession
StandardT = TypeVar("StandardT", StandardExecSession, AsyncStandardExecSession)

#: What a model reads about the tool.
TOOL_NAME = "execute_code"
TOOL_DESCRIPTION = """\
Run code in a Jupyter session and return what it prints and shows, including pictures, and any error.
Variables, imports and definitions are kept from one call to the next. The value of the last expression is shown."""

#: Run time of one piece of code, where nobody says another.
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class NotRun:
    """Code that the server did not run, for a reason that the model can do something about.

    Parameters
    ----------
    reason : str
        For the model to read.
    session_lost : bool
        Whether the session had ended. The next run gets a fresh one.
    """

    reason: str
    session_lost: bool = False

    ok = False

    @classmethod
    def as_refused(cls, error: ExecError) -> NotRun:
        """Return it for code that the server refuses."""
        return cls(error.message)

    @classmethod
    def as_lost(cls, why: str) -> NotRun:
        """Return it for code whose session had ended."""
        return cls(
            f"{why}. The next run gets a fresh session: variables, imports and definitions are gone; "
            "run what is needed again.",
            session_lost=True,
        )

    def to_text(self) -> str:
        """Return the reason, marked as one."""
        return TextCleaner().clean(f"Not run: {self.reason}")

    def to_content(self) -> list[Content]:
        """Return the same, as `Execution.to_content` would."""
        return [TextContent(self.to_text())]


@dataclass(frozen=True, slots=True)
class Place(Generic[StandardT]):
    """Where code runs: on a server in a new session, or in one that exists, which is neither replaced nor ended.

    Parameters
    ----------
    connection_info : JupyterConnectionInfo
        Where the server is.
    session_id : str or None
        The session that exists, where the server has ``exec/v1``.
    standard_session : StandardExecSession, AsyncStandardExecSession or None
        The one that exists where it has not. There is no other way to it than through this object.
    """

    connection_info: JupyterConnectionInfo
    session_id: str | None = None
    standard_session: StandardT | None = None

    @property
    def exists(self) -> bool:
        """Whether the session exists."""
        return self.session_id is not None or self.standard_session is not None

    def __repr__(self) -> str:
        existing = self.session_id or (self.standard_session and self.standard_session.id)
        return repr(self.connection_info.url) + (f", session_id={existing!r}" if existing else "")


def place_of(
    standard: type[StandardT],
    server: Server | None,
    token: str | None,
    kernel_name: str | None,
    session_id: str | None,
    session: Session | None,
) -> Place[StandardT]:
    """Return where code is to run.

    Parameters
    ----------
    standard : type
        The kind of session that can be used on a server without ``exec/v1``.

    Raises
    ------
    ValueError
        If neither a server nor a session is given, or what does not go together.
    """
    if (server is None) == (session is None):
        raise ValueError("give a server, or a session that is open already")
    if server is not None:
        if session_id is not None and kernel_name is not None:
            raise ValueError("a session that exists has its kernel already")
        return Place(connection_to(server, token), session_id)
    if token is not None or kernel_name is not None or session_id is not None:
        raise ValueError("an open session has its token, kernel and id already")
    if isinstance(session, ExecSession | AsyncExecSession):
        return Place(session.connection_info, session.id)
    if not isinstance(session, standard):
        raise ValueError(f"on a server without exec/v1, the session has to be one of the class {standard.__name__}")
    return Place(session.connection_info, None, session)


def closed() -> SessionEnded:
    """Return what is raised where somebody closed the session, whose code was still to run."""
    return SessionEnded("the session was closed")
