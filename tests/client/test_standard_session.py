"""Servers without ``exec/v1``: kernels and connections that are gone without a word, and control while code runs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
import requests
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1
from websocket._abnf import frame_buffer

from jupyter_exec_ext import AsyncExecClient, ExecClient
from jupyter_exec_ext.client.jupyter import kernel_websocket, standard_run
from jupyter_exec_ext.client.sync import websocket
from jupyter_exec_ext.errors import Conflict, SessionEnded
from jupyter_exec_ext.models import EndEvent, Execution, ExecutionState, OutputEvent, StreamEvent
from jupyter_exec_ext.protocol.kernel_messages import PROTOCOL_VERSION, KernelMessage, decode_websocket
from tests.support.hosts import Host
from tests.support.tcp_proxies import SilencingProxy

ENDLESS = "print('go', flush=True)\nwhile True: pass"
STUBBORN = (
    "import time\nprint('go', flush=True)\nwhile True:\n    try: time.sleep(60)\n    except KeyboardInterrupt: pass"
)


@pytest.fixture
def session(host: Host, connect: Any) -> Iterator[Any]:
    session = connect(host.info).standard_session()
    yield session
    session.close()


def when_it_prints(action: Callable[[], object]) -> Callable[[OutputEvent], None]:
    """Return an `on_event` that acts, once, when the code says something."""
    done: list[object] = []

    def on_event(event: OutputEvent) -> None:
        if isinstance(event, StreamEvent) and not done:
            done.append(action())

    return on_event


def in_background(session: Any, code: str) -> Any:
    """Run code in another thread, and return its future once the code says something."""
    pool, speaks = ThreadPoolExecutor(1), threading.Event()
    future = pool.submit(session.run, code, on_event=when_it_prints(speaks.set))
    assert speaks.wait(20)
    pool.shutdown(wait=False)
    return future


def test_websocket_messages_follow_protocol(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Binary, in the v1 sub-protocol; all of one session, each with an id of its own and a date with a time zone."""
    sent: list[str | bytes] = []

    def noting(socket: Any, data: str | bytes) -> Any:
        sent.append(data)
        return send(socket, data)

    send = websocket.send
    monkeypatch.setattr(websocket, "send", noting)
    with ExecClient(host.info) as client, client.standard_session() as session:
        session.run("1")
        session.run("2")
    headers, contents = [], []
    for data in sent:
        assert isinstance(data, bytes)
        channel, parts = deserialize_msg_from_ws_v1(data)
        assert channel == "shell"
        headers.append(json.loads(parts[0]))
        contents.append(json.loads(parts[3]))
    codes = [content["code"] for content in contents if "code" in content]
    assert codes == ["", "1", "2"]  # the first one sets the kernel's defaults
    assert {header["version"] for header in headers} == {PROTOCOL_VERSION}
    assert len({header["session"] for header in headers}) == 1
    assert len({header["msg_id"] for header in headers}) == len(headers)
    assert all(datetime.fromisoformat(header["date"]).tzinfo is not None for header in headers)


# --- what is gone without a word ---


def test_dead_connection_is_detected_and_reported_in_result(
    host: Host, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_run, "_LOOK_SECONDS", 0.5)
    with SilencingProxy(host.info) as proxy, connect(proxy.info).standard_session() as session:
        code = "import time\nprint('heard', flush=True)\ntime.sleep(0.3)\nprint('lost')\ndone = 1"
        began = time.monotonic()
        result = session.run(code, timeout_seconds=30, on_event=when_it_prints(proxy.silence))
        assert time.monotonic() - began < 10
        assert (result.state, result.error.name) == (ExecutionState.ERROR, "ConnectionLost")
        assert (result.stdout, result.truncated.upstream) == ("heard\n", True)
        assert result.session_state_preserved is True
        assert session.run("print(done)").stdout == "1\n"


def is_idle(message: KernelMessage) -> bool:
    return message.content.get("execution_state") == "idle"


