"""The change feed: who sees what of it, how it goes on, and when it ends; on both hosts."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyter_exec_ext.server.change_feed_handler import NEEDED
from jupyter_exec_ext.server.routes import ROUTES
from tests.server.test_openapi import check
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.change_feeds import Seen, Watcher
from tests.support.full import only_in_full
from tests.support.hosts import Host, running_host, stop


@pytest.fixture
def host(token_host: Host) -> Host:
    return token_host


@pytest.fixture
def owner(host: Host) -> Bearer:
    return owner_of(host)


def submit(bearer: Bearer, session_id: str, code: str) -> dict[str, Any]:
    """Send code without waiting for it."""
    path, headers = f"/sessions/{session_id}/executions", {"Prefer": "respond-async"}
    record: dict[str, Any] = bearer.call("POST", path, json={"code": code}, headers=headers).json()
    return record


def states(watcher: Watcher, kind: str, thing_id: str) -> list[str]:
    """Return the states that were told of a thing, each once in a row."""
    told = [event.data[kind]["state"] for event in watcher.seen if event.has(kind, thing_id)]
    return [state for number, state in enumerate(told) if number == 0 or told[number - 1] != state]


def test_it_takes_what_it_takes_to_read_the_things_one_by_one() -> None:
    table = {(route.path, method): access for route in ROUTES for method, access in route.methods.items()}
    assert table["/events", "GET"] == NEEDED["session"] == table["/sessions/{session_id}", "GET"]
    assert NEEDED["execution"] == table["/sessions/{session_id}/executions", "GET"]
    assert NEEDED["token"] == table["/tokens/{token_id}", "GET"]
    checkpoints = table["/sessions/{session_id}/checkpoints", "GET"]
    assert all(NEEDED[kind] == checkpoints for kind in ("checkpointed", "restored", "branched", "checkpoint_deleted"))
    assert NEEDED["grant"] == table["/grants", "GET"]


def test_a_session_and_what_runs_in_it_are_seen_from_begin_to_end(owner: Bearer) -> None:
    with Watcher(owner) as watcher:
        first = watcher.wait(lambda event: True)
        assert (first.kind, first.data) == ("reset", {})
        asked_at = time.monotonic()
        session_id = owner.session(name="watched", metadata={"a": 1})
        began = watcher.wait_for("session", session_id)
        assert began.at - asked_at < 1.0 or began.data["session"]["state"] == "idle"  # from a pool it is idle at once
        watcher.wait_for("session", session_id, "idle")
        execution = owner.run(session_id, "print('out' + 'put')").json()
        ended = watcher.wait_for("execution", execution["id"], "ok")
        summary = owner.call("GET", f"/sessions/{session_id}/executions").json()["executions"][-1]
        assert ended.data == {"execution": summary}
        owner.run(session_id, "1/0")
        assert owner.call("DELETE", f"/sessions/{session_id}").status_code == 204
        over = watcher.wait_for("session", session_id, "ended")
        assert over.data == {"session": owner.call("GET", f"/sessions/{session_id}").json()}
    for event in watcher.seen:
        check({"id": event.id, "event": event.kind, "data": ""}, "ChangeEvent")
        check(event.data, "Change")
    told = states(watcher, "session", session_id)
    assert told[-5:] == ["busy", "idle", "busy", "idle", "ended"]
    assert states(watcher, "execution", execution["id"]) == ["queued", "running", "ok"]
    assert b"output" not in watcher.raw
    assert len({event.id for event in watcher.seen}) == len(watcher.seen)


def test_a_restart_is_seen(owner: Bearer) -> None:
    session_id = owner.session()
    with Watcher(owner) as watcher:
        watcher.wait(lambda event: event.kind == "reset")
        assert owner.call("POST", f"/sessions/{session_id}/restart").status_code == 200
        watcher.wait_for("session", session_id, "restarting")
        watcher.wait_for("session", session_id, "idle")
    owner.call("DELETE", f"/sessions/{session_id}")


def test_a_token_sees_its_own_and_what_is_below_it(host: Host, owner: Bearer) -> None:
    above, other = mint(host), mint(host)
    with Watcher(above) as watcher:
        watcher.wait(lambda event: event.kind == "reset")
        theirs = [owner.session(), other.session()]
        for bearer, session_id in zip((owner, other), theirs, strict=True):
            bearer.run(session_id, "1")
        below = mint(above, name="below")
        own = [above.session(), below.session()]
        executions = [
            bearer.run(session_id, "1").json()["id"] for bearer, session_id in zip((above, below), own, strict=True)
        ]
        watcher.wait_for("execution", executions[-1], "ok")
        assert owner.call("DELETE", f"/tokens/{other.id}").status_code == 204
        assert above.call("DELETE", f"/tokens/{below.id}").status_code == 204
        watcher.wait(lambda event: event.has("token", below.id) and event.data["token"]["revoked_at"] is not None)
    assert watcher.ids_of("session") == set(own)
    assert watcher.ids_of("execution") == set(executions)
    assert watcher.ids_of("token") <= {above.id, below.id}
    for secret in (above.token, below.token, other.token):
        assert secret.encode() not in watcher.raw
    owner.call("DELETE", f"/sessions/{theirs[0]}")
    owner.call("DELETE", f"/tokens/{above.id}")


def test_late_output_is_told_to_whoever_may_read_its_execution(host: Host, owner: Bearer) -> None:
    writes = "import threading; threading.Timer(0.1, print, ['l' + 'ate'], {'flush': True}).start()"
    agent, other, without = mint(host), mint(host), mint(host, {"sessions:read", "sessions:create"})
    with Watcher(owner) as everything, Watcher(agent) as theirs, Watcher(other) as others, Watcher(without) as nothing:
        watchers = (everything, theirs, others, nothing)
        for watcher in watchers:
            watcher.wait(lambda event: event.kind == "reset")
        session_id = agent.session()
        execution = agent.run(session_id, writes).json()
        for watcher in (everything, theirs):
            told = watcher.wait(lambda event: event.kind == "late_output").data["late_output"]
            assert (told["execution_id"], told["session_id"], told["late_bytes"]) == (execution["id"], session_id, 5)
            assert [(event["text"], event["from"]) for event in told["events"]] == [("late\n", execution["id"])]
            check({"late_output": told}, "Change")
        for bearer, watcher in ((other, others), (without, nothing)):
            own = bearer.session()  # what was told before would be here by now
            watcher.wait_for("session", own, "idle")
            bearer.call("DELETE", f"/sessions/{own}")
            assert "late_output" not in {event.kind for event in watcher.seen}
        assert agent.call("GET", f"/executions/{execution['id']}").json()["late_bytes"] == 5
        assert other.call("GET", f"/executions/{execution['id']}").status_code == 404
    for bearer in (agent, other, without):
        owner.call("DELETE", f"/tokens/{bearer.id}")


def test_checkpoints_are_sent_to_whoever_may_see_the_session(host: Host, owner: Bearer) -> None:
    agent, other = mint(host, policy="trusted"), mint(host, policy="trusted")
    kinds = ("checkpointed", "restored", "branched", "checkpoint_deleted")
    with Watcher(owner) as everything, Watcher(agent) as theirs, Watcher(other) as others:
        for watcher in (everything, theirs, others):
            watcher.wait(lambda event: event.kind == "reset")
        session_id = agent.session()
        made = agent.call("POST", f"/sessions/{session_id}/checkpoints", json={"name": "first"})
        assert made.status_code == 201, made.text
        checkpoint = {"checkpoint": made.json()["id"]}
        assert agent.call("POST", f"/sessions/{session_id}/restore", json=checkpoint).status_code == 200
        branched = agent.call("POST", f"/sessions/{session_id}/branches", json=checkpoint).json()["sessions"]
        agent.call("DELETE", f"/sessions/{session_id}/checkpoints/{made.json()['id']}")
        for watcher in (everything, theirs):
            watcher.wait(lambda event: event.kind == "checkpoint_deleted")
            told = [event for event in watcher.seen if event.kind in kinds]
            assert [event.kind for event in told] == list(kinds)
            of = {"session_id": session_id, "checkpoint_id": made.json()["id"], "name": "first", "automatic": False}
            for event in told:
                record = event.data[event.kind]
                is_branch = {"session_id": branched[0]["id"], "branch_of": session_id}
                assert record == {**of, "branch_of": None, **(is_branch if event.kind == "branched" else {})}
                check({"id": event.id, "event": event.kind, "data": ""}, "ChangeEvent")
                check(event.data, "Change")
        own = other.session()  # what was sent before would be here by now
        others.wait_for("session", own, "idle")
        assert not {event.kind for event in others.seen} & set(kinds)
    for bearer in (agent, other):
        owner.call("DELETE", f"/tokens/{bearer.id}")


@pytest.mark.parametrize(
    ("scopes", "kinds"),
    [
        ({"sessions:read"}, {"session"}),
        ({"sessions:read", "executions:read"}, {"session", "execution"}),
        ({"sessions:read", "tokens:create"}, {"session", "token"}),
    ],
)
def test_of_each_kind_only_those_hear_who_may_read_it(host: Host, scopes: set[str], kinds: set[str]) -> None:
    agent = mint(host, scopes | {"sessions:create", "executions:create"})
    with Watcher(agent) as watcher, Watcher(owner_of(host)) as everything:
        everything.wait(lambda event: event.kind == "reset")
        watcher.wait(lambda event: event.kind == "reset")
        session_id = agent.session()
        execution = agent.run(session_id, "1").json()
        everything.wait_for("execution", execution["id"], "ok")
        watcher.wait(
            lambda event: event.has("session", session_id, "idle") and len(states(watcher, "session", session_id)) > 2
        )
        if "tokens:create" in scopes:
            mint(agent, ["sessions:read"], name="below")
        owner_of(host).call("DELETE", f"/sessions/{session_id}")
        watcher.wait_for("session", session_id, "ended")
    assert {event.kind for event in watcher.seen} == {"reset", *kinds}
    owner_of(host).call("DELETE", f"/tokens/{agent.id}")


def test_what_waits_for_a_person_is_told(host: Host, owner: Bearer) -> None:
    agent = mint(host, policy="asks")
    with Watcher(owner) as watcher:
        session_id = agent.session()
        execution = submit(agent, session_id, "!echo 1")
        waiting = watcher.wait_for("execution", execution["id"])
        assert waiting.data["execution"]["state"] == "awaiting_approval"
        assert waiting.data["execution"]["approval"]["why"]
        owner.call("POST", f"/approvals/{execution['id']}", json={"decision": "approve", "code": "2"})
        approved = watcher.wait_for("execution", execution["id"], "queued").data["execution"]
        assert (approved["code"], approved["approval"]["original_code"]) == ("2", "!echo 1")
        watcher.wait_for("execution", execution["id"], "ok")
    owner.call("DELETE", f"/tokens/{agent.id}")


def test_tokens_are_told_of_without_their_secrets(host: Host, owner: Bearer) -> None:
    with Watcher(owner) as watcher:
        watcher.wait(lambda event: event.kind == "reset")
        made = mint(owner, name="told")
        created = watcher.wait_for("token", made.id)
        assert created.data["token"]["last_used_at"] is None
        made.call("GET", "/sessions")
        used = watcher.wait(lambda event: event.has("token", made.id) and bool(event.data["token"]["last_used_at"]))
        assert used.data == {"token": owner.call("GET", f"/tokens/{made.id}").json()}
        owner.call("DELETE", f"/tokens/{made.id}")
        watcher.wait(lambda event: event.has("token", made.id) and bool(event.data["token"]["revoked_at"]))
        brief = mint(owner, expires_in_seconds=0.05)
        time.sleep(0.1)
        assert brief.call("GET", "/sessions").status_code == 401
        watcher.wait(lambda event: event.has("token", brief.id) and event.data["token"]["expired"])
    for event in watcher.seen:
        check(event.data, "Change")
    assert made.token.encode() not in watcher.raw
    assert made.token.rpartition("_")[2].encode() not in watcher.raw


@pytest.mark.parametrize("by_header", [True, False])
def test_whoever_comes_back_goes_on_where_they_were(owner: Bearer, by_header: bool) -> None:
    session_id = owner.session()
    with Watcher(owner) as watcher:
        first = owner.run(session_id, "1").json()["id"]
        last = watcher.wait_for("execution", first, "ok")
    missed = owner.run(session_id, "2").json()["id"]
    with Watcher(owner, after=last.id, header=by_header) as again:
        again.wait_for("execution", missed, "ok")
        now = owner.run(session_id, "3").json()["id"]
        again.wait_for("execution", now, "ok")
    assert [event.kind for event in again.seen].count("reset") == 0
    assert states(again, "execution", missed) == ["queued", "running", "ok"]
    assert last.id not in {event.id for event in again.seen}
    owner.call("DELETE", f"/sessions/{session_id}")


@pytest.mark.parametrize("after", ["x", "0", "deadbeef-3", "-1", "%", "é", "a" * 500])
def test_with_a_cursor_that_is_not_known_it_begins_anew(owner: Bearer, after: str) -> None:
    with Watcher(owner, after=after, header=False) as watcher:
        assert watcher.wait(lambda event: True).kind == "reset"


def test_the_stream_of_a_token_that_ends_ends_within_a_second(host: Host, owner: Bearer) -> None:
    revoked, brief = mint(host, ["sessions:read"]), mint(host, ["sessions:read"], expires_in_seconds=2.0)
    expires_at = time.monotonic() + 2.0
    with Watcher(revoked) as one, Watcher(brief) as other, Watcher(owner) as mine:
        for watcher in (one, other, mine):
            watcher.wait(lambda event: event.kind == "reset")
        revoked_at = time.monotonic()
        assert owner.call("DELETE", f"/tokens/{revoked.id}").status_code == 204
        assert one.wait_for_end() - revoked_at < 1.0
        assert other.wait_for_end() - expires_at < 1.0
        session_id = owner.session()
        mine.wait_for("session", session_id)
    assert session_id not in one.ids_of("session") | other.ids_of("session")
    owner.call("DELETE", f"/sessions/{session_id}")


def test_many_watch_and_all_see_the_same(owner: Bearer) -> None:
    session_id = owner.session()
    watchers = [Watcher(owner) for _ in range(20)]
    for watcher in watchers:
        watcher.wait(lambda event: event.kind == "reset")
    ids = [owner.run(session_id, str(number)).json()["id"] for number in range(5)]

    def of_these(event: Seen) -> bool:
        return any(event.has("execution", execution_id) for execution_id in ids)

    told = []
    for watcher in watchers:
        watcher.wait_for("execution", ids[-1], "ok")
        watcher.close()
        told.append([(event.id, event.data) for event in watcher.seen if of_these(event)])
    assert len(told[0]) == 15
    assert all(each == told[0] for each in told)
    owner.call("DELETE", f"/sessions/{session_id}")


AUTHORIZER = """
from pathlib import Path
from jupyter_server.auth import Authorizer

