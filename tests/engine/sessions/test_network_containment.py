"""Attempts of hostile code to send data past network rules, in a real sandbox with the real proxy."""

from __future__ import annotations

import inspect
import json
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.models import ExecutionRequest, Session, SessionRequest, TokenRequest
from tests.containment import network_probes
from tests.containment.network_probes import ATTEMPTS
from tests.containment.network_world import NetworkWorld
from tests.support.full import IS_FULL
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("sandbox"), pytest.mark.timeout(180)]
_WAIT_SECONDS = 120.0
_MAX_UPLOAD_BYTES = 20_000
_UPLOADED = b"u" * 1000
_WEBSOCKET = """
import socket
with socket.create_connection(("127.0.0.1", 3128), 10) as connection:
    lines = ["GET http://here.test:{port}/ HTTP/1.1", "Host: here.test:{port}", "Connection: Upgrade"]
    lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""]
    connection.sendall("\\r\\n".join(lines).encode())
    head = connection.recv(4096)
    connection.sendall(b"a frame")
    print(head.split()[1].decode(), connection.recv(4096).decode())
"""
_SECOND_HOP = """
import socket
with socket.create_connection(("127.0.0.1", 3128), 10) as connection:
    for message in ({first!r}, {second!r}, b"through two proxies"):
        connection.sendall(message)
        answer = connection.recv(4096)
    print(answer.split()[1].decode())
"""
_FETCH = "import urllib.request; print(urllib.request.urlopen({url!r}, timeout=10).read().decode())"


@pytest.fixture
def world() -> Iterator[NetworkWorld]:
    with NetworkWorld() as world:
        yield world


class _Attacker:
    """Bearer of a token whose sessions have network rules."""

    def __init__(self, engine: ExecEngine, caller: Caller, session: Session) -> None:
        self.engine, self._caller, self.session = engine, caller, session

    async def run(self, code: str) -> str:
        """Run code in the session, and return what it prints."""
        handle = await self.engine.execute(self._caller, self.session.id, ExecutionRequest(code))
        ended = await self.engine.get_execution(self._caller, handle.record.id, _WAIT_SECONDS)
        assert ended.error is None, ended.error
        return ended.stdout.strip()

    async def restart(self) -> None:
        """Restart the session's kernel, as the bearer may."""
        await self.engine.restart_session(self._caller, self.session.id)


async def _begin(make_engine: Callable[..., ExecEngine], world: NetworkWorld, *more: str, **policy: Any) -> _Attacker:
    ports = world.facts
    rules = [f"here.test:{ports['allowed']}", f"GET http://here.test:{ports['paths']}/v1/*", f"six.test:{ports['six']}"]
    rules += ["web.test", f"https://here.test:{ports['ended']}/v1/*"]
    # Wide rules do not open private addresses, and a rule for a name does not open the one that it leads to.
    rules += [f"0.0.0.0/0:{ports['refused']}", f"[::]/0:{ports['refused']}", f"localhost:{ports['refused']}"]
    rules += more
    hosts = {"here.test": ["127.0.0.1"], "refused.test": ["127.0.0.1"], "six.test": ["::1"]}
    hosts["web.test"] = [ports.get("web", "127.0.0.1")]
    policies = {"net": {"isolation": "sandbox", "network": rules, **policy}}
    engine = make_engine(policies=policies, network_hosts=hosts)
    me = owner("me", {"username": "me"})
    issued = await engine.tokens.create(me, TokenRequest("agent", "net", scopes=sorted(ALL_SCOPES)))
    caller = engine.tokens.authenticate(issued.text, "127.0.0.1")
    return _Attacker(engine, caller, await engine.create_session(caller, SessionRequest()))


def _proxy_pid() -> int:
    """Return the process of this test's proxy."""
    children = psutil.Process().children()
    return next(child.pid for child in children if any("proxy_process" in part for part in child.cmdline()))


async def test_no_attempt_gets_data_past_the_rules(make_engine: Callable[..., ExecEngine], world: NetworkWorld) -> None:
    attacker = await _begin(make_engine, world)
    url = f"http://here.test:{world.facts['allowed']}/"
    assert await attacker.run(_FETCH.format(url=url)) == "ok"
    # The proxy slows down many refusals, so a commit leaves out most notations of hosts in tunnels.
    names = [name for name in ATTEMPTS if IS_FULL or not name.startswith("tunnel_to_")]
    marks = network_probes.make_marks(names, world.facts)
    facts = {**world.facts, "proxy": ("127.0.0.1", 3128), "proxy_pid": _proxy_pid()}
    load = network_probes.LOAD.format(source=inspect.getsource(network_probes))
    found = json.loads(await attacker.run(f"{load}print(json.dumps(probes.run({facts!r}, {marks!r})))"))
    last = {"last": f"mark-{secrets.token_hex(8)}"}
    assert await attacker.run(_FETCH.format(url=url + last["last"])) == "ok"
    assert world.wait_for(last) == {"last"}  # so nothing is on its way any more
    assert found == {"got": [], "mistakes": []}
    assert world.arrived(marks) == set()
    assert len(marks) >= 60
    print(f"{len(marks)} attempts, none of them went through")


async def test_upload_limit_holds_over_connections_a_killed_proxy_and_a_restarted_kernel(
    make_engine: Callable[..., ExecEngine], world: NetworkWorld
) -> None:
    attacker = await _begin(make_engine, world, max_upload_bytes=_MAX_UPLOAD_BYTES)
    load = network_probes.LOAD.format(source=inspect.getsource(network_probes))
    upload = f"{load}probes.upload({ {**world.facts, 'proxy': ('127.0.0.1', 3128)}!r})"
    await attacker.run(upload)
    sent = world.count(_UPLOADED)
    assert 0 < sent * len(_UPLOADED) <= _MAX_UPLOAD_BYTES
    os.kill(_proxy_pid(), signal.SIGKILL)
    await attacker.run(upload)
    assert world.count(_UPLOADED) == sent
    await attacker.restart()
    await attacker.run(upload)
    assert world.count(_UPLOADED) == sent


async def test_websocket_and_a_name_with_only_an_ipv6_address_work_from_a_sandbox(
    make_engine: Callable[..., ExecEngine], world: NetworkWorld
) -> None:
    attacker = await _begin(make_engine, world)
    assert await attacker.run(_WEBSOCKET.format(port=world.facts["allowed"])) == "101 a frame"
    assert await attacker.run(_FETCH.format(url=f"http://six.test:{world.facts['six']}/")) == "ok"


async def test_proxy_behind_an_allowed_host_is_seen_in_the_record_of_that_host_only(
    make_engine: Callable[..., ExecEngine], world: NetworkWorld
) -> None:
    # The page of the rules says so: no proxy can see what an allowed host does with what it gets.
    hop, refused = world.start_open_proxy()[1], world.facts["refused"]
    attacker = await _begin(make_engine, world, f"here.test:{hop}")
    first, second = (
        f"CONNECT {each} HTTP/1.1\r\nHost: {each}\r\n\r\n" for each in (f"here.test:{hop}", f"a:{refused}")
    )
    assert await attacker.run(_SECOND_HOP.format(first=first.encode(), second=second.encode())) == "200"

    def requests() -> list[tuple[str, int]]:
        described = attacker.engine.networks.describe(attacker.session.id, "sandbox")
        return [(each.host, each.port) for each in described.requests]

    await until(requests)
    assert requests() == [("here.test", hop)]
