"""F16 for tokens, on a real server: what cannot be looked up is neither let in nor called wrong."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.token_format import new_token
from tests.store.test_database import damage
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host, running_host


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with running_host("server", tmp_path, UNPROTECTED, f"--ExecStore.path={tmp_path / 'store'}") as started:
        yield started


def database(host: Host) -> Path:
    return host.home / "store" / "executions.db"


def test_while_the_database_cannot_be_read_nobody_is_let_in(host: Host) -> None:
    agent = mint(host)
    assert agent.call("GET", "/").status_code == 200
    aside = database(host).with_name("away")
    database(host).rename(aside)
    for bearer in (agent, Bearer(host, new_token().text)):
        answer = bearer.call("GET", "/")
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert owner_of(host).call("GET", "/").status_code == 200  # whom it is not needed for
    aside.rename(database(host))
    assert agent.call("GET", "/").status_code == 200


@only_in_full
def test_while_the_database_is_locked_tokens_are_known_and_none_is_changed(host: Host) -> None:
    agent = mint(host)
    lock = sqlite3.connect(database(host), isolation_level=None, timeout=5)
    try:
        lock.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert agent.call("GET", "/").status_code == 200
        assert time.monotonic() - began < 4
        changes: list[tuple[str, str, Any]] = [
            ("POST", "/tokens", {"name": "x", "scopes": ["sessions:read"]}),
            ("POST", f"/tokens/{agent.id}/rotate", {}),
            ("DELETE", f"/tokens/{agent.id}", None),
        ]
        with ThreadPoolExecutor(len(changes)) as pool:
            answers = pool.map(lambda change: owner_of(host).call(change[0], change[1], json=change[2]), changes)
            for answer in answers:
                assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable"), answer.url
                assert answer.headers["Retry-After"] == "1"
    finally:
        lock.close()
    assert agent.call("GET", "/").status_code == 200
    assert [token["id"] for token in owner_of(host).call("GET", "/tokens").json()["tokens"]] == [agent.id]


def test_what_runs_in_the_name_of_a_lost_token_ends(host: Host) -> None:
    """The database was damaged and begun anew, here by somebody else: nobody could revoke the token any more."""
    agent = mint(host)
    session = agent.session()
    headers = {"Prefer": "respond-async"}
    path = f"/sessions/{session}/executions"
    running = agent.call("POST", path, json={"code": "import time; time.sleep(60)"}, headers=headers).json()["id"]
    with sqlite3.connect(database(host), timeout=5) as db:
        db.execute("DELETE FROM tokens")
    db.close()
    assert agent.call("GET", "/").json()["code"] == "unauthenticated"
    record = owner_of(host).call("GET", f"/executions/{running}", headers={"Prefer": "wait=10"}).json()
    assert record["state"] == "token_revoked"
    assert "not known any more" in record["reason"]


def test_damage_is_noticed_while_the_server_runs_and_named_with_its_remedy(host: Host) -> None:
    agent, owner = mint(host), owner_of(host)
    assert owner.call("GET", "/").json()["trouble"] is None
    with sqlite3.connect(database(host), timeout=5) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    owner.session()  # so that there is a log of writes again
    damage(database(host), "all")
    deadline = time.monotonic() + 10
    while (answer := agent.call("GET", "/")).status_code == 200 and time.monotonic() < deadline:
        time.sleep(0.1)  # until it is read from the file again
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    for refused in (agent.call("GET", "/"), owner.call("POST", "/sessions", json={}), owner.call("GET", "/tokens")):
        assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        assert "restart" in refused.json()["message"] and "backup" in refused.json()["message"]
    answer = owner.call("GET", "/")
    assert answer.status_code == 200
    assert "the database is damaged" in answer.json()["trouble"]
    assert "the database is damaged" in host.log_text()
