"""Answers over time of one token, on both hosts: counted together, whatever they are, and for as long as they last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import requests

from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import Host, running_host

MOST = 5
SSE = {"Accept": "text/event-stream"}
SLEEP = {"code": "import time; time.sleep(60)"}


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host(request.param, tmp_path_factory.mktemp("streams"), UNPROTECTED) as started:
        yield started


@pytest.fixture
def token(host: Host) -> Iterator[Bearer]:
    minted = mint(host, policy="trusted", max_streams=MOST)
    yield minted
    owner_of(host).call("DELETE", f"/tokens/{minted.id}")


@pytest.fixture
def running(token: Bearer) -> tuple[str, str]:
    """Return a session, and an execution in it that runs."""
    session = token.session()
    answer = token.call("POST", f"/sessions/{session}/executions", json=SLEEP, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202, answer.text
    return session, answer.json()["id"]


# What is answered over time; each returns the answer as soon as its head is there.
Request = Callable[[Bearer, str, str], requests.Response]
KINDS: dict[str, Request] = {
    "change feed": lambda bearer, _, __: bearer.call("GET", "/events", stream=True),
    "event stream": lambda bearer, _, run: bearer.call("GET", f"/executions/{run}/events", headers=SSE, stream=True),
    "lines": lambda bearer, _, run: bearer.call(
        "GET", f"/executions/{run}/events", headers={"Accept": "application/x-ndjson"}, stream=True
    ),
    "streamed run": lambda bearer, session, _: bearer.call(
        "POST", f"/sessions/{session}/executions", json=SLEEP, headers=SSE, stream=True
    ),
    "streamed fresh run": lambda bearer, _, __: bearer.call(
        "POST", "/executions", json=SLEEP, headers=SSE, stream=True
    ),
}
# These send nothing before their end; each is called in a thread.
WAITS: dict[str, Request] = {
    "long poll": lambda bearer, _, run: bearer.call("GET", f"/executions/{run}", headers={"Prefer": "wait=60"}),
    "run": lambda bearer, session, _: bearer.call("POST", f"/sessions/{session}/executions", json=SLEEP),
    "run that waits": lambda bearer, session, _: bearer.call(
        "POST", f"/sessions/{session}/executions", json=SLEEP, headers={"Prefer": "respond-async, wait=60"}
    ),
}


def assert_refused(answer: requests.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (429, "policy_limit_reached"), answer.text
    assert answer.json()["limit"] == {"policy": "trusted", "name": "max_streams", "value": MOST}
    assert "close one" in answer.json()["message"]
    assert int(answer.headers["Retry-After"]) == 1


def is_free(bearer: Bearer, seconds: float = 10.0) -> bool:
    """Return whether one more stream can be had before long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with bearer.call("GET", "/events", stream=True) as answer:
            if answer.status_code == 200:
                return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_streams_of_each_kind_are_counted_and_freed_when_they_are_closed(
    token: Bearer, running: tuple[str, str], kind: str
) -> None:
    with ExitStack() as stack:
        for _ in range(MOST):
            answer = stack.enter_context(KINDS[kind](token, *running))
            assert answer.status_code == 200, answer.text
        for other in KINDS.values():
            with other(token, *running) as refused:
                assert_refused(refused)
        for wait in WAITS.values():
            assert_refused(wait(token, *running))
        assert_refused(token.call("GET", f"/sessions/{running[0]}/notebook"))
        assert (
            token.call("GET", f"/executions/{running[1]}").json()["state"] == "running"
        )  # what is quick is not counted
        owner = owner_of(token.host)
        with owner.call("GET", "/events", stream=True) as others:
            assert others.status_code == 200
    assert is_free(token)


@pytest.mark.parametrize("kind", WAITS)
def test_waits_of_each_kind_are_counted_and_freed_when_they_end(
    token: Bearer, running: tuple[str, str], kind: str
) -> None:
    session, _ = running
    answers: list[Any] = []

    def wait() -> None:
        while (answer := WAITS[kind](token, *running)).status_code == 429:  # the look below had the last place
            time.sleep(0.05)
        answers.append(answer)

    threads = [threading.Thread(target=wait) for _ in range(MOST)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while True:  # until all of them are under way
        with token.call("GET", "/events", stream=True) as answer:
            if answer.status_code == 429:
                assert_refused(answer)
                break
        assert time.monotonic() < deadline
    for execution in reversed(token.call("GET", f"/sessions/{session}/executions").json()["executions"]):
        if execution["state"] in ("queued", "running"):
            token.call("POST", f"/executions/{execution['id']}/cancel")
    for thread in threads:
        thread.join(30)
    assert [answer.json()["state"] for answer in answers] == ["cancelled"] * MOST
    assert is_free(token)


def test_tokens_below_count_with_the_one_above(token: Bearer, running: tuple[str, str]) -> None:
    children = [mint(token, policy="trusted") for _ in range(3)]
    with ExitStack() as stack:
        for number in range(MOST):
            answer = stack.enter_context(children[number % 3].call("GET", "/events", stream=True))
            assert answer.status_code == 200
        for bearer in (token, *children):
            with bearer.call("GET", "/events", stream=True) as refused:
                assert_refused(refused)
    assert is_free(children[0])


def test_streams_that_failed_are_not_counted(token: Bearer, running: tuple[str, str]) -> None:
    for _ in range(3 * MOST):
        assert token.call("GET", "/executions/exe_none/events").status_code == 404
        assert token.call("GET", "/executions/exe_none", headers={"Prefer": "wait=5"}).status_code == 404
        assert token.call("GET", f"/executions/{running[1]}/events?after=999").status_code == 400
        assert token.call("GET", "/sessions/ses_none/notebook").status_code == 404
        assert token.call("POST", "/sessions/ses_none/executions", json={"code": "1"}).status_code == 404
        assert token.call("GET", f"/sessions/{running[0]}/notebook").status_code == 200
    assert is_free(token, 0.5)


def test_default_policy_allows_a_hundred(host: Host) -> None:
    bearer = mint(host, policy="default")
    with ExitStack() as stack:
        answers = [stack.enter_context(bearer.call("GET", "/events", stream=True)) for _ in range(103)]
        assert [answer.status_code for answer in answers] == [200] * 100 + [429] * 3
