"""Scoped tokens and approvals through the clients: what is sent, and what servers make of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from jupyter_exec_ext.client import AsyncExecClient, ExecClient, JupyterConnectionInfo
from jupyter_exec_ext.client.aio.session import AsyncExecSession
from jupyter_exec_ext.client.api.operations import TokensApi, approval, rejection, token_request
from jupyter_exec_ext.client.api.retries import RetryPolicy
from jupyter_exec_ext.errors import (
    ConnectionLost,
    ExecutionNotFound,
    NotAwaitingApproval,
    OwnerOnly,
    PolicyDenied,
    TokenNotFound,
    TokenRevoked,
    TokenTooBroad,
    TooManyTokens,
    UnexpectedAnswer,
)
from jupyter_exec_ext.models import Decision, Execution, ExecutionState, IssuedToken
from jupyter_exec_ext.protocol.records_json import to_json
from tests.client.test_operations import LOST, NOT_SENT, SESSION, Script, answer, execution
from tests.support.blocking_client import Blocking, LoopThread
from tests.support.hosts import Host

API = TokensApi(RetryPolicy(max_retries=2))
TOKEN = {
    "id": "abcdefgh",
    "principal": "token:abcdefgh",
    "name": "agent",
    "policy": "default",
    "scopes": ["sessions:read"],
    "created_at": "t",
    "expires_at": "t",
}
SECRET = "jex_abcdefgh_" + "S" * 49
ISSUED = TOKEN | {"token": SECRET}
RUNS_CODE = ["sessions:create", "sessions:read", "executions:create", "executions:read"]


# --- what is sent ---


def test_token_request_has_given_fields_only() -> None:
    assert token_request("a", ["x"], None, None, None) == {"name": "a", "scopes": ["x"]}
    assert token_request("a", ("x",), "p", 60.0, {"max_sessions": 1}) == {
        "name": "a",
        "scopes": ["x"],
        "policy": "p",
        "expires_in_seconds": 60.0,
        "limits": {"max_sessions": 1},
    }
    with pytest.raises(TypeError, match="list of scopes"):
        token_request("a", "sessions:read", None, None, None)


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        (lambda: API.create({"name": "a"}), "exec/v1/tokens"),
        (lambda: API.rotate("ab/c", 5.0), "exec/v1/tokens/ab%2Fc/rotate"),
        (lambda: API.decide("exe_1", rejection("no")), "exec/v1/approvals/exe_1"),
    ],
)
def test_requests_for_secrets_and_decisions_are_not_repeated(operation: Callable[[], Any], path: str) -> None:
    script = Script(NOT_SENT, LOST)
    with pytest.raises(ConnectionLost, match="unknown"):
        script.perform(operation())
    assert [(sent.method, sent.path) for sent in script.requests] == [("POST", path)] * 2
    for status in (429, 503):
        script = Script(answer(status, {"message": "full", "code": "too_many_tokens"}))
        with pytest.raises(TooManyTokens):
            script.perform(operation())


def test_reading_and_revoking_tokens_is_retried() -> None:
    script = Script(LOST, answer(200, {"tokens": [TOKEN]}), LOST, answer(204))
    (token,) = script.perform(API.list(ended=True))
    assert (token.id, token.scopes, token.active) == ("abcdefgh", ("sessions:read",), True)
    script.perform(API.revoke(token.id))
    withdrawal = Script(*2 * [answer(200, to_json(SESSION))])
    withdrawal.perform(API.withdraw("ses/1", "import a"))
    withdrawal.perform(API.withdraw("ses/1", None))
    assert [sent.path for sent in withdrawal.requests] == [
        "exec/v1/sessions/ses%2F1/approved-kinds?kind=import%20a",
        "exec/v1/sessions/ses%2F1/approved-kinds",
    ]
    assert [sent.path for sent in script.requests] == ["exec/v1/tokens?ended=true"] * 2 + [
        "exec/v1/tokens/abcdefgh"
    ] * 2
    with pytest.raises(UnexpectedAnswer, match="no 'executions'"):
        Script(answer(200, [])).perform(API.approvals())


def test_issued_token_shows_secret_in_text_only() -> None:
    issued: IssuedToken = Script(answer(201, ISSUED)).perform(API.create({}))
    assert issued.text == SECRET
    assert SECRET not in f"{issued!r} {issued}"
    with pytest.raises(UnexpectedAnswer, match="no token"):
        Script(answer(201, TOKEN)).perform(API.create({}))


def test_decisions_carry_code_and_reason() -> None:
    script = Script(answer(200, to_json(execution(ExecutionState.QUEUED))))
    decided: Execution = script.perform(API.decide("e", approval("1", "ok")))
    assert decided.state is ExecutionState.QUEUED
    assert script.requests[0].json == {"decision": "approve", "code": "1", "reason": "ok"}
    assert approval(None, "") == {"decision": "approve", "reason": ""}
    assert approval("", "") == {"decision": "approve", "reason": "", "code": ""}


def test_a_refusal_names_its_limit() -> None:
    limit = {"policy": "p", "name": "max_sessions", "value": 1}
    script = Script(answer(403, {"message": "no", "code": "policy_denied", "limit": limit}))
    with pytest.raises(PolicyDenied) as caught:
        script.perform(API.create({}))
    assert caught.value.limit == limit


# --- what servers make of it ---


Connect = Callable[[JupyterConnectionInfo], Any]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects a client of each kind in turn, with the synchronous one's calls."""
    if request.param == "sync":
        yield ExecClient
        return
    loop = LoopThread()

    async def make(info: JupyterConnectionInfo) -> AsyncExecClient:
        return AsyncExecClient(info)

    yield lambda info: Blocking(loop.run(make(info)), loop)
    loop.close()


