"""Code in a session of its own: one request, and a session that ends with it."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from jupyter_exec_ext.errors import IdempotencyKeyReused, KernelSpecNotFound
from jupyter_exec_ext.models import ExecutionState, SessionState
from tests.support.hosts import Host

NONE: Mapping[str, str] = MappingProxyType({})
ASYNC = {"Prefer": "respond-async"}
COUNT = "n = globals().get('n', 0) + 1; print(n)"


def session_of(client: Any, session_id: str) -> Any:
    """Return a session's record, once it has ended."""
    give_up_at = time.monotonic() + 30
    while True:
        found = [one for one in client.list_sessions(ended=True) if one.id == session_id]
        if found and found[0].state is SessionState.ENDED:
            return found[0]
        assert time.monotonic() < give_up_at, found
        time.sleep(0.02)


def post(host: Host, body: Any, headers: Mapping[str, str] = NONE) -> requests.Response:
    url = f"{host.info.url}exec/v1/executions"
    return requests.post(url, json=body, headers={**host.info.auth_headers, **headers}, timeout=60)


def test_each_run_has_a_session_of_its_own_that_ends_with_it(client: Any) -> None:
    first, second = client.run(COUNT), client.run(COUNT)
    assert (first.state, first.stdout, second.stdout) == (ExecutionState.OK, "1\n", "1\n")
    assert first.session_id != second.session_id
    for execution in (first, second):
        record = session_of(client, execution.session_id)
        assert record.ended_reason == "it was for one run, which has ended"
        assert client.get_execution(execution.id).refresh() == execution


def test_what_it_is_made_with_and_how_it_runs_are_as_asked(client: Any) -> None:
    execution = client.run(
        "import os; print(os.environ['KERNEL_COLOUR'])", env={"KERNEL_COLOUR": "red"}, metadata={"a": 1}
    )
    assert (execution.stdout, execution.metadata) == ("red\n", {"a": 1})
    assert client.run("while True: pass", timeout_seconds=0.5).state is ExecutionState.TIMEOUT
    assert client.run("1 / 0").error.name == "ZeroDivisionError"
    with pytest.raises(KernelSpecNotFound):
        client.run("1", kernel_name="no-such-kernel")


def test_events_come_and_input_is_answered(client: Any) -> None:
    events: list[Any] = []
    execution = client.run("print('a'); print(input('more? '))", on_event=events.append, on_input=lambda _: "b")
    assert execution.stdout.startswith("a\n")
    assert execution.stdout.endswith("b\n")
    assert events[-1].execution == execution


def test_a_run_that_kills_its_kernel_is_told_of(client: Any) -> None:
    execution = client.run("import os; os._exit(3)")
    assert (execution.state, execution.kernel_exit_code) == (ExecutionState.KERNEL_DIED, 3)
    session_of(client, execution.session_id)


def test_the_same_key_gives_the_same_execution_whatever_session_it_had(client: Any) -> None:
    first = client.run(COUNT, idempotency_key="fresh-a")
    session_of(client, first.session_id)
    assert client.run(COUNT, idempotency_key="fresh-a") == first
    with pytest.raises(IdempotencyKeyReused):
        client.run("2", idempotency_key="fresh-a")
    with pytest.raises(IdempotencyKeyReused):
        client.run(COUNT, idempotency_key="fresh-a", env={"KERNEL_A": "1"})


def test_its_keys_are_not_those_of_sessions(client: Any, session: Any) -> None:
    first = client.run("print(1)", idempotency_key="fresh-b")
    assert session.run("print(1)", idempotency_key="fresh-b").id != first.id
    assert client.run("print(1)", idempotency_key="fresh-b") == first


def test_of_requests_at_once_with_one_key_one_runs_and_no_session_is_left(client: Any, host: Host) -> None:
    body = {"code": "import time; time.sleep(0.2); print(1)", "session": {"name": "at once"}}
    answers: list[Any] = []

    def ask() -> None:
        answers.append(post(host, body, {"Idempotency-Key": "fresh-c"}).json())

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(answer["id"], answer["stdout"]) for answer in answers} == {(answers[0]["id"], "1\n")}
    for made in [one for one in client.list_sessions(ended=True) if one.name == "at once"]:
        session_of(client, made.id)


def test_who_does_not_wait_finds_the_result_later(client: Any, host: Host) -> None:
    answer = post(host, {"code": "import time; time.sleep(0.3); print('later')"}, ASYNC)
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    execution = client.get_execution(answer.headers["Location"].rpartition("/")[2]).result()
    assert execution.stdout == "later\n"
    session_of(client, execution.session_id)


def test_nothing_is_run_for_who_leaves_before_the_kernel_is_there(client: Any, host: Host) -> None:
    name = uuid.uuid4().hex
    # No pool has a kernel with such an environment, so one starts.
    body = json.dumps({"code": "print(1)", "session": {"name": name, "env": {"KERNEL_A": "1"}}})
    url = urlsplit(f"{host.info.url}exec/v1/executions")
    with closing(HTTPConnection(url.netloc, timeout=60)) as connection:
        headers = {**host.info.auth_headers, "Content-Type": "application/json"}
        connection.request("POST", url.path, body, headers)
        give_up_at = time.monotonic() + 30
        while not (made := [one for one in client.list_sessions() if one.name == name]):
            assert time.monotonic() < give_up_at
    assert made[0].state is SessionState.STARTING
    session_of(client, made[0].id)
    assert client.get_session(made[0].id).list_executions() == []


def test_it_can_be_cancelled(client: Any, host: Host) -> None:
    answer = post(host, {"code": "import time; time.sleep(600)"}, ASYNC)
    execution = client.get_execution(answer.json()["id"]).cancel()
    assert execution.state is ExecutionState.CANCELLED
    session_of(client, execution.session_id)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "'code' is missing"),
        ({"code": "1", "session": "x"}, "'session' must be"),
        ({"code": "1", "session": {"nam": "x"}}, "did you mean 'name'"),
        ({"code": "1", "session": {"kernel_id": "x"}}, "a kernel of its own"),
        ({"code": "1", "sesion": {}}, "did you mean 'session'"),
    ],
)
def test_a_request_is_checked_before_anything_is_made(host: Host, client: Any, body: Any, words: str) -> None:
    before = {one.id for one in client.list_sessions(ended=True)}
    answer = post(host, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert words in answer.json()["message"]
    assert {one.id for one in client.list_sessions(ended=True)} == before
