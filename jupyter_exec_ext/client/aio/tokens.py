"""Tokens and approvals of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...models import Execution, IssuedToken, Token
from ..api.outage_retry import RetryPolicy
from ..api.token_requests import TokensApi, approval, rejection, token_request
from .driver import AioDriver


class AsyncExecTokens:
    """The server's scoped tokens and their policies, as `AsyncExecClient.tokens`."""

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
        """Create a token that may do no more than the caller; its secret is in the answer's `text` and nowhere else.

        Parameters
        ----------
        name : str
            What it is for, so that a person recognises it in a list.
        scopes : sequence of str
            What it may do, such as ``"executions:create"``.
        policy : str, optional
            The name of the policy that holds for it; without it, the caller's or ``default``.
        expires_in_seconds : float, optional
            How long it is good; without it, the server's default.
        limits : mapping, optional
            Fields of the policy that are to be narrower for this token.

        Raises
        ------
        InvalidRequest, PolicyNotFound, MissingScope, TokenTooBroad, TooManyTokens
        ConnectionLost
            If the answer was lost. The token may exist, without anybody who knows it; `list` tells.
        """
        request = token_request(name, scopes, policy, expires_in_seconds, limits)
        return await self._driver.perform(self._api.create(request))

    async def list(self, *, ended: bool = False) -> Sequence[Token]:
        """Return tokens, oldest first: the owner's are all, a token's are itself and those below it.

        Parameters
        ----------
        ended : bool
            Those that were revoked or have expired, too.
        """
        return await self._driver.perform(self._api.list(ended=ended))

    async def get(self, token_id: str) -> Token:
        """Return a token, active or not; raises `TokenNotFound`."""
        return await self._driver.perform(self._api.get(token_id))

    async def rotate(self, token_id: str, *, overlap_seconds: float = 0.0) -> IssuedToken:
        """Give a token another secret.

        Parameters
        ----------
        overlap_seconds : float
            For how long the one before it is still good.

        Raises
        ------
        TokenNotFound, TokenRevoked, TokenExpired, InvalidRequest
        ConnectionLost
            If the answer was lost. Whether the secret before it is still good is unknown; rotate again.
        """
        return await self._driver.perform(self._api.rotate(token_id, overlap_seconds))

    async def revoke(self, token_id: str) -> None:
        """Revoke a token and those below it, and end what they run; raises `TokenNotFound`."""
        await self._driver.perform(self._api.revoke(token_id))

    async def policies(self) -> Sequence[dict[str, Any]]:
        """Return the policies there are, each with its ``name`` and limits; for the owner."""
        return await self._driver.perform(self._api.policies())


class AsyncExecApprovals:
    """The executions that wait for a person's approval, as `AsyncExecClient.approvals`; for the owner."""

    def __init__(self, driver: AioDriver, retry: RetryPolicy) -> None:
        self._driver = driver
        self._api = TokensApi(retry)

    async def list(self) -> Sequence[Execution]:
        """Return the executions that wait, oldest first, with all of their code; `Execution.approval` says why."""
        return await self._driver.perform(self._api.approvals())

    async def approve(self, execution_id: str, *, code: str | None = None, reason: str = "") -> Execution:
        """Let an execution run.

        Parameters
        ----------
        code : str, optional
            What is to run in place of what was asked for.
        reason : str
            For the caller to read.

        Raises
        ------
        NotAwaitingApproval, ExecutionNotFound
            If it was decided about already; the latter if it has ended.
        """
        return await self._driver.perform(self._api.decide(execution_id, approval(code, reason)))

    async def reject(self, execution_id: str, *, reason: str = "") -> Execution:
        """Let an execution end as ``rejected``, with a reason for the caller; raises as `approve` does."""
        return await self._driver.perform(self._api.decide(execution_id, rejection(reason)))
