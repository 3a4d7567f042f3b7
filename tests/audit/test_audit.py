"""Committed records as Jupyter events and as metrics, on a real event logger, a real server and a real gateway."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from jupyter_events import EventLogger
from prometheus_client import REGISTRY

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.audit import metrics_and_events as metrics
from jupyter_exec_ext.audit.digest_chain import Head, verify
from jupyter_exec_ext.audit.metrics_and_events import EventRecorder, schema_id
from jupyter_exec_ext.auth.token_format import parse_token
from jupyter_exec_ext.errors import SessionNotFound
from jupyter_exec_ext.models import AuditKind, AuditRecord
from jupyter_exec_ext.store.audit_table import AuditReader
from jupyter_exec_ext.store.store import ExecStore
from tests.store.test_audit_trail import QUEUED, SECRET, open_store, run_one, settled
from tests.support.bearers import UNPROTECTED, mint, owner_of
from tests.support.hosts import CANARY, Host, running_host


class Kept(logging.Handler):
    """Keeps what is emitted, as a log kept elsewhere would."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ExecStore]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def chain(directory: Path) -> list[AuditRecord]:
    with closing(AuditReader(directory)) as reader, reader.snapshot() as (ends, lines):
        kept = list(lines)
        assert list(verify(kept, ends)) == []
    return [line.record() for line in kept]


def record_everything(store: ExecStore) -> None:
    """One record of each action that there is, with all that its schema knows."""
    audit = store.audit
    audit.record("session", "restart_asked", "me", "ses_1")
    made = {"checkpoint": "chk_1", "automatic": True, "lost": ["thread: poller"]}
    audit.record("session", "checkpointed", "me", "ses_1", **made)
    audit.record("session", "checkpoint_deleted", "", "ses_1", checkpoint="chk_1")
    audit.record("session", "checkpoint_expired", "", "ses_1", checkpoint="chk_1")
    audit.record("session", "checkpoint_lost", "", "ses_1", checkpoint="chk_1")
    audit.record("session", "restore_asked", "me", "ses_1", checkpoint="chk_1")
    audit.record("session", "branch_asked", "me", "ses_1", checkpoint="chk_1", count=2)
    audit.record("execution", "cancel_asked", "me", "exe_1", session_id="ses_1")
    about = {"name": "x", "policy": "default", "scopes": frozenset({"b", "a"}), "expires_at": "2026", "parent_id": None}
    audit.record("token", "created", "owner", "tok_1", **about, request_id="r")
    audit.record("token", "rotated", "me", "tok_1", overlap_seconds=5.0)
    audit.record("token", "expired", "", "tok_1")
    asked = {"session_id": "ses_1", "code_sha256": "0" * 64, "rule": "all"}
    audit.record("approval", "requested", "me", "exe_1", **asked)
    audit.record("approval", "rejected", "owner", "exe_1", reason="no", request_id="r")
    audit.record("approval", "approved", "owner", "exe_2", covered_by="exe_1", by="me", request_id="r")
    audit.record("approval", "withdrawn", "owner", "ses_1", approved_kinds=["shell"], by="me", request_id="r")
    refused = {"code": "unauthenticated", "request_id": "r", "method": "GET", "scope": None, "message": "other"}
    audit.record("denial", "refused", "", "/exec/v1", **refused)
    audit.record("file", "uploaded", "me", "ses_1", path="a", size_bytes=1, sha256="0" * 64, created=True)
    audit.record("file", "downloaded", "me", "ses_1", path="a", size_bytes=1)
    audit.record("server", "placed", "me", "w1", path="exec/v1/sessions/ses_w1_1")
    audit.record("server", "lost", "", "w1", state="ended", sessions=2, running=1, reason="it cannot be reached")


async def test_every_record_is_emitted_by_its_schema_once_it_is_committed(store: ExecStore, tmp_path: Path) -> None:
    handler = Kept()
    events = EventLogger(handlers=[handler])
    store.audit.subscribe(EventRecorder(events).emit)
    await run_one(store)
    assert handler.lines == []  # held back until the loop is there
    store.audit.start()
    record_everything(store)
    await settled(store)
    await settled(store)
    emitted = [json.loads(line) for line in handler.lines]
    found = chain(tmp_path)
    assert len(found) == 22
    assert [(e["seq"], e["digest"], e["action"]) for e in emitted] == [(r.seq, r.digest, r.action) for r in found]
    assert [e["__schema__"] for e in emitted] == [schema_id(r.kind) for r in found]
    assert all(e["at"].endswith("Z") for e in emitted)
    assert SECRET not in str(emitted)


