"""The client's logic for ``exec/v1``: which requests an operation makes and what their answers mean."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import (
    ApiNotFound,
    ConnectionFailed,
    ConnectionLost,
    ExecError,
    Forbidden,
    NoInputRequested,
    NotFound,
    Unauthenticated,
    UnexpectedAnswer,
)
from ...models import Execution, InputRequestEvent, KernelSpecInfo, Session
from ...protocol.records_json import execution_from_json, kernelspec_from_json, session_from_json
from .event_stream import API, EventStreamReader, silence_seconds
from .outage_retry import DEFAULT_RETRY, NO_RETRY, Patience, RetryPolicy
from .request_exchange import exchange, is_of_api, open_stream, parsed, segment, transport_error, wait
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
)

# The server answers a waiting request within this time even if the code still runs, so that no proxy on the way
# sees a silent connection for longer; counted, where a session is made, from when its kernel is there.
WAIT_SECONDS = 25
#: How long an answer may take for which a kernel has to start.
START_SECONDS = 180.0
_NOT_PASSED_ON = 503
#: Where code is run in a session of its own.
FRESH_SESSION = "executions"
_SPARE_SECONDS = 35.0
_TIDY_SECONDS = 5.0
_NOTEBOOK_SECONDS = 300.0
_LOOK_SECONDS = 0.1


@dataclass(slots=True)
class Contact:
    """Record of whether a server has ever answered: then it is worth waiting for when it does not."""

    made: bool = False


@dataclass(frozen=True, slots=True)
class ExecApi:
    """The operations of ``exec/v1``."""

    retry: RetryPolicy = DEFAULT_RETRY
    contact: Contact = field(default_factory=Contact)

    @property
    def hurried(self) -> ExecApi:
        """The same, where nobody has time for repetitions."""
        return replace(self, retry=NO_RETRY)

    def _call(
        self, method: str, path: str, json: Any = None, *, outages: bool = False, **options: Any
    ) -> Operation[Any]:
        request = Request(method, API + path, json, **options)
        body = parsed((yield from exchange(request, self.retry, outages=outages)))
        self.contact.made = True
        return body

    def info(self) -> Operation[dict[str, Any]]:
        """Return what the server says about itself.

        Raises
        ------
        ApiNotFound
            If it is a Jupyter server without this extension.
        """
        # Without the slash at the end: a Jupyter server without the extension would redirect instead of saying no.
        reply = yield from exchange(Request("GET", API.rstrip("/")), self.retry)
        if reply.status == 404:
            raise ApiNotFound(
                "the server has no exec/v1 API; install jupyter_exec_ext there (pip install jupyter-exec-ext) and "
                "restart it, or check the base URL"
            )
        info = parsed(reply)
        if not isinstance(info, dict) or info.get("name") != "jupyter_exec_ext":
            raise UnexpectedAnswer("something answers at exec/v1, but it is not jupyter_exec_ext")
        return info

    def kernelspecs(self) -> Operation[list[KernelSpecInfo]]:
        """Return the kernelspecs a session may use."""
        return [kernelspec_from_json(item) for item in _items((yield from self.info()), "kernelspecs")]

    def open_session(self, request: Mapping[str, Any]) -> Operation[Session]:
        """Create a session on a server of which nothing may be known yet; returns when its kernel is ready.

        Raises
        ------
        ApiNotFound, Unauthenticated, UnexpectedAnswer
            A missing API, a wrong token and a wrong address are told apart, as `info` does.
        """
        ask = Request("POST", f"{API}sessions", request, read_timeout_seconds=START_SECONDS)
        try:
            reply = yield from exchange(ask, self.retry)
        except ConnectionLost:
            yield from self.info()  # if nobody is there at all, this says so
            raise
        if not reply.ok and not is_of_api(reply):
            yield from self.info()
            if reply.status == _NOT_PASSED_ON:  # a proxy has answered for a server that was starting
                reply = yield from exchange(ask, self.retry)
        return session_from_json(parsed(reply))

    def in_fresh_session(self, operation: Operation[Execution]) -> Operation[Execution]:
        """Run code in a session of its own on a server of which nothing may be known yet; raises as `open_session`."""
        try:
            return (yield from operation)
        except (Unauthenticated, Forbidden, NotFound, UnexpectedAnswer) as error:
            if error.request_id is None:  # not this API's
                yield from self.info()
            raise

    def get_session(self, session_id: str, *, memory: bool = False) -> Operation[Session]:
        """Read a session."""
        path = f"sessions/{segment(session_id)}{_flags(memory=memory)}"
        return session_from_json((yield from self._call("GET", path)))

    def list_sessions(self, *, ended: bool, memory: bool) -> Operation[list[Session]]:
        """List sessions."""
        body = yield from self._call("GET", f"sessions{_flags(ended=ended, memory=memory)}")
        return [session_from_json(item) for item in _items(body, "sessions")]

    def delete_session(self, session_id: str) -> Operation[None]:
        """Shut a session down; one that is gone already is fine."""
        try:
            yield from self._call("DELETE", f"sessions/{segment(session_id)}")
        except ExecError as error:
            if error.status not in (404, 410):
                raise

    def interrupt_session(self, session_id: str) -> Operation[Session]:
        """Interrupt what runs in a session."""
        return session_from_json((yield from self._call("POST", f"sessions/{segment(session_id)}/interrupt")))

    def restart_session(self, session_id: str) -> Operation[Session]:
        """Give a session a fresh kernel."""
        path = f"sessions/{segment(session_id)}/restart"
        return session_from_json((yield from self._call("POST", path, read_timeout_seconds=START_SECONDS)))

    def notebook(self, session_id: str) -> Operation[dict[str, Any]]:
        """Return a session as a notebook."""
        path = f"sessions/{segment(session_id)}/notebook"
        notebook = yield from self._call("GET", path, read_timeout_seconds=_NOTEBOOK_SECONDS)
        if not isinstance(notebook, dict):
            raise UnexpectedAnswer("the server sent something else than a notebook")
        return notebook

    def save_notebook(self, session_id: str, path: str) -> Operation[str]:
        """Save a session as a notebook on the server; return its path there."""
        url = f"sessions/{segment(session_id)}/notebook"
        saved = yield from self._call("POST", url, {"path": path}, read_timeout_seconds=_NOTEBOOK_SECONDS)
        return str(saved["path"])

    def list_executions(self, session_id: str, limit: int) -> Operation[list[Execution]]:
        """List a session's newest executions, without their outputs."""
        body = yield from self._call("GET", f"sessions/{segment(session_id)}/executions?limit={limit}")
        return [execution_from_json(item) for item in _items(body, "executions")]

    def submit(
        self, place: str, request: Mapping[str, Any], key: str, *, wait_seconds: int = 0
    ) -> Operation[Execution]:
        """Queue code; returns when it has ended or `wait_seconds` have passed, whichever is first.

        Parameters
        ----------
        place : str
            `executions_of` a session, or `FRESH_SESSION`.
        """
        body = yield from self._call(
            "POST",
            place,
            request,
            outages=self._waits_for(place),
            headers={"Prefer": f"respond-async, wait={wait_seconds}, {MINIMAL}", IDEMPOTENCY_KEY: key},
            read_timeout_seconds=wait_seconds + (START_SECONDS if place == FRESH_SESSION else _SPARE_SECONDS),
        )
        return execution_from_json(body)

    def run(self, place: str, request: Mapping[str, Any], key: str) -> Operation[Execution]:
        """Run code and return the finished execution, however long it takes; cancel it if nobody waits any more."""
        execution = None
        try:
            execution = yield from self.submit(place, request, key, wait_seconds=WAIT_SECONDS)
            while not execution.state.finished:
                execution = yield from self.get_execution(execution.id, wait_seconds=WAIT_SECONDS)
        except ConnectionFailed as error:
            if execution is None:
                raise
            raise _lost(error, key, execution.id) from None
        except ConnectionLost as error:
            raise _lost(error, key, execution.id if execution else None) from None
        except (ExecError, GeneratorExit):
            raise
        except BaseException:
            execution_id = execution.id if execution else (yield from self._id_of(place, request, key))
            yield from self._abandon(execution_id)
            raise
        return execution

    def _id_of(self, place: str, request: Mapping[str, Any], key: str) -> Operation[str]:
        """Return the id of an execution that was sent but not answered yet: the same key finds it."""
        headers = {"Prefer": "respond-async", IDEMPOTENCY_KEY: key}
        reply: Reply | Failure = yield Request("POST", API + place, request, headers, _TIDY_SECONDS)
        return reply.headers.get("location", "").rpartition("/")[2] if isinstance(reply, Reply) else ""

    def _abandon(self, execution_id: str) -> Operation[None]:
        """Cancel an execution that nobody waits for any more: once, and without waiting for long."""
        if not execution_id:
            return
        path = f"{API}executions/{segment(execution_id)}/cancel"
        yield Request("POST", path, read_timeout_seconds=_TIDY_SECONDS)

    def get_execution(self, execution_id: str, *, wait_seconds: int = 0) -> Operation[Execution]:
        """Read an execution, waiting up to `wait_seconds` for its end."""
        headers = {"Prefer": f"wait={wait_seconds}, {MINIMAL}" if wait_seconds else MINIMAL}
        body = yield from self._call(
            "GET",
            f"executions/{segment(execution_id)}",
            outages=True,
            headers=headers,
            read_timeout_seconds=wait_seconds + _SPARE_SECONDS,
        )
        return execution_from_json(body)

    def result(self, execution_id: str, give_up: Callable[[], float | None]) -> Operation[Execution]:
        """Wait for the end of an execution.

        Parameters
        ----------
        give_up : callable
            Returns how many seconds are left, or None for no limit.
        """
        while True:
            left = give_up()
            wait = WAIT_SECONDS if left is None else min(WAIT_SECONDS, int(left))
            execution = yield from self.get_execution(execution_id, wait_seconds=wait)
            if execution.state.finished or left == 0.0:
                return execution
            if left is not None and left < 1.0:  # the server waits for whole seconds
                yield Pause(min(left, _LOOK_SECONDS))

    def cancel(self, execution_id: str) -> Operation[Execution]:
        """Cancel an execution, queued or running."""
        return execution_from_json((yield from self._call("POST", f"executions/{segment(execution_id)}/cancel")))

    def answer_input(self, execution_id: str, value: str) -> Operation[None]:
        """Answer ``input()``; raises `NoInputRequested` if the code does not wait for an answer (any more)."""
        yield from self._call("POST", f"executions/{segment(execution_id)}/input", {"value": value})

    # --- event streams ---

    def stream(self, place: str, request: Mapping[str, Any], key: str) -> Operation[Execution]:
        """Run code and emit its events as they come; returns the finished execution.

        Broken off by Ctrl-C or by cancelling the task, it cancels the execution; left, it lets it run.
        """
        start = Request("POST", API + place, request, headers={IDEMPOTENCY_KEY: key})
        if place == FRESH_SESSION:  # it begins when the kernel is there
            start = replace(start, read_timeout_seconds=START_SECONDS)
        reader = EventStreamReader(start, after=0)
        try:
            return (yield from self._follow(reader, self._waits_for(place), answer=bool(request.get("allow_input"))))
        except ConnectionLost as error:
            raise _lost(error, key, reader.execution_id or None) from None
        except (ExecError, GeneratorExit):
            raise
        except BaseException:
            yield from self._abandon(reader.execution_id or (yield from self._id_of(place, request, key)))
            raise

    def events(self, execution_id: str, after: int = 0, *, answer: bool = False) -> Operation[Execution]:
        """Emit the events of an execution that follow number `after`, to its end."""
        start = Request("GET", f"{API}executions/{segment(execution_id)}/events?after={after}")
        return (yield from self._follow(EventStreamReader(start, after), outages=True, answer=answer))

    def _waits_for(self, place: str) -> bool:
        """Return whether an outage is waited for: only of a server that has answered before, such as with a session."""
        return place != FRESH_SESSION or self.contact.made

    def _follow(self, reader: EventStreamReader, outages: bool, *, answer: bool) -> Operation[Execution]:
        """Read an event stream to its end, reopening it after the last event seen whenever it is cut."""
        patience = Patience(self.retry, outages=outages)
        sent = False
        while reader.finished is None:
            seen = reader.last_seq
            request = reader.next_request()
            failure = yield from self._read_once(reader, request, answer, outages)
            if reader.finished is not None:
                break
            sent = sent or failure.sent
            if reader.execution_id and (reader.last_seq != seen or not outages):
                outages, patience = True, Patience(self.retry, outages=True)
            pause = patience.pause(outage=True)
            if pause is None:
                raise self._given_up(request, failure, reader, sent)
            yield from wait(pause, self.retry if outages else None)
        return reader.finished

    @staticmethod
    def _given_up(request: Request, failure: Failure, reader: EventStreamReader, sent: bool) -> ExecError:
        if not reader.execution_id:
            return transport_error(request, Failure(sent, failure.message))
        return ConnectionLost(f"the event stream was cut and could not be resumed: {failure.message}")

    def _read_once(
        self, reader: EventStreamReader, request: Request, answer: bool, outages: bool
    ) -> Operation[Failure]:
        """Read one connection until the log's end or its own."""
        stream = yield from open_stream(request, self.retry, outages=outages)
        if isinstance(stream, Failure):
            if stream.sent and not request.is_idempotent:
                raise transport_error(request, stream)
            return stream
        reader.opened(stream.headers)
        silence = silence_seconds(stream.headers)
        seen = reader.last_seq
        chunk: bytes | Failure = b"-"
        while chunk and not isinstance(chunk, Failure) and reader.finished is None:
            chunk = yield ReadStream(stream, silence)
            for event in () if isinstance(chunk, Failure) else reader.feed(chunk):
                yield Emit(event)
                if answer and isinstance(event, InputRequestEvent):
                    value: str = yield AskInput(event)
                    # It may have ended while the user thought, or somebody else was faster; the stream tells.
                    with contextlib.suppress(NoInputRequested):
                        yield from self.answer_input(reader.execution_id, value)
        yield CloseStream(stream)
        if isinstance(chunk, Failure):
            return chunk
        if reader.finished is None and reader.last_seq == seen:
            # An orderly end without a single event: there may be nothing after the cursor.
            record = yield from self.get_execution(reader.execution_id)
            reader.finished = record if record.state.finished else None
        return Failure(True, "the server ended it early")


