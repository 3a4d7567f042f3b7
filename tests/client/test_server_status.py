"""The client's questions about the server as a whole, against a scripted network."""

from __future__ import annotations

import pytest

from jupyter_exec_ext.client.api.server_status import ServerStatusApi
from jupyter_exec_ext.client.api.steps import Failure, Reply
from jupyter_exec_ext.errors import ConnectionFailed, ExecError, NotFound, UnexpectedAnswer
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
