"""Policy limits on each route and message of the standard API, just below and just above each limit.

Limits on counts are tested with fifty requests at once. `tests/server/test_policies` tests ``exec/v1``.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from jupyter_exec_ext.engine.sessions.pending_kernel_requests import MAX_PENDING
from jupyter_exec_ext.standard_api.incoming_messages import RULES
from jupyter_exec_ext.standard_api.routes import STANDARD_ROUTES
from tests.standard_api.test_cross_site import HANDSHAKE
from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import MAX_CODE_BYTES, Host, running_host
from tests.support.kernel_sockets import V1, KernelSocket, connect_again, reply_of, start, texts_of
from tests.support.kernelspecs import add_kernelspec, with_provisioner

AT_ONCE = 50
SLEEP = "import time; time.sleep(60)"
POLICIES = {
    "boxed": {"base": "trusted", "isolation": "sandbox", "kernelspecs": ["boxed", "py*"]},
    "plain": {"base": "trusted", "allow_comms": False},
    "asks": {"base": "trusted", "approval": "always"},
}

# Limits of each route and message; the tests below are named after them.
CREATION = "max_sessions kernelspecs isolation env attach process_limits session_seconds"
NONE = ""
ROUTE_LIMITS: dict[tuple[str, str], str] = {
    ("GET", "/"): NONE,
    ("GET", "/spec.yaml"): NONE,
    ("GET", "/status"): NONE,
    ("GET", "/me"): NONE,
    ("GET", "/kernelspecs"): "kernelspecs",
    ("GET", "/kernelspecs/{name}"): "kernelspecs",
    ("GET", "/kernels"): NONE,
    ("POST", "/kernels"): CREATION,
    ("GET", "/kernels/{kernel_id}"): NONE,
    ("DELETE", "/kernels/{kernel_id}"): NONE,
    ("POST", "/kernels/{kernel_id}/interrupt"): NONE,
    ("POST", "/kernels/{kernel_id}/restart"): "process_limits",
    ("GET", "/kernels/{kernel_id}/channels"): "max_streams",
    ("GET", "/sessions"): NONE,
    ("POST", "/sessions"): CREATION,
    ("GET", "/sessions/{kernel_id}"): NONE,
    ("PATCH", "/sessions/{kernel_id}"): NONE,
    ("DELETE", "/sessions/{kernel_id}"): NONE,
}
OF_CODE = (
    "max_code_bytes max_execution_seconds max_queue_seconds max_output_bytes max_open_executions "
    "max_executions_per_minute max_stored_bytes approval"
)
MESSAGE_LIMITS: dict[tuple[str, str], str] = {
    ("shell", "execute_request"): OF_CODE,
    **{("shell", f"{kind}_request"): "max_output_bytes" for kind in ("complete", "inspect", "is_complete", "history")},
    **{("shell", f"{kind}_request"): NONE for kind in ("kernel_info", "comm_info", "shutdown")},
    **{("shell", kind): "allow_comms approval" for kind in ("comm_open", "comm_msg", "comm_close")},
    ("stdin", "input_reply"): NONE,
    **{("control", f"{kind}_request"): NONE for kind in ("kernel_info", "interrupt", "shutdown")},
}


def test_limit_tables_have_every_route_and_message() -> None:
    routes = {(method, path) for path, _, methods in STANDARD_ROUTES for method in methods}
    assert routes == set(ROUTE_LIMITS)
    assert set(RULES) == set(MESSAGE_LIMITS)


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("limits")
    env = with_provisioner(home, "provisioner-of-tests", "bare-provisioner-of-tests")
    add_kernelspec(home, "boxed", "provisioner-of-tests")
    add_kernelspec(home, "pybare", "bare-provisioner-of-tests")
    (home / "policies.json").write_text(json.dumps(POLICIES))
    options = [
        UNPROTECTED,
        "--ExecEngine.isolation_levels={'provisioner-of-tests': 'sandbox'}",
        f"--ExecEngine.policy_file={home / 'policies.json'}",
    ]
    with running_host(request.param, home, *options, env=env) as started:
        yield started


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


@pytest.fixture
def token(host: Host) -> Iterator[Callable[..., Bearer]]:
    """Create tokens with only the given limits; the end of the test revokes them."""
    minted: list[Bearer] = []

    def make(policy: str = "plain", **limits: Any) -> Bearer:
        minted.append(mint(host, policy=policy, **limits))
        return minted[-1]

    yield make
    for bearer in minted:
        owner_of(host).call("DELETE", f"/tokens/{bearer.id}")


Answer = tuple[int, Any]


async def call(http: aiohttp.ClientSession, bearer: Bearer, method: str, path: str, **options: Any) -> Answer:
    url = f"{bearer.host.info.url}exec/jupyter/api{path}"
    headers = {"Authorization": f"token {bearer.token}", **options.pop("headers", {})}
    async with http.request(method, url, headers=headers, **options) as answer:
        return answer.status, await answer.json() if answer.content_length else None


async def create(
    http: aiohttp.ClientSession, bearer: Bearer, path: str, kernel_name: str | None = None, **more: Any
) -> Answer:
    kernel = {} if kernel_name is None else {"name": kernel_name}
    body = {**kernel, **more} if path == "/kernels" else {"path": uuid.uuid4().hex, "kernel": kernel, **more}
    return await call(http, bearer, "POST", path, json=body)


def kernel_of(answer: Answer) -> Any:
    """Return the kernel of an answer that is a kernel or a session."""
    assert answer[0] in (200, 201), answer
    return answer[1].get("kernel", answer[1])


def check_refusal(answer: Answer, status: int, code: str, limit: str, value: Any) -> None:
    assert (answer[0], answer[1]["code"]) == (status, code), answer
    assert (answer[1]["limit"]["name"], answer[1]["limit"]["value"]) == (limit, value)
    assert answer[1]["limit"]["policy"] in answer[1]["message"]


def check_reply(seen: list[Any], name: str, limit: str) -> None:
    """Check that a request was refused, with the reason in the reply and on iopub."""
    reply = reply_of(seen)
    assert (reply["status"], reply["ename"]) == ("error", name), reply
    assert limit in reply["evalue"]
    if any(message.msg_type == "execute_reply" for message in seen):
        (shown,) = [message.content for message in seen if message.msg_type == "error"]
        assert (shown["ename"], shown["evalue"]) == (name, reply["evalue"])


both_creations = pytest.mark.parametrize("path", ["/kernels", "/sessions"])


# --- kernels ---


async def test_max_sessions_of_fifty_at_once(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]
) -> None:
    bearer = token(max_sessions=3)
    calls = [create(http, bearer, "/kernels" if number % 2 else "/sessions") for number in range(AT_ONCE)]
    answers = await asyncio.gather(*calls)
    assert Counter(status for status, _ in answers) == {201: 3, 429: AT_ONCE - 3}
    for answer in answers:
        if answer[0] == 429:
            check_refusal(answer, 429, "policy_limit_reached", "max_sessions", 3)
    # At the limit everything else passes, and each kernel that ends makes room for one.
    first, second, _ = (kernel_of(answer)["id"] for answer in answers if answer[0] == 201)
    assert len((await call(http, bearer, "GET", "/kernels"))[1]) == 3
    for path in (f"/kernels/{first}/restart", f"/kernels/{first}/interrupt"):
        assert (await call(http, bearer, "POST", path))[0] in (200, 204)
    for path in (f"/kernels/{first}", f"/sessions/{second}"):
        assert (await call(http, bearer, "DELETE", path))[0] == 204
    again = await asyncio.gather(*(create(http, bearer, "/kernels") for _ in range(AT_ONCE)))
    assert Counter(status for status, _ in again) == {201: 2, 429: AT_ONCE - 2}


@both_creations
async def test_kernelspecs(http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer], path: str) -> None:
    bearer = token(kernelspecs=["py*"])
    assert set((await call(http, bearer, "GET", "/kernelspecs"))[1]["kernelspecs"]) == {"pybare", "python3"}
    assert (await call(http, bearer, "GET", "/kernelspecs/boxed"))[0] == 404
    refused = await create(http, bearer, path, "boxed")
    check_refusal(refused, 403, "policy_denied", "kernelspecs", ["py*"])
    assert kernel_of(await create(http, bearer, path, "python3"))["name"] == "python3"
    none = await create(http, token(kernelspecs=[]), path)
    check_refusal(none, 403, "policy_denied", "kernelspecs", [])


@both_creations
async def test_isolation(http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer], path: str) -> None:
    bearer = token("boxed")
    refused = await create(http, bearer, path, "pybare")
    check_refusal(refused, 403, "isolation_required", "isolation", "sandbox")
    assert kernel_of(await create(http, bearer, path, "boxed"))["name"] == "boxed"


@both_creations
async def test_env_and_kernel_id_in_creation_request_are_ignored(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer], path: str
) -> None:
    owner = {"Authorization": f"token {host.owner.token}"}
    async with http.post(f"{host.info.url}api/kernels", json={"name": "python3"}, headers=owner) as made:
        stock = (await made.json())["id"]
    bearer = token(env=["MY_*"], attach=False)
    more = {"env": {"MY_X": "1", "OTHER": "1"}, "id": stock}
    if path == "/sessions":
        more = {**more, "kernel": {"name": "python3", "id": stock}}
    kernel = kernel_of(await create(http, bearer, path, **more))
    assert kernel["id"] != stock and (await call(http, bearer, "GET", f"/kernels/{stock}"))[0] == 404
    socket = await connect_again(http, host, bearer, kernel)
    names = "import os; print([name for name in ('MY_X', 'OTHER') if name in os.environ])"
    assert texts_of(await socket.run(names)) == "[]\n"
    async with http.delete(f"{host.info.url}api/kernels/{stock}", headers=owner) as ended:
        assert ended.status == 204


@only_in_full
@both_creations
async def test_process_limits_hold_in_each_kernel_of_a_session(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer], path: str
) -> None:
    bearer = token(max_cpu_seconds=6, max_memory_bytes=2 * 1024**3)
    kernel = kernel_of(await create(http, bearer, path))
    socket = await connect_again(http, host, bearer, kernel)
    limits = "import resource; print(*resource.getrlimit(resource.RLIMIT_CPU), *resource.getrlimit(resource.RLIMIT_AS))"
    bytes_ = 2 * 1024**3
    assert texts_of(await socket.run(limits)) == f"6 7 {bytes_} {bytes_}\n"
    assert reply_of(await socket.run("x = bytearray(128 * 1024**2); del x"))["status"] == "ok"
    assert reply_of(await socket.run("bytearray(2 * 1024**3)"))["ename"] == "MemoryError"
    burn = "import time\nwhile time.process_time() < {}: pass\nprint('done')"
    assert texts_of(await socket.run(burn.format(4))) == "done\n"
    assert reply_of(await socket.run(burn.format(60)))["ename"] == "KernelDied"
    assert texts_of(await socket.run(limits)).endswith(f"6 7 {bytes_} {bytes_}\n")
    restart = await socket.send("control", "shutdown_request", {"restart": True})
    await socket.until_idle(restart)
    assert texts_of(await socket.run(limits)) == f"6 7 {bytes_} {bytes_}\n"


@only_in_full
@both_creations
async def test_sessions_end_when_they_are_idle_or_old(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer], path: str
) -> None:
    for limits, code in (
        ({"max_idle_seconds": 2}, "import time; time.sleep(2.5)"),
        ({"max_session_seconds": 4}, "1"),
    ):
        bearer = token(**limits)
        kernel = kernel_of(await create(http, bearer, path))
        socket = await connect_again(http, host, bearer, kernel)
        assert reply_of(await socket.run(code))["status"] == "ok"
        while (message := await socket.receive()).content.get("execution_state") != "dead":
            assert message.msg_type == "status"
        assert (await socket.socket.receive(timeout=20)).type is aiohttp.WSMsgType.CLOSE
        assert (await call(http, bearer, "GET", f"/kernels/{kernel['id']}"))[0] == 404


async def test_max_streams_of_fifty_sockets_at_once(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]
) -> None:
    bearer = token(max_streams=4)
    kernel = kernel_of(await create(http, bearer, "/kernels"))

    async def connect() -> KernelSocket | int:
        try:
            return await connect_again(http, host, bearer, kernel)
        except aiohttp.WSServerHandshakeError as error:
            return error.status

    found = await asyncio.gather(*(connect() for _ in range(AT_ONCE)))
    sockets = [each for each in found if isinstance(each, KernelSocket)]
    assert (len(sockets), Counter(each for each in found if isinstance(each, int))) == (4, {429: AT_ONCE - 4})
    refused = await call(http, bearer, "GET", f"/kernels/{kernel['id']}/channels", headers=HANDSHAKE)
    check_refusal(refused, 429, "policy_limit_reached", "max_streams", 4)
    await sockets[0].socket.close()
    again = await connect()
    for _ in range(100):
        if not isinstance(again, int):
            break
        await asyncio.sleep(0.05)  # the server sees the end a moment later
        again = await connect()
    assert not isinstance(again, int)
    assert reply_of(await again.run("1"))["status"] == "ok"


# --- code ---

# Options of an execute_request.
FORMS: list[dict[str, Any]] = [
    {},
    {"silent": True},
    {"store_history": False},
    {"silent": True, "store_history": False, "stop_on_error": False},
]
BOUNDS = {"max_code_bytes": 1000, "max_execution_seconds": 1, "max_queue_seconds": 1, "max_output_bytes": 10_000}


@pytest.mark.parametrize("form", [*(pytest.param(form, marks=only_in_full) for form in FORMS[:-1]), FORMS[-1]], ids=str)
async def test_limits_of_one_execution(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer], form: dict[str, Any]
) -> None:
    bearer = token(**BOUNDS)
    _, socket = await start(http, host, bearer, (V1,))

    async def run(code: str, **more: Any) -> Any:
        return await socket.run(code, **{**form, "stop_on_error": False, **more})

    # max_code_bytes counts bytes of code and of user expressions.
    for filler in ("x", "é"):
        code = "#" + filler * (999 // len(filler.encode()))
        code += "#" * (1000 - len(code.encode()))
        assert reply_of(await run(code))["status"] == "ok"
        check_reply(await run(code + "#"), "PolicyDenied", "max_code_bytes")
    expressions = {"a": "1" + " " * 498}
    assert reply_of(await run("#" * 501, user_expressions=expressions))["status"] == "ok"
    check_reply(await run("#" * 502, user_expressions=expressions), "PolicyDenied", "max_code_bytes")
    # max_execution_seconds: a timeout in the request cannot exceed it.
    assert reply_of(await run("import time; time.sleep(0.5)"))["status"] == "ok"
    for more in ({}, {"timeout_seconds": 60}):
        assert reply_of(await run(SLEEP, **more))["ename"] == "TimeoutError"
    # max_output_bytes.
    seen = await run("print('x' * 9_000)")
    assert texts_of(seen) == "x" * 9_000 + "\n"
    for code in ("print('x' * 11_000)", "for _ in range(40): print('x' * 300, flush=True)"):
        text = texts_of(await run(code))
        assert text.count("x") <= 10_000 and "left out" in text
    seen = await run("display({'text/plain': 'x' * 11_000}, raw=True)")
    assert "left out" in texts_of(seen) and "display_data" not in {message.msg_type for message in seen}
    values = reply_of(await run("1", user_expressions={"a": "'x' * 9_000"}))["user_expressions"]
    assert values["a"]["data"]["text/plain"].count("x") == 9_000
    values = reply_of(await run("1", user_expressions={"a": "'x' * 11_000"}))["user_expressions"]
    assert len(json.dumps(values)) <= 10_000 and "max_output_bytes" in values["a"]["evalue"]
    (session,) = bearer.call("GET", "/sessions").json()["sessions"]
    (*_, last) = bearer.call("GET", f"/sessions/{session['id']}/executions").json()["executions"]
    assert last["metadata"] == {"user_expressions": {"a": "'x' * 11_000"}}
    # Replies to other requests.
    for size, expected in ((9_000, "ok"), (11_000, "error")):
        await run(f"def told(): pass\ntold.__doc__ = 'x' * {size}")
        content = {"code": "told", "cursor_pos": 4, "detail_level": 0}
        reply = reply_of(await socket.until_idle(await socket.send("shell", "inspect_request", content)))
        assert reply["status"] == expected and len(json.dumps(reply)) <= 10_000


async def send_all(socket: KernelSocket, code: str, forms: Iterable[Mapping[str, Any]]) -> list[str]:
    return [await socket.send("shell", "execute_request", {"code": code, **form}) for form in forms]


async def ends_of(socket: KernelSocket, sent: Iterable[str]) -> dict[str, list[Any]]:
    """Return the messages about requests, by their ids, until each has had its reply and the idle status."""
    seen: dict[str, list[Any]] = {each: [] for each in sent}
    left = set(seen)
    while left:
        message = await socket.receive()
        if message.parent_id not in seen:
            continue
        seen[message.parent_id].append(message)
        if message.msg_type == "status" and message.content["execution_state"] == "idle":
            left.discard(message.parent_id)
    return seen


async def test_max_open_executions_of_fifty_at_once(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]
) -> None:
    bearer = token(max_open_executions=5)
    sockets = [(await start(http, host, bearer))[1] for _ in range(2)]
    replies: asyncio.Queue[Any] = asyncio.Queue()

    async def collect(socket: KernelSocket) -> None:
        while True:
            message = await socket.receive()
            if message.msg_type == "execute_reply":
                replies.put_nowait(message)

    tasks = [asyncio.create_task(collect(socket)) for socket in sockets]
    forms = [FORMS[number % len(FORMS)] for number in range(AT_ONCE // 2)]
    await asyncio.gather(*(send_all(socket, SLEEP, forms) for socket in sockets))
    for _ in range(AT_ONCE - 5):
        reply = (await asyncio.wait_for(replies.get(), 20)).content
        assert reply["ename"] == "PolicyLimitReached" and "max_open_executions" in reply["evalue"]
    for task in tasks:
        task.cancel()
    sessions = bearer.call("GET", "/sessions").json()["sessions"]
    found = [bearer.call("GET", f"/sessions/{each['id']}/executions").json()["executions"] for each in sessions]
    assert sorted(each["state"] in ("queued", "running") for each in [*found[0], *found[1]]) == [True] * 5


async def test_max_executions_per_minute_of_fifty_at_once(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]
) -> None:
    bearer = token(max_executions_per_minute=8)
    _, socket = await start(http, host, bearer)
    forms = [FORMS[number % len(FORMS)] for number in range(AT_ONCE)]
    sent = await send_all(socket, "1", forms)
    seen = await ends_of(socket, sent)
    statuses = Counter(reply_of(seen[each])["status"] for each in sent)
    assert statuses == {"ok": 8, "error": AT_ONCE - 8}
    for each in sent:
        if reply_of(seen[each])["status"] == "error":
            check_reply(seen[each], "PolicyLimitReached", "max_executions_per_minute")
    (session,) = bearer.call("GET", "/sessions").json()["sessions"]
    assert len(bearer.call("GET", f"/sessions/{session['id']}/executions").json()["executions"]) == 8


@only_in_full
async def test_max_stored_bytes(http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]) -> None:
    bearer = token(max_stored_bytes=1_000_000)
    (_, flooding), (_, other) = [await start(http, host, bearer) for _ in range(2)]
    code = "import time\nfor _ in range(40): print('x' * 100_000, flush=True); time.sleep(0.01)\ntime.sleep(60)"
    flood = await flooding.send("shell", "execute_request", {"code": code})
    for _ in range(1000):
        seen = await other.run("1", stop_on_error=False)
        if reply_of(seen)["status"] == "error":
            break
    check_reply(seen, "PolicyLimitReached", "max_stored_bytes")
    await flooding.send("control", "interrupt_request", {})
    assert reply_of(await flooding.until_idle(flood))["ename"] == "KeyboardInterrupt"
    assert reply_of(await other.run("1"))["status"] == "ok"


@only_in_full
async def test_max_queue_seconds(http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]) -> None:
    _, socket = await start(http, host, token(max_queue_seconds=1))
    sent = [
        await socket.send("shell", "execute_request", {"code": code, "stop_on_error": False})
        for code in ("import time; time.sleep(0.5)", "time.sleep(1.5)", "print('late')")
    ]
    seen = await ends_of(socket, sent)
    assert [reply_of(seen[each])["status"] for each in sent] == ["ok", "ok", "error"]
    check_reply(seen[sent[2]], "TimeoutError", "max_queue_seconds")


@only_in_full
async def test_approval_policy_holds_code_and_refuses_code_running_requests(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]
) -> None:
    bearer = token("asks")
    _, socket = await start(http, host, bearer)
    held = await send_all(socket, "print('held')", FORMS)
    for msg_type, content in QUESTIONS:
        reply = reply_of(await socket.until_idle(await socket.send("shell", msg_type, content)))
        refused = msg_type in ("complete_request", "inspect_request")  # they can run code
        assert (reply["status"] == "error") == refused, (msg_type, reply)
    for msg_type in ("comm_open", "comm_msg", "comm_close"):
        assert "allow_comms" in await refusal_of(socket, "shell", msg_type, COMM)
    waiting = owner_of(host).call("GET", "/approvals").json()["executions"]
    assert [each["code"] for each in waiting] == ["print('held')"] * len(held)


# --- messages beside code ---

COMM = {"comm_id": "c", "target_name": "t", "data": {}}
QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("kernel_info_request", {}),
    ("complete_request", {"code": "pri", "cursor_pos": 3}),
    ("inspect_request", {"code": "print", "cursor_pos": 3, "detail_level": 0}),
    ("is_complete_request", {"code": "1"}),
    ("history_request", {"hist_access_type": "tail", "n": 3}),
    ("comm_info_request", {}),
]


async def refusal_of(socket: KernelSocket, channel: str, msg_type: str, content: Mapping[str, Any]) -> str:
    """Return the note with the reason why a message without a reply was refused."""
    sent = await socket.send(channel, msg_type, content)
    return texts_of(await socket.until_idle(sent))


@only_in_full
async def test_token_at_its_limits_may_use_all_uncounted_routes_and_messages(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]
) -> None:
    bearer = token(max_executions_per_minute=1, max_sessions=1, max_code_bytes=10, max_streams=1)
    kernel, socket = await start(http, host, bearer)
    await socket.run("a = 1")
    check_reply(await socket.run("1"), "PolicyLimitReached", "max_executions_per_minute")
    for msg_type, content in QUESTIONS:
        reply = reply_of(await socket.until_idle(await socket.send("shell", msg_type, content)))
        assert reply["status"] in ("ok", "complete"), (msg_type, reply)
    for msg_type, content in (("kernel_info_request", {}), ("interrupt_request", {})):
        assert reply_of(await socket.until_idle(await socket.send("control", msg_type, content)))["status"] == "ok"
    for path in ("", "/", "/status", "/me", "/kernelspecs", "/kernelspecs/python3", "/kernels", "/sessions"):
        assert (await call(http, bearer, "GET", path))[0] == 200
    for method, path in (("GET", ""), ("POST", "/restart"), ("POST", "/interrupt")):
        assert (await call(http, bearer, method, f"/kernels/{kernel['id']}{path}"))[0] in (200, 204)
    restart = await socket.send("control", "shutdown_request", {"restart": True})
    assert reply_of(await socket.until_idle(restart))["status"] == "ok"
    shutdown = await socket.send("shell", "shutdown_request", {"restart": False})
    assert reply_of(await socket.until_idle(shutdown))["status"] == "ok"
    assert (await create(http, bearer, "/sessions"))[0] == 201


async def test_allow_comms(http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]) -> None:
    target = "get_ipython().kernel.comm_manager.register_target('t', lambda comm, message: print('opened'))"
    for bearer, allowed in ((token(), False), (token("trusted"), True)):
        _, socket = await start(http, host, bearer)
        assert reply_of(await socket.run(target))["status"] == "ok"
        if not allowed:
            for msg_type in ("comm_open", "comm_msg", "comm_close"):
                assert "allow_comms" in await refusal_of(socket, "shell", msg_type, COMM)
        await socket.send("shell", "comm_open", COMM)
        info = await socket.until_idle(await socket.send("shell", "comm_info_request", {}))
        assert reply_of(info)["comms"] == ({"c": {"target_name": "t"}} if allowed else {})


@only_in_full
async def test_frame_beyond_size_limit_closes_connection(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]
) -> None:
    bearer = token()
    kernel, socket = await start(http, host, bearer)
    assert reply_of(await socket.run("#" * MAX_CODE_BYTES))["status"] == "ok"
    check_reply(await socket.run("#" * (MAX_CODE_BYTES + 1)), "PayloadTooLarge", f"{MAX_CODE_BYTES} bytes")
    with suppress(ConnectionError, aiohttp.ClientError):  # the server may end it before it is sent
        await socket.send("shell", "execute_request", {"code": "#" * (4 * MAX_CODE_BYTES + 64 * 1024)})
    ended = await socket.socket.receive(timeout=20)
    assert ended.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    assert reply_of(await (await connect_again(http, host, bearer, kernel)).run("1"))["status"] == "ok"


@only_in_full
async def test_pending_requests_beyond_limit_fail_with_queue_full(
    http: aiohttp.ClientSession, host: Host, token: Callable[..., Bearer]
) -> None:
    _, socket = await start(http, host, token())
    busy = await socket.send("shell", "execute_request", {"code": "import time; time.sleep(1)"})
    content = {"code": "1"}
    sent = [await socket.send("shell", "is_complete_request", content) for _ in range(MAX_PENDING + AT_ONCE)]
    seen = await ends_of(socket, [busy, *sent])
    replies = Counter(reply_of(seen[each]).get("ename", "") for each in sent)
    assert replies == {"": MAX_PENDING, "QueueFull": AT_ONCE}
