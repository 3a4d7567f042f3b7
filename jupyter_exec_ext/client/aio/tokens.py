"""Tokens and approvals of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...models import Execution, IssuedToken, KernelGrant, RecordList, Session, Token
from ..api.operations import TokensApi, approval, rejection, token_request
from ..api.retries import RetryPolicy
from .driver import AioDriver


class AsyncExecTokens:
    """Scoped tokens of the server and their policies, as `AsyncExecClient.tokens`."""

    def __init__(self, driver: AioDriver, retry: RetryPolicy) -> None:
        self._driver = driver
        self._api = TokensApi(retry)

    async def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        policy: str | None = None,
        expires_in_seconds: float | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> IssuedToken:
        """Create a token with at most the caller's permissions; only the answer's `text` has its secret.

        Parameters
        ----------
        name : str
            Its purpose, for lists.
        scopes : sequence of str
            Its permissions, such as ``"executions:create"``.
        policy : str, optional
            The name of its policy; by default the caller's or ``default``.
        expires_in_seconds : float, optional
            Its lifetime in seconds; by default the server's.
        limits : mapping, optional
            Fields of the policy with narrower values for this token.

        Raises
        ------
        InvalidRequest
            If an argument is invalid.
        PolicyNotFound
            If there is no such policy.
        MissingScope, TokenTooBroad
            If the caller may not create tokens, or not with these permissions.
        TooManyTokens
            If the server has as many tokens as it may.
        ConnectionLost
            If the answer was lost. The token may exist, but its secret is lost; `list` shows it.
        """
        request = token_request(name, scopes, policy, expires_in_seconds, limits)
        return await self._driver.perform(self._api.create(request))

    async def list(self, *, ended: bool = False) -> RecordList[Token]:
        """Return tokens, oldest first: all for the owner; for a token, itself and those that it has created.

        Parameters
        ----------
        ended : bool
            Whether to include revoked and expired tokens.
        """
        return await self._driver.perform(self._api.list(ended=ended))

    async def get(self, token_id: str) -> Token:
        """Return a token, active or not; raise `TokenNotFound` if there is none."""
        return await self._driver.perform(self._api.get(token_id))

    async def rotate(
        self, token_id: str, *, overlap_seconds: float = 0.0, expires_in_seconds: float | None = None
    ) -> IssuedToken:
        """Replace a token's secret.

        Parameters
        ----------
        overlap_seconds : float
            Time in seconds that the old secret stays valid.
        expires_in_seconds : float, optional
            Time in seconds after which the token ends, from now on; by default its end stays as it is.

        Raises
        ------
        TokenNotFound, TokenRevoked, TokenExpired
            If there is no such active token.
        InvalidRequest
            If the time is invalid.
        TokenTooBroad
            If the token would be valid for longer than the caller's own.
        ConnectionLost
            If the answer was lost. It is unknown whether the old secret is still valid; rotate again.
        """
        return await self._driver.perform(self._api.rotate(token_id, overlap_seconds, expires_in_seconds))

    async def revoke(self, token_id: str) -> None:
        """Revoke a token and those that it has created, and end their sessions; raise `TokenNotFound` if unknown."""
        await self._driver.perform(self._api.revoke(token_id))

    async def grant(
        self, token_id: str, kernel_id: str, *, name: str = "", expires_in_seconds: float | None = None
    ) -> KernelGrant:
        """Let a token attach to a running kernel, whose isolation its policy need not allow; for the owner.

        Code of the token's bearer then has all rights of the kernel's user.

        Parameters
        ----------
        token_id : str
            A token that the owner has created.
        kernel_id : str
            A kernel that was not started for a session, such as a notebook's.
        name : str
            A name for lists, such as the notebook's.
        expires_in_seconds : float, optional
            Lifetime of the grant in seconds; by default it lasts until the token or the kernel ends.

        Raises
        ------
        TokenNotFound, TokenRevoked, TokenExpired
            If there is no such active token.
        InvalidRequest
            If an argument is invalid, or another token has created this one.
        KernelNotFound, PolicyDenied, IsolationRequired
            If there is no such kernel, or the token's policy does not allow it.
        Conflict
            If the token has the kernel already.
        """
        return await self._driver.perform(self._api.grant(token_id, kernel_id, name, expires_in_seconds))

    async def grants(self, *, ended: bool = False) -> RecordList[KernelGrant]:
        """Return grants of kernels, oldest first: all for the owner; for a token, its own; with `ended`, past ones."""
        return await self._driver.perform(self._api.grants(ended=ended))

    async def revoke_grant(self, grant_id: str) -> None:
        """End a grant and the token's sessions on its kernel; raise `GrantNotFound` if unknown."""
        await self._driver.perform(self._api.revoke_grant(grant_id))

    async def policies(self) -> Sequence[dict[str, Any]]:
        """Return the policies, each with its ``name`` and limits; for the owner."""
        return await self._driver.perform(self._api.policies())


class AsyncExecApprovals:
    """Executions that wait for a person's approval, as `AsyncExecClient.approvals`; for the owner."""

    def __init__(self, driver: AioDriver, retry: RetryPolicy) -> None:
        self._driver = driver
        self._api = TokensApi(retry)

    async def list(self) -> RecordList[Execution]:
        """Return the executions that wait, oldest first, with their code; `Execution.approval` has the reason."""
        return await self._driver.perform(self._api.approvals())

    async def approve(
        self, execution_id: str, *, code: str | None = None, reason: str = "", for_session: bool = False
    ) -> Execution:
        """Approve an execution, so that it runs.

        Parameters
        ----------
        code : str, optional
            Code to run instead of the caller's.
        reason : str
            A message for the caller.
        for_session : bool
            Whether code of the same kinds that waits in the session, or comes later, runs without a question: see
            `ApprovalFinding.kind`.

        Raises
        ------
        NotAwaitingApproval
            If a person has decided already.
        InvalidRequest
            With `for_session`, if there is no kind that later code could share.
        ExecutionNotFound
            If it has ended.
        """
        return await self._driver.perform(
            self._api.decide(execution_id, approval(code, reason, for_session=for_session))
        )

    async def reject(self, execution_id: str, *, reason: str = "") -> Execution:
        """Reject an execution, which ends as ``rejected``, with a reason for the caller; raise as `approve` does."""
        return await self._driver.perform(self._api.decide(execution_id, rejection(reason)))

    async def withdraw(self, session_id: str, kind: str | None = None) -> Session:
        """Ask again about code whose kind was approved for a session; return the session.

        Code that runs or is in the queue already is not stopped.

        Parameters
        ----------
        kind : str, optional
            One of the session's `approved_kinds`; by default all of them.

        Raises
        ------
        SessionNotFound, SessionEnded
            If there is no such live session.
        """
        return await self._driver.perform(self._api.withdraw(session_id, kind))
