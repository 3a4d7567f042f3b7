"""Scoped tokens that the pool issues. `server_tokens` has what stands for them on the servers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..auth.new_token_rights import expiry_within, scopes_within
from ..auth.token_format import new_token, parse_token
from ..errors import Forbidden, InvalidRequest, TokenExpired, TokenNotFound, TokenRevoked
from ..models import Grant, IssuedToken, StoredToken, Token, TokenRequest
from ..protocol.records_json import seconds_of, utc_timestamp
from ..store.store import ExecStore

if TYPE_CHECKING:
    from .callers import PoolCaller

_DEFAULT_SECONDS, _MAX_SECONDS = 30 * 86_400.0, 366 * 86_400.0
_MAX_TOKENS = 10_000
_MAX_OVERLAP_SECONDS = 86_400.0


class IssuedTokens:
    """The pool's tokens.

    Parameters
    ----------
    store : ExecStore
        Keeps them.
    """

    def __init__(self, store: ExecStore) -> None:
        self._store = store

    def find(self, text: str) -> StoredToken | None:
        """Return the token with this text; None if there is none.

        Raises
        ------
        TokenRevoked, TokenExpired
            If it has ended.
        """
        presented = parse_token(text)
        stored = self._store.tokens.find(presented.id, presented.secret_hash) if presented else None
        if stored is None:
            return None
        if stored.token.revoked_at is not None:
            raise TokenRevoked(f"the token {stored.token.id} was revoked at {stored.token.revoked_at}")
        if stored.token.expired:
            raise TokenExpired(f"the token {stored.token.id} expired at {stored.token.expires_at}")
        return stored

    def is_ended(self, token_id: str) -> bool:
        """Return whether an issued token has ended; False for the id of a Hub token."""
        return self._store.tokens.ended([token_id]).get(token_id) is not None

    async def create(self, creator: PoolCaller, request: TokenRequest) -> IssuedToken:
        """Issue a token that may do no more than its creator.

        Raises
        ------
        Forbidden
            If the creator's own token was issued by the pool.
        InvalidRequest, TokenTooBroad, TooManyTokens
            As on a server.
        """
        if creator.issued is not None:
            raise Forbidden("a token that the pool has issued creates no tokens; a JupyterHub token does")
        if request.policy not in (None, creator.policy):
            raise InvalidRequest(
                f"a token of this pool has its creator's policy, {creator.policy!r}; leave 'policy' out"
            )
        scopes = scopes_within(request.scopes, creator.scopes - {"tokens:create"})
        now = time.time()
        expires_at = expiry_within(request.expires_in_seconds, None, _DEFAULT_SECONDS, _MAX_SECONDS, now)
        secret = new_token()
        token = Token(
            id=secret.id,
            principal=f"{creator.principal}/{secret.id}",
            name=request.name,
            policy=creator.policy,
            scopes=scopes,
            created_at=utc_timestamp(now),
            expires_at=utc_timestamp(expires_at),
            created_by=creator.principal,
            parent_id=None,
            limits=dict(request.limits),
        )
        by = {"principal": creator.principal, "policy": creator.policy, "credential": creator.credential}
        grants = (Grant(secret.id, creator.policy, dict(request.limits)),)
        await self._store.tokens.add(StoredToken(token, grants, by, expires_at), secret.secret_hash, _MAX_TOKENS)
        self._store.audit.record(
            "token",
            "created",
            creator.principal,
            token.id,
            name=token.name,
            policy=token.policy,
            scopes=list(scopes),
            parent_id=None,
            expires_at=token.expires_at,
            by=creator.principal,
        )
        return IssuedToken(token, secret.text)

    async def list(self, caller: PoolCaller, *, ended: bool = False) -> Sequence[Token]:
        """Return the tokens that a caller has created, and its own; all of them for an administrator."""
        tokens = await self._store.tokens.list(None, ended=ended)
        return [token for token in tokens if caller.is_admin or caller.may_see(token.principal)]

    async def get(self, caller: PoolCaller, token_id: str) -> Token:
        """Return a token; raises `TokenNotFound`."""
        stored = await self._store.tokens.get(token_id)
        if stored is None or not (caller.is_admin or caller.may_see(stored.token.principal)):
            raise TokenNotFound(f"no token {token_id!r}; list the tokens to find its id")
        return stored.token

    async def rotate(
        self, caller: PoolCaller, token_id: str, overlap_seconds: float, expires_in_seconds: float | None
    ) -> IssuedToken:
        """Give a token a new secret and, where asked for, a new end."""
        token = await self.get(caller, token_id)
        if token.revoked_at is not None or token.expired:
            raise TokenExpired(f"the token {token_id} has ended; create another one")
        now = time.time()
        expires_at = seconds_of(token.expires_at)
        if expires_in_seconds is not None:
            expires_at = expiry_within(expires_in_seconds, None, _DEFAULT_SECONDS, _MAX_SECONDS, now)
        stored = await self._store.tokens.get(token_id)
        assert stored is not None  # `get` has found it
        secret = new_token(token_id)
        overlap_seconds = min(overlap_seconds, _MAX_OVERLAP_SECONDS)
        await self._store.tokens.rotate(token_id, secret.secret_hash, overlap_seconds, stored.user, expires_at)
        return IssuedToken(replace(token, expires_at=utc_timestamp(expires_at)), secret.text)

    async def revoke(self, caller: PoolCaller, token_id: str) -> Token:
        """Revoke a token, and return it."""
        token = await self.get(caller, token_id)
        for revoked in await self._store.tokens.revoke(token.principal):
            self._store.audit.record("token", "revoked", caller.principal, revoked, by=caller.principal)
        return token

    async def revoke_made_with(self, credential: str) -> Sequence[Token]:
        """Revoke the tokens that a Hub token has created, since it has ended; return them."""
        ended = []
        for token in await self._store.tokens.list(None, ended=False):
            stored = await self._store.tokens.get(token.id)
            if stored is not None and stored.user.get("credential") == credential:
                await self._store.tokens.revoke(token.principal)
                self._store.audit.record("token", "revoked", "", token.id, by="the end of the Hub's token")
                ended.append(token)
        return ended