class ByFile(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return f"{action} {resource}" not in Path(__file__).with_name("denied").read_text().splitlines()
"""


def test_the_authorizer_is_asked_about_each_kind_and_again(tmp_path: Path) -> None:
    (tmp_path / "byfile.py").write_text(AUTHORIZER)
    denied = tmp_path / "denied"
    denied.write_text("execute kernels\nread tokens")
    option = "--ServerApp.authorizer_class=byfile.ByFile"
    with running_host("server", tmp_path, option, UNPROTECTED, env={"PYTHONPATH": _path_with(tmp_path)}) as host:
        owner = owner_of(host)
        with Watcher(owner) as watcher:
            watcher.wait(lambda event: event.kind == "reset")
            session_id = owner.session()
            made = owner.call("POST", "/tokens", json={"name": "x", "scopes": ["sessions:read"]})
            assert made.status_code == 201, made.text
            watcher.wait_for("session", session_id, "idle")
            owner.call("DELETE", f"/sessions/{session_id}")
            watcher.wait_for("session", session_id, "ended")
            idle_since = last_activity(host)
            denied.write_text("read kernels")
            failure = watcher.wait(lambda event: event.kind == "failure")
            assert failure.data["code"] == "forbidden"
            watcher.wait_for_end()
        assert {event.kind for event in watcher.seen} == {"reset", "session", "failure"}
        assert last_activity(host) == idle_since  # an answer that ends is no activity either


def last_activity(host: Host) -> str:
    status = requests.get(f"{host.info.url}api/status", headers=host.info.auth_headers, timeout=10).json()
    return str(status["last_activity"])


def _path_with(directory: Path) -> str:
    return os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH")]))


@only_in_full
def test_watching_is_no_activity(tmp_path: Path) -> None:
    """Idle kernels are culled and the server counts as idle, while the stream says that it lives."""

    culling = [f"--MappingKernelManager.cull_{name}" for name in ("idle_timeout=2", "interval=1", "connected=True")]
    with running_host("server", tmp_path, *culling) as host:
        owner = owner_of(host)
        with Watcher(owner) as watcher:
            session_id = owner.session()
            watcher.wait_for("session", session_id, "ended")
            idle_since = last_activity(host)
            owner.call("GET", "/sessions?memory=true&no_track_activity=1")  # as the panel looks up what sessions use
            began_at = time.monotonic()
            watcher.wait_for_text(b": keep-alive\n\n")
            assert time.monotonic() - began_at < 20
        with Watcher(owner) as watcher:
            watcher.wait(lambda event: event.kind == "reset")
            stopped = threading.Thread(target=stop, args=(host.process,))
            assert last_activity(host) == idle_since
            stopped.start()
            watcher.wait_for_end()
            stopped.join()
