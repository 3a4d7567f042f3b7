"""Launch of a server at a remote service: deadline, stream of progress events, and the address of the server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from ..client.api.steps import CloseStream, Failure, OpenStream, Operation, Pause, ReadStream, Reply, Request, Step
from ..client.server_connection import JupyterConnectionInfo
from ..errors import ExecError, ServerStartTimeout, UnexpectedAnswer
from ..models.plain_text import strip_ansi
from ..protocol.sse import MEDIA_TYPE, EventStreamDecoder
from ..protocol.strict_json import loads_strict

T = TypeVar("T")
# A JupyterHub sends a heartbeat every 8 seconds, a BinderHub every 25.
_SILENCE_SECONDS = 90.0
# A service must not fill the memory; a build's progress with many layers is the largest event.
_MAX_EVENT_BYTES = 1024 * 1024
# A message is shown in one line of a terminal or a log.
_MAX_MESSAGE_CHARS = 500


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """Message about the start of a server.

    Parameters
    ----------
    phase : str
        Of a JupyterHub: ``starting``, ``ready`` or ``failed``. Of a BinderHub: as its API names them, such as
        ``building``.
    message : str
        The service's message in one line, without control characters.
    percent : float, optional
        From 0 to 100, if the service gives it.
    begins : bool
        Whether the phase differs from the message before.
    """

    phase: str
    message: str
    percent: float | None = None
    begins: bool = True


OnProgress = Callable[[LaunchProgress], None]


def show_phases(progress: LaunchProgress) -> None:
    """Print a line on standard error whenever a phase begins."""
    if progress.begins:
        print(f"{progress.phase}: {progress.message}" if progress.message else progress.phase, file=sys.stderr)


class Deadline:
    """Deadline of a chain of steps, with the error to raise when it has passed.

    Parameters
    ----------
    seconds : float
        Time from now on.
    failure : str
        Beginning of the error message, such as ``the server did not start``.
    remedy : str
        End of the error message.
    error_class : type
        Class of the error.

    Attributes
    ----------
    last_message : str
        The service's last message, for the error.
    """

    def __init__(
        self, seconds: float, failure: str, remedy: str, error_class: Callable[[str], ExecError] = ServerStartTimeout
    ) -> None:
        self._seconds = seconds
        self._failure = failure
        self._remedy = remedy
        self._error_class = error_class
        self._ends_at = time.monotonic() + seconds
        self.last_message = ""

    @classmethod
    def of_start(cls, seconds: float, server: str) -> Deadline:
        """Return the deadline of a server's start.

        Raises
        ------
        ValueError
            If `seconds` is not positive.
        """
        if not seconds > 0:  # also if it is not a number
            raise ValueError("startup_timeout_seconds must be positive")
        return cls(seconds, f"{server} did not start", "give it longer with startup_timeout_seconds")

    @property
    def left_seconds(self) -> float:
        """The time left; never 0, which some libraries take for "no limit"."""
        return max(0.001, self._ends_at - time.monotonic())

    def check(self) -> None:
        """Raise the error if the deadline has passed."""
        if time.monotonic() >= self._ends_at:
            heard = f" (the last that was heard: {self.last_message})" if self.last_message else ""
            raise self._error_class(f"{self._failure} within {self._seconds:g} s{heard}; {self._remedy}")

    def limit_step(self, step: Step) -> Step:
        """Return the step with timeouts that end at the deadline."""
        left = self.left_seconds
        if isinstance(step, Request):
            return replace(step, read_timeout_seconds=min(step.read_timeout_seconds, left))
        if isinstance(step, OpenStream):
            silence = min(step.request.read_timeout_seconds, left)
            return OpenStream(replace(step.request, read_timeout_seconds=silence), left)
        return Pause(min(step.seconds, left)) if isinstance(step, Pause) else step


def run_until_deadline(deadline: Deadline, operation: Operation[T]) -> Operation[T]:
    """Carry an operation out; raise the deadline's error once it has passed."""
    try:
        step = next(operation)
        while True:
            deadline.check()
            try:
                outcome = yield deadline.limit_step(step)
            except BaseException as error:  # the operation may tidy up
                step = operation.throw(error)
            else:
                if isinstance(outcome, Failure) or outcome == b"":
                    deadline.check()  # the deadline itself may have cut the step short
                step = operation.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        operation.close()


