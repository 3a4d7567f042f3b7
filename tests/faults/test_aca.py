"""F20: a session pool whose answers are refused, slow, cut or garbled; in full by `python -m tests.full faults`."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme

from jupyter_exec_ext import ACAClient, AsyncACAClient, JupyterConnectionInfo
from jupyter_exec_ext.errors import (
    Conflict,
    ConnectionFailed,
    ConnectionLost,
    ExecError,
    Forbidden,
    InternalError,
    LimitReached,
    NotFound,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)
from tests.aca.client.pool_faults import FAULTS, FaultProxy
from tests.aca.client.pool_service import POOL, ACAService, Seen, Tokens
from tests.support.full import SCALE
from tests.support.tcp_proxies import Proxy, hang_up

TIMES: dict[str, Any] = {
    "max_wait_seconds": 1.0,
    "request_timeout_seconds": 1.0,
    "transfer_timeout_seconds": 1.0,
    "grace_seconds": 0.5,
}
RUN_SECONDS = 1
# How long a call may take in all, and what a busy machine adds.
DEADLINE_SECONDS = 1.0 + RUN_SECONDS + 0.5
SLACK_SECONDS = 2.5
MAY_RAISE: dict[str, tuple[type[ExecError], ...]] = {
    "401": (Unauthenticated,),
    "403": (Forbidden,),
    "404": (NotFound,),
    "409": (Conflict,),
    "429": (LimitReached,),
    "5xx": (InternalError, Unavailable),
    "slow": (ConnectionLost,),
    "cut": (ConnectionLost,),
    "garbled": (UnexpectedAnswer,),
}
Outcome = tuple[str, "ExecError | None", float]


def timed(call: Callable[[], Any], name: str) -> Outcome:
    began = time.monotonic()
    try:
        call()
    except ExecError as error:
        return name, error, time.monotonic() - began
    return name, None, time.monotonic() - began


async def timed_async(call: Callable[[], Awaitable[Any]], name: str) -> Outcome:
    began = time.monotonic()
    try:
        await call()
    except ExecError as error:
        return name, error, time.monotonic() - began
    return name, None, time.monotonic() - began


def calls(client: Any, identifier: str) -> list[tuple[str, Callable[[], Any]]]:
    """Return what is asked of one session: a run, and of every fifth all the rest."""
    run = [(identifier, lambda: client.run(identifier, identifier, timeout_seconds=RUN_SECONDS))]
    if not identifier.endswith("0"):
        return run
    other = f"{identifier}-f"
    return [
        *run,
        (f"{other}1", lambda: client.upload(f"{other}1", "a.txt", b"x" * 10_000)),
        (f"{other}2", lambda: client.files(f"{other}2")),
        (f"{other}3", lambda: client.session(f"{other}3")),
        (f"{other}4", lambda: client.delete_session(f"{other}4")),
        (f"{other}5", lambda: client.download(f"{other}5", "a.txt")),
        (f"{other}6", lambda: client.delete_file(f"{other}6", "a.txt")),
    ]


def seed(service: ACAService, names: list[str]) -> None:
    """Give sessions what is asked for later."""
    with ACAClient(service.endpoint, Tokens(service)) as client, ThreadPoolExecutor(10) as pool:
        wanted = [name for name in names if "-f" in name]
        list(pool.map(lambda name: client.upload(name, "a.txt", b"y" * 10_000), wanted))


def all_calls(client: Any, rng: random.Random) -> list[tuple[str, Callable[[], Any]]]:
    names = [f"{fault}-{rng.choice((1, 1, 2, 9))}-{n:03}" for fault in FAULTS for n in range(5 * SCALE)]
    rng.shuffle(names)
    return [call for name in names for call in calls(client, name)]


@pytest.mark.timeout(60 + 60 * SCALE)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_faulty_network_hangs_no_call_and_runs_no_code_twice(kind: str) -> None:
    """Nine classes of faults, 50 runs each: no call beyond its time, no code twice, each error of its own class."""
    rng = random.Random(20)
    with ACAService() as service, FaultProxy(service, rng) as proxy:
        outcomes: list[Outcome] = []
        if kind == "sync":
            with ACAClient(proxy.endpoint, Tokens(service), **TIMES) as client, ThreadPoolExecutor(10) as pool:
                todo = all_calls(client, rng)
                seed(service, [name for name, _ in todo])
                outcomes = list(pool.map(lambda call: timed(call[1], call[0]), todo))
        else:

            async def work() -> list[Outcome]:
                async with AsyncACAClient(proxy.endpoint, Tokens(service), **TIMES) as client:
                    gate = asyncio.Semaphore(10)

                    async def one(name: str, call: Callable[[], Awaitable[Any]]) -> Outcome:
                        async with gate:
                            return await timed_async(call, name)

                    todo = all_calls(client, rng)
                    await asyncio.to_thread(seed, service, [name for name, _ in todo])
                    return await asyncio.gather(*(one(name, call) for name, call in todo))

            outcomes = asyncio.run(work())
        struck = dict(proxy.struck)
        markers = dict(service.markers)
    runs = [outcome for outcome in outcomes if "-f" not in outcome[0]]
    assert len(runs) == len(FAULTS) * 5 * SCALE
    assert set(struck) == set(FAULTS)
    assert max(markers.values()) == 1, "code ran twice"
    late = [(name, seconds) for name, _, seconds in outcomes if seconds > DEADLINE_SECONDS + SLACK_SECONDS]
    assert late == []
    told: Counter[str] = Counter()
    for name, error, _ in outcomes:
        fault, times, _ = name.split("-", 2)
        assert not (fault == "401" and times == "1" and error), "one refused token is no failure"
        told[f"{fault} {'ok' if error is None else type(error).__name__}"] += 1
        if error is None:
            assert "-f" in name or markers[name] == 1, name
        else:
            assert type(error) in MAY_RAISE[fault], (name, error)
        if isinstance(error, (Forbidden, NotFound, Conflict, LimitReached, ConnectionFailed)):
            assert name not in markers, name
    slowest = max(seconds for _, _, seconds in outcomes)
    print(f"F20 {kind}: {len(runs)} runs and {len(outcomes) - len(runs)} other calls, the slowest {slowest:.1f} s")
    print(f"  {sum(markers.values())} runs carried out, none twice; faults {struck}; {dict(sorted(told.items()))}")


class GarblingProxy(Proxy):
    """Forwards to a server; what the server says after `garble` is set arrives damaged."""

    def __init__(self, port: int) -> None:
        super().__init__(JupyterConnectionInfo("127.0.0.1", False, port))
        self.garble = threading.Event()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            self._start(self._pump, client, server, False)
            self._pump(server, client, True)
            hang_up(server)

    def _pump(self, source: socket.socket, target: socket.socket, back: bool) -> None:
        try:
            while data := source.recv(2**16):
                damaged = back and self.garble.is_set()
                target.sendall(bytes(byte ^ 0x55 for byte in data) if damaged else data)
        except OSError:
            pass
        hang_up(target)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_answer_that_tls_cannot_read_does_not_count_as_nothing_sent(kind: str, tmp_path: Path) -> None:
    """A TLS error is not always one of the handshake's: the code has run by then."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with ACAService(context) as service, GarblingProxy(service.server_port) as proxy:

        def garble(seen: Seen) -> None:
            proxy.garble.set()

        service.overrides.append(garble)
        endpoint = f"https://127.0.0.1:{proxy.info.port}{POOL}"
        options: dict[str, Any] = {"verify": str(tmp_path / "ca.pem"), "max_wait_seconds": 2}

        def run() -> None:
            with ACAClient(endpoint, Tokens(service), **options) as client:
                client.run("user-1", "once")

        async def run_async() -> None:
            async with AsyncACAClient(endpoint, Tokens(service), **options) as client:
                await client.run("user-1", "once")

        with pytest.raises(ConnectionLost, match="may have run"):
            run() if kind == "sync" else asyncio.run(run_async())
        assert service.markers == {"once": 1}
