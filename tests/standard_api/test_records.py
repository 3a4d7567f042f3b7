"""Audit records, metrics, log lines and rate limits of the standard API, compared with exec/v1."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import requests

from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.auth.token_format import new_token, parse_token
from jupyter_exec_ext.engine.access.token_service import ATTEMPTS_AT_ONCE
from jupyter_exec_ext.models import AuditRecord
from jupyter_exec_ext.standard_api.incoming_messages import RULES
from tests.audit.test_audit import chain
from tests.standard_api.test_rest import call
from tests.support.addresses import FromAddress
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import Host, running_host
from tests.support.kernel_sockets import KernelSocket, reply_of, start, texts_of

SECRET = "s3cr3t-of-a-client"
APPROVAL = {"when": ["shell"], "timeout_seconds": 600}
RUNNING = "while True: pass"
ASKING = "x = input()"


@pytest.fixture(params=["server", "gateway"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


def trail(host: Host) -> list[AuditRecord]:
    return chain(host.home / "jupyter_data_dir" / "jupyter_exec_ext")


async def records_of(host: Host, is_enough: Callable[[list[AuditRecord]], bool]) -> list[AuditRecord]:
    """Poll the audit trail, which a thread writes, until a condition holds."""
    give_up_at = time.monotonic() + 30
    while not is_enough(found := await asyncio.to_thread(trail, host)):
        assert time.monotonic() < give_up_at, [(record.kind.value, record.action, record.data) for record in found]
        await asyncio.sleep(0.05)
    return found


async def wait_for(bearer: Bearer, path: str, is_there: Callable[[Any], bool]) -> Any:
    give_up_at = time.monotonic() + 30
    while not is_there(found := (await asyncio.to_thread(bearer.call, "GET", path)).json()):
        assert time.monotonic() < give_up_at, found
        await asyncio.sleep(0.02)
    return found


# --- one lifecycle of a session, through exec/v1, REST and messages ---


async def decide(owner: Bearer, decision: str) -> None:
    waiting = await wait_for(owner, "/approvals", lambda found: bool(found["executions"]))
    path = f"/approvals/{waiting['executions'][0]['id']}"
    assert (await asyncio.to_thread(owner.call, "POST", path, json={"decision": decision})).status_code == 200


async def live_by_exec_v1(http: aiohttp.ClientSession, bearer: Bearer) -> str:
    session = await asyncio.to_thread(bearer.session)
    path, later = f"/sessions/{session}", {"Prefer": "respond-async"}

    async def submit(code: str, state: str, **request: Any) -> str:
        body = {"code": code, **request}
        sent = await asyncio.to_thread(bearer.call, "POST", f"{path}/executions", json=body, headers=later)
        await wait_for(bearer, f"/executions/{sent.json()['id']}", lambda found: found["state"] == state)
        return f"/executions/{sent.json()['id']}"

    async def answered(execution: str) -> None:
        give_up_at = time.monotonic() + 30
        while not (await asyncio.to_thread(bearer.call, "POST", f"{execution}/input", json={"value": SECRET})).ok:
            assert time.monotonic() < give_up_at  # it runs, and has not requested input yet

    async def ended(execution: str) -> None:
        await wait_for(bearer, execution, lambda found: found["finished_at"] is not None)

    await ended(await submit(f"'{SECRET}'", "ok"))
    asking = await submit(ASKING, "running", allow_input=True)
    await answered(asking)
    await ended(asking)
    running = await submit(RUNNING, "running")
    await asyncio.to_thread(bearer.call, "POST", f"{path}/interrupt")
    await ended(running)
    for decision in ("approve", "reject"):
        held = await submit("!true", "awaiting_approval")
        await decide(owner_of(bearer.host), decision)
        await ended(held)
    await asyncio.to_thread(bearer.call, "POST", f"{path}/restart")
    await asyncio.to_thread(bearer.call, "DELETE", path)
    return session


async def live_by_standard_api(http: aiohttp.ClientSession, bearer: Bearer, *, is_rest: bool) -> str:
    """Interrupt, restart and shut down by REST, or else by messages."""
    kernel, socket = await start(http, bearer.host, bearer)
    session = (await asyncio.to_thread(bearer.call, "GET", "/sessions")).json()["sessions"][0]["id"]

    async def do(verb: str, msg_type: str, content: dict[str, Any], running: str = "") -> None:
        waiting = {running} if running else set()
        if is_rest:
            method = "POST" if verb else "DELETE"
            answer = await asyncio.to_thread(call, bearer.host, method, f"/kernels/{kernel['id']}{verb}", bearer.token)
            assert answer.ok
        else:
            waiting.add(await socket.send("control", msg_type, content))
        while waiting:
            message = await socket.receive()
            if message.msg_type == "status" and message.content["execution_state"] == "idle":
                waiting.discard(message.parent_id)

    await socket.run(f"'{SECRET}'")
    asking = await socket.send("shell", "execute_request", {"code": ASKING, "allow_stdin": True})
    while (await socket.receive()).channel != "stdin":
        pass
    await socket.send("stdin", "input_reply", {"value": SECRET})
    await socket.until_idle(asking)
    running = await socket.send("shell", "execute_request", {"code": RUNNING})
    while (await socket.receive()).msg_type != "execute_input":
        pass
    await do("/interrupt", "interrupt_request", {}, running)
    for decision in ("approve", "reject"):
        held = await socket.send("shell", "execute_request", {"code": "!true"})
        await decide(owner_of(bearer.host), decision)
        await socket.until_idle(held)
    await do("/restart", "shutdown_request", {"restart": True})
    await do("", "shutdown_request", {"restart": False})
    return str(session)


def exported(host: Host) -> str:
    answer = requests.get(f"{host.info.url}metrics", headers=host.info.auth_headers, timeout=10)
    return answer.text if answer.ok else ""


def counted(text: str) -> Counter[str]:
    found = re.findall(r"^(jupyter_exec_(?:executions|kernel_starts|denials)_total\S*) (\S+)$", text, re.MULTILINE)
    return Counter({name: int(float(value)) for name, value in found})


async def test_session_writes_same_records_and_metrics_through_each_api(
    http: aiohttp.ClientSession, tmp_path: Path, name: str
) -> None:
    with running_host(name, tmp_path, UNPROTECTED) as host:
        bearer = mint(host, policy="trusted", approval=APPROVAL)
        lives, counts = [], []
        for live in (
            live_by_exec_v1(http, bearer),
            live_by_standard_api(http, bearer, is_rest=True),
            live_by_standard_api(http, bearer, is_rest=False),
        ):
            before, already = counted(exported(host)), len(trail(host))
            session = await live
            found = await records_of(host, lambda all_: ("session", "ended") in _actions(all_[already:]))  # noqa: B023
            mine = found[already:]
            assert all(session in (record.subject, record.data.get("session_id")) for record in mine)
            lives.append(
                [(one.kind, one.action, one.principal, one.data.get("state"), one.data.get("reason")) for one in mine]
            )
            counts.append(counted(exported(host)) - before)
        assert lives[1] == lives[0]
        assert lives[2] == lives[0]
        assert counts[0] == counts[1] == counts[2]
        if name == "server":
            assert counts[0]['jupyter_exec_executions_total{state="interrupted"}'] == 1
        shown, printed, recorded = exported(host), host.log_text(), str(trail(host))
        parsed = parse_token(bearer.token)
        assert parsed is not None
        for secret in (SECRET, parsed.secret):
            assert secret not in shown + printed
        assert parsed.secret not in recorded
        for label in re.findall(r'="([^"]*)"', shown):
            assert not re.search(r"ses_|[0-9a-f]{8}-[0-9a-f]{4}|_request", label), label


def _actions(records: list[AuditRecord]) -> list[tuple[str, str]]:
    return [(record.kind.value, record.action) for record in records]


# --- messages that can run code outside an execution ---


async def test_inspections_and_comms_are_recorded_with_counts(
    http: aiohttp.ClientSession, tmp_path: Path, name: str
) -> None:
    with running_host(name, tmp_path, UNPROTECTED) as host:
        bearer = mint(host, policy="trusted")
        _, socket = await start(http, host, bearer)
        for _ in range(5):
            for msg_type in ("inspect_request", "is_complete_request"):
                content = {"code": "print", "cursor_pos": 3, "detail_level": 0}
                await socket.until_idle(await socket.send("shell", msg_type, content))
        await socket.until_idle(await socket.send("shell", "comm_close", {"comm_id": "none", "data": {}}))
    sent = [record for record in trail(host) if record.action == "messages_sent"]  # the server's end writes the counts
    assert {record.principal for record in sent} == {f"token:{bearer.id}"}
    assert [(record.data["message"], record.data["count"]) for record in sent] == [
        ("inspect_request", 1),
        ("comm_close", 1),
        ("inspect_request", 4),
    ]


# --- refusals ---


async def test_each_refused_message_is_recorded_logged_and_counted(
    http: aiohttp.ClientSession, tmp_path: Path, name: str
) -> None:
    with running_host(name, tmp_path, UNPROTECTED) as host:
        own = mint(host, sorted(ALL_SCOPES - {"executions:create", "executions:control", "sessions:delete"}))
        made, socket = await start(http, host, own)
        for channel, msg_type in [*RULES, ("control", "debug_request"), ("shell", SECRET)]:
            await socket.send(channel, msg_type, {"code": SECRET})
        expected = Counter(
            kind for (_, kind), access in RULES.items() if access.scope not in ("executions:read", "sessions:read")
        )
        expected["other"] += 2
        count = sum(expected.values())
        found = await records_of(host, lambda all_: len(_denials(all_, own)) >= count)
        denials = _denials(found, own)
        assert Counter(record.data["message"] for record in denials) == expected
        for record in denials:
            assert record.subject.endswith(f"/exec/jupyter/api/kernels/{made['id']}/channels")
            assert record.data["code"] == ("forbidden" if record.data["message"] == "other" else "missing_scope")
            assert record.data["request_id"] in host.log_text()
        if name == "server":
            assert counted(exported(host))['jupyter_exec_denials_total{code="missing_scope"}'] == count - 2
        assert SECRET not in host.log_text() + exported(host) + str(found)


def _denials(records: list[AuditRecord], bearer: Bearer) -> list[AuditRecord]:
    return [one for one in records if one.kind.value == "denial" and one.principal == f"token:{bearer.id}"]


async def test_message_beyond_policy_limit_is_recorded_as_denial(
    http: aiohttp.ClientSession, hosts: Any, name: str
) -> None:
    host = hosts[name]
    bearer = mint(host, policy="trusted", max_executions_per_minute=2)
    _, socket = await start(http, host, bearer)
    replies = [reply_of(await socket.run("1")) for _ in range(3)]
    assert [reply["status"] for reply in replies] == ["ok", "ok", "error"]
    (denial,) = _denials(await records_of(host, lambda all_: bool(_denials(all_, bearer))), bearer)
    assert (denial.data["code"], denial.data["message"]) == ("policy_limit_reached", "execute_request")


@pytest.mark.parametrize(("channel", "verb"), [("shell", "nothing"), ("control", "interrupt")])
async def test_flood_of_recorded_messages_slows_only_its_connection(
    http: aiohttp.ClientSession, hosts: Any, name: str, channel: str, verb: str
) -> None:
    host = hosts[name]
    bearer = mint(host, policy="trusted")
    kernel, other = await start(http, host, bearer)
    url = f"{host.info.url}exec/jupyter/api/kernels/{kernel['id']}/channels"
    flooding = KernelSocket(await http.ws_connect(url, headers={"Authorization": f"token {bearer.token}"}))
    began = time.monotonic()
    for _ in range(1000):
        await flooding.send(channel, f"{verb}_request", {})
    answers = 0
    while time.monotonic() < began + 1.5:
        message = await flooding.receive()
        answers += message.msg_type == f"{verb}_reply"
    assert 50 <= answers <= 50 + 12 * (time.monotonic() - began)
    assert texts_of(await other.run("print('goes on')")) == "goes on\n"


# --- wrong tokens ---


def test_wrong_tokens_in_each_place_share_attempt_limit_of_exec_v1(tmp_path: Path, name: str) -> None:
    personality = ["--ExecPersonality.allow_token_in_url=True", "--ExecPersonality.scoped_standard_api=True"]
    options = ["--ExecExtensionApp.allow_token_in_url=True"] if name == "server" else personality
    with running_host(name, tmp_path, UNPROTECTED, *options) as host, requests.Session() as session:
        session.mount("http://", FromAddress("127.0.0.9"))
        base = f"{host.info.url}exec/jupyter/api"

        def send(place: int, token: str) -> requests.Response:
            protocol = f"v1.token.websocket.jupyter.org.{quote(token, safe='')}"
            path, headers = [
                (f"{base}/kernels", {"Authorization": f"token {token}"}),
                (f"{base}/kernels?token={token}", {}),
                (f"{base}/kernels/01234567-0123-0123-0123-0123456789ab/channels", {"Sec-WebSocket-Protocol": protocol}),
                (f"{host.info.url}api/kernels", {"Authorization": f"token {token}"}),
            ][place]
            return session.get(path, headers=headers, timeout=30)

        places = range(3 if name == "server" else 4)
        for number in range(ATTEMPTS_AT_ONCE):
            assert send(number % len(places), new_token().text).status_code == 401
        for place in places:
            answer = send(place, new_token().text)
            assert (answer.status_code, answer.json()["code"]) == (429, "too_many_attempts")
            assert send(place, mint(host, policy="trusted").token).status_code in (200, 404)
