"""Operations on executions: submit, run, follow, cancel, and answer input, each code sent so that it runs once."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import ConnectionFailed, ConnectionLost, ExecError, NoInputRequested
from ...models import Execution, InputRequestEvent
from ...protocol.records_json import execution_from_json
from .answers import parsed
from .event_stream import API, EventStreamReader, silence_seconds
from .request_exchange import exchange, open_stream, segment, transport_error, wait
from .retries import DEFAULT_RETRY, RetryBudget, RetryPolicy
from .steps import (
    IDEMPOTENCY_KEY,
    MINIMAL,
    AskInput,
    CloseStream,
    Emit,
    Failure,
    Operation,
    Pause,
    ReadStream,
    Reply,
    Request,
    undo_on_error,
)

# The server answers a waiting request within this time even if the code still runs, so that no proxy on the way sees a
# silent connection for longer. A request that creates a session waits from when its kernel is ready.
WAIT_SECONDS = 25
#: Timeout of an answer for which a kernel has to start.
START_SECONDS = 180.0
#: Place of executions that run in a session of their own.
FRESH_SESSION = "executions"
# The answer may be late by a queue in a proxy or a busy server; only then is the connection given up.
_SPARE_SECONDS = 35.0
# A user who presses Ctrl-C waits for this at most, once to find the execution and once to cancel it.
_TIDY_SECONDS = 5.0
# The server waits for whole seconds only, so the last fraction of a timeout is polled.
_POLL_SECONDS = 0.1


@dataclass(slots=True)
class Contact:
    """Flag of a server that has answered before: during an outage, it is worth waiting for."""

    made: bool = False


@dataclass(frozen=True, slots=True)
class ExecutionOperations:
    """Operations of ``exec/v1`` on executions.

    Parameters
    ----------
    retry : RetryPolicy
        When requests are repeated.
    contact : Contact
        Whether the server has answered before; shared by all operations of a client.
    """

    retry: RetryPolicy = DEFAULT_RETRY
    contact: Contact = field(default_factory=Contact)

    def _call(
        self, method: str, path: str, json: Any = None, *, outages: bool = False, **options: Any
    ) -> Operation[Any]:
        request = Request(method, API + path, json, **options)
        body = parsed((yield from exchange(request, self.retry, outages=outages)))
        self.contact.made = True
        return body

    def submit(
        self, place: str, request: Mapping[str, Any], key: str, *, wait_seconds: int = 0
    ) -> Operation[Execution]:
        """Queue code; return when it has ended or after `wait_seconds`, whichever is first.

        Parameters
        ----------
        place : str
            `executions_of` a session, or `FRESH_SESSION`.
        request : mapping
            See `execution_request`.
        key : str
            The idempotency key.
        wait_seconds : int
            Time that the server may wait for the end of the execution.
        """
        body = yield from self._call(
            "POST",
            place,
            request,
            outages=self._can_wait_for_outage(place),
            headers={"Prefer": f"respond-async, wait={wait_seconds}, {MINIMAL}", IDEMPOTENCY_KEY: key},
            read_timeout_seconds=wait_seconds + (_SPARE_SECONDS if place.endswith("/executions") else START_SECONDS),
        )
        return execution_from_json(body)

    def run(self, place: str, request: Mapping[str, Any], key: str) -> Operation[Execution]:
        """Run code and return the finished execution; cancel it if the operation is interrupted."""
        execution = None
        try:
            execution = yield from self.submit(place, request, key, wait_seconds=WAIT_SECONDS)
            while not execution.state.finished:
                execution = yield from self.get_execution(execution.id, wait_seconds=WAIT_SECONDS)
        except (ConnectionFailed, ConnectionLost) as error:
            if execution is None and isinstance(error, ConnectionFailed):
                raise  # nothing was sent
            raise _run_lost(error, key, execution.id if execution else None) from None
        except (ExecError, GeneratorExit):
            raise
        except BaseException:  # Ctrl-C, a cancelled task, or an error of the caller's callback
            yield from self._abandon(place, request, key, execution.id if execution else "")
            raise
        return execution

    def _abandon(self, place: str, request: Mapping[str, Any], key: str, execution_id: str) -> Operation[None]:
        """Cancel an interrupted execution: once, and with a short timeout."""
        # If the first request never arrived, this one starts the code, and the next one cancels it.
        if not execution_id:  # it was sent but not answered yet: the same key finds it
            headers = {"Prefer": "respond-async", IDEMPOTENCY_KEY: key}
            reply: Reply | Failure = yield Request("POST", API + place, request, headers, _TIDY_SECONDS)
            execution_id = reply.headers.get("location", "").rpartition("/")[2] if isinstance(reply, Reply) else ""
        if execution_id:
            path = f"{API}executions/{segment(execution_id)}/cancel"
            yield Request("POST", path, read_timeout_seconds=_TIDY_SECONDS)

    def get_execution(self, execution_id: str, *, wait_seconds: int = 0) -> Operation[Execution]:
        """Read an execution, waiting up to `wait_seconds` for its end."""
        body = yield from self._call(
            "GET",
            f"executions/{segment(execution_id)}",
            outages=True,
            headers={"Prefer": f"wait={wait_seconds}, {MINIMAL}" if wait_seconds else MINIMAL},
            read_timeout_seconds=wait_seconds + _SPARE_SECONDS,
        )
        return execution_from_json(body)

    def result(self, execution_id: str, seconds_left: Callable[[], float | None]) -> Operation[Execution]:
        """Wait for the end of an execution and return its record.

        Parameters
        ----------
        execution_id : str
            The execution.
        seconds_left : callable
            Returns the time left in seconds, or None for no limit.
        """
        while True:
            left = seconds_left()
            wait = WAIT_SECONDS if left is None else min(WAIT_SECONDS, int(left))
            execution = yield from self.get_execution(execution_id, wait_seconds=wait)
            # `seconds_left` returns exactly 0.0 once the time is up.
            if execution.state.finished or left == 0.0:
                return execution
            if left is not None and left < 1.0:  # the server waits for whole seconds
                yield Pause(min(left, _POLL_SECONDS))

    def cancel(self, execution_id: str) -> Operation[Execution]:
        """Cancel an execution, queued or running."""
        return execution_from_json((yield from self._call("POST", f"executions/{segment(execution_id)}/cancel")))

    def answer_input(self, execution_id: str, value: str) -> Operation[None]:
        """Answer ``input()``; raise `NoInputRequested` if the code does not wait for an answer."""
        yield from self._call("POST", f"executions/{segment(execution_id)}/input", {"value": value})

    # --- event streams ---

    def stream(self, place: str, request: Mapping[str, Any], key: str) -> Operation[Execution]:
        """Run code, emit its events as they arrive, and return the finished execution.

        Ctrl-C and a cancelled task cancel the execution. If the operation is only abandoned, the execution continues.
        """
        start = Request("POST", API + place, request, headers={IDEMPOTENCY_KEY: key})
        if place == FRESH_SESSION:  # the stream begins when the kernel is ready
            start = replace(start, read_timeout_seconds=START_SECONDS)
        reader = EventStreamReader(start, after=0)
        can_wait = self._can_wait_for_outage(place)
        following = self._follow(reader, can_wait, answer=bool(request.get("allow_input")))
        try:
            return (
                yield from undo_on_error(
                    following, lambda: self._abandon(place, request, key, reader.execution_id), spared=(ExecError,)
                )
            )
        except ConnectionLost as error:
            raise _run_lost(error, key, reader.execution_id or None) from None

    def events(self, execution_id: str, after: int = 0, *, answer: bool = False) -> Operation[Execution]:
        """Emit the events of an execution that follow number `after`, to its end."""
        start = Request("GET", f"{API}executions/{segment(execution_id)}/events?after={after}")
        return (yield from self._follow(EventStreamReader(start, after), outages=True, answer=answer))

    def _can_wait_for_outage(self, place: str) -> bool:
        """Return whether the server has answered before, such as with the session of `place`."""
        return place != FRESH_SESSION or self.contact.made

    def _follow(self, reader: EventStreamReader, outages: bool, *, answer: bool) -> Operation[Execution]:
        """Read an event stream to its end; after a cut, reopen it after the last event read."""
        budget = RetryBudget(self.retry, outages=outages)
        was_sent = False
        while reader.finished is None:
            received_blocks = reader.received_blocks
            request = reader.next_request()
            failure = yield from self._read_once(reader, request, answer, outages)
            if reader.finished is not None:
                break
            was_sent = was_sent or failure.sent
            # The server has named the execution or sent something, a heartbeat at least. So all retries are available
            # again, and an outage is waited for.
            if reader.execution_id and (reader.received_blocks != received_blocks or not outages):
                outages, budget = True, RetryBudget(self.retry, outages=True)
            pause = budget.pause(outage=True)
            if pause is None and failure.unreachable is not None:
                raise failure.unreachable
            # Any of the attempts may have started the code, not only the last one.
            if pause is None and not reader.execution_id:
                raise transport_error(request, Failure(was_sent, failure.message))
            if pause is None:
                raise ConnectionLost(f"the event stream was cut and could not be resumed: {failure.message}")
            yield from wait(pause, self.retry if outages else None)
        return reader.finished

    def _read_once(
        self, reader: EventStreamReader, request: Request, answer: bool, outages: bool
    ) -> Operation[Failure]:
        """Read one connection to its end or the end of the events."""
        stream = yield from open_stream(request, self.retry, outages=outages)
        if isinstance(stream, Failure):
            if stream.sent and not request.is_idempotent:
                raise transport_error(request, stream)
            return stream
        reader.opened(stream.headers)
        silence = silence_seconds(stream.headers)
        last_seq = reader.last_seq
        chunk: bytes | Failure = b"-"
        while chunk and not isinstance(chunk, Failure) and reader.finished is None:
            chunk = yield ReadStream(stream, silence)
            for event in () if isinstance(chunk, Failure) else reader.feed(chunk):
                yield Emit(event)
                if answer and isinstance(event, InputRequestEvent):
                    value: str = yield AskInput(event)
                    # The code may have ended meanwhile, or another client has answered; the next events show it.
                    with contextlib.suppress(NoInputRequested):
                        yield from self.answer_input(reader.execution_id, value)
        yield CloseStream(stream)
        if isinstance(chunk, Failure):
            return chunk
        if reader.finished is None and reader.last_seq == last_seq:
            # An orderly end without a single event: there may be none after the cursor.
            record = yield from self.get_execution(reader.execution_id)
            reader.finished = record if record.state.finished else None
        return Failure(True, "the server ended it early")


def _run_lost(error: ExecError, key: str, execution_id: str | None) -> ConnectionLost:
    """Return the error for a run whose end is unknown, with the key and id that find it again."""
    return ConnectionLost(error.message, idempotency_key=key, execution_id=execution_id)


def executions_of(session_id: str) -> str:
    """Return the place of the executions of a session."""
    return f"sessions/{segment(session_id)}/executions"


def execution_request(
    code: str,
    timeout_seconds: float | None,
    language: str | None,
    metadata: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
    allow_input: bool,
) -> dict[str, Any]:
    """Return the body of ``POST /sessions/{sid}/executions``, and of ``POST /executions`` without its session.

    Raises
    ------
    TypeError
        If the code is no text, or the variables are no mapping.
    """
    if not isinstance(code, str):
        raise TypeError(
            f"the code is a text, not of type {type(code).__name__}; of a file, pass Path(FILE).read_text()"
        )
    variables = None if env is None else environment_variables(env)
    optional = {"timeout_seconds": timeout_seconds, "language": language, "metadata": metadata, "env": variables}
    return {"code": code, "allow_input": allow_input} | {k: v for k, v in optional.items() if v is not None}


def environment_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables as a request has them.

    Raises
    ------
    TypeError
        If they are not given by name.
    """
    if not isinstance(env, Mapping):
        raise TypeError(f"'env' is a mapping, such as {{'NAME': 'VALUE'}}, not of type {type(env).__name__}")
    return dict(env)


def one_timeout(timeout: float | None, timeout_seconds: float | None) -> float | None:
    """Return the timeout that was given, under either of its two names.

    Raises
    ------
    TypeError
        If both were given.
    """
    if timeout is not None and timeout_seconds is not None:
        raise TypeError("'timeout' and 'timeout_seconds' are the same, in seconds; give one of them")
    return timeout_seconds if timeout is None else timeout


def new_key() -> str:
    """Return an idempotency key for one request and its retries."""
    return secrets.token_hex(16)


def seconds_left(timeout_seconds: float | None) -> Callable[[], float | None]:
    """Return a function that returns the time left of a timeout that begins now."""
    if timeout_seconds is None:
        return lambda: None
    end = time.monotonic() + timeout_seconds
    return lambda: max(0.0, end - time.monotonic())