@pytest.mark.parametrize("is_seen", [lambda message: False, is_idle], ids=["nothing", "its end alone"])
def test_run_whose_output_is_not_read_whole_says_that_some_may_be_missing(
    session: Any, monkeypatch: pytest.MonkeyPatch, is_seen: Callable[[KernelMessage], bool]
) -> None:
    """Its reply has come, but on the channel for output its beginning has not."""
    session.run("1")
    decode = decode_websocket

    def without_output(data: str | bytes) -> KernelMessage:
        message = decode(data)
        is_lost = message.channel == "iopub" and not is_seen(message)
        return KernelMessage("", "malformed", None, {}) if is_lost else message

    monkeypatch.setattr(standard_run, "_SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(kernel_websocket, "decode_websocket", without_output)
    result = session.run("print('unseen')")
    assert (result.state, result.stdout) == (ExecutionState.OK, "")
    assert result.truncated is not None and result.truncated.upstream


def test_a_silent_connection_is_pinged_and_replaced_while_the_code_runs(
    host: Host, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "_PING_SECONDS", 0.3)
    monkeypatch.setattr(websocket, "_PONG_SECONDS", 0.3)
    monkeypatch.setattr("jupyter_exec_ext.client.aio.websocket._PING_SECONDS", 0.4)
    with SilencingProxy(host.info) as proxy, connect(proxy.info).standard_session() as session:
        code = "import time\nprint('heard', flush=True)\ntime.sleep(4)\nprint('heard again')"
        result = session.run(code, on_event=when_it_prints(proxy.silence))
    assert (result.state, result.stdout) == (ExecutionState.OK, "heard\nheard again\n")
    assert result.truncated.upstream


def delete_kernel(host: Host, kernel_id: str) -> None:
    url = f"{host.info.url}api/kernels/{kernel_id}"
    requests.delete(url, headers=host.info.auth_headers, timeout=30).raise_for_status()


def test_a_kernel_that_the_server_removed_ends_the_session(
    host: Host, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_run, "_LOOK_SECONDS", 0.5)
    remove = when_it_prints(lambda: delete_kernel(host, session.id))
    result = session.run("print('go')\nimport time; time.sleep(60)", on_event=remove)
    assert (result.state, result.session_state_preserved) == (ExecutionState.KERNEL_DIED, False)
    assert "removed" in result.reason or "died" in result.reason
    with pytest.raises(SessionEnded, match="create a new session"):
        session.run("1")


def test_kernel_removed_while_idle_ends_session_at_next_run(
    host: Host, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_websocket, "_TRUSTED_SECONDS", 0.0)
    session = connect(host.info).standard_session()
    session.run("1")
    delete_kernel(host, session.id)
    began = time.monotonic()
    with pytest.raises(SessionEnded):
        session.run("1")
    assert time.monotonic() - began < 20
    session.close()


@pytest.mark.parametrize("call", ["interrupt", "restart"])
def test_control_of_removed_kernel_raises_session_ended(host: Host, session: Any, call: str) -> None:
    delete_kernel(host, session.id)
    with pytest.raises(SessionEnded):
        getattr(session, call)()
    with pytest.raises(SessionEnded):
        session.run("1")


# --- control while code runs ---


def test_restart_by_another_client_ends_endless_code(session: Any) -> None:
    running = in_background(session, ENDLESS)
    began = time.monotonic()
    session.restart()
    result = running.result(10)
    assert time.monotonic() - began < 10
    assert (result.state, result.session_state_preserved) == (ExecutionState.CANCELLED, False)
    assert session.run("print('fresh')").stdout == "fresh\n"


def test_a_restart_from_within_the_loop_over_events_ends_it(session: Any) -> None:
    events = []
    for event in session.stream(ENDLESS):
        if isinstance(event, StreamEvent):
            session.restart()
        events.append(event)
    end = events[-1]
    assert isinstance(end, EndEvent)
    assert end.execution.state is ExecutionState.CANCELLED
    assert session.run("print('fresh')").stdout == "fresh\n"


def test_closing_the_session_ends_what_runs(session: Any) -> None:
    running = in_background(session, ENDLESS)
    session.close()
    assert running.result(10).state is ExecutionState.CANCELLED
    with pytest.raises(SessionEnded, match="closed"):
        session.run("1")


def test_a_run_while_the_same_thread_holds_a_stream_is_refused(host: Host) -> None:
    with ExecClient(host.info) as client, client.standard_session() as session:
        stream: Any = session.stream("1")
        next(stream)
        with pytest.raises(Conflict, match="stream"):
            session.run("2")
        stream.close()
        assert session.run("print(2)").stdout == "2\n"


async def test_a_run_while_the_same_task_holds_a_stream_is_refused(host: Host) -> None:
    async with AsyncExecClient(host.info) as client, await client.standard_session() as session:
        stream: Any = session.stream("1")
        await anext(stream)
        with pytest.raises(Conflict, match="stream"):
            await session.run("2")
        await stream.aclose()
        async for _ in session.stream("print(1)"):
            break
        assert (await session.run("print(2)")).stdout == "2\n"


def test_the_time_limit_counts_from_when_the_kernel_begins(session: Any) -> None:
    for event in session.stream("print('go', flush=True)\nimport time; time.sleep(4)"):
        if isinstance(event, StreamEvent):
            break
    assert session.run("print('ran')", timeout_seconds=3).stdout == "ran\n"


# --- leaving a run ---


def standard(client: Any) -> Any:
    return client.standard_session()


def native(client: Any) -> Any:
    return client.session()


class LeavesError(Exception):
    """An error of the user's own."""


@pytest.mark.parametrize("opened", [standard, native])
@pytest.mark.parametrize("error", [KeyboardInterrupt, LeavesError])
def test_interrupted_run_stops_its_code(host: Host, opened: Any, error: type[BaseException]) -> None:
    def leave() -> None:
        raise error

    with ExecClient(host.info) as client, opened(client) as session:
        code = "ran_on = 0\nimport time\nprint('go', flush=True)\ntime.sleep(20)\nran_on = 1"
        with pytest.raises(error):
            session.run(code, on_event=when_it_prints(leave))
        began = time.monotonic()
        assert session.run("print(ran_on)").stdout == "0\n"
        assert time.monotonic() - began < 10


def test_ctrl_c_within_message_leaves_later_runs_intact(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had been read of the message is lost, and what follows it on the connection would be misread."""
    read, to_come = frame_buffer.recv_strict, [KeyboardInterrupt]

    def cut_short(frames: Any, size: int) -> Any:
        data = read(frames, size)
        if to_come and printed:
            raise to_come.pop()
        return data

    def note(event: OutputEvent) -> None:
        if isinstance(event, StreamEvent):
            printed.append(event)

    printed: list[OutputEvent] = []
    with ExecClient(host.info) as client, client.standard_session() as session:
        monkeypatch.setattr(frame_buffer, "recv_strict", cut_short)
        with pytest.raises(KeyboardInterrupt):
            # Not a flood: a kernel that prints without a pause is not always stopped by one interrupt.
            session.run("print('go', flush=True); print('on', flush=True); import time; time.sleep(60)", on_event=note)
        after = session.run("print(1)")
        assert (after.stdout, after.truncated) == ("1\n", None)


@pytest.mark.parametrize("opened", [standard, native])
async def test_cancelling_a_run_stops_its_code(host: Host, opened: Any) -> None:
    async with AsyncExecClient(host.info) as client, await opened(client) as session:
        run: asyncio.Task[Execution] = asyncio.create_task(session.run("import time; time.sleep(20)"))
        await asyncio.sleep(2.0)  # until the server has named it
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        began = time.monotonic()
        assert (await session.run("print(1)")).stdout == "1\n"
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("opened", [standard, native])
def test_leaving_session_of_lost_server_keeps_original_error(host: Host, opened: Any) -> None:
    with SilencingProxy(host.info) as proxy:
        info = proxy.info
        client = ExecClient(info, max_retries=0)
        session = opened(client)
    with pytest.raises(LeavesError), client, session:
        raise LeavesError
    with ExecClient(host.info) as direct:
        direct.get_session(session.id).close() if opened is native else delete_kernel(host, session.id)
