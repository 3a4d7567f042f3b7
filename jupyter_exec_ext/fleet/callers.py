"""Callers of a pool: who sends a request, by a JupyterHub token or by a scoped token that the pool has issued."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..auth.rate_limiter import RateLimiter
from ..auth.scopes import ALL_SCOPES
from ..auth.token_format import PREFIX
from ..errors import Forbidden, MissingScope, TokenRevoked, TooManyAttempts, Unauthenticated, Unavailable
from ..models import StoredToken
from .issued_tokens import IssuedTokens

#: What a Hub token may do within its policy. Kernels that somebody has started on a pool's server are not its business.
HUB_SCOPES = ALL_SCOPES - {"kernels:attach", "pool:read"}
#: A Hub token is asked about again after this time.
FRESH_SECONDS = 5.0
_MAX_KNOWN = 10_000
_DIGITS = 12
_ATTEMPTS_AT_ONCE, _ATTEMPTS_PER_MINUTE = 20, 10
# A program that repeats a wrong token counts as one attempt in this time: it shares a proxy's address with others.
_REFUSED_SECONDS = 60.0
_UNKNOWN = "neither the Hub nor the pool knows this token; was it revoked, or is its time over?"
_CREDENTIALS = re.compile(r"(?:token|bearer)[ \t]+(\S+)", re.IGNORECASE)

AskHub = Callable[[str], Awaitable["Mapping[str, Any] | None"]]


@dataclass(frozen=True, slots=True)
class PoolCaller:
    """The author of a request to the pool.

    Parameters
    ----------
    principal : str
        Owner of sessions. A Hub token is a principal of its own, as on a server: ``user:NAME/`` or ``service:NAME/``,
        and the beginning of the token's digest. A token that the pool has issued is one, too: that of its creator, a
        slash and the token's id.
    policy : str
        The policy on the servers; empty for an administrator whose token may run no code.
    scopes : frozenset of str
        The rights.
    credential : str
        Digest of the Hub token, or id of the issued token, with which work in its name ends.
    issued : StoredToken or None
        The issued token.
    creator : PoolCaller or None
        The creator of the issued token.
    is_admin : bool
        Whether the Hub calls its user an administrator.
    """

    principal: str
    policy: str
    scopes: frozenset[str]
    credential: str
    issued: StoredToken | None = None
    creator: PoolCaller | None = None
    is_admin: bool = False

    @property
    def account(self) -> str:
        """The Hub's user or service, whose principals share its places in the pool."""
        return self.principal.partition("/")[0]

    @property
    def limits(self) -> Mapping[str, Any]:
        """Limits of the issued token beside those of the policy."""
        return self.issued.token.limits if self.issued is not None else {}

    def may_see(self, principal: str) -> bool:
        """Return whether the caller may see the sessions of a principal."""
        return principal == self.principal or principal.startswith(f"{self.principal}/")


@dataclass(slots=True)
class _Known:
    """A Hub token that was used, with the Hub's last word on it."""

    text: str = field(repr=False)
    model: Mapping[str, Any] | None = None
    asked_at: float = 0.0
    confirmed_at: float = 0.0


