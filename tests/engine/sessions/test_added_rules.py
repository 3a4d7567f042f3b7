"""Rules that are added for one session: they are on record before they apply, also while there is no proxy."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from jupyter_exec_ext.engine.concurrency import BackgroundTasks
from jupyter_exec_ext.engine.sessions.session_networks import RuledNetwork
from jupyter_exec_ext.errors import Conflict, InvalidRequest
from jupyter_exec_ext.isolation.network.access_decision import NetworkAccess, NetworkSecret, RuleSet
from jupyter_exec_ext.isolation.network.control_messages import MessageTooLong
from jupyter_exec_ext.isolation.network.proxy_supervisor import ProxyUnavailable
from jupyter_exec_ext.isolation.network.rules import parse_rules


class FakeProxy:
    """A proxy that keeps what it is told; it can be down, or full."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.opened: asyncio.Queue[NetworkAccess] = asyncio.Queue()
        self.is_down = self.is_full = False

    async def certificate(self) -> str:
        return ""

    def check(self, access: NetworkAccess) -> None:
        if self.is_full:
            raise MessageTooLong("the network rules of the session's policies are too many; use fewer rules")

    async def open(
        self, session_id: str, listener: socket.socket, access: NetworkAccess, uploaded_bytes: int = 0
    ) -> None:
        self.opened.put_nowait(access)

    async def change(self, session_id: str, access: NetworkAccess) -> None:
        self.events.append("change")
        if self.is_down:
            raise ProxyUnavailable("the egress proxy does not start")

    async def close(self, session_id: str) -> None:
        self.events.append("close")

    async def stop(self) -> None:
        self.events.append("stop")


@pytest.fixture
def proxy() -> FakeProxy:
    return FakeProxy()


@pytest.fixture
async def network(proxy: FakeProxy) -> RuledNetwork:
    log = logging.getLogger(__name__)
    access = NetworkAccess((RuleSet("p", parse_rules(("a.example",), {})),), None)
    return RuledNetwork("ses_1", "token:1", access, proxy, BackgroundTasks(), log)


async def test_added_rule_is_on_record_before_the_proxy_has_it(network: RuledNetwork, proxy: FakeProxy) -> None:
    await network.add("b.example", lambda: proxy.events.append("record"))
    assert proxy.events == ["record", "change"]


async def test_rule_that_is_added_while_there_is_no_proxy_holds_later(network: RuledNetwork, proxy: FakeProxy) -> None:
    proxy.is_down = True
    await network.add("b.example", lambda: proxy.events.append("record"))
    assert proxy.events == ["record", "change"]
    listener, other = socket.socketpair()
    with listener, other:
        network.serve(listener)
        opened = await asyncio.wait_for(proxy.opened.get(), 30)
    assert [rule.text for rule in opened.rule_sets[0].rules] == ["a.example", "b.example"]


async def test_refused_rule_changes_nothing(network: RuledNetwork, proxy: FakeProxy) -> None:
    before = network.access
    with pytest.raises(InvalidRequest):
        await network.add("no rule", lambda: proxy.events.append("record"))
    proxy.is_full = True
    with pytest.raises(Conflict, match="use fewer rules"):
        await network.add("b.example", lambda: proxy.events.append("record"))
    proxy.is_full = False
    for number in range(100):
        await network.add(f"h{number}.example", lambda: None)
    with pytest.raises(Conflict, match="100 rules"):
        await network.add("b.example", lambda: proxy.events.append("record"))
    assert "record" not in proxy.events
    assert len(network.access.rule_sets[0].rules) == len(before.rule_sets[0].rules) + 100


async def test_secrets_that_do_not_fit_are_taken_away_and_no_old_value_stays(
    network: RuledNetwork, proxy: FakeProxy, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = (
        NetworkSecret("A", "p" * 20, ("a.example",), "X-Key", "{}", value) for value in ("old-value", "new-value")
    )
    await network.set_secrets((old,))
    assert [each.value for each in network.access.secrets] == ["old-value"]
    proxy.is_full = True
    await network.set_secrets((new,))
    assert network.access.secrets == ()
    assert "session ses_1 has no secrets any more" in caplog.text and "value" not in caplog.text
    assert proxy.events == ["change", "change"]