async def test_a_handler_that_fails_loses_nothing(
    store: ExecStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(record: AuditRecord) -> None:
        raise ZeroDivisionError

    given: list[AuditRecord] = []
    store.audit.subscribe(fail)
    store.audit.subscribe(given.append)
    store.audit.start()
    await run_one(store)
    await settled(store)
    assert given == chain(tmp_path)
    assert len(given) == 2
    assert "could not be delivered" in caplog.text


@pytest.mark.parametrize("kind", AuditKind)
def test_a_schema_says_what_is_not_recorded_and_takes_nothing_else(kind: AuditKind) -> None:
    events = EventLogger(handlers=[Kept()])
    EventRecorder(events)
    EventRecorder(events)  # a second engine in the same process
    schema = events.schemas.get(schema_id(kind))._schema
    assert "Not recorded: " in schema["description"]
    assert schema["additionalProperties"] is schema["properties"]["data"]["additionalProperties"] is False


# --- metrics ---


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"jupyter_exec_{name}", labels) or 0.0


def denial(**data: Any) -> AuditRecord:
    action = "refused" if "code" in data else "suppressed"
    return AuditRecord(1, "", AuditKind.DENIAL, action, "", "/", {"suppressed": {}, **data}, "")


def test_labels_are_from_closed_sets() -> None:
    before = {code: value("denials_total", code=code) for code in ("forbidden", "other")}
    metrics.count(denial(code="forbidden"))
    metrics.count(denial(code="made up"))
    metrics.count(denial(suppressed={"forbidden": 3, "made up, too": 2}))
    assert value("denials_total", code="forbidden") == before["forbidden"] + 4
    assert value("denials_total", code="other") == before["other"] + 3
    assert value("denials_total", code="made up") == 0


async def test_executions_are_counted_by_state_and_run_time(store: ExecStore) -> None:
    store.audit.subscribe(metrics.count)
    store.audit.start()
    before = value("executions_total", state="ok"), value("execution_seconds_count"), value("execution_seconds_sum")
    await run_one(store)
    times = {"started_at": "2026-01-01T00:00:00.000Z", "finished_at": "2026-01-01T00:00:02.000Z"}
    await run_one(store, replace(QUEUED, id="exe_2"), **times)
    await settled(store)
    after = value("executions_total", state="ok"), value("execution_seconds_count"), value("execution_seconds_sum")
    assert tuple(new - old for new, old in zip(after, before, strict=True)) == (2, 1, 2)


# --- on real hosts ---

HANDLERS = """
import logging
c.EventLogger.handlers = [logging.FileHandler({path!r})]
"""


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_a_host_emits_stores_and_counts_without_secrets(name: str, tmp_path: Path) -> None:
    log = tmp_path / "events.log"
    config = (
        tmp_path / "config" / ("jupyter_server_config.py" if name == "server" else "jupyter_kernel_gateway_config.py")
    )
    config.parent.mkdir()
    config.write_text(HANDLERS.format(path=str(log)))
    with running_host(name, tmp_path) as host, ExecClient(host.info) as client:
        with client.session(env={"KERNEL_SECRET": SECRET}, metadata={"m": SECRET}) as session:
            session.run(f"print('{SECRET}')", metadata={"m": SECRET})
            session.upload(io.BytesIO(SECRET.encode()), "a b.txt")
            session.download("a b.txt", tmp_path)
            session.delete_file("a b.txt")
        with pytest.raises(SessionNotFound):
            client.get_session("ses_none")
        scraped = requests.get(f"{host.info.url}metrics", headers=host.info.auth_headers, timeout=10)
        token = host.info.token
        printed = host.log_text()
    found = chain(tmp_path / "jupyter_data_dir" / "jupyter_exec_ext")
    actions = [(record.kind.value, record.action) for record in found]
    assert actions == [
        ("session", "created"),
        ("session", "kernel_started"),
        ("execution", "accepted"),
        ("execution", "ended"),
        ("file", "uploaded"),
        ("file", "downloaded"),
        ("file", "deleted"),
        ("session", "delete_asked"),
        ("session", "ended"),
    ]
    assert {record.principal for record in found} == {"owner"}
    emitted = [json.loads(line) for line in log.read_text().splitlines()]
    ours = [event for event in emitted if "/jupyter_exec_ext/" in event["__schema__"]]
    assert [(event["seq"], event["digest"]) for event in ours] == [(record.seq, record.digest) for record in found]
    assert token is not None
    for text in (str(found), log.read_text(), scraped.text, printed):
        for secret in (SECRET, token, CANARY):
            assert secret not in text
    if name == "server":
        shown = dict(re.findall(r"^(jupyter_exec_\S+) (\S+)$", scraped.text, flags=re.MULTILINE))
        assert shown['jupyter_exec_executions_total{state="ok"}'] == "1.0"
        assert shown["jupyter_exec_execution_seconds_count"] == "1.0"
        assert shown["jupyter_exec_kernel_starts_total"] == "1.0"
        gauges = [shown[f"jupyter_exec_{gauge}"] for gauge in ("sessions", "running_executions", "queued_executions")]
        assert gauges == ["0.0", "0.0", "0.0"]


