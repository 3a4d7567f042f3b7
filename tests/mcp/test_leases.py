"""Leases of MCP clients: sessions end with them. `tests/adapters/mcp/test_mcp_ends.py` kills clients that hold one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

from jupyter_exec_ext.auth.caller import Bound, Caller
from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import InvalidRequest, PolicyLimitReached
from jupyter_exec_ext.mcp import caller_time_limits
from jupyter_exec_ext.mcp import leases as leases_module
from jupyter_exec_ext.mcp.leases import LEASE_HEADER, Leases
from tests.mcp.places import Hosts, place_of
from tests.support.waiting import until

NAME = "A-client_of-16ch"
HEADER = f"{NAME}; seconds=45"
OWNER, OTHER = Caller("owner"), Caller("token:abc")


class Sessions:
    """Sessions of an engine that have been renewed and ended."""

    def __init__(self) -> None:
        self.live = ["ses_1", "ses_2"]
        self.renewed: list[str] = []

    def renew(self, session_ids: list[str]) -> list[str]:
        self.renewed = [session_id for session_id in session_ids if session_id in self.live]
        return self.renewed

    async def end(self, session_id: str, reason: str) -> None:
        assert reason == "its MCP client was gone"
        self.live.remove(session_id)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def leases(sessions: Sessions) -> Leases:
    return Leases(cast(ExecEngine, SimpleNamespace(sessions=sessions, mcp_idle_seconds=600.0)))


async def test_released_lease_ends_its_sessions(leases: Leases, sessions: Sessions) -> None:
    lease = leases.renew(OWNER, HEADER)
    lease.sessions.append("ses_1")
    assert leases.renew(OWNER, HEADER) is lease
    assert sessions.renewed == ["ses_1"]
    await leases.release("owner", HEADER)
    assert (sessions.live, lease.is_over, len(leases)) == (["ses_2"], True, 0)
    await leases.release("owner", HEADER)


async def test_renewed_lease_forgets_sessions_that_have_ended(leases: Leases) -> None:
    lease = leases.renew(OWNER, HEADER)
    lease.sessions += ["ses_1", "ses_gone"]
    assert leases.renew(OWNER, HEADER).sessions == ["ses_1"]


async def test_sessions_of_a_lease_are_renewed_within_the_idle_time_of_a_policy(
    leases: Leases, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_time_limits, "_SHORTEST_INTERVAL_SECONDS", 0.0)
    leases.renew(Caller("owner", bounds=(Bound("owner", Policy(max_idle_seconds=0.03)),)), HEADER).sessions += ["ses_1"]
    for _ in range(2):
        sessions.renewed = []
        await until(lambda: sessions.renewed == ["ses_1"])


async def test_lease_of_another_caller_is_another_lease(leases: Leases, sessions: Sessions) -> None:
    lease = leases.renew(OWNER, HEADER)
    lease.sessions.append("ses_1")
    assert leases.renew(OTHER, HEADER) is not lease
    await leases.release("token:abc", HEADER)
    assert "ses_1" in sessions.live


@pytest.mark.parametrize(
    "header", ["", NAME, "short; seconds=45", f"{NAME}; seconds=0", f"{NAME}; seconds=1000", f"{NAME}é; seconds=45"]
)
async def test_lease_of_another_form_is_refused(header: str, leases: Leases) -> None:
    with pytest.raises(InvalidRequest, match="must have the form"):
        leases.renew(OWNER, header)
    assert len(leases) == 0


async def test_lease_beyond_the_limit_is_refused(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "MAX_PER_PRINCIPAL", 1)
    leases.renew(OWNER, HEADER)
    with pytest.raises(PolicyLimitReached):
        leases.renew(OWNER, f"{NAME}2; seconds=45")
    leases.renew(OWNER, HEADER)
    leases.renew(OTHER, HEADER)


def send(hosts: Hosts, verb: str, lease: str, message: dict[str, Any] | None = None) -> requests.Response:
    place = place_of(hosts["server"])
    headers = {"Authorization": f"Bearer {place.token}", "MCP-Protocol-Version": "2026-07-28", LEASE_HEADER: lease}
    return requests.request(verb, place.url, json=message, headers=headers, timeout=30)


def test_server_answers_renewal_release_and_misuse(hosts: Hosts) -> None:
    renewal = {"jsonrpc": "2.0", "method": "notifications/lease_renewed"}
    assert send(hosts, "POST", HEADER, renewal).status_code == 202
    assert send(hosts, "DELETE", HEADER).status_code == 204
    refused = send(hosts, "POST", "mine", renewal)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)
