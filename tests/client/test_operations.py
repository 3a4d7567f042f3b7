"""The client's logic against a scripted network: what is sent, what is repeated, what is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_exec_ext.client.api.answers import error_from
from jupyter_exec_ext.client.api.execution_operations import (
    FRESH_SESSION,
    execution_request,
    executions_of,
    seconds_left,
)
from jupyter_exec_ext.client.api.file_transfers import FilesApi
from jupyter_exec_ext.client.api.operations import ExecApi
from jupyter_exec_ext.client.api.retries import RetryPolicy
from jupyter_exec_ext.client.api.secret_operations import put_secret
from jupyter_exec_ext.client.api.steps import (
    AskInput,
    CloseStream,
    Emit,
    Failure,
    OpenStream,
    Operation,
    Pause,
    ReadStream,
    Reply,
    Request,
    Stream,
    Work,
)
from jupyter_exec_ext.errors import (
    ApiNotFound,
    ConnectionFailed,
    ConnectionLost,
    ExecError,
    FileNotFound,
    Forbidden,
    InternalError,
    MissingScope,
    NotFound,
    PoliciesInvalid,
    QueueFull,
    ServerLost,
    ServerUnreachable,
    SessionEnded,
    SessionNotFound,
    Unauthenticated,
    UnexpectedAnswer,
)
from jupyter_exec_ext.models import EndEvent, Execution, ExecutionState, OutputEvent, Session, SessionState, StreamEvent
from jupyter_exec_ext.protocol.records_json import event_to_json, event_to_text, to_json
from jupyter_exec_ext.protocol.sse import KEEP_ALIVE, encode_event

API = ExecApi(RetryPolicy(max_retries=2))
FILES = FilesApi(RetryPolicy(max_retries=2))
NOT_SENT, LOST = Failure(False, "refused"), Failure(True, "cut")
PLACE = executions_of("ses_1")


def answer(status: int = 200, body: Any = None, **headers: str) -> Reply:
    return Reply(status, {k.replace("_", "-"): v for k, v in headers.items()}, json.dumps(body).encode())


def execution(state: ExecutionState = ExecutionState.OK, **fields: Any) -> Execution:
    return Execution(
        id="exe_1", session_id="ses_1", state=state, code="1", created_at="t", outputs=[], files=(), **fields
    )


class Script:
    """A network that gives prepared outcomes, one a request, and notes what it was asked."""

    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = iter(outcomes)
        self._chunks: Iterator[Any] = iter(())
        self.requests: list[Request] = []
        self.pauses: list[float] = []
        self.events: list[OutputEvent] = []
        self.closed = 0

    def perform(self, operation: Operation[Any]) -> Any:
        outcome: Any = None
        while True:
            try:
                step = operation.send(outcome)
            except StopIteration as end:
                return end.value
            outcome = self._do(step)

    def _do(self, step: Any) -> Any:
        if isinstance(step, Pause):
            return self.pauses.append(step.seconds)
        if isinstance(step, Emit):
            return self.events.append(step.event)
        if isinstance(step, AskInput):
            return step.event.prompt.upper()
        if isinstance(step, Work):
            return step.action()
        if isinstance(step, ReadStream):
            return next(self._chunks, b"")
        if isinstance(step, CloseStream):
            self.closed += 1
            return None
        self.requests.append(step.request if isinstance(step, OpenStream) else step)
        outcome = next(self._outcomes)
        if isinstance(outcome, list):
            assert isinstance(step, OpenStream)
            self._chunks = iter(outcome)
            return Stream({"location": "/exec/v1/executions/exe_1"}, None)
        return outcome


# --- what is repeated ---


@pytest.mark.parametrize("failure", [NOT_SENT, LOST])
def test_reading_is_retried_until_success(failure: Failure) -> None:
    script = Script(failure, failure, answer(200, to_json(execution())))
    assert script.perform(API.get_execution("exe_1")) == execution()
    assert len(script.requests) == 3
    assert 0 < script.pauses[0] < script.pauses[1] + 0.1


@pytest.mark.parametrize("failure", [NOT_SENT, LOST])
def test_submit_is_retried_with_same_idempotency_key(failure: Failure) -> None:
    script = Script(failure, failure, answer(200, to_json(execution())))
    request = execution_request("1", None, None, None, None, False)
    assert script.perform(API.submit(PLACE, request, "key")) == execution()
    assert [sent.headers["Idempotency-Key"] for sent in script.requests] == ["key"] * 3


def test_request_without_key_is_retried_only_if_unsent() -> None:
    script = Script(NOT_SENT, LOST, INFO)
    with pytest.raises(ConnectionLost, match="unknown"):
        script.perform(API.open_session({}))
    assert [sent.method for sent in script.requests] == ["POST", "POST", "GET"]


def test_unknown_end_of_run_raises_connection_lost() -> None:
    with pytest.raises(ConnectionLost, match="unknown"):
        Script(*[LOST] * 99).perform(API.submit(PLACE, {"code": "1"}, "key"))


REDIRECT = Reply(302, {"location": "/hub/login"}, b"")
LOGIN_PAGE = Reply(403, {"content-type": "text/html"}, b"<html>")
BAD_GATEWAY, NO_SUCH_SERVER = Reply(502, {}, b"<html>"), Reply(424, {}, b"{}")
REFUSED = answer(403, {"message": "no", "code": "missing_scope", "request_id": "r1"})


@pytest.mark.parametrize(
    "outcomes",
    [
        [LOST, *[NOT_SENT] * 99],
        [NOT_SENT, LOST, *[NOT_SENT] * 99],
        [BAD_GATEWAY, *[NOT_SENT] * 99],
        [LOST, *[REDIRECT] * 99],
        [LOST, NOT_SENT, *[LOGIN_PAGE] * 99],
        [LOST, *[NO_SUCH_SERVER] * 99],
        [NOT_SENT, *[BAD_GATEWAY] * 99],
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_run_sent_once_never_raises_connection_failed(outcomes: list[Any], streamed: bool) -> None:
    api = ExecApi(RetryPolicy(max_retries=2))
    start = api.stream if streamed else api.run
    with pytest.raises(ConnectionLost) as lost:
        Script(*outcomes).perform(start(PLACE, {"code": "1"}, "key"))
    assert (lost.value.idempotency_key, lost.value.execution_id) == ("key", None)


def test_lost_run_error_has_execution_id() -> None:
    script = Script(answer(202, to_json(execution(ExecutionState.RUNNING))), *[NOT_SENT] * 99)
    with pytest.raises(ConnectionLost) as lost:
        script.perform(API.run(PLACE, {"code": "1"}, "key"))
    assert (lost.value.idempotency_key, lost.value.execution_id) == ("key", "exe_1")


@pytest.mark.parametrize("outage", [NOT_SENT, LOST, REDIRECT, LOGIN_PAGE, NO_SUCH_SERVER, BAD_GATEWAY])
def test_outage_is_waited_for_with_same_key(outage: Any) -> None:
    script = Script(*[outage] * 30, answer(200, to_json(execution())))
    assert script.perform(API.run(PLACE, {"code": "1"}, "key")).ok
    assert {sent.headers["Idempotency-Key"] for sent in script.requests} == {"key"}
    assert max(script.pauses) <= 2.0


AWAY = answer(503, {"message": "away", "code": "server_unreachable", "request_id": "r1"}, retry_after="1")


@pytest.mark.parametrize("streamed", [False, True])
def test_server_of_a_pool_that_is_away_is_waited_for_by_what_runs(streamed: bool) -> None:
    end = b"id: 1\nevent: end\ndata: " + json.dumps(event_to_json(EndEvent(execution=execution()), 1, "t")).encode()
    last = [end + b"\n\n"] if streamed else answer(200, to_json(execution()))
    start = API.stream if streamed else API.run
    assert Script(*[AWAY] * 20, last).perform(start(PLACE, {"code": "1"}, "key")).ok


def test_server_of_a_pool_that_is_away_is_told_at_once_by_all_else() -> None:
    script = Script(AWAY)
    with pytest.raises(ServerUnreachable, match="away"):
        script.perform(API.get_session("ses_1"))
    assert script.pauses == []


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("outage_seconds", [0.0, 20.0])
def test_server_of_a_pool_that_stays_away_raises_server_unreachable(streamed: bool, outage_seconds: float) -> None:
    api = ExecApi(RetryPolicy(outage_seconds=outage_seconds))
    start = api.stream if streamed else api.run
    script = Script(*[AWAY] * 99)
    with pytest.raises(ServerUnreachable, match="away"):
        script.perform(start(PLACE, {"code": "1"}, "key"))
    assert outage_seconds <= sum(script.pauses) <= outage_seconds * 1.2


def test_wait_for_outage_ends_after_outage_seconds() -> None:
    script = Script(*[NOT_SENT] * 99)
    with pytest.raises(ConnectionFailed, match="nothing was sent"):
        script.perform(ExecApi(RetryPolicy(outage_seconds=20.0)).run(PLACE, {"code": "1"}, "key"))
    assert 20.0 <= sum(script.pauses) <= 22.0


def test_server_that_never_answered_gets_few_retries() -> None:
    script = Script(*[NOT_SENT] * 99)
    with pytest.raises(ConnectionFailed):
        script.perform(ExecApi(RetryPolicy(max_retries=2)).run(FRESH_SESSION, {"code": "1"}, "key"))
    assert len(script.requests) == 3


def test_servers_refusal_is_raised_at_once_after_outage() -> None:
    script = Script(LOST, BAD_GATEWAY, REFUSED)
    with pytest.raises(MissingScope):
        script.perform(API.run(PLACE, {"code": "1"}, "key"))


@pytest.mark.parametrize("streamed", [False, True])
def test_lost_server_is_not_waited_for(streamed: bool) -> None:
    api = ExecApi(RetryPolicy(why_lost=lambda: "the Hub has stopped it"))
    start = api.stream if streamed else api.run
    script = Script(*[NOT_SENT] * 99)
    with pytest.raises(ServerLost, match="the Hub has stopped it"):
        script.perform(start(PLACE, {"code": "1"}, "key"))
    assert len(script.requests) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_busy_server_is_retried_after_its_retry_after(status: int) -> None:
    busy = answer(status, {"message": "busy", "code": "shutting_down", "request_id": "r1"}, retry_after="7")
    script = Script(busy, answer(200, to_json(execution())))
    script.perform(API.get_execution("exe_1"))
    assert script.pauses == [7.0]


@pytest.mark.parametrize("status", [502, 503, 504])
def test_proxy_without_server_is_retried_soon_despite_retry_after(status: int) -> None:
    script = Script(answer(status, retry_after="7"), answer(200, to_json(execution())))
    script.perform(API.get_execution("exe_1"))
    assert script.pauses == [2.0]


def test_limit_on_executions_is_raised_at_once() -> None:
    script = Script(answer(429, {"message": "full", "code": "queue_full"}))
    with pytest.raises(QueueFull):
        script.perform(API.submit(PLACE, {"code": "1"}, "key"))
    assert len(script.requests) == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_mistake_in_policies_is_raised_at_once(streamed: bool) -> None:
    script = Script(answer(503, {"message": "a mistake", "code": "policies_invalid", "request_id": "r1"}))
    with pytest.raises(PoliciesInvalid, match="a mistake"):
        script.perform(API.stream(PLACE, {"code": "1"}, "key") if streamed else API.get_execution("exe_1"))
    assert (len(script.requests), script.pauses) == (1, [])


def test_session_request_is_not_repeated() -> None:
    script = Script(answer(503, {"message": "busy", "code": "shutting_down", "request_id": "r1"}))
    with pytest.raises(ExecError, match="busy"):
        script.perform(API.open_session({}))
    assert len(script.requests) == 1


NOT_OURS = Reply(404, {}, b"<html>not found</html>")
INFO = answer(200, {"name": "jupyter_exec_ext"})
OURS = {"message": "no", "code": "missing_scope"}
SESSION = Session(
    id="ses_1", owner="me", kernel_name="python3", language="python", state=SessionState.IDLE, created_at="t",
    last_activity_at="t", idle_timeout_seconds=0,
)  # fmt: skip


def test_refusal_of_api_is_not_probed() -> None:
    script = Script(answer(403, OURS, x_request_id="r1"))
    with pytest.raises(MissingScope):
        script.perform(API.open_session({}))
    assert len(script.requests) == 1


def test_missing_api_raises_api_not_found() -> None:
    for operation in (API.open_session({}), API.in_fresh_session(API.run(FRESH_SESSION, {"code": "1"}, "key"))):
        script = Script(NOT_OURS, NOT_OURS)
        with pytest.raises(ApiNotFound):
            script.perform(operation)
        assert [sent.method for sent in script.requests] == ["POST", "GET"]


def test_session_request_is_repeated_after_proxys_503() -> None:
    script = Script(Reply(503, {}, b"<html>"), Reply(503, {}, b"<html>"), INFO, answer(201, to_json(SESSION)))
    assert script.perform(API.open_session({})) == SESSION
    assert [sent.method for sent in script.requests] == ["POST", "GET", "GET", "POST"]


def test_session_request_with_lost_answer_is_not_repeated() -> None:
    script = Script(LOST, INFO)
    with pytest.raises(ConnectionLost, match="unknown"):
        script.perform(API.open_session({}))
    assert [sent.method for sent in script.requests] == ["POST", "GET"]


@pytest.mark.parametrize(("status", "code"), [(502, "kernel_start_failed"), (504, "kernel_start_timeout")])
def test_a_kernel_that_does_not_start_is_not_started_again(status: int, code: str) -> None:
    refused = answer(status, {"message": "no kernel", "code": code, "request_id": "r1"})
    for run in (API.run, API.stream):
        script = Script(refused)
        with pytest.raises(ExecError, match="no kernel") as raised:
            script.perform(API.in_fresh_session(run(FRESH_SESSION, {"code": "1"}, "key")))
        assert (raised.value.code, raised.value.request_id, len(script.requests)) == (code, "r1", 1)


def test_interrupt_before_stream_begins_cancels_execution() -> None:
    operation = API.stream(FRESH_SESSION, {"code": "1"}, "key")
    assert isinstance(next(operation), OpenStream)
    asked = operation.throw(KeyboardInterrupt())
    assert isinstance(asked, Request)
    assert (asked.method, asked.path, asked.headers["Idempotency-Key"]) == ("POST", "exec/v1/executions", "key")
    cancelled = operation.send(answer(202, {}, location="/exec/v1/executions/exe_1"))
    assert isinstance(cancelled, Request)
    assert cancelled.path == "exec/v1/executions/exe_1/cancel"
    with pytest.raises(KeyboardInterrupt):
        operation.send(answer(200, {}))


def test_fresh_run_allows_for_kernel_start() -> None:
    for place, least in ((FRESH_SESSION, 180), (PLACE, 30)):
        script = Script(answer(200, to_json(execution())))
        script.perform(API.run(place, {"code": "1"}, "key"))
        assert script.requests[0].read_timeout_seconds >= least


def test_missing_server_raises_connection_failed_after_lost_answer() -> None:
    script = Script(LOST, *[NOT_SENT] * 3)
    with pytest.raises(ConnectionFailed):
        script.perform(API.open_session({}))


def test_a_proxy_that_gave_up_waiting_may_have_made_a_session() -> None:
    script = Script(Reply(504, {}, b"<html>"), INFO)
    with pytest.raises(ConnectionLost, match=r"504.*unknown"):
        script.perform(API.open_session({}))
    assert [sent.method for sent in script.requests] == ["POST", "GET"]


def test_probe_after_failure_does_not_repeat_code() -> None:
    script = Script(NOT_OURS, INFO)
    with pytest.raises(NotFound):
        script.perform(API.in_fresh_session(API.run(FRESH_SESSION, {"code": "1"}, "key")))
    assert [sent.method for sent in script.requests] == ["POST", "GET"]


def test_retries_end() -> None:
    script = Script(*[NOT_SENT] * 9)
    with pytest.raises(ConnectionFailed, match="refused"):
        script.perform(API.info())
    assert len(script.requests) == 3


# --- what answers mean ---


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (answer(429, {"message": "full", "code": "queue_full"}), QueueFull),
        (answer(410, {"message": "over", "code": "session_ended"}), SessionEnded),
        (answer(401, {"message": "who?"}), Unauthenticated),
        (answer(403, {"message": "no", "code": "a_code_of_the_future"}), Forbidden),
        (Reply(404, {}, b"<html>"), NotFound),
        (Reply(500, {}, b""), UnexpectedAnswer),
        (answer(500, {"message": "", "code": "internal_error"}), InternalError),
        (answer(302, None, location="/hub/login"), UnexpectedAnswer),
        (answer(403, ["no object"]), Forbidden),
    ],
)
def test_a_refusal_becomes_the_servers_own_error(reply: Reply, error: type[ExecError]) -> None:
    raised = error_from(reply)
    assert type(raised) is error
    assert raised.message


def test_message_of_enterprise_gateway_is_in_error() -> None:
    """Its answers as they came."""
    reason = "User 'x' is not authorized to start kernel 'Python 3'."
    assert reason in error_from(answer(403, {"reason": reason, "message": ""})).message
    assert "wants a token" in error_from(answer(401, {"reason": "Unauthorized", "message": ""})).message


def test_error_has_details_of_answer() -> None:
    raised = error_from(answer(429, {"message": "m", "code": "queue_full"}, retry_after="3", x_request_id="r1"))
    assert (raised.retry_after_seconds, raised.request_id) == (3.0, "r1")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(404, {}, b"<html>not found</html>"), ApiNotFound),
        (answer(200, {"name": "something else"}), UnexpectedAnswer),
        (Reply(200, {}, b"<html>"), UnexpectedAnswer),
        (answer(302, None, location="/hub/login"), UnexpectedAnswer),
        (answer(401, {"message": "no token", "code": "unauthenticated"}), Unauthenticated),
    ],
)
def test_info_distinguishes_wrong_addresses(reply: Reply, error: type[ExecError]) -> None:
    with pytest.raises(error):
        Script(reply).perform(API.info())


def test_delete_of_ended_session_is_no_error() -> None:
    Script(answer(410, {"message": "over", "code": "session_ended"})).perform(API.delete_session("ses_1"))
    Script(answer(404, {"message": "no", "code": "session_not_found"})).perform(API.delete_session("ses_1"))
    with pytest.raises(Forbidden):
        Script(answer(403, {"message": "no", "code": "forbidden"})).perform(API.delete_session("ses_1"))


@pytest.mark.parametrize("lost", [LOST, Reply(502, {}, b"<html>")])
def test_file_deletion_repeated_after_lost_answer_accepts_that_file_is_gone(lost: Any) -> None:
    script = Script(lost, answer(404, {"message": "no", "code": "file_not_found", "request_id": "r"}))
    script.perform(FILES.delete("ses_1", "a.txt"))
    assert len(script.requests) == 2


@pytest.mark.parametrize(
    ("before", "code", "error"),
    [
        ([], "file_not_found", FileNotFound),
        ([NOT_SENT], "file_not_found", FileNotFound),
        ([answer(503)], "file_not_found", FileNotFound),
        ([LOST], "session_not_found", SessionNotFound),
    ],
)
def test_file_deletion_reports_missing_file_that_it_cannot_have_deleted(
    before: list[Any], code: str, error: type[ExecError]
) -> None:
    script = Script(*before, answer(404, {"message": "no", "code": code, "request_id": "r"}))
    with pytest.raises(error):
        script.perform(FILES.delete("ses_1", "a.txt"))


def test_ids_are_one_segment_of_the_path() -> None:
    script = Script(answer(404, {"message": "no", "code": "session_not_found"}))
    with pytest.raises(NotFound):
        script.perform(API.get_session("../a b?c=d#e"))
    assert script.requests[0].path == "exec/v1/sessions/..%2Fa%20b%3Fc%3Dd%23e"


# --- waiting ---


def test_long_run_is_waited_for_in_short_requests() -> None:
    running = to_json(execution(ExecutionState.RUNNING))
    script = Script(answer(202, running), answer(200, running), answer(200, to_json(execution())))
    assert script.perform(API.run(PLACE, {"code": "1"}, "key")).ok
    assert [request.method for request in script.requests] == ["POST", "GET", "GET"]
    assert "respond-async" in script.requests[0].headers["Prefer"]
    assert script.requests[1].headers["Prefer"].startswith("wait=")


def test_result_returns_after_timeout() -> None:
    script = Script(answer(200, to_json(execution(ExecutionState.RUNNING))))
    assert script.perform(API.result("exe_1", seconds_left(0.0))).state is ExecutionState.RUNNING


# --- streams ---


def frame(seq: int, event_type: str, data: str) -> bytes:
    return b"".join(encode_event(seq, event_type, data.encode()))


def frames(*texts: str, first_seq: int = 1) -> list[bytes]:
    events = [StreamEvent("stdout", text) for text in texts]
    return [frame(seq, event.type, event_to_text(event, seq, "t")) for seq, event in enumerate(events, first_seq)]


def end_frame(seq: int) -> bytes:
    data = json.dumps({"seq": seq, "type": "end", "at": "t", "execution": to_json(execution())})
    return frame(seq, "end", data)


def chunks(*pieces: bytes) -> list[Any]:
    return list(pieces)


def text_of(events: list[OutputEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, StreamEvent))


def test_a_stream_is_read_to_its_end() -> None:
    script = Script(chunks(*frames("a", "b"), KEEP_ALIVE, end_frame(3)))
    assert script.perform(API.stream(PLACE, {"code": "1"}, "key")) == execution()
    assert text_of(script.events) == "ab"
    assert script.closed == 1


@pytest.mark.parametrize("cut", [LOST, b""], ids=["failure", "early end"])
def test_a_cut_stream_is_resumed_after_the_last_event_seen(cut: Any) -> None:
    first = [*chunks(*frames("a", "b")), cut]
    outcomes: list[Any] = [first, chunks(*frames("c", first_seq=3), end_frame(4))]
    script = Script(*outcomes)
    assert script.perform(API.stream(PLACE, {"code": "1"}, "key")).ok
    assert text_of(script.events) == "abc"
    assert [request.method for request in script.requests] == ["POST", "GET"]
    assert script.requests[1].path == "exec/v1/executions/exe_1/events"
    assert script.requests[1].headers["Last-Event-ID"] == "2"


def test_bare_end_event_gets_outputs_of_all_connections() -> None:
    bare = {name: value for name, value in to_json(execution()).items() if name not in ("stdout", "stderr", "outputs")}
    end = frame(4, "end", json.dumps({"seq": 4, "type": "end", "at": "t", "execution": bare}))
    script = Script([*chunks(*frames("a", "b")), LOST], chunks(*frames("c", first_seq=3), end))
    finished = script.perform(API.stream(PLACE, {"code": "1"}, "key"))
    assert (finished.stdout, finished.outputs) == ("abc", [{"output_type": "stream", "name": "stdout", "text": "abc"}])
    assert script.events[-1].execution == finished  # type: ignore[attr-defined]
    assert {request.headers["Prefer"] for request in script.requests} == {"return=minimal, heartbeat=3"}


def test_reader_from_the_middle_requests_whole_end_event() -> None:
    script = Script(chunks(*frames("c", first_seq=3), end_frame(4)))
    assert script.perform(API.events("exe_1", after=2)) == execution()
    assert script.requests[0].headers["Prefer"] == "heartbeat=3"


@pytest.mark.parametrize("cut", range(1, len(frames("long text")[0])))
def test_event_cut_in_the_middle_is_read_again(cut: int) -> None:
    whole = frames("long text")[0]
    script = Script([*chunks(whole[:cut]), LOST], chunks(whole, end_frame(2)))
    script.perform(API.stream(PLACE, {"code": "1"}, "key"))
    assert text_of(script.events) == "long text"


def test_events_seen_already_are_not_shown_twice() -> None:
    script = Script([*chunks(*frames("a", "b")), LOST], chunks(*frames("a", "b", "c"), end_frame(4)))
    script.perform(API.stream(PLACE, {"code": "1"}, "key"))
    assert text_of(script.events) == "abc"


@pytest.mark.parametrize("data", ["{", '{"type":"stream","name":"stdout","text":"x","seq":"1"}'])
def test_malformed_event_raises_unexpected_answer(data: str) -> None:
    with pytest.raises(UnexpectedAnswer):
        Script(chunks(f"event: stream\ndata: {data}\n\n".encode())).perform(API.events("exe_1"))


def test_resuming_continues_while_there_is_progress() -> None:
    connections = [[*chunks(*frames("x", first_seq=n)), LOST] for n in range(1, 21)]
    script = Script(*connections, chunks(end_frame(21)))
    script.perform(API.stream(PLACE, {"code": "1"}, "key"))
    assert text_of(script.events) == "x" * 20


@pytest.mark.parametrize("cut", [LOST, b""], ids=["failure", "early end"])
def test_resuming_continues_while_quiet_code_sends_heartbeats(cut: Any) -> None:
    """A proxy bounds the life of each connection, and the code prints nothing for as long as a hundred of them."""
    running = answer(200, to_json(execution(ExecutionState.RUNNING)))
    checks = [] if cut is LOST else [running]
    connections = [outcome for _ in range(100) for outcome in ([KEEP_ALIVE, cut], *checks)]
    script = Script([*chunks(*frames("a")), LOST], *connections, chunks(end_frame(2)))
    assert script.perform(API.stream(PLACE, {"code": "1"}, "key")).ok


@pytest.mark.parametrize(
    "again", [[], [b"id: 2\n", b'data: {"seq": 2, "type": "str']], ids=["nothing", "half an event"]
)
def test_resuming_without_progress_ends(again: list[bytes]) -> None:
    script = Script(chunks(*frames("a")), *[[*again, LOST] if again else LOST] * 99)
    with pytest.raises(ConnectionLost, match="resumed") as lost:
        script.perform(API.stream(PLACE, {"code": "1"}, "key"))
    assert (lost.value.idempotency_key, lost.value.execution_id) == ("key", "exe_1")


def test_unopened_stream_is_retried_with_same_key() -> None:
    script = Script(LOST, chunks(*frames("text"), end_frame(2)))
    assert script.perform(API.stream(PLACE, {"code": "1"}, "key")).ok
    assert [(sent.method, sent.headers["Idempotency-Key"]) for sent in script.requests] == [("POST", "key")] * 2


def test_a_refused_stream_raises_the_servers_error() -> None:
    with pytest.raises(SessionEnded):
        Script(answer(410, {"message": "over", "code": "session_ended"})).perform(API.stream("s", {"code": "1"}, "key"))


def test_a_stream_that_fails_on_the_server_raises_its_error() -> None:
    failure = json.dumps({"message": "gone", "code": "log_expired"})
    with pytest.raises(ExecError, match="gone"):
        Script(chunks(f"event: failure\ndata: {failure}\n\n".encode())).perform(API.events("exe_1"))


def test_stream_without_events_ends_if_execution_has_ended() -> None:
    script = Script([], answer(200, to_json(execution())))
    assert script.perform(API.events("exe_1", after=5)) == execution()


def test_input_request_is_answered() -> None:
    request = '{"seq":1,"type":"input_request","at":"t","prompt":"name","password":false}'
    script = Script(chunks(frame(1, "input_request", request), end_frame(2)), answer(204))
    script.perform(API.stream(PLACE, {"code": "1", "allow_input": True}, "key"))
    assert script.requests[1].path == "exec/v1/executions/exe_1/input"
    assert script.requests[1].json == {"value": "NAME"}


def test_late_answer_to_input_is_no_error() -> None:
    request = '{"seq":1,"type":"input_request","at":"t","prompt":"name","password":false}'
    late = answer(409, {"message": "it ended", "code": "no_input_requested"})
    script = Script(chunks(frame(1, "input_request", request), end_frame(2)), late)
    assert script.perform(API.stream(PLACE, {"code": "1", "allow_input": True}, "key")).ok


def test_retry_pauses_grow_and_are_bounded() -> None:
    policy = RetryPolicy(max_seconds=2.0)
    pauses: Callable[[int], float] = lambda attempt: policy.pause(attempt).seconds  # noqa: E731
    assert 0.05 <= pauses(0) <= 0.1
    assert 1.0 <= pauses(30) <= 2.0
    assert policy.pause(0, "99999").seconds == 60.0
    assert policy.pause(0, "tomorrow").seconds <= 0.1


def test_request_with_a_secret_does_not_show_it() -> None:
    step = next(put_secret("API_TOKEN", "hidden-value", ["a.example"], "X-Key: {}", RetryPolicy(0)))
    assert isinstance(step, Request) and step.json["value"] == "hidden-value"
    assert "hidden-value" not in repr(step)
