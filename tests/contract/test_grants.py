"""Kernels of a person that are granted to a token: the owner grants and revokes, an agent attaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.errors import Conflict, GrantNotFound, KernelNotFound, PolicyDenied, SessionEnded
from tests.support.bearers import Bearer, mint
from tests.support.hosts import Host

pytestmark = pytest.mark.owner


@pytest.fixture
def person(host: Host) -> Iterator[Any]:
    with ExecClient(host.owner) as client, client.standard_session() as session:
        yield session


@pytest.fixture
def bearer(host: Host) -> Bearer:
    return mint(host, name="granted")


def test_a_granted_token_shares_the_kernel_until_the_grant_is_revoked(
    client: Any, host: Host, person: Any, bearer: Bearer
) -> None:
    person.run("x = 20")
    with ExecClient(host.info.url, bearer.token) as agent:
        with pytest.raises(PolicyDenied):
            agent.session(kernel_id=person.id)
        grant = client.tokens.grant(bearer.id, person.id, name="analysis.ipynb")
        assert (grant.token_id, grant.kernel_id, grant.name, grant.ended_at) == (
            bearer.id,
            person.id,
            "analysis.ipynb",
            None,
        )
        assert [each.id for each in agent.tokens.grants()] == [grant.id]
        session = agent.session(kernel_id=person.id)
        assert session.record.grant_id == grant.id
        assert session.run("y = x + 1; print(y)").stdout == "21\n"
        client.tokens.revoke_grant(grant.id)
        with pytest.raises(SessionEnded):
            session.run("1")
        with pytest.raises(PolicyDenied):
            agent.session(kernel_id=person.id)
    assert person.run("print(y)").stdout == "21\n"
    ended = {each.id: each.ended_reason for each in client.tokens.grants(ended=True)}
    assert ended[grant.id] == "it was revoked"
    assert grant.id not in [each.id for each in client.tokens.grants()]
    client.tokens.revoke_grant(grant.id)


def test_what_cannot_be_granted_is_refused_with_a_reason(client: Any, person: Any, bearer: Bearer, fresh: Any) -> None:
    with pytest.raises(KernelNotFound):
        client.tokens.grant(bearer.id, "no-such-kernel")
    with pytest.raises(KernelNotFound):
        client.tokens.grant(bearer.id, fresh.record.kernel_id)
    client.tokens.grant(bearer.id, person.id, expires_in_seconds=60)
    with pytest.raises(Conflict, match="already"):
        client.tokens.grant(bearer.id, person.id)
    with pytest.raises(GrantNotFound):
        client.tokens.revoke_grant("grt_nothing")
