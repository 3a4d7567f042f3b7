"""Faults with figures. `python -m tests.full faults` runs them in full; by default a tenth of each runs."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.models import ExecutionState
from tests.support.full import SCALE
from tests.support.hosts import Host
from tests.support.session_processes import kernel_of


@pytest.fixture
def host(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


@pytest.mark.timeout(120 * SCALE)
def test_kernels_killed_at_random_points_lose_and_double_nothing(host: Host) -> None:
    """100 runs with 20 kills: 100 terminal states, every run at most once, and the next run on a session works.

    Each run counts itself in a file before and after, so what really ran is known without asking us.
    """
    runs, kills, sessions = 100 * SCALE, 20 * SCALE, 4
    rng = random.Random(7)
    code = "import os, time\nwith open('counter', 'a') as f: f.write('{n}\\n')\ntime.sleep({s})\nprint('end {n}')"
    victims = set(rng.sample(range(runs), kills))
    death_noticed: list[float] = []
    with ExecClient(host.info) as client:
        opened = [client.session() for _ in range(sessions)]
        seen_pids: dict[str, int] = {}

        def run(number: int) -> Any:
            session = opened[number % sessions]
            text = code.format(n=number, s=0.05 if number in victims else 0.01)
            if number not in victims:
                return session.run(text)
            pid = kernel_of(session)
            seen_pids[str(number)] = pid
            handle = session.submit(text)
            time.sleep(rng.uniform(0, 0.06))
            killed_at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            record = handle.result()
            death_noticed.append(time.monotonic() - killed_at)
            return record

        with ThreadPoolExecutor(1) as pool:
            records = list(pool.map(run, range(runs)))
        again = [session.run("print('fine')").stdout for session in opened]
        ran = "".join(session.run("print(open('counter').read())").stdout for session in opened).split()
        for session in opened:
            session.close()
    states = [record.state for record in records]
    assert all(state.finished for state in states)
    assert set(states) <= {ExecutionState.OK, ExecutionState.KERNEL_DIED}
    assert len(ran) == len(set(ran))
    for number, record in enumerate(records):
        if record.state is ExecutionState.OK:
            assert record.stdout == f"end {number}\n"
            assert str(number) in ran
        else:
            assert number in victims
            assert record.kernel_signal == "SIGKILL"
            assert record.session_state_preserved is False
    assert again == ["fine\n"] * sessions
    assert max(death_noticed) < 1.0
    died = states.count(ExecutionState.KERNEL_DIED)
    assert died >= kills // 3
    slowest = max(death_noticed) * 1000
    print(f"F1: {kills} kills in {runs} runs, {died} of them cut, noticed within {slowest:.0f} ms")


def read_slowly(host: Host, execution_id: str, pause_seconds: float) -> list[dict[str, Any]]:
    """Open an event stream, read nothing for a while, then read it to its end."""
    assert host.info.port is not None
    with socket.create_connection((host.info.host, host.info.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        request = f"GET {host.info.base_url}exec/v1/executions/{execution_id}/events HTTP/1.1\r\nHost: localhost\r\n"
        headers = f"Authorization: token {host.info.token}\r\nAccept: application/x-ndjson\r\nConnection: close\r\n\r\n"
        connection.sendall((request + headers).encode())
        time.sleep(pause_seconds)
        raw = b""
        while data := connection.recv(2**16):
            raw += data
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    return [json.loads(line) for line in unchunked(body).splitlines() if line.strip()]


def unchunked(body: bytes) -> bytes:
    text = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        text += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return text


@pytest.mark.timeout(120)
def test_a_reader_that_pauses_loses_nothing_and_holds_up_nobody(host: Host) -> None:
    """20,000 messages while a reader sleeps 12 s: 0 lost, order kept, the end seen; others work on meanwhile."""
    messages, pause = 20_000, 12.0
    with ExecClient(host.info) as client, client.session() as session, client.session() as other:
        handle = session.submit(f"import sys\nfor i in range({messages}): print(i, flush=True)")
        events: list[dict[str, Any]] = []
        reader = threading.Thread(target=lambda: events.extend(read_slowly(host, handle.id, pause)))
        reader.start()
        record = handle.result()
        waits = []
        while reader.is_alive():
            began = time.monotonic()
            assert other.run("1").ok
            waits.append(time.monotonic() - began)
        reader.join()
    expected = "".join(f"{i}\n" for i in range(messages))
    assert record.stdout == expected
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert "".join(event["text"] for event in events if event["type"] == "stream") == expected
    assert events[-1]["type"] == "end"
    assert sorted(waits)[len(waits) // 2] < 0.25
    print(f"F6: {messages} messages to a reader that paused {pause:g} s, 0 lost")
