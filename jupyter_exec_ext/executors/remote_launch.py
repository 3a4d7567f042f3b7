"""What starting a server elsewhere takes, wherever that is: a deadline, a stream of events, progress to show."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..client.api.steps import CloseStream, Failure, OpenStream, Operation, Pause, ReadStream, Reply, Request, Step
from ..errors import ExecError, ServerStartTimeout, UnexpectedAnswer
from ..models.plain_text import strip_ansi
from ..protocol.sse import MEDIA_TYPE, EventStreamDecoder
from ..protocol.strict_json import loads_strict

T = TypeVar("T")
# A JupyterHub sends something every 8 seconds, a BinderHub every 25: what is silent for longer leads nowhere.
_SILENCE_SECONDS = 90.0
_MAX_EVENT_BYTES = 1024 * 1024
_MAX_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """How far a server's start has come.

    Parameters
    ----------
    phase : str
        A JupyterHub's: ``starting``, ``ready`` or ``failed``. A Binder's: as its API names them, such as ``building``.
    message : str
        What the service says, in one line that cannot steer a terminal.
    percent : float, optional
        From 0 to 100, where the service says it.
    begins : bool
        Whether the phase is another one than before.
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
    """When something must be done.

    Parameters
    ----------
    seconds : float
        From now on.
    failing : str
        What is so if it was not, for the error, such as ``the server did not start``.
    remedy : str
        What to do about it.
    error : type
        The error.

    Attributes
    ----------
    heard : str
        What was heard last, for the error.
    """

    def __init__(
        self, seconds: float, failing: str, remedy: str, error: Callable[[str], ExecError] = ServerStartTimeout
    ) -> None:
        self._seconds = seconds
        self._failing = failing
        self._remedy = remedy
        self._error = error
        self._at = time.monotonic() + seconds
        self.heard = ""

    @classmethod
    def of_start(cls, seconds: float, what: str) -> Deadline:
        """Return when a server must have started; raises ValueError for no time at all."""
        if not seconds > 0:
            raise ValueError("startup_timeout_seconds must be positive")
        return cls(seconds, f"{what} did not start", "give it longer with startup_timeout_seconds")

    @property
    def left_seconds(self) -> float:
        """What is left of it; never quite nothing, for those who take nothing to mean no limit."""
        return max(0.001, self._at - time.monotonic())

    def check(self) -> None:
        """Raise the error if the time is up."""
        if time.monotonic() >= self._at:
            heard = f" (the last that was heard: {self.heard})" if self.heard else ""
            raise self._error(f"{self._failing} within {self._seconds:g} s{heard}; {self._remedy}")

    def bound(self, step: Step) -> Step:
        """Return the step so that it ends by then."""
        left = self.left_seconds
        if isinstance(step, Request):
            return replace(step, read_timeout_seconds=min(step.read_timeout_seconds, left))
        if isinstance(step, OpenStream):
            silence = min(step.request.read_timeout_seconds, left)
            return OpenStream(replace(step.request, read_timeout_seconds=silence), left)
        return Pause(min(step.seconds, left)) if isinstance(step, Pause) else step


def within(deadline: Deadline, operation: Operation[T]) -> Operation[T]:
    """Carry an operation out, each of whose steps ends by the deadline; then its error is raised."""
    try:
        step = next(operation)
        while True:
            deadline.check()
            try:
                outcome = yield deadline.bound(step)
            except BaseException as error:
                step = operation.throw(error)
            else:
                if isinstance(outcome, Failure) or outcome == b"":
                    deadline.check()  # that it was cut short is our own doing then
                step = operation.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        operation.close()


def follow(path: str, take: Callable[[Mapping[str, Any]], bool]) -> Operation[Reply | Failure | None]:
    """Read an event stream of JSON objects until `take` says that it was given the last one.

    Returns
    -------
    Reply, Failure or None
        The answer if it is no stream; what has cut the stream before its last event; None if all is well.
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
            if take(_object(sent.data)):
                yield CloseStream(opened)
                return None


def _object(data: str) -> Mapping[str, Any]:
    try:
        event = loads_strict(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise UnexpectedAnswer("the server's stream of events holds something that is not a JSON object")
    return event


def one_line(text: Any) -> str:
    """Return what a service says as one line, of some length, that cannot steer a terminal."""
    words = " ".join(strip_ansi(text).split()) if isinstance(text, str) else ""
    return "".join(char if char.isprintable() else "?" for char in words)[:_MAX_MESSAGE]
