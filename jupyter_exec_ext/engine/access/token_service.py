"""Token service: authenticate the bearers of scoped tokens, and create, list, rotate and revoke tokens.

A token is verified on each request against the database, so a revocation by any server of the same user holds from the
next request on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...auth.caller import OWNER, Bound, Caller, token_principal
from ...auth.new_token_rights import expiry_within, scopes_within
from ...auth.policy import Policy
from ...auth.policy_parsing import narrowed, read_limits
from ...auth.rate_limiter import RateLimiter
from ...auth.token_format import new_token, parse_token
from ...errors import (
    Forbidden,
    InvalidRequest,
    PolicyDenied,
    PolicyNotFound,
    TokenExpired,
    TokenNotFound,
    TokenRevoked,
    TokenTooBroad,
    TooManyAttempts,
    TooManyTokens,
    Unauthenticated,
)
from ...models import Grant, IssuedToken, StoredToken, Token, TokenRequest
from ...protocol.records_json import utc_timestamp
from ..change_feed import ChangeFeed
from ..ports import AuditTrail, TokenStore
from ..settings import EngineSettings
from .token_watch import TokenJournal, TokenWatch

_MAX_OVERLAP_SECONDS = 86_400.0
_WRONG = "this token is not valid; check that it is complete and belongs to this server"
# Rate limit on wrong tokens from one address. A valid token is never counted: many callers share a proxy's address.
ATTEMPTS_AT_ONCE, ATTEMPTS_PER_MINUTE = 20, 10
_MAX_ADDRESSES = 10_000
# Rate limit on secrets made by one of the owner's tokens and by all below it: each leaves a record for good.
MINTED_AT_ONCE, MINTED_PER_MINUTE = 100, 60
# Each request is checked against the policies of all tokens above, and each record holds them all.
MAX_DEPTH = 10


class TokenService:
    """The server's scoped tokens, and their policies.

    Parameters
    ----------
    policies : mapping
        All policies by name, the default one first.
    journal : TokenJournal
        Records uses and expiries.
    watch : TokenWatch
        Ends the work of tokens that are revoked here.
    """

    def __init__(
        self,
        store: TokenStore,
        policies: Mapping[str, Policy],
        settings: EngineSettings,
        audit: AuditTrail,
        feed: ChangeFeed,
        journal: TokenJournal,
        watch: TokenWatch,
    ) -> None:
        self.policies = policies
        self._store = store
        self._settings = settings
        self._audit = audit
        self._feed = feed
        self._journal = journal
        self._watch = watch
        self._attempts = RateLimiter(ATTEMPTS_AT_ONCE, ATTEMPTS_PER_MINUTE, _MAX_ADDRESSES)
        self._minted = RateLimiter(MINTED_AT_ONCE, MINTED_PER_MINUTE, _MAX_ADDRESSES)

    # --- authentication ---

    def authenticate(self, text: str, address: str) -> Caller:
        """Return the bearer of a token.

        Parameters
        ----------
        address : str
            Address of the client. The rate of wrong tokens from one address is limited; a valid token is accepted
            at any time.

        Raises
        ------
        Unauthenticated
            If the token is unknown or its secret is wrong, after the same time.
        TooManyAttempts
            In place of `Unauthenticated`, when the address has sent too many wrong tokens.
        TokenExpired, TokenRevoked
            If the token has ended.
        PolicyDenied
            If its policy is not configured any more.
        StoreUnavailable
            If the database cannot be read.
        """
        presented = parse_token(text)
        if presented is None:  # it has not the form of a token, so it is no guess and spends nothing
            raise Unauthenticated(_WRONG)
        # An unknown id and a wrong secret take the same way and time, so that timing shows no id that exists.
        stored = self._store.find(presented.id, presented.secret_hash)
        if stored is None:
            # Before the log line, so that the budget also bounds the lines that one address can cause.
            self._spend_attempt(address)
            self._settings.log.warning("tokens: a wrong one came from %s, with the id %s", address, presented.id)
            raise Unauthenticated(_WRONG)
        # Only a bearer with the right secret learns that the token has ended.
        return self.admit(stored)

    def admit(self, stored: StoredToken) -> Caller:
        """Return the bearer of a token whose secret was right, and note its use.

        Raises
        ------
        TokenExpired, TokenRevoked, PolicyDenied
            As for `authenticate`.
        """
        self._require_active(stored.token)
        self._journal.note_use(stored.token.id)
        return self._caller(stored)

    def _spend_attempt(self, address: str) -> None:
        wait = self._attempts.spend_action(address, time.monotonic())
        if wait:
            text = "this token is wrong, and too many wrong ones came from this address; check it before the next try"
            raise TooManyAttempts(text, retry_after_seconds=wait)

    def _require_active(self, token: Token) -> None:
        if token.revoked_at is not None:
            raise TokenRevoked(f"the token {token.id} was revoked at {token.revoked_at}; ask for another one")
        if token.expired:
            self._journal.note_expired(token.id)
            raise TokenExpired(f"the token {token.id} expired at {token.expires_at}; ask for another one")

    def _caller(self, stored: StoredToken) -> Caller:
        """Return the token's bearer, under the policies as they are configured now."""
        token = stored.token
        return Caller(
            token.principal,
            f"token {token.id} ({token.name})",
            frozenset(token.scopes),
            self._bounds(stored.grants),
            stored.user,
            token.name,
            stored.hub_token,
        )

    def _bounds(self, grants: Sequence[Grant]) -> tuple[Bound, ...]:
        # Not cached: it takes 7 us for each token of the chain (2026-11-26, docs/contributing/decisions.md).
        bounds = []
        for depth, grant in enumerate(grants, 1):
            principal = token_principal(tuple(above.token_id for above in grants[:depth]))
            policy = self.policies.get(grant.policy)
            if policy is None:
                raise PolicyDenied(
                    f"the token's policy {grant.policy!r} is not configured any more; ask for another one"
                )
            bounds.append(Bound(principal, policy))
            if grant.limits:
                # Beside the policy: it may be configured more strictly now than when these limits were given.
                bounds.append(Bound(principal, narrowed(policy, grant.limits)))
        return tuple(bounds)

    # --- management ---

    async def create(self, caller: Caller, request: TokenRequest) -> IssuedToken:
        """Create a token that may do no more than the caller.

        Raises
        ------
        Forbidden
            If the deployment could not be asked later what the caller may do.
        InvalidRequest
            If the scopes or limits are no valid ones.
        PolicyNotFound
            If there is no policy of this name.
        TokenTooBroad
            If the token could do more, or for longer, than the caller.
        TooManyTokens
            If there are as many as there may be, or too many were created lately.
        StorageFull, StoreUnavailable
            If the token cannot be recorded; none is created.
        """
        _require_user(caller)
        parent = await self._store.get(caller.token_id) if caller.token_id else None
        if parent is not None and len(parent.grants) >= MAX_DEPTH:
            raise TokenTooBroad(f"tokens that create tokens may be {MAX_DEPTH} deep, and the caller's is the last one")
        policy = self._policy_for(request, parent)
        read_limits(request.limits, policy)
        scopes = scopes_within(request.scopes, caller.scopes)
        now = time.time()
        expires_at_seconds = self._expiry(request.expires_in_seconds, parent)
        self.spend_mint(caller.root)  # with a budget for each token, children would multiply it
        secret = new_token()
        grants = (*(parent.grants if parent else ()), Grant(secret.id, policy.name, dict(request.limits)))
        token = Token(
            id=secret.id,
            principal=token_principal(tuple(grant.token_id for grant in grants)),
            name=request.name,
            policy=policy.name,
            scopes=scopes,
            created_at=utc_timestamp(now),
            expires_at=utc_timestamp(expires_at_seconds),
            created_by=caller.display_name or caller.principal,
            parent_id=parent.token.id if parent else None,
            limits=dict(request.limits),
        )
        stored = StoredToken(token, grants, caller.user, expires_at_seconds, caller.maker)
        await self._store.add(stored, secret.secret_hash, self._settings.max_tokens)
        self._journal.note_created(token, caller.principal, caller.display_name)
        self._watch.keep_asking(caller, expires_at_seconds)
        return IssuedToken(token, secret.text)

    def spend_mint(self, creator: str) -> None:
        """Count a token that is created or rotated; raises `TooManyTokens`."""
        if creator == OWNER:
            return
        wait = self._minted.spend_action(creator, time.monotonic())
        if wait:
            text = f"too many tokens were created or rotated; there may be {MINTED_PER_MINUTE} a minute"
            raise TooManyTokens(text, retry_after_seconds=wait)

    def _policy_for(self, request: TokenRequest, parent: StoredToken | None) -> Policy:
        name = request.policy or (parent.token.policy if parent else next(iter(self.policies)))
        policy = self.policies.get(name)
        if policy is None:
            raise PolicyNotFound(f"there is no policy {name!r}; there are {', '.join(self.policies)}")
        return policy

    def _expiry(self, asked_seconds: float | None, above: StoredToken | None) -> float:
        settings = self._settings
        usual, most = settings.default_token_seconds, settings.max_token_seconds
        return expiry_within(asked_seconds, above, usual, most, time.time())

    async def list(self, caller: Caller, *, ended: bool = False) -> Sequence[Token]:
        """Return tokens, oldest first: all for the owner; for a token, itself and those below it."""
        return await self._store.list(None if caller.is_owner else caller.principal, ended=ended)

    async def get(self, caller: Caller, token_id: str) -> Token:
        """Return a token, ended or not; raises `TokenNotFound`."""
        return (await self._find(caller, token_id)).token

    async def _find(self, caller: Caller, token_id: str) -> StoredToken:
        stored = await self._store.get(token_id)
        if stored is None or not caller.may_see(stored.token.principal):
            raise TokenNotFound(f"no token {token_id!r}; list the tokens to find its id")
        return stored

    async def bearer(self, caller: Caller, token_id: str) -> Caller:
        """Return the bearer of an active token, for a decision on what the bearer may do.

        Raises
        ------
        TokenNotFound, TokenRevoked, TokenExpired, PolicyDenied
            If there is no such active token that the caller may see, or its policy is not configured any more.
        """
        stored = await self._find(caller, token_id)
        self._require_active(stored.token)
        return self._caller(stored)

    async def rotate(
        self, caller: Caller, token_id: str, overlap_seconds: float, expires_in_seconds: float | None = None
    ) -> IssuedToken:
        """Give a token a new secret. From then on it may do no more than the caller.

        Parameters
        ----------
        overlap_seconds : float
            Time for which the previous secret stays valid, so that its holder can be given the new one.
        expires_in_seconds : float, optional
            Time after which the token ends, from now on; None to leave its end as it is. The tokens below it end then
            at the latest.

        Raises
        ------
        Forbidden
            As for `create`: the holder of the new secret has the token.
        TokenNotFound, TokenRevoked, TokenExpired
            If there is none that the caller may see, or it has ended.
        InvalidRequest
            If the overlap is too long.
        TokenTooBroad
            If it would be valid for longer than the caller's own token, or the one it was created with.
        """
        _require_user(caller)
        stored = await self._find(caller, token_id)
        token, expires_at_seconds = stored.token, stored.expires_at_seconds
        if overlap_seconds > _MAX_OVERLAP_SECONDS:
            raise InvalidRequest(f"'overlap_seconds' may be at most {_MAX_OVERLAP_SECONDS:.0f}")
        if stored.is_of_hub:
            raise InvalidRequest("this is a token of JupyterHub; create another one there")
        self._require_active(token)
        for above in (token.parent_id, caller.token_id) if expires_in_seconds is not None else ():
            bound = await self._store.get(above) if above else None
            expires_at_seconds = self._expiry(expires_in_seconds, bound)
        parent = await self._store.get(token.parent_id) if token.parent_id and expires_in_seconds is None else None
        if parent is not None and not parent.is_of_hub:  # an earlier version let a token outlast its parent
            expires_at_seconds = min(expires_at_seconds, parent.expires_at_seconds)
        token = replace(token, expires_at=utc_timestamp(expires_at_seconds))
        self.spend_mint(caller.root)
        secret = new_token(token.id)
        # In the name of this user: the holder of the secret must not get the rights of the token's creator.
        values = (secret.secret_hash, overlap_seconds, caller.user, expires_at_seconds, caller.maker)
        await self._store.rotate(token.id, *values)
        self._watch.keep_asking(caller, expires_at_seconds)
        by = caller.display_name
        self._audit.record("token", "rotated", caller.principal, token.id, overlap_seconds=overlap_seconds, by=by)
        return IssuedToken(token, secret.text)

    async def revoke(self, caller: Caller, token_id: str) -> None:
        """Revoke a token and all that were created below it, and end their work; idempotent.

        Raises
        ------
        TokenNotFound
            If there is none that the caller may see.
        StorageFull, StoreUnavailable
            If the revocation cannot be recorded; none is revoked.
        """
        token = await self.get(caller, token_id)
        ended = await self._store.revoke(token.principal)
        # Work in the name of these tokens ends now, and not with the watch's next timer.
        self._watch.poll()
        await self._journal.note_revoked(ended, caller.principal, caller.display_name)


def _require_user(caller: Caller) -> None:
    if not caller.user:
        raise Forbidden(
            "tokens are created and rotated by the server's own user: whether somebody else still may use the server "
            "could not be found out later"
        )
