"""Policies with approvals on kernels' WebSockets: no message runs code before a person approves it."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import aiohttp
import pytest

from jupyter_exec_ext.protocol.kernel_messages import new_header
from tests.support.bearers import UNPROTECTED, mint, owner_of
from tests.support.hosts import Host, running_host
from tests.support.kernel_sockets import V1, KernelSocket, reply_of, start, texts_of

POLICIES = {"asks": {"base": "trusted", "approval": "always"}}
FORBIDDEN = "__import__('builtins').marker = 1"
DEBUGGED = {"expression": FORBIDDEN, "code": FORBIDDEN}
COMM = {"comm_id": "a", "target_name": "marker", "data": {"code": FORBIDDEN}}


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("approvals")
    (home / "policies.json").write_text(json.dumps(POLICIES))
    option = f"--ExecEngine.policy_file={home / 'policies.json'}"
    with running_host(request.param, home, UNPROTECTED, option) as started:
        yield started


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


async def decide(host: Host, *, approve: bool) -> None:
    """Approve or reject the one execution that waits."""
    for _ in range(200):
        waiting = await asyncio.to_thread(lambda: owner_of(host).call("GET", "/approvals").json()["executions"])
        if waiting:
            break
        await asyncio.sleep(0.05)
    (execution,) = waiting
    answer = {"decision": "approve" if approve else "reject"}
    decided = await asyncio.to_thread(lambda: owner_of(host).call("POST", f"/approvals/{execution['id']}", json=answer))
    assert decided.ok, decided.text


async def test_code_under_approval_policy_waits_and_shows_reason(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="asks"))
    sent = await kernel.send("shell", "execute_request", {"code": "print('approved')"})
    first, note = await kernel.receive(), await kernel.receive()
    assert first.content == {"execution_state": "busy"} and "approval" in note.content["text"]
    await decide(host, approve=True)
    seen = await kernel.until_idle(sent)
    assert texts_of(seen) == "approved\n" and reply_of(seen)["status"] == "ok"


async def test_rejected_code_ends_with_error(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="asks"))
    sent = await kernel.send("shell", "execute_request", {"code": "1"})
    await decide(host, approve=False)
    seen = await kernel.until_idle(sent)
    assert reply_of(seen)["ename"] == "Rejected"
    assert [message.content["ename"] for message in seen if message.msg_type == "error"] == ["Rejected"]


def of_code(**options: Any) -> Mapping[str, Any]:
    return {"code": FORBIDDEN, **options}


# Messages that could run unapproved code: channel, type, content.
WAYS: list[tuple[str, str, Mapping[str, Any]]] = [
    # Code with every option.
    *(
        ("shell", "execute_request", of_code(**options))
        for options in (
            {},
            {"silent": True},
            {"store_history": False},
            {"silent": True, "store_history": False},
            {"allow_stdin": True},
            {"stop_on_error": False},
            {"silent": "yes"},
            {"approved": True},
            {"user_expressions": {"a": FORBIDDEN}},
        )
    ),
    *(
        ("shell", "execute_request", {"code": code, "user_expressions": {"a": "setattr(__builtins__, 'marker', 1)"}})
        for code in ("", "1", "#", " ", "pass")
    ),
    *(
        ("shell", "execute_request", {"code": code})
        for code in (f"%time {FORBIDDEN}", f"{FORBIDDEN};", "%rerun", "%recall")
    ),
    # Other channels and types.
    *((channel, "execute_request", of_code()) for channel in ("control", "stdin", "iopub", "", "shell ", "SHELL")),
    *(
        ("shell", kind, of_code())
        for kind in ("execute_reply", "execute", "Execute_request", "run_request", "apply_request")
    ),
    *(("shell", kind, COMM) for kind in ("comm_open", "comm_msg", "comm_close")),
    *((channel, "comm_open", COMM) for channel in ("control", "iopub", "stdin")),
    # Input without a prompt.
    *(("stdin", kind, {"value": FORBIDDEN}) for kind in ("input_reply", "input_request")),
    ("shell", "input_reply", {"value": FORBIDDEN}),
    # The debugger evaluates code.
    *(
        (
            channel,
            "debug_request",
            {"type": "request", "seq": 1, "command": command, "arguments": {"expression": FORBIDDEN}},
        )
        for channel in ("control", "shell")
        for command in ("initialize", "attach", "evaluate", "setExpression", "dumpCell", "richInspectVariables")
    ),
    # Requests of newer kernels: subshells, usage and completion.
    *(
        ("control", kind, {})
        for kind in ("create_subshell_request", "list_subshell_request", "usage_request", "connect_request")
    ),
    *(
        ("shell", kind, {"code": code, "cursor_pos": len(code), "detail_level": 1})
        for kind in ("complete_request", "inspect_request", "is_complete_request")
        for code in (FORBIDDEN, f"({FORBIDDEN}).", f"%time {FORBIDDEN}", f"[{FORBIDDEN}][0].")
    ),
    *(
        ("shell", "history_request", {"hist_access_type": kind, "session": -1, "n": 10, "pattern": "*", "output": True})
        for kind in ("tail", "search", "range", FORBIDDEN)
    ),
]


async def is_marked(kernel: KernelSocket, host: Host) -> bool:
    """Return whether forbidden code has run; the code that finds out is approved."""
    sent = await kernel.send("shell", "execute_request", {"code": "print(hasattr(__import__('builtins'), 'marker'))"})
    await decide(host, approve=True)
    return texts_of(await kernel.until_idle(sent)).strip().endswith("True")


async def reject_all(host: Host) -> None:
    owner = owner_of(host)
    waiting = await asyncio.to_thread(lambda: owner.call("GET", "/approvals").json()["executions"])
    for execution in waiting:
        path = f"/approvals/{execution['id']}"
        await asyncio.to_thread(owner.call, "POST", path, json={"decision": "reject"})


async def test_messages_under_approval_policy_run_no_unapproved_code(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="asks"))
    for channel, msg_type, content in WAYS:
        sent = await kernel.send(channel, msg_type, content)
        await asyncio.wait_for(until_refused(kernel, host, sent), 20)
    print(f"\n{len(WAYS)} ways round approval: tried")
    assert not await is_marked(kernel, host)


async def until_refused(kernel: KernelSocket, host: Host, sent: str) -> None:
    """Reject a request if it waits, and return at its end."""
    while True:
        message = await kernel.receive()
        if message.parent_id != sent:
            continue
        text = str(message.content.get("text", ""))
        if "approval" in text:
            await reject_all(host)
        # An answer on stdin is no request, so it has no end.
        if message.content.get("execution_state") == "idle" or "waits for input" in text or "may not send" in text:
            return


@pytest.mark.parametrize("msg_type", ["complete_request", "inspect_request"])
async def test_completion_and_inspection_under_approval_policy_are_refused(
    http: aiohttp.ClientSession, host: Host, msg_type: str
) -> None:
    _, kernel = await start(http, host, mint(host, policy="asks"))
    content = {"code": "from this import ", "cursor_pos": 17, "detail_level": 0}
    assert "can run code" in reply_of(await kernel.until_idle(await kernel.send("shell", msg_type, content)))["evalue"]
    sent = await kernel.send("shell", "execute_request", {"code": "import sys; print('this' in sys.modules)"})
    await decide(host, approve=True)
    assert texts_of(await kernel.until_idle(sent)).splitlines()[-1] == "False"


async def test_interrupt_cancels_code_that_waits_for_approval(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="asks"))
    sent = await kernel.send("shell", "execute_request", {"code": "1"})
    while "approval" not in (await kernel.receive()).content.get("text", ""):
        pass
    await kernel.send("control", "interrupt_request", {})
    assert reply_of(await kernel.until_idle(sent))["ename"] == "Cancelled"
    assert await asyncio.to_thread(lambda: owner_of(host).call("GET", "/approvals").json()["executions"]) == []


async def test_message_with_forged_parent_and_buffers_ends_connection(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="asks")
    _, kernel = await start(http, host, bearer, (V1,))
    header = new_header("comm_msg", kernel.session)
    parts = [
        json.dumps(part).encode() if isinstance(part, dict) else part
        for part in (b"shell", header, {"msg_id": "forged", "msg_type": "execute_request"}, {}, COMM, b"\x00" * 64)
    ]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    await kernel.socket.send_bytes(struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts))
    ended = await kernel.socket.receive(timeout=20)
    assert (ended.type, ended.data) == (aiohttp.WSMsgType.CLOSE, 1008)