def _lost(error: ExecError, key: str, execution_id: str | None) -> ConnectionLost:
    """Return the error for a run that was sent and of whose end nothing is known, with what finds it again."""
    return ConnectionLost(error.message, idempotency_key=key, execution_id=execution_id)


def session_request(
    kernel_name: str | None,
    name: str,
    env: Mapping[str, str] | None,
    metadata: Mapping[str, Any] | None,
    idle_timeout_seconds: float | None,
    kernel_id: str | None,
    isolation: str | None,
) -> dict[str, Any]:
    """Return the body of ``POST /sessions``."""
    body = {
        "kernel_name": kernel_name,
        "name": name or None,
        "env": None if env is None else dict(env),
        "metadata": None if metadata is None else dict(metadata),
        "idle_timeout_seconds": idle_timeout_seconds,
        "kernel_id": kernel_id,
        "isolation": isolation,
    }
    return {field: value for field, value in body.items() if value is not None}


def executions_of(session_id: str) -> str:
    """Return where code is run in a session."""
    return f"sessions/{segment(session_id)}/executions"


def execution_request(
    code: str,
    timeout_seconds: float | None,
    language: str | None,
    metadata: Mapping[str, Any] | None,
    allow_input: bool,
) -> dict[str, Any]:
    """Return the body of ``POST /sessions/{sid}/executions``, and of ``POST /executions`` but for its session."""
    body: dict[str, Any] = {"code": code, "allow_input": allow_input}
    optional = {"timeout_seconds": timeout_seconds, "language": language, "metadata": metadata}
    return body | {name: value for name, value in optional.items() if value is not None}


def new_key() -> str:
    """Return an idempotency key for one request and its repetitions."""
    return uuid.uuid4().hex


def seconds_left(timeout_seconds: float | None) -> Callable[[], float | None]:
    """Return a function that tells how many seconds of a timeout that begins now are left."""
    if timeout_seconds is None:
        return lambda: None
    end = time.monotonic() + timeout_seconds
    return lambda: max(0.0, end - time.monotonic())


def _flags(**flags: bool) -> str:
    query = "&".join(f"{name}=true" for name, flag in flags.items() if flag)
    return f"?{query}" if query else ""


def _items(body: Any, name: str) -> list[Any]:
    items = body.get(name) if isinstance(body, dict) else None
    if not isinstance(items, list):
        raise UnexpectedAnswer(f"the server's list has no {name!r}")
    return items
