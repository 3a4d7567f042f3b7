"""Requests and replies on a kernel's WebSocket, on both hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from jupyter_exec_ext.protocol.kernel_messages import encode_websocket, new_header
from tests.support.bearers import mint, owner_of
from tests.support.hosts import Host
from tests.support.kernel_sockets import V1, connect_again, reply_of, start, texts_of

HOSTS = ["server", "gateway"]


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    return hosts[request.param]  # type: ignore[no-any-return]


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


@pytest.mark.parametrize("protocols", [(), (V1,)])
async def test_execute_request_sends_output_then_reply_then_idle(
    http: aiohttp.ClientSession, host: Host, protocols: tuple[str, ...]
) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"), protocols)
    seen = await kernel.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    kinds = [(message.channel, message.msg_type) for message in seen]
    assert kinds == [
        ("iopub", "status"),
        ("iopub", "execute_input"),
        ("iopub", "stream"),
        ("iopub", "stream"),
        ("iopub", "execute_result"),
        ("shell", "execute_reply"),
        ("iopub", "status"),
    ]
    assert seen[1].content["execution_count"] == 1
    assert seen[4].content["data"] == {"text/plain": "42"}
    assert (seen[5].content["status"], seen[5].content["execution_count"]) == ("ok", 1)


async def test_failing_code_sends_error_on_iopub_and_in_reply(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    seen = await kernel.run("1 / 0")
    (error,) = [message.content for message in seen if message.msg_type == "error"]
    assert error["ename"] == reply_of(seen)["ename"] == "ZeroDivisionError"
    assert reply_of(seen)["status"] == "error" and error["traceback"]


async def test_user_expressions_are_in_the_reply(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    reply = reply_of(await kernel.run("x = 20", user_expressions={"twice": "2 * x", "wrong": "y"}))
    assert reply["user_expressions"]["twice"]["data"] == {"text/plain": "40"}
    assert reply["user_expressions"]["wrong"]["status"] == "error"


async def test_silent_code_sends_no_value_and_is_recorded(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="trusted")
    _, kernel = await start(http, host, bearer)
    seen = await kernel.run("print('said')\n'value'", silent=True)
    assert texts_of(seen) == "said\n"
    assert {message.msg_type for message in seen} == {"status", "stream", "execute_reply"}
    assert (await kernel.run("1"))[1].content["execution_count"] == 1  # it did not count
    (session,) = bearer.call("GET", "/sessions").json()["sessions"]
    found = bearer.call("GET", f"/sessions/{session['id']}/executions").json()["executions"]
    assert "print('said')\n'value'" in [execution["code"] for execution in found]


async def test_input_request_goes_to_client_that_sent_the_code(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="trusted")
    kernel, first = await start(http, host, bearer)
    second = await connect_again(http, host, bearer, kernel)
    request_id = await first.send("shell", "execute_request", {"code": "print(input('name? '))", "allow_stdin": True})
    while (message := await first.receive()).channel != "stdin":
        pass
    assert (message.msg_type, message.parent_id, message.content["prompt"]) == ("input_request", request_id, "name? ")
    await second.send("stdin", "input_reply", {"value": "forged"})
    await first.send("stdin", "input_reply", {"value": "Ada"})
    assert texts_of(await first.until_idle(request_id)) == "Ada\n"
    assert texts_of(await second.until_idle(request_id)) == "Ada\n"  # it sees what the first one does


async def test_input_without_control_scope_raises_stdin_not_implemented(
    http: aiohttp.ClientSession, host: Host
) -> None:
    scopes = ["sessions:create", "sessions:read", "executions:create", "executions:read"]
    _, kernel = await start(http, host, mint(host, scopes, policy="trusted"))
    assert reply_of(await kernel.run("input()", allow_stdin=True))["ename"] == "StdinNotImplementedError"


async def test_revoked_token_closes_connection(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="trusted")
    _, kernel = await start(http, host, bearer)
    await kernel.run("1")
    await asyncio.to_thread(owner_of(host).call, "DELETE", f"/tokens/{bearer.id}")
    ended = await kernel.socket.receive(timeout=20)
    while ended.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
        ended = await kernel.socket.receive(timeout=20)
    assert (ended.type, ended.data) == (aiohttp.WSMsgType.CLOSE, 1008)


async def test_failed_request_aborts_later_ones_of_same_client(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="trusted")
    model, kernel = await start(http, host, bearer)
    other = await connect_again(http, host, bearer, model)
    sent = [
        await kernel.send("shell", "execute_request", {"code": code})
        for code in ("import time; time.sleep(0.5); 1 / 0", "print('not run')")
    ]
    of_other = await other.send("shell", "execute_request", {"code": "1"})
    assert reply_of(await kernel.until_idle(sent[0]))["status"] == "error"
    assert reply_of(await kernel.until_idle(sent[1]))["status"] == "aborted"
    assert reply_of(await other.until_idle(of_other))["status"] == "ok"
    assert reply_of(await kernel.run("1 / 0", stop_on_error=False))["status"] == "error"
    assert reply_of(await kernel.run("1"))["status"] == "ok"


async def test_interrupt_request_stops_code(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    running = await kernel.send("shell", "execute_request", {"code": "while True: pass"})
    while (await kernel.receive()).msg_type != "execute_input":
        pass
    await kernel.send("control", "interrupt_request", {})
    assert reply_of(await kernel.until_idle(running))["ename"] == "KeyboardInterrupt"


async def test_shutdown_request_restarts_or_ends_session(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="trusted")
    _, kernel = await start(http, host, bearer)
    await kernel.run("x = 1")
    restart = await kernel.send("control", "shutdown_request", {"restart": True})
    assert reply_of(await kernel.until_idle(restart)) == {"status": "ok", "restart": True}
    assert reply_of(await kernel.run("x"))["ename"] == "NameError"
    shutdown = await kernel.send("control", "shutdown_request", {"restart": False})
    assert reply_of(await kernel.until_idle(shutdown))["status"] == "ok"
    assert [session["state"] for session in bearer.call("GET", "/sessions").json()["sessions"]] == []


async def test_restart_by_rest_sends_no_status(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="trusted")
    model, kernel = await start(http, host, bearer)
    url = f"{host.info.url}exec/jupyter/api/kernels/{model['id']}/restart"
    async with http.post(url, headers={"Authorization": f"token {bearer.token}"}) as answer:
        assert answer.status == 200
    request_id = await kernel.send("shell", "kernel_info_request", {})
    message, states = await kernel.receive(), []
    while message.msg_type != "status" or message.parent_id != request_id:
        states.append(message.content.get("execution_state"))
        message = await kernel.receive()
    assert states == []


@pytest.mark.parametrize(
    ("msg_type", "content", "expected"),
    [
        ("kernel_info_request", {}, "language_info"),
        ("complete_request", {"code": "import o", "cursor_pos": 8}, "matches"),
        ("inspect_request", {"code": "len", "cursor_pos": 3, "detail_level": 0}, "found"),
        ("is_complete_request", {"code": "if x:"}, "indent"),
        ("comm_info_request", {}, "comms"),
        ("history_request", {"hist_access_type": "tail", "n": 2, "raw": True, "output": False}, "history"),
    ],
)
async def test_shell_request_gets_reply_of_kernel(
    http: aiohttp.ClientSession, host: Host, msg_type: str, content: Mapping[str, Any], expected: str
) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    for number in range(3):
        await kernel.run(f"x = {number}")
    seen = await kernel.until_idle(await kernel.send("shell", msg_type, content))
    assert [message.msg_type for message in seen] == ["status", msg_type.replace("request", "reply"), "status"]
    reply = reply_of(seen)
    assert reply["status"] == ("incomplete" if msg_type == "is_complete_request" else "ok") and expected in reply
    if expected == "history":
        assert [item[2] for item in reply["history"]] == ["x = 1", "x = 2"]


async def test_pending_request_at_restart_fails_with_session_ended(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    await kernel.send("shell", "execute_request", {"code": "while True: pass"})
    while (await kernel.receive()).msg_type != "execute_input":
        pass
    request_id = await kernel.send("shell", "complete_request", {"code": "im", "cursor_pos": 2})
    await kernel.send("control", "shutdown_request", {"restart": True})
    while (message := await kernel.receive()).parent_id != request_id or message.channel != "shell":
        pass
    assert (message.content["status"], message.content["ename"]) == ("error", "SessionEnded")


async def test_output_with_lone_surrogate_arrives(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    seen = await kernel.run("print('caf\\udce9'); 1")
    assert texts_of(seen) == "caf\udce9\n" and reply_of(seen)["status"] == "ok"


async def test_control_request_to_busy_kernel_gets_reply(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    running = await kernel.send("shell", "execute_request", {"code": "while True: pass"})
    while (await kernel.receive()).msg_type != "execute_input":
        pass
    seen = await kernel.until_idle(await kernel.send("control", "kernel_info_request", {}))
    assert reply_of(seen)["status"] == "ok"  # while the code still runs
    await kernel.send("control", "interrupt_request", {})
    await kernel.until_idle(running)


@pytest.mark.parametrize(("channel", "restart"), [("nonsense", True), ("iopub", True), ("stdin", False)])
async def test_shutdown_request_on_other_channel_is_refused(
    http: aiohttp.ClientSession, host: Host, channel: str, restart: bool
) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    await kernel.run("x = 1")
    sent = await kernel.send(channel, "shutdown_request", {"restart": restart})
    while (await kernel.receive()).parent_id != sent:
        pass
    assert reply_of(await kernel.run("x"))["status"] == "ok"


async def test_aborted_request_sends_busy_before_idle(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    first = await kernel.send("shell", "execute_request", {"code": "import time; time.sleep(0.3); 1 / 0"})
    second = await kernel.send("shell", "execute_request", {"code": "1"})
    await kernel.until_idle(first)
    kinds = [message.msg_type for message in await kernel.until_idle(second)]
    assert kinds == ["status", "execute_reply", "status"]


async def test_reconnected_client_receives_missed_messages(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="trusted")
    kernel, first = await start(http, host, bearer)
    before = await connect_again(http, host, bearer, kernel, "mine")
    code = "import time\nfor n in range(20):\n    print(n, flush=True)\n    time.sleep(0.05)"
    running = await before.send("shell", "execute_request", {"code": code})
    while (await before.receive()).msg_type != "stream":
        pass
    await before.socket.close()
    after = await connect_again(http, host, bearer, kernel, "mine")
    seen = await after.until_idle(running)
    assert texts_of(seen).split()[-1] == "19" and reply_of(seen)["status"] == "ok"
    await first.until_idle(running)


async def test_repeated_msg_id_runs_once(http: aiohttp.ClientSession, host: Host) -> None:
    bearer = mint(host, policy="trusted")
    _, kernel = await start(http, host, bearer)
    header = new_header("execute_request", kernel.session)
    frame = encode_websocket("shell", header, {"code": "print('once')"}, binary=False)
    for _ in range(2):
        await kernel.socket.send_str(str(frame))
        assert texts_of(await kernel.until_idle(header["msg_id"])) == "once\n"
    (session,) = bearer.call("GET", "/sessions").json()["sessions"]
    assert len(bearer.call("GET", f"/sessions/{session['id']}/executions").json()["executions"]) == 1


async def test_message_outside_allowlist_is_refused(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host))
    for channel, msg_type in (
        ("control", "debug_request"),
        ("shell", "unknown_request"),
        ("control", "execute_request"),
    ):
        reply = reply_of(await kernel.until_idle(await kernel.send(channel, msg_type, {})))
        assert (reply["status"], reply["ename"]) == ("error", "Forbidden")
        assert msg_type != "execute_request" or reply["execution_count"] == 0
    message = await kernel.send("shell", "comm_open", {"comm_id": "a", "target_name": "jupyter.widget", "data": {}})
    assert "allow_comms" in texts_of(await kernel.until_idle(message))


async def test_message_without_channel_is_handled_as_shell(http: aiohttp.ClientSession, host: Host) -> None:
    _, kernel = await start(http, host, mint(host, policy="trusted"))
    header = new_header("execute_request", kernel.session)
    await kernel.socket.send_json({"header": header, "parent_header": {}, "metadata": {}, "content": {"code": "1"}})
    assert reply_of(await kernel.until_idle(header["msg_id"]))["status"] == "ok"


@pytest.mark.parametrize("frame", ["", "[]", "{}", '{"header": []}', '{"channel": "shell", "header": {"msg_id": 1}}'])
async def test_malformed_frame_closes_only_its_connection(http: aiohttp.ClientSession, host: Host, frame: str) -> None:
    bearer = mint(host, policy="trusted")
    kernel, other = await start(http, host, bearer)
    socket = await connect_again(http, host, bearer, kernel)
    await socket.socket.send_str(frame)
    message = await socket.socket.receive(timeout=20)
    assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1008)
    assert reply_of(await other.run("1"))["status"] == "ok"
