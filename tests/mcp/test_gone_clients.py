"""Clients that are gone, and servers that stop: what a client has made ends, and nothing waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.mcp.raw_client import HANDSHAKE, REVISIONS, RawClient, events, last_message
from tests.support.bearers import UNPROTECTED, Bearer, mint
from tests.support.full import only_in_full
from tests.support.hosts import Host, running_host, stop

IDLE_SECONDS = 2.0
_SLEEP = "import time\ntime.sleep(600)"


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("gone")
    with running_host(request.param, home, UNPROTECTED, f"--ExecEngine.mcp_idle_seconds={IDLE_SECONDS}") as host:
        yield host


@pytest.fixture
def bearer(host: Host) -> Bearer:
    return mint(host)


def states(bearer: Bearer) -> list[str]:
    return [each["state"] for each in bearer.call("GET", "/sessions").json()["sessions"]]


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for a state that nothing announces."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, "it did not come to that"
        time.sleep(0.02)


@contextmanager
def open_run(client: RawClient, **arguments: str) -> Iterator[requests.Response]:
    """Start code that sleeps, and yield the open response once it runs; cut it off afterwards."""
    code = f"print('started', flush=True)\n{_SLEEP}"
    params = {"name": "execute_code", "arguments": {"code": code, **arguments}, "_meta": {"progressToken": 1}}
    with client.open("tools/call", params) as answer:
        reader = events(answer)  # kept, since its end closes the connection
        _, message = next(reader)
        assert message["method"] == "notifications/progress"
        yield answer


@only_in_full
@pytest.mark.parametrize("revision", REVISIONS)
def test_sessions_of_a_client_that_is_gone_end_after_the_idle_time(bearer: Bearer, revision: str) -> None:
    client = RawClient.of(bearer, revision)
    assert client.tool("execute_code", code="1")["structuredContent"]["is_new_session"]
    wait_for(lambda: not states(bearer))
    assert ended(bearer) == [f"idle for {IDLE_SECONDS:g} s"]


@only_in_full
def test_open_get_keeps_the_sessions_of_its_client(bearer: Bearer) -> None:
    client = RawClient.of(bearer, HANDSHAKE)
    with client.get() as stream:
        client.tool("execute_code", code="1")
        began = time.monotonic()
        for _ in stream.iter_content(None):  # comments, by which the client sees that the server is there
            if time.monotonic() - began > 3 * IDLE_SECONDS:
                break
        assert states(bearer) == ["idle"]
    wait_for(lambda: not states(bearer))


def test_delete_of_a_protocol_session_ends_its_sessions(bearer: Bearer) -> None:
    client = RawClient.of(bearer, HANDSHAKE)
    other = bearer.session()
    with client.get():  # which keeps the sessions, however slow the machine is
        client.tool("start_session")
        client.tool("execute_code", code="1")
        assert not client.tool("branch_session").get("isError")
        assert client.delete() == 200
    wait_for(lambda: len(states(bearer)) == 1)
    assert ended(bearer) == ["its MCP client has ended"] * 3
    assert bearer.call("GET", f"/sessions/{other}").json()["state"] == "idle"
    assert client.delete() == client.post("tools/list").status_code == 404


def ended(bearer: Bearer) -> list[str]:
    """Return why sessions have ended."""
    found = bearer.call("GET", "/sessions?ended=true").json()["sessions"]
    return [each["ended_reason"] for each in found if each["state"] == "ended"]


def test_closed_response_of_the_new_revision_stops_the_code_at_once(bearer: Bearer) -> None:
    client = RawClient.of(bearer)
    with open_run(client, session=bearer.session()):  # one whose idle time is longer
        assert states(bearer) == ["busy"]
    wait_for(lambda: states(bearer) == ["idle"])


def test_session_that_a_closed_response_would_have_named_ends_with_it(bearer: Bearer) -> None:
    with open_run(RawClient.of(bearer)):
        assert states(bearer) == ["busy"]
    wait_for(lambda: not states(bearer))
    assert ended(bearer) == ["its MCP client was gone"]


@only_in_full
@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.05, 0.1, 0.2, 0.4])
def test_client_that_is_gone_while_its_session_starts_leaves_none(bearer: Bearer, seconds: float) -> None:
    client = RawClient.of(bearer)
    message = client.message("tools/call", {"name": "execute_code", "arguments": {"code": _SLEEP}})
    with pytest.raises(requests.RequestException):
        client.send(message, timeout=(5, seconds))
    wait_for(lambda: not states(bearer))
    assert ended(bearer) in (["its MCP client was gone"], [])


def test_code_of_the_old_revision_runs_on_until_its_client_has_not_come_back(bearer: Bearer) -> None:
    client = RawClient.of(bearer, HANDSHAKE)
    with open_run(client):
        pass
    began = time.monotonic()
    wait_for(lambda: "busy" not in states(bearer))
    assert time.monotonic() - began > IDLE_SECONDS - 0.5
    wait_for(lambda: not states(bearer))
    assert client.post("tools/list").status_code == 404


@only_in_full
def test_client_of_the_old_revision_comes_back_for_its_result(bearer: Bearer) -> None:
    client = RawClient.of(bearer, HANDSHAKE)
    code = f"import time\nprint('started', flush=True)\ntime.sleep({1.5 * IDLE_SECONDS})\n42"
    params = {"name": "execute_code", "arguments": {"code": code}, "_meta": {"progressToken": 1}}
    with client.open("tools/call", params) as answer:
        event_id, _ = next(events(answer))
    with client.get(event_id) as rest:
        assert "42" in str(last_message(rest)["result"]["content"])


@only_in_full
def test_gets_after_cuts_are_not_kept_out(bearer: Bearer) -> None:
    client = RawClient.of(bearer, HANDSHAKE)
    for _ in range(5):
        with client.get() as stream:
            assert stream.status_code == 200
        wait_for(lambda: is_free(client))


def is_free(client: RawClient) -> bool:
    with client.get() as stream:
        return stream.status_code == 200


@only_in_full
@pytest.mark.parametrize("name", ["server", "gateway"])
def test_server_that_stops_ends_open_streams(name: str, tmp_path: Path) -> None:
    with running_host(name, tmp_path, UNPROTECTED) as host:
        bearer = mint(host)
        modern, old = RawClient.of(bearer), RawClient.of(bearer, HANDSHAKE)
        session = bearer.session()
        wanted = {"resourceSubscriptions": [f"exec://session/{session}/files/x"]}
        ends: list[Any] = []
        with open_run(old) as run:
            streams = [modern.open("subscriptions/listen", {"notifications": wanted}), old.get(), run]
            readers = [threading.Thread(target=read_to_end, args=(stream, ends)) for stream in streams]
            for reader in readers:
                reader.start()
            began = time.monotonic()
            stop(host.process)
            for reader in readers:
                reader.join(20)
        assert len(ends) == 3 and time.monotonic() - began < 15
        assert "Traceback" not in host.log_text(), host.log_text()[-3000:]


def read_to_end(stream: requests.Response, ends: list[Any]) -> None:
    try:
        for _ in stream.iter_content(None):
            pass
        ends.append("ended")
    except requests.RequestException as error:
        ends.append(error)
