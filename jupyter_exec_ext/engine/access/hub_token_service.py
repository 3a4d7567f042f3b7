"""JupyterHub tokens under a policy: each has a record beside the scoped tokens, and is a caller like them.

The record has no secret: the Hub says who may come in. It gives the Hub token a principal of its own, so that
isolation, limits, approvals and audit hold for it, and the server's owner can revoke it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ...auth.caller import Caller, token_principal
from ...auth.scopes import SCOPES
from ...auth.token_format import NO_HASH, new_token
from ...models import Grant, StoredToken, Token
from ...protocol.records_json import utc_timestamp
from ..ports import TokenStore
from ..settings import EngineSettings
from .token_service import TokenService
from .token_watch import HubTokenWatch, TokenJournal, TokenWatch

_HUB = "JupyterHub"
_MAX_NAME_CHARACTERS = 128
# How loaded the whole server is concerns a pool, and no agent.
_SCOPES = tuple(scope for scope in SCOPES if scope != "pool:read")


class HubTokenService:
    """Callers with a JupyterHub token, and the tokens that were made in its name."""

    def __init__(
        self,
        store: TokenStore,
        tokens: TokenService,
        settings: EngineSettings,
        journal: TokenJournal,
        watch: TokenWatch,
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._settings = settings
        self._journal = journal
        self._watch = watch
        self._recording = asyncio.Lock()
        self._extending: set[str] = set()

    def ask(self, hub: HubTokenWatch) -> None:
        """Watch Hub tokens with `hub` from now on."""
        self._watch.hub = hub

    async def caller(self, hub_token: str, name: str, user: Mapping[str, Any], policy: str) -> Caller:
        """Return the bearer of a Hub token under a policy.

        Parameters
        ----------
        hub_token : str
            The token's digest.
        name : str
            For people: the token's number at the Hub, and its holder.
        user : mapping
            Record of the holder, for the deployment's authorizer.

        Raises
        ------
        TokenRevoked
            If the server's owner has revoked it here.
        TooManyTokens, StorageFull, StoreUnavailable
            If it is new, and cannot be recorded.
        """
        stored = self._find(hub_token, policy)
        if stored is None:
            async with self._recording:  # two first requests at once are one caller
                stored = self._find(hub_token, policy) or await self._record(hub_token, name, user, policy)
        caller = self._tokens.admit(stored)
        await self._extend(stored)
        return caller

    async def _extend(self, stored: StoredToken) -> None:
        """Move the end of a record in use: the Hub says how long its token is good, and work ends with the record."""
        now, life_seconds = time.time(), self._settings.max_token_seconds
        token_id = stored.token.id
        # Seldom, and once for many requests, since it is a write to the database.
        if stored.expires_at_seconds - now < life_seconds / 2 and token_id not in self._extending:
            self._extending.add(token_id)
            try:
                await self._store.extend(token_id, now + life_seconds)
            finally:
                self._extending.discard(token_id)

    def _find(self, hub_token: str, policy: str) -> StoredToken | None:
        """Return the record of a Hub token, unless it has expired; the owner's revocation has no end."""
        stored = self._store.find_of_hub(hub_token, policy)
        return None if stored is None or (stored.token.expired and stored.token.revoked_at is None) else stored

    async def _record(self, hub_token: str, name: str, user: Mapping[str, Any], policy: str) -> StoredToken:
        self._tokens.spend_mint(f"{_HUB} {user.get('username', '')}")
        token_id, now = new_token().id, time.time()
        expires_at_seconds = now + self._settings.max_token_seconds
        token = Token(
            id=token_id,
            principal=token_principal((token_id,)),
            name=name[:_MAX_NAME_CHARACTERS],
            policy=policy,
            scopes=_SCOPES,
            created_at=utc_timestamp(now),
            expires_at=utc_timestamp(expires_at_seconds),
            created_by=_HUB,
        )
        stored = StoredToken(token, (Grant(token_id, policy),), user, expires_at_seconds, hub_token, is_of_hub=True)
        await self._store.add(stored, NO_HASH, self._settings.max_tokens)
        self._journal.note_created(token, "", _HUB)
        return stored

    def made_until(self, hub_token: str) -> float:
        """Return when the last active token made in a Hub token's name expires, since the epoch; 0 without one."""
        return self._store.made_until(hub_token)

    async def end(self, hub_token: str) -> None:
        """Revoke the records of a Hub token and all tokens that were made in its name.

        Raises
        ------
        StorageFull, StoreUnavailable
            If it cannot be recorded; none is revoked.
        """
        ended = await self._store.revoke_of_hub(hub_token)
        self._watch.poll()
        await self._journal.note_revoked(ended, "", _HUB)
