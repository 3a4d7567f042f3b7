"""The client's questions about the server as a whole, against a scripted network."""

from __future__ import annotations

import pytest

from jupyter_exec_ext.client.api.execution_operations import FRESH_SESSION
from jupyter_exec_ext.client.api.operations import ExecApi
from jupyter_exec_ext.client.api.server_status import ServerStatusApi
from jupyter_exec_ext.client.api.steps import Failure, Reply
from jupyter_exec_ext.errors import ConnectionFailed, Draining, ExecError, NotFound, UnexpectedAnswer
from jupyter_exec_ext.models import Readiness
from tests.client.test_operations import Script, answer

API = ServerStatusApi()


@pytest.mark.parametrize("status", [200, 503])
def test_readiness_is_read_from_either_answer(status: int) -> None:
    script = Script(answer(status, {"ready": status == 200, "draining": status != 200}))
    assert script.perform(API.ready()) == Readiness(status == 200, status != 200)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(503, {"content-type": "text/html"}, b"<html>no server</html>"), ExecError),
        (answer(503, {"message": "no upstream"}), ExecError),
        (answer(404, {"message": "no such path", "code": "not_found", "request_id": "r"}), NotFound),
        (answer(200, {"status": "ok"}), UnexpectedAnswer),
        (Failure(False, "refused"), ConnectionFailed),
    ],
)
def test_readiness_is_asked_for_once_and_other_answers_are_errors(reply: object, error: type[ExecError]) -> None:
    script = Script(reply)
    with pytest.raises(error):
        script.perform(API.ready())
    assert (len(script.requests), script.pauses) == (1, [])


@pytest.mark.parametrize(("undo", "method"), [(False, "POST"), (True, "DELETE")])
def test_drain_is_asked_for_and_undone(undo: bool, method: str) -> None:
    script = Script(answer(200, {"ready": undo, "draining": not undo}))
    assert script.perform(API.drain(undo=undo)) == Readiness(undo, not undo)
    assert [(one.method, one.path) for one in script.requests] == [(method, "exec/v1/drain")]


def test_run_on_a_drained_server_fails_at_once() -> None:
    refusal = {"message": "drained", "code": "draining", "request_id": "r"}
    script = Script(answer(503, refusal, retry_after="30"))
    with pytest.raises(Draining) as caught:
        script.perform(ExecApi().run(FRESH_SESSION, {"code": "1"}, "key"))
    assert (len(script.requests), script.pauses, caught.value.retry_after_seconds) == (1, [], 30.0)