class ProgressReporter:
    """Passes a service's messages on, and keeps the last one for the deadline's error."""

    def __init__(self, deadline: Deadline, on_progress: OnProgress | None) -> None:
        self._deadline = deadline
        self._on_progress = on_progress
        self._phase = ""

    def report(self, phase: str, message: str, percent: float | None = None) -> None:
        """Report a message; an empty one leaves the last one in its place."""
        begins, self._phase = phase != self._phase, phase
        self._deadline.last_message = message or self._deadline.last_message
        if self._on_progress is not None:
            self._on_progress(LaunchProgress(phase, message, percent, begins))


def follow_events(path: str, handle: Callable[[Mapping[str, Any]], bool]) -> Operation[Reply | Failure | None]:
    """Read an event stream of JSON objects until `handle` returns true for the last one.

    Returns
    -------
    Reply, Failure or None
        A reply that is no stream; the failure that cut the stream before its last event; None after the last event.
    """
    opened = yield OpenStream(
        Request("GET", path, headers={"Accept": MEDIA_TYPE}, read_timeout_seconds=_SILENCE_SECONDS)
    )
    if isinstance(opened, (Reply, Failure)):
        return opened
    if not opened.headers.get("content-type", "").startswith(MEDIA_TYPE):
        raise UnexpectedAnswer("the server's answer is not a stream of events; is its address right?")
    decoder = EventStreamDecoder(_MAX_EVENT_BYTES)
    while True:
        piece: bytes | Failure = yield ReadStream(opened)
        if isinstance(piece, Failure) or not piece:
            yield CloseStream(opened)
            return piece if isinstance(piece, Failure) else Failure(True, "the stream of events ended early")
        for sent in decoder.feed(piece):
            if handle(_parse_event(sent.data)):
                yield CloseStream(opened)
                return None


def _parse_event(data: str) -> Mapping[str, Any]:
    try:
        event = loads_strict(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise UnexpectedAnswer("the server's stream of events holds something that is not a JSON object")
    return event


def to_one_line(text: Any) -> str:
    """Return a service's message in one bounded line, without characters that control a terminal."""
    words = " ".join(strip_ansi(text).split()) if isinstance(text, str) else ""
    return "".join(char if char.isprintable() else "?" for char in words)[:_MAX_MESSAGE_CHARS]


def server_at(url: str, service: JupyterConnectionInfo, name: str, token: str | None) -> JupyterConnectionInfo:
    """Return the connection to a server that a service names by URL or by path, without the URL's query.

    Parameters
    ----------
    url : str
        A URL, or a path at the service's host.
    service : JupyterConnectionInfo
        The service, whose TLS settings hold for the server, too.
    name : str
        The service's name in error messages.
    token : str or None
        The server's token.

    Raises
    ------
    UnexpectedAnswer
        If it is no URL, or leads from HTTPS to HTTP.
    """
    try:
        parts = urlsplit(urljoin(service.url, url))
        port = parts.port
    except ValueError:
        raise UnexpectedAnswer(f"{name} names an address that is no URL") from None
    # `urljoin` makes a URL of any text, so other texts are refused here.
    is_absolute = url.startswith("/") or urlsplit(url).scheme in ("http", "https")
    if not is_absolute or not parts.hostname or parts.username is not None:
        raise UnexpectedAnswer(f"{name} names an address that is no URL of a server")
    if service.use_https and parts.scheme != "https":
        raise UnexpectedAnswer(f"{name} is reached by HTTPS and names an address that is not; it is not used")
    return replace(
        service,
        host=parts.hostname,
        use_https=parts.scheme == "https",
        port=port,
        token=token,
        base_url=unquote(parts.path),
    )
