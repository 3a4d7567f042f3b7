"""Leases of MCP clients: sessions end with them. `tests/adapters/mcp/test_mcp_ends.py` kills clients that hold one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import InvalidRequest, PolicyLimitReached
from jupyter_exec_ext.mcp import leases as leases_module
from jupyter_exec_ext.mcp.leases import LEASE_HEADER, Leases
from tests.mcp.places import Hosts, place_of

NAME = "A-client_of-16ch"
HEADER = f"{NAME}; seconds=45"


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
    return Leases(cast(ExecEngine, SimpleNamespace(sessions=sessions)))


async def test_released_lease_ends_its_sessions(leases: Leases, sessions: Sessions) -> None:
    lease = leases.renew("owner", HEADER)
    lease.sessions.append("ses_1")
    assert leases.renew("owner", HEADER) is lease
    assert sessions.renewed == ["ses_1"]
    await leases.release("owner", HEADER)
    assert (sessions.live, lease.is_over, len(leases)) == (["ses_2"], True, 0)
    await leases.release("owner", HEADER)


async def test_renewed_lease_forgets_sessions_that_have_ended(leases: Leases) -> None:
    lease = leases.renew("owner", HEADER)
    lease.sessions += ["ses_1", "ses_gone"]
    assert leases.renew("owner", HEADER).sessions == ["ses_1"]


async def test_lease_of_another_caller_is_another_lease(leases: Leases, sessions: Sessions) -> None:
    lease = leases.renew("owner", HEADER)
    lease.sessions.append("ses_1")
    assert leases.renew("token:abc", HEADER) is not lease
    await leases.release("token:abc", HEADER)
    assert "ses_1" in sessions.live


@pytest.mark.parametrize(
    "header", ["", NAME, "short; seconds=45", f"{NAME}; seconds=0", f"{NAME}; seconds=1000", f"{NAME}é; seconds=45"]
)
async def test_lease_of_another_form_is_refused(header: str, leases: Leases) -> None:
    with pytest.raises(InvalidRequest, match="must have the form"):
        leases.renew("owner", header)
    assert len(leases) == 0


async def test_lease_beyond_the_limit_is_refused(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "MAX_PER_PRINCIPAL", 1)
    leases.renew("owner", HEADER)
    with pytest.raises(PolicyLimitReached):
        leases.renew("owner", f"{NAME}2; seconds=45")
    leases.renew("owner", HEADER)
    leases.renew("token:abc", HEADER)


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
