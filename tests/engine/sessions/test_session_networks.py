"""Sessions with network rules: real sandboxes and the real proxy, on the way to a server of this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import Caller, owner
from jupyter_exec_ext.auth.scopes import ALL_SCOPES
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.sessions.session_networks import NETWORK_VARIABLE
from jupyter_exec_ext.errors import Conflict, InvalidRequest, IsolationRequired
from jupyter_exec_ext.isolation.network import certificates_file
from jupyter_exec_ext.models import ExecutionRequest, Session, SessionRequest, TokenRequest

pytestmark = pytest.mark.needs("sandbox")
ME = owner("me", {"username": "me"})
_WAIT_SECONDS = 60.0


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hello) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@dataclass
class Net:
    """An engine with the policy ``net``, and the bearer of a token with it."""

    engine: ExecEngine
    caller: Caller

    async def begin(self) -> Session:
        return await self.engine.create_session(self.caller, SessionRequest())

    async def fetch(self, session: Session, url: str) -> str:
        """Return what curl prints in a session."""
        code = f"import subprocess; print(subprocess.run(['curl', '-sS', '-m', '20', '{url}'], **both).stdout, end='')"
        pipes = "both = {'stdout': -1, 'stderr': -2, 'text': True}"
        handle = await self.engine.execute(self.caller, session.id, ExecutionRequest(f"{pipes}\n{code}"))
        ended = await self.engine.get_execution(self.caller, handle.record.id, _WAIT_SECONDS)
        return ended.stdout


MakeNet = Callable[..., Awaitable[Net]]


@pytest.fixture
def make_net(make_engine: Callable[..., ExecEngine]) -> MakeNet:
    async def make(rules: list[str], **traits: Any) -> Net:
        policies = {"net": {"isolation": "sandbox", "network": rules}}
        hosts = {"here.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}
        engine = make_engine(policies=policies, network_hosts=hosts, **traits)
        issued = await engine.tokens.create(ME, TokenRequest("agent", "net", scopes=sorted(ALL_SCOPES)))
        return Net(engine, engine.tokens.authenticate(issued.text, "127.0.0.1"))

    return make


def _requests(net: Net, session: Session) -> list[tuple[str, str]]:
    return [(each.verdict, each.host) for each in net.engine.networks.describe(session.id, session.isolation).requests]


async def test_session_reaches_what_its_rules_allow_and_nothing_else(make_net: MakeNet, port: int) -> None:
    net = await make_net([f"here.test:{port}"])
    session = await net.begin()
    assert await net.fetch(session, f"http://here.test:{port}/") == "hello\n"
    refusal = await net.fetch(session, f"http://other.test:{port}/")
    assert "policy 'net' does not allow host other.test" in refusal and "ask for the rule" in refusal
    # Not by the proxy: the sandbox has its own loopback interface, and no other one.
    assert (await net.fetch(session, f"http://127.0.0.1:{port}/")).startswith("curl: (7)")
    assert _requests(net, session)[:2] == [("allowed", "here.test"), ("refused", "other.test")]


async def test_restart_and_pooled_kernels_have_the_network_too(make_net: MakeNet, port: int) -> None:
    net = await make_net([f"here.test:{port}"])
    first = await net.begin()
    await net.engine.restart_session(net.caller, first.id)
    assert await net.fetch(first, f"http://here.test:{port}/") == "hello\n"
    second = await net.begin()
    assert await net.fetch(second, f"http://here.test:{port}/") == "hello\n"
    assert _requests(net, first) == _requests(net, second) == [("allowed", "here.test")]


async def test_owner_allows_a_session_one_thing_more(make_net: MakeNet, port: int) -> None:
    net = await make_net([f"here.test:{port}"])
    session, other = await net.begin(), await net.begin()
    url = f"http://other.test:{port}/"
    assert "does not allow" in await net.fetch(session, url)
    await net.engine.networks.allow(ME, session.id, f"other.test:{port}")
    assert await net.fetch(session, url) == "hello\n"
    assert "does not allow" in await net.fetch(other, url)
    described = net.engine.networks.describe(session.id, session.isolation)
    assert (described.network, described.rules, described.added_rules) == (
        "rules",
        [f"here.test:{port}"],
        [f"other.test:{port}"],
    )


async def test_rules_for_one_session_are_bounded_and_have_to_be_valid(make_net: MakeNet) -> None:
    net = await make_net(["here.test"])
    session = await net.begin()
    with pytest.raises(InvalidRequest, match="'rule'"):
        await net.engine.networks.allow(ME, session.id, "not a rule")
    for number in range(100):
        await net.engine.networks.allow(ME, session.id, f"host{number}.test")
    with pytest.raises(Conflict, match="100 rules"):
        await net.engine.networks.allow(ME, session.id, "one-more.test")


async def test_session_without_rules_has_none_and_gets_none(make_net: MakeNet) -> None:
    net = await make_net(["here.test"])
    session = await net.engine.create_session(ME, SessionRequest(isolation="sandbox"))
    assert net.engine.networks.describe(session.id, session.isolation).network == "none"
    with pytest.raises(Conflict, match="no network rules"):
        await net.engine.networks.allow(ME, session.id, "here.test")


async def test_without_a_proxy_no_session_with_rules_begins(make_net: MakeNet) -> None:
    net = await make_net(["here.test"], network_upstream_proxy="no URL")
    with pytest.raises(IsolationRequired, match="network rules cannot hold here"):
        await net.begin()


async def test_rule_with_a_path_ends_tls_with_certificates_that_the_kernel_trusts(make_net: MakeNet) -> None:
    net = await make_net(["GET https://here.test/*"])
    session = await net.begin()
    handle = await net.engine.execute(
        net.caller, session.id, ExecutionRequest("import ssl; len(ssl.create_default_context().get_ca_certs()) > 1")
    )
    ended = await net.engine.get_execution(net.caller, handle.record.id, _WAIT_SECONDS)
    assert ended.text == "True"


async def test_certificates_that_were_removed_are_there_for_the_next_start(make_net: MakeNet) -> None:
    net = await make_net(["GET https://here.test/*"])
    access = await net.engine.networks.access_of(net.caller)
    assert access is not None
    first, second = await asyncio.gather(*(net.engine.networks.environment(access) for _ in range(2)))
    path = Path(first[NETWORK_VARIABLE])
    path.unlink()
    assert await net.engine.networks.environment(access) == first == second
    assert "BEGIN CERTIFICATE" in path.read_text()
    await net.engine.networks.stop()
    assert not path.exists()


async def test_session_whose_certificates_cannot_be_written_does_not_begin(
    make_net: MakeNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(certificates_file, "make_directory", fail)
    net = await make_net(["GET https://here.test/*"])
    with pytest.raises(IsolationRequired, match="network rules cannot hold here: the disk is full"):
        await net.begin()