def bearer(host: Host, issued: IssuedToken) -> JupyterConnectionInfo:
    return replace(host.info, token=issued.text)


def waiting(client: Any, session_id: str) -> Execution:
    """Return the execution of a session that waits for approval, once there is one."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found: list[Execution] = [each for each in client.approvals.list() if each.session_id == session_id]
        if found:
            return found[0]
        time.sleep(0.02)  # nothing tells of an approval that is wanted but the list
    raise AssertionError("nothing waits for approval")


def test_token_is_created_rotated_and_revoked(token_host: Host, connect: Connect) -> None:
    with connect(token_host.info) as owner:
        issued = owner.tokens.create("agent", RUNS_CODE, expires_in_seconds=600, limits={"max_sessions": 1})
        token = issued.token
        assert (token.name, token.policy, token.limits) == ("agent", "default", {"max_sessions": 1})
        assert owner.tokens.get(token.id) == token
        assert token in owner.tokens.list()
        assert {"default", "trusted", "restricted", "asks"} <= {policy["name"] for policy in owner.tokens.policies()}
        with pytest.raises(TokenNotFound):
            owner.tokens.get("nothere1")
        with pytest.raises(TokenTooBroad, match="max_token_seconds"):
            owner.tokens.create("agent", RUNS_CODE, expires_in_seconds=1e9)
        renewed = owner.tokens.rotate(token.id)
        with connect(bearer(token_host, renewed)) as agent:
            assert agent.info()["caller"]["principal"] == token.principal
            for call in (agent.tokens.policies, agent.approvals.list):
                with pytest.raises(OwnerOnly):
                    call()
            owner.tokens.revoke(token.id)
            owner.tokens.revoke(token.id)
            with pytest.raises(TokenRevoked, match="ask for another one"):
                agent.info()
        assert token.id not in [listed.id for listed in owner.tokens.list()]
        ended = next(listed for listed in owner.tokens.list(ended=True) if listed.id == token.id)
        assert (ended.active, ended.revoked_at is not None) == (False, True)
    for secret in (issued.text, renewed.text):
        assert secret[13:] not in token_host.log_text()


def test_run_waits_for_approval(token_host: Host, connect: Connect) -> None:
    with connect(token_host.info) as owner, ThreadPoolExecutor(1) as pool:
        agent = connect(bearer(token_host, owner.tokens.create("agent", RUNS_CODE, policy="asks")))
        session = agent.session()
        assert session.run("1 + 1").approval is None

        run = pool.submit(session.run, "!echo original")
        found = waiting(owner, session.id)
        assert found.approval is not None
        assert (found.code, found.approval.why) == ("!echo original", "it runs a shell command")
        assert [(each.kind, each.line) for each in found.approval.findings] == [("shell", 1)]
        owner.approvals.approve(found.id, code="print('edited')", reason="no shell here")
        result = run.result(timeout=60)
        assert (result.state, result.stdout, result.code) == (ExecutionState.OK, "edited\n", "print('edited')")
        assert result.approval.decision is Decision.EDITED
        assert (result.approval.original_code, result.approval.reason) == ("!echo original", "no shell here")
        with pytest.raises((NotAwaitingApproval, ExecutionNotFound)):  # the latter if it has ended
            owner.approvals.approve(found.id)

        run = pool.submit(lambda: [event.type for event in session.stream("!echo no")])
        found = waiting(owner, session.id)
        owner.approvals.reject(found.id, reason="why?")
        assert run.result(timeout=60) == ["state", "end"]
        rejected = owner.get_execution(found.id).record
        assert (rejected.state, rejected.approval.decision) == (ExecutionState.REJECTED, Decision.REJECTED)
        assert "why?" in rejected.reason
        assert owner.get_session(session.id).record.last_outcome == "rejected"

        run = pool.submit(session.run, "!true")
        owner.approvals.approve(waiting(owner, session.id).id, for_session=True)
        assert run.result(timeout=60).approval.approved_kinds == ("shell",)
        assert session.run("!echo later").stdout.strip() == "later"
        assert owner.get_session(session.id).record.approved_kinds == ("shell",)
        assert owner.approvals.withdraw(session.id, "shell").approved_kinds == ()
        run = pool.submit(session.run, "!echo asked about")
        owner.approvals.reject(waiting(owner, session.id).id)
        assert run.result(timeout=60).state is ExecutionState.REJECTED
        owner.tokens.revoke(owner.get_session(session.id).record.owner.removeprefix("token:"))
        agent.close()


async def test_execution_waiting_for_approval_can_be_cancelled(token_host: Host) -> None:
    async with AsyncExecClient(token_host.info) as owner:
        issued = await owner.tokens.create("agent", [*RUNS_CODE, "executions:control"], policy="asks")
        async with AsyncExecClient(bearer(token_host, issued)) as agent:
            session: AsyncExecSession = await agent.session()
            handle = await session.submit("!echo never")
            assert handle.record.state is ExecutionState.AWAITING_APPROVAL
            run = asyncio.create_task(handle.result())
            assert (await handle.cancel()).state is ExecutionState.CANCELLED
            assert (await asyncio.wait_for(run, 20)).state is ExecutionState.CANCELLED
            await asyncio.wait_for(owner.tokens.revoke(issued.token.id), 20)
