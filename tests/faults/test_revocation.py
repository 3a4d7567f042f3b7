"""F18: a token ends while everything that can go on in its name does; see `test_faults` for the figures."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.protocol.records_json import seconds_of
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.full import SCALE, scaled
from tests.support.hosts import Host, running_host

ROUNDS = scaled(100, per_commit=4)
MOST_SECONDS = 1.0
# A download is read slowly for so long after the end, for there to be something left to be cut off.
UNNOTICED_SECONDS = 0.75
FILE_BYTES = 20 * 1024**2
# What expires must still be good when everything is under way.
LIFE_SECONDS = 7.0
CODE = "import time\nfor i in range(100_000):\n    print(i, flush=True)\n    time.sleep(0.005)"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """Two servers of one user, who share the store."""
    options = [UNPROTECTED, f"--ExecStore.path={tmp_path_factory.mktemp('store')}"]
    with (
        running_host("server", tmp_path_factory.mktemp("one"), *options) as one,
        running_host("server", tmp_path_factory.mktemp("other"), *options) as other,
    ):
        yield one, other


@dataclass
class Seen:
    """What a client had got when its connection, or the answer on it, ended."""

    ended_at: float
    status: int
    body: bytes
    complete: bool


class Ongoing:
    """A request that goes on until it is ended from the other side."""

    def __init__(self, bearer: Bearer, method: str, path: str, headers: dict[str, str], body: Any = None) -> None:
        info = bearer.host.info
        self._connection = http.client.HTTPConnection(info.host, info.port, timeout=60)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self._connection.putrequest(method, f"{info.base_url}exec/v1{path}")
        for name, value in {"Authorization": f"Bearer {bearer.token}", **headers}.items():
            self._connection.putheader(name, value)
        self._connection.endheaders(body)

    def read(self, slowly_until: threading.Event | None = None) -> Seen:
        """Read to the end; slowly as long as the event is not set."""
        body, status, complete = b"", 0, False
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            response = self._connection.getresponse()
            status = response.status
            slow = slowly_until is not None
            while piece := response.read1(16 * 1024 if slow else 1024**2):
                body += piece
                slow = slowly_until is not None and not slowly_until.is_set()
                if slow:
                    time.sleep(0.02)
            complete = not response.length
        seen = Seen(time.time(), status, body, complete)
        self._connection.close()
        return seen

    def send_drops(self) -> Seen:
        """Send a body drop by drop until nobody takes it any more."""
        with contextlib.suppress(ConnectionError):
            while True:
                self._connection.send(b"x" * 100)
                time.sleep(0.02)
        ended_at = time.time()
        seen = self.read()
        return Seen(ended_at, seen.status, seen.body, seen.complete)


@dataclass
class Work:
    """All that a token may have under way, on one session."""

    bearer: Bearer
    session: str
    execution: str
    under_way: dict[str, Callable[[], Seen]]


def begin(bearer: Bearer, noticed: threading.Event) -> Work:
    session = bearer.session()
    assert bearer.call("PUT", f"/sessions/{session}/files/large", data=b"x" * FILE_BYTES).status_code == 201
    code = json.dumps({"code": CODE}).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(code))}
    post = Ongoing(bearer, "POST", f"/sessions/{session}/executions", headers, code)
    execution = running_execution(bearer, session)
    path = f"/executions/{execution}"
    sse = Ongoing(bearer, "GET", f"{path}/events", {"Accept": "text/event-stream"})
    ndjson = Ongoing(bearer, "GET", f"{path}/events", {"Accept": "application/x-ndjson"})
    poll = Ongoing(bearer, "GET", path, {"Prefer": "wait=60"})
    download = Ongoing(bearer, "GET", f"/sessions/{session}/files/large", {})
    upload = Ongoing(bearer, "PUT", f"/sessions/{session}/files/half", {"Content-Length": str(FILE_BYTES)})
    ways = {
        "waiting POST": post.read,
        "SSE": sse.read,
        "NDJSON": ndjson.read,
        "long poll": poll.read,
        "download": lambda: download.read(noticed),
        "upload": upload.send_drops,
    }
    return Work(bearer, session, execution, ways)


def running_execution(bearer: Bearer, session: str) -> str:
    deadline = time.monotonic() + 30
    while True:
        for execution in bearer.call("GET", f"/sessions/{session}/executions").json()["executions"]:
            if execution["state"] == "running":
                return str(execution["id"])
        assert time.monotonic() < deadline
        time.sleep(0.02)


def revoke(by: Bearer, token_id: str) -> float:
    """Revoke a token; return when that was done."""
    assert by.call("DELETE", f"/tokens/{token_id}").status_code == 204
    return time.time()


def end_of(round_: int, one: Host, other: Host) -> tuple[Bearer, str, Callable[[], float]]:
    """Return a token, the code that tells its end, and how to end it: it returns the moment."""
    way = round_ % 4
    if way == 3:
        bearer = mint(one, policy="trusted", expires_in_seconds=LIFE_SECONDS)
        expires_at = seconds_of(owner_of(one).call("GET", f"/tokens/{bearer.id}").json()["expires_at"])

        def expire() -> float:
            assert time.time() < expires_at - 0.5, "it took too long to begin"
            time.sleep(expires_at - time.time())
            return expires_at

        return bearer, "token_expired", expire
    if way == 2:
        parent = mint(one, policy="trusted")
        return mint(parent, ALL_SCOPES), "token_revoked", lambda: revoke(owner_of(other), parent.id)
    bearer = mint(one, policy="trusted")
    return bearer, "token_revoked", lambda: revoke(owner_of((one, other)[way]), bearer.id)


@pytest.mark.timeout(90 * SCALE + 60)
def test_f18_whatever_goes_on_in_a_tokens_name_ends_with_it(
    servers: tuple[Host, Host], capsys: pytest.CaptureFixture[str]
) -> None:
    """Revoked on the same server and on another one, itself or with its parent, or expired: within a second."""
    one, other = servers
    took: list[float] = []
    for round_ in range(ROUNDS):
        bearer, code, end = end_of(round_, one, other)
        noticed = threading.Event()
        work = begin(bearer, noticed)
        with ThreadPoolExecutor(len(work.under_way)) as pool:
            under_way = {name: pool.submit(way) for name, way in work.under_way.items()}
            time.sleep(0.1)
            ended_at = end()
            threading.Timer(UNNOTICED_SECONDS, noticed.set).start()
            seen = {name: future.result(60) for name, future in under_way.items()}
        for name, each in seen.items():
            assert each.ended_at - ended_at <= MOST_SECONDS, (round_, name, each.ended_at - ended_at)
            assert each.ended_at >= ended_at - 0.2, (round_, name, "it was cut before its time")
            took.append(each.ended_at - ended_at)
        check(work, seen, code)
    with capsys.disabled():
        print(f"\nF18: {ROUNDS} of {ROUNDS} rounds, {len(took)} connections: ", end="")
        print(f"median {statistics.median(took):.2f} s, at most {max(took):.2f} s")


def check(work: Work, seen: dict[str, Seen], code: str) -> None:
    last = seen["SSE"].body.decode().rstrip("\n").split("\n\n")[-1]
    assert "event: end" in last and '"token_revoked"' in last, last[-500:]
    last = seen["NDJSON"].body.decode().rstrip("\n").split("\n")[-1]
    assert json.loads(last)["type"] == "end" and '"token_revoked"' in last, last[-500:]
    for name in ("waiting POST", "long poll"):
        assert seen[name].complete and seen[name].status == 200
        assert json.loads(seen[name].body)["state"] == "token_revoked"
    assert len(seen["download"].body) < FILE_BYTES
    assert not seen["download"].complete
    refused = work.bearer.call("GET", f"/executions/{work.execution}")
    assert (refused.status_code, refused.json()["code"]) == (401, code)
    owner = owner_of(work.bearer.host)
    record = owner.call("GET", f"/executions/{work.execution}").json()
    assert record["state"] == "token_revoked"
    deadline = time.monotonic() + 10
    while (session := owner.call("GET", f"/sessions/{work.session}").json())["state"] != "ended":
        assert time.monotonic() < deadline, session
        time.sleep(0.05)
    assert work.bearer.id in session["ended_reason"] or "token" in session["ended_reason"]
    files = owner.call("GET", f"/sessions/{work.session}/files").json()["files"]
    assert [info["path"] for info in files] == ["large"]


def test_only_the_work_of_the_token_that_has_ended_ends(servers: tuple[Host, Host]) -> None:
    one, other = servers
    parent = mint(one, policy="trusted")
    child = mint(parent, ALL_SCOPES)
    kept, lost = parent.session(), child.session()
    assert child.run(lost, "1").json()["state"] == "ok"
    revoke(owner_of(other), child.id)
    deadline = time.monotonic() + 10
    while parent.call("GET", f"/sessions/{lost}").json()["state"] != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert parent.run(kept, "print(1)").json()["stdout"] == "1\n"
    assert child.call("GET", "/").json()["code"] == "token_revoked"
    revoke(parent, parent.id)  # a token may end itself
    assert parent.call("GET", "/").json()["code"] == "token_revoked"


def test_an_execution_that_waits_for_its_turn_never_runs(servers: tuple[Host, Host], tmp_path: Path) -> None:
    one, _ = servers
    bearer = mint(one, policy="trusted")
    session = bearer.session()
    proof = tmp_path / "it ran"
    headers = {"Prefer": "respond-async"}
    path = f"/sessions/{session}/executions"
    bearer.call("POST", path, json={"code": "import time; time.sleep(60)"}, headers=headers)
    queued = bearer.call("POST", path, json={"code": f"open({str(proof)!r}, 'w')"}, headers=headers).json()["id"]
    revoke(owner_of(one), bearer.id)
    record = owner_of(one).call("GET", f"/executions/{queued}", headers={"Prefer": "wait=10"}).json()
    assert (record["state"], record["started_at"]) == ("token_revoked", None)
    assert not proof.exists()
