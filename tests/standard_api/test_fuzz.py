"""Fuzz test of kernels' WebSockets: malformed frames and messages, with a fixed seed."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import aiohttp
import psutil
import pytest

from jupyter_exec_ext.protocol.kernel_messages import new_header
from jupyter_exec_ext.standard_api.incoming_messages import RULES
from tests.support.bearers import mint
from tests.support.full import scaled
from tests.support.hosts import Host
from tests.support.kernel_sockets import V1, connect_again, reply_of, start

# Replacements for parts of a message.
VALUES: list[Any] = [
    *(
        None,
        True,
        -1,
        2**80,
        1e308,
        "",
        "x" * 5000,
        "\x00",
        "\ud800",
        [],
        {},
        [[]],
        {"a": {}},
        "print(1)",
        [None] * 100,
    ),
    {"code": "1"},
    {str(number): number for number in range(100)},
]
TYPES = [*RULES, ("shell", "execute_reply"), ("iopub", "status"), ("control", "debug_request"), ("", "")]
MIB = 1024 * 1024


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def changed(value: Any, chance: random.Random) -> Any:
    """Return a JSON value with one of its parts replaced, or all of it."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        if chance.random() < 0.2:
            return {key: part for key, part in value.items() if key != name}
        return {**value, name: changed(value[name], chance)}
    return nested(chance.choice([10, 5000])) if chance.random() < 0.02 else chance.choice(VALUES)


def message(chance: random.Random) -> dict[str, Any]:
    channel, msg_type = chance.choice(TYPES)
    content = {
        "code": "1",
        "silent": False,
        "user_expressions": {"a": "1"},
        "value": "x",
        "comm_id": "a",
        "restart": True,
    }
    if msg_type == "shutdown_request":  # that works, too
        content = {}
        msg_type = "shutdown"
    whole = {
        "channel": channel,
        "header": new_header(msg_type, "fuzz", f"m{chance.getrandbits(64):x}"),
        "parent_header": {"msg_id": "forged"},
        "metadata": {},
        "content": content,
        "buffers": [],
    }
    return changed(whole, chance) if chance.random() < 0.9 else whole


def frame(chance: random.Random, *, is_v1: bool) -> str | bytes:
    try:
        whole = message(chance)
        text = json.dumps(whole)
    except RecursionError:
        text = "[" * 5000 + "]" * 5000
        whole = {}
    if not is_v1:
        return text[: chance.randrange(len(text) + 1)] if chance.random() < 0.2 else text
    parts = (
        [json.dumps(whole.get(name)).encode() for name in ("header", "parent_header", "metadata", "content")]
        if (isinstance(whole, dict))
        else [b"{}"]
    )
    parts = [b"shell", *parts, *([b"\x00"] if chance.random() < 0.2 else [])]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    if chance.random() < 0.3:
        offsets[chance.randrange(len(offsets))] = chance.choice([0, 1, 2**31, 2**63, 2**64 - 1])
    count = len(offsets) if chance.random() < 0.9 else chance.choice([0, 1, 5, 1025, 2**64 - 1])
    whole_frame = struct.pack(f"<{len(offsets) + 1}Q", count, *offsets) + b"".join(parts)
    return whole_frame[: chance.randrange(len(whole_frame) + 1)] if chance.random() < 0.2 else whole_frame


@pytest.mark.parametrize("name", ["server", "gateway"])
async def test_malformed_frames_cause_no_server_error_and_leave_other_clients_connected(hosts: Any, name: str) -> None:
    host: Host = hosts[name]
    count, chance = scaled(5000, per_commit=250), random.Random(7)
    bearer = mint(host, policy="trusted", max_executions_per_minute=100_000)
    before = psutil.Process(host.process.pid).memory_info().rss
    logged = len(host.log_text())
    async with aiohttp.ClientSession() as http:
        kernel, other = await start(http, host, bearer)
        sockets: dict[bool, aiohttp.ClientWebSocketResponse[bool] | None] = {True: None, False: None}
        sent = 0
        while sent < count:
            is_v1 = chance.random() < 0.5
            socket = sockets[is_v1]
            if socket is None or socket.closed:
                url = f"{host.info.url}exec/jupyter/api/kernels/{kernel['id']}/channels"
                headers = {"Authorization": f"token {bearer.token}"}
                socket = sockets[is_v1] = await http.ws_connect(url, headers=headers, protocols=(V1,) if is_v1 else ())
            malformed = frame(chance, is_v1=is_v1)
            try:
                if isinstance(malformed, str):
                    await socket.send_str(malformed)
                else:
                    await socket.send_bytes(malformed)
            except (aiohttp.ClientError, ConnectionError):
                sockets[is_v1] = None  # it was closed for the frame before
                continue
            sent += 1
            if sent % 50 == 0:  # unread replies would make the server wait
                while socket is not None and not socket.closed:
                    try:
                        received = await socket.receive(timeout=0.05)
                    except TimeoutError:
                        break
                    if received.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR):
                        await socket.close()
        back = await connect_again(http, host, bearer, kernel)
        assert reply_of(await back.run("6 * 7"))["status"] == "ok"
        assert reply_of(await other.run("6 * 7"))["status"] == "ok"
    grown = (psutil.Process(host.process.pid).memory_info().rss - before) / MIB
    print(f"\n{name}: {sent} malformed frames; memory {grown:+.0f} MiB")
    assert grown < 128
    log = host.log_text()[logged:]
    # The log also has kernels' own errors about messages, which are allowed.
    assert "client failed" not in log and "jupyter_exec_ext/standard_api" not in log and "never retrieved" not in log, (
        log[-3000:]
    )
