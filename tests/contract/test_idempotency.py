"""A request that is sent again with its key does no more than the first."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import requests

from jupyter_exec_ext.errors import IdempotencyKeyReused, InvalidRequest
from tests.support.hosts import Host


def test_the_same_key_gives_the_same_execution(session: Any) -> None:
    first = session.run("n = globals().get('n', 0) + 1; print(n)", idempotency_key="a")
    again = session.run("n = globals().get('n', 0) + 1; print(n)", idempotency_key="a")
    assert again == first
    assert session.run("print(n)").stdout == "1\n"


def test_a_key_finds_an_execution_that_still_runs(session: Any) -> None:
    first = session.submit("import time; time.sleep(0.5); print('once')", idempotency_key="b")
    second = session.submit("import time; time.sleep(0.5); print('once')", idempotency_key="b")
    assert first.id == second.id
    assert second.result().stdout == "once\n"


def test_a_key_is_not_for_two_requests(session: Any) -> None:
    session.run("1", idempotency_key="c")
    with pytest.raises(IdempotencyKeyReused):
        session.run("2", idempotency_key="c")
    with pytest.raises(IdempotencyKeyReused):
        session.run("1", idempotency_key="c", timeout_seconds=5)


def test_a_key_counts_in_its_session_alone(client: Any, session: Any) -> None:
    first = session.run("print(1)", idempotency_key="d")
    with client.session() as other:
        assert other.run("print(1)", idempotency_key="d").id != first.id


def test_a_key_finds_its_execution_after_the_session_has_ended(client: Any) -> None:
    with client.session() as ending:
        first = ending.run("print('kept')", idempotency_key="e")
    assert ending.run("print('kept')", idempotency_key="e") == first


@pytest.mark.parametrize("key", ["", "x" * 256, "with space", "a\tb"])
def test_a_malformed_key_is_refused(session: Any, key: str, host: Host) -> None:
    url = f"{host.info.url}exec/v1/sessions/{session.id}/executions"
    headers = {**host.info.auth_headers, "Idempotency-Key": key}
    answer = requests.post(url, json={"code": "1"}, headers=headers, timeout=30)
    assert (answer.status_code, answer.json()["code"]) == (400, InvalidRequest.code)


def test_of_ten_requests_at_once_one_runs(host: Host, session: Any) -> None:
    url = f"{host.info.url}exec/v1/sessions/{session.id}/executions"
    headers = {**host.info.auth_headers, "Idempotency-Key": "f"}
    body = {"code": "import time; time.sleep(0.2); m = globals().get('m', 0) + 1; print(m)"}
    answers: list[Any] = []

    def post() -> None:
        answers.append(requests.post(url, json=body, headers=headers, timeout=30).json())

    threads = [threading.Thread(target=post) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(answer["id"], answer["stdout"]) for answer in answers} == {(answers[0]["id"], "1\n")}