class Callers:
    """Authenticates requests.

    Parameters
    ----------
    ask_hub : callable
        Returns what the Hub says of a token's bearer, None for an unknown token; raises `Unavailable` while the Hub
        cannot be reached.
    issued : IssuedTokens
        The tokens that the pool has issued.
    policies : mapping
        Policies by the Hub's scopes; the first scope that a token has decides.
    stale_seconds : float
        How long a known token stays good while the Hub cannot be reached.
    """

    def __init__(
        self, ask_hub: AskHub, issued: IssuedTokens, policies: Mapping[str, str], stale_seconds: float
    ) -> None:
        self._ask_hub = ask_hub
        self._issued = issued
        self._policies = policies
        self._stale_seconds = stale_seconds
        self._known: dict[str, _Known] = {}
        # Digests of wrong tokens, and when they were first refused.
        self._refused: dict[str, float] = {}
        self._attempts = RateLimiter(_ATTEMPTS_AT_ONCE, _ATTEMPTS_PER_MINUTE, _MAX_KNOWN)

    async def authenticate(self, authorization: str, address: str) -> PoolCaller:
        """Return the author of a request.

        Raises
        ------
        Unauthenticated, TooManyAttempts
            If there is no token, or it is not valid.
        MissingScope
            If the Hub knows the token, and none of its scopes lets it use the pool.
        Unavailable
            If the Hub cannot be asked about an unknown token.
        """
        match = _CREDENTIALS.fullmatch(authorization.strip())
        if match is None:
            raise Unauthenticated(
                "no token was given; send a JupyterHub token, or one of the pool's, as 'Authorization: Bearer TOKEN'"
            )
        if match[1].startswith(PREFIX):
            return await self._issued_caller(match[1], address)
        model = await self._model(match[1], address)
        return self._hub_caller(model, match[1])

    async def _issued_caller(self, text: str, address: str) -> PoolCaller:
        stored = self._issued.find(text)
        if stored is None:
            raise self._refuse(_digest(text), address)
        creator = stored.user
        # The Hub can be asked about a token that was used since the pool was started.
        known, policy = self._known.get(str(creator["credential"])), str(creator["policy"])
        if known is not None and not (await self._is_good(known) and self._policy_of(known.model) == policy):
            await self._issued.revoke_made_with(str(creator["credential"]))
            raise TokenRevoked("the JupyterHub token that made this token has ended; ask for another one")
        return PoolCaller(
            f"{creator['principal']}/{stored.token.id}",
            policy,
            frozenset(stored.token.scopes),
            stored.token.id,
            stored,
            PoolCaller(str(creator["principal"]), policy, HUB_SCOPES, str(creator["credential"])),
        )

    def _policy_of(self, model: Mapping[str, Any] | None) -> str:
        """Return the policy of a Hub token; an empty text if it has none."""
        scopes = (model or {}).get("scopes") or ()
        return next((policy for scope, policy in self._policies.items() if scope in scopes), "")

    def _hub_caller(self, model: Mapping[str, Any], text: str) -> PoolCaller:
        policy = self._policy_of(model)
        is_admin = model.get("admin") is True
        if not policy and not is_admin:
            raise MissingScope(
                f"the pool needs one of the Hub's scopes {', '.join(map(repr, self._policies))}, and this token has "
                "none; ask the Hub's administrator for a role with it"
            )
        digest = _digest(text)  # and not the Hub's id of the token, which the Hub uses again
        principal = f"{model.get('kind')}:{model.get('name')}/{digest[:_DIGITS]}"
        return PoolCaller(principal, policy, HUB_SCOPES if policy else frozenset(), digest, is_admin=is_admin)

    def _refuse(self, digest: str, address: str) -> Unauthenticated | TooManyAttempts:
        """Count a wrong token as an attempt, unless it was counted just now; return the error for its bearer."""
        if self._is_refused(digest):
            return Unauthenticated(_UNKNOWN)
        self._refused.pop(digest, None)
        if len(self._refused) >= _MAX_KNOWN:
            self._refused.pop(next(iter(self._refused)))
        self._refused[digest] = time.monotonic()
        return self._spend_attempt(address)

    def _is_refused(self, digest: str) -> bool:
        refused_at = self._refused.get(digest)
        return refused_at is not None and time.monotonic() - refused_at < _REFUSED_SECONDS

    def _spend_attempt(self, address: str) -> Unauthenticated | TooManyAttempts:
        wait = self._attempts.spend_action(address, time.monotonic())
        if wait:
            text = "this token is wrong, and too many wrong ones came from this address; check it before the next try"
            return TooManyAttempts(text, retry_after_seconds=wait)
        return Unauthenticated(_UNKNOWN)

    async def _model(self, text: str, address: str) -> Mapping[str, Any]:
        digest = _digest(text)
        known = self._known.get(digest)
        if known is None:
            if self._is_refused(digest):
                raise Unauthenticated(_UNKNOWN)
            # Each unknown token costs the Hub a request.
            if self._attempts.count_remaining(address, time.monotonic()) < 1:
                raise self._spend_attempt(address)
            known = _Known(text)
        if not await self._is_good(known):  # one that was good is kept, so that its work is ended
            raise self._refuse(digest, address)
        assert known.model is not None  # or it would not be good
        if digest not in self._known and len(self._known) >= _MAX_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._known[digest] = known
        return known.model

    async def _is_good(self, known: _Known) -> bool:
        """Return whether a Hub token is good, by the Hub's word of the last `FRESH_SECONDS`."""
        now = time.monotonic()
        # The watch asks, too: that the Hub was asked just now does not mean that it has answered.
        if now - known.asked_at > FRESH_SECONDS or now - known.confirmed_at > self._stale_seconds:
            await self._ask(known)
        return known.model is not None

    async def _ask(self, known: _Known) -> None:
        asked_at = time.monotonic()
        # Whoever comes while the Hub is asked gets the answer before this one, and does not ask as well.
        known.asked_at = asked_at if known.model is not None else known.asked_at
        try:
            known.model = await self._ask_hub(known.text)
        except Unavailable:
            if known.model is None or asked_at - known.confirmed_at > self._stale_seconds:
                raise
            return
        known.asked_at = known.confirmed_at = asked_at

    async def is_ended(self, credential: str, policy: str) -> bool:
        """Return whether a token's work under a policy must end: the token has ended, or has another policy now.

        While the Hub cannot be reached nothing ends, and requests are refused after some time.
        """
        if self._issued.is_ended(credential):
            return True
        known = self._known.get(credential)
        if known is None:  # not used since the pool was started; the Hub cannot be asked without its text
            return False
        if known.model is not None:
            with suppress(Unavailable):
                await self._ask(known)
        return known.model is None or self._policy_of(known.model) != policy


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def require_runner(caller: PoolCaller) -> None:
    """Raise `Forbidden` for an administrator whose token may run no code."""
    if not caller.policy:
        raise Forbidden("this administrator's token has no scope that lets it run code in the pool")