ASKS = '--ExecEngine.policies={"asks": {"base": "trusted", "approval": "always"}}'


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_tokens_approvals_and_refusals_are_told_by_their_schemas(name: str, tmp_path: Path) -> None:
    log = tmp_path / "events.log"
    file = "jupyter_server_config.py" if name == "server" else "jupyter_kernel_gateway_config.py"
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / file).write_text(HANDLERS.format(path=str(log)))
    with running_host(name, tmp_path, UNPROTECTED, ASKS) as host:
        owner = owner_of(host)
        agent = mint(host, policy="asks")
        session = agent.session()
        for answer in ({"decision": "approve"}, {"decision": "approve", "code": "2"}, {"decision": "reject"}):
            headers = {"Prefer": "respond-async"}
            sent = agent.call("POST", f"/sessions/{session}/executions", json={"code": "1"}, headers=headers).json()
            assert owner.call("POST", f"/approvals/{sent['id']}", json=answer).status_code == 200
            agent.call("GET", f"/executions/{sent['id']}", headers={"Prefer": "wait=30"})
        rotated = owner.call("POST", f"/tokens/{agent.id}/rotate", json={"overlap_seconds": 5}).json()
        assert agent.call("GET", "/policies").status_code == 403
        assert owner.call("DELETE", f"/tokens/{agent.id}").status_code == 204
        assert agent.call("GET", "/").status_code == 401
        short = mint(host, ["sessions:read"], expires_in_seconds=0.01)
        time.sleep(0.05)
        assert short.call("GET", "/").status_code == 401
        secrets_ = [agent.token, rotated["token"], short.token]
        printed = host.log_text()
    found = chain(tmp_path / "jupyter_data_dir" / "jupyter_exec_ext")
    told = Counter((record.kind.value, record.action, record.data.get("code")) for record in found)
    assert told["token", "created", None] == 2
    for action in ("rotated", "revoked", "expired"):
        assert told["token", action, None] == 1
    assert told["approval", "requested", None] == 3
    for action in ("approved", "edited", "rejected"):
        assert told["approval", action, None] == 1
    assert all(
        r.data["by"] for r in found if (r.kind.value, r.action) in {("token", "created"), ("approval", "edited")}
    )
    for code in ("owner_only", "token_revoked", "token_expired"):
        assert told["denial", "refused", code] == 1
    emitted = [json.loads(line) for line in log.read_text().splitlines()]
    ours = [event for event in emitted if "/jupyter_exec_ext/" in event["__schema__"]]
    assert [event["seq"] for event in ours] == [record.seq for record in found]
    assert "could not be delivered" not in printed
    for text in (str(found), log.read_text(), printed):
        assert not any(parts.secret in text for parts in map(parse_token, secrets_) if parts is not None)


def test_the_gauges_show_what_runs_and_waits(hosts: Any) -> None:
    host: Host = hosts["server"]

    def gauges() -> list[float]:
        text = requests.get(f"{host.info.url}metrics", headers=host.info.auth_headers, timeout=10).text
        names = ("sessions", "running_executions", "queued_executions")
        return [float(re.findall(rf"^jupyter_exec_{name} (\S+)$", text, flags=re.MULTILINE)[0]) for name in names]

    before = gauges()
    with ExecClient(host.info) as client, client.session() as session:
        handles = [session.submit("import time; time.sleep(100)") for _ in range(3)]
        for event in handles[0].events():
            if getattr(event, "state", None) == "running":
                break
        assert [now - then for now, then in zip(gauges(), before, strict=True)] == [1, 1, 2]
    assert gauges() == before


def test_a_head_is_printed_as_it_is_read() -> None:
    head = Head(3, "a" * 64)
    assert Head.parse(str(head)) == head
