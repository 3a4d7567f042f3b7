"""Token watch: ends sessions and streams soon after their token has been revoked or has expired.

Another server of the same user may revoke a token, so the database is polled, often enough for work to end within a
second. `TokenJournal` records uses and expiries.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...auth.caller import Caller
from ...errors import ExecError
from ...models import Token
from ..change_feed import ChangeFeed
from ..concurrency import BackgroundTasks
from ..ports import AuditTrail, TokenStore

# Work has to end within a second of a revocation by another server, and ending it takes some of that.
_POLL_SECONDS = 0.25
_NOTE_USE_SECONDS = 60.0  # each note is a write to the database
_MAX_NOTED_TOKENS = 10_000


class TokenJournal:
    """Records uses and expiries of tokens in the store, creations and ends in the audit trail; publishes changes."""

    def __init__(self, store: TokenStore, audit: AuditTrail, feed: ChangeFeed, background: BackgroundTasks) -> None:
        self._store = store
        self._audit = audit
        self._feed = feed
        self._background = background
        self._noted_at: dict[str, float] = {}

    def note_created(self, token: Token, principal: str, by: str) -> None:
        """Record that `principal`, called `by`, has created a token."""
        self._audit.record(
            "token",
            "created",
            principal,
            token.id,
            name=token.name,
            policy=token.policy,
            scopes=list(token.scopes),
            parent_id=token.parent_id,
            expires_at=token.expires_at,
            by=by,
        )
        if self._feed.wanted:
            self._feed.note_token(token)

    async def note_revoked(self, token_ids: Sequence[str], principal: str, by: str) -> None:
        """Record that `principal`, called `by`, has revoked tokens."""
        for token_id in token_ids:
            self._audit.record("token", "revoked", principal, token_id, by=by)
        for token_id in token_ids:
            await self.publish(token_id)

    def note_expired(self, token_id: str) -> None:
        """Record that a token was seen expired, so that it stays so whatever the clock shows later."""
        self._background.start(self._record_expired(token_id))

    async def _record_expired(self, token_id: str) -> None:
        if await self._store.note_expired(token_id):
            self._audit.record("token", "expired", "", token_id)
            await self.publish(token_id)

    def note_use(self, token_id: str) -> None:
        """Record the use of a token, at most once a minute."""
        now = time.monotonic()
        if now - self._noted_at.get(token_id, -_NOTE_USE_SECONDS) >= _NOTE_USE_SECONDS:
            if len(self._noted_at) > _MAX_NOTED_TOKENS:
                self._noted_at.clear()  # at worst, each token that is in use is noted once more
            self._noted_at[token_id] = now
            self._background.start(self._record_use(token_id))

    async def _record_use(self, token_id: str) -> None:
        await self._store.note_use(token_id)
        await self.publish(token_id)

    async def publish(self, token_id: str) -> None:
        """Publish a token's present state in the change feed."""
        if not self._feed.wanted:
            return
        try:
            stored = await self._store.get(token_id)
        except ExecError:  # the change itself is done; watchers read the tokens anew
            self._feed.start_over()
            return
        if stored is not None:
            self._feed.note_token(stored.token)


class HubTokenWatch(Protocol):
    """Port to the JupyterHub tokens in whose names callers act; tokens are named by their digests."""

    def watch(self, hub_token: str, on_end: Callable[[], None]) -> Callable[[], None]:
        """Keep asking the Hub about a token, and call `on_end` when it ends; return what ends the subscription."""

    def keep_asking(self, hub_token: str, until_seconds: float) -> None:
        """Keep asking the Hub about a token until then (since the epoch), since another one was made in its name."""


class NoHub:
    """`HubTokenWatch` of a server that is not under JupyterHub: a null object."""

    def watch(self, hub_token: str, on_end: Callable[[], None]) -> Callable[[], None]:
        """Watch nothing."""
        return _nothing

    def keep_asking(self, hub_token: str, until_seconds: float) -> None:
        """Ask nothing."""


class TokenWatch:
    """Notifies subscribers, once, when a watched token has ended.

    Attributes
    ----------
    hub : HubTokenWatch
        Watches the Hub tokens in whose names callers act.
    """

    def __init__(
        self,
        store: TokenStore,
        journal: TokenJournal,
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        self._store = store
        self._journal = journal
        self._log = log
        self.hub: HubTokenWatch = NoHub()
        self._watched: dict[str, dict[object, Callable[[Token | None], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False
        self._closed = False

    def watch(self, token_id: str, on_end: Callable[[Token | None], None]) -> Callable[[], None]:
        """Call `on_end` when the token ends.

        Parameters
        ----------
        on_end : callable
            Called once, with the token, or with None if the store does not know it any more.

        Returns
        -------
        callable
            Ends the subscription.
        """
        key = object()
        self._watched.setdefault(token_id, {})[key] = on_end
        self._schedule()

        def unwatch() -> None:
            callbacks = self._watched.get(token_id, {})
            callbacks.pop(key, None)
            if not callbacks:
                self._watched.pop(token_id, None)

        return unwatch

    def watch_caller(self, caller: Caller, on_end: Callable[[], None]) -> Callable[[], None]:
        """Call `on_end`, once, when the caller's token or Hub token ends, if it has one; for what it reads.

        Returns
        -------
        callable
            Ends the subscription.
        """
        return self._watch_both(caller.token_id, caller.hub_token, lambda _: on_end())

    def watch_work(self, caller: Caller, on_end: Callable[[Token | None], None]) -> Callable[[], None]:
        """As `watch_caller`, for the caller's sessions and executions, which do not end with a person's login."""
        return self._watch_both(caller.token_id, caller.maker, on_end)

    def keep_asking(self, caller: Caller, until_seconds: float) -> None:
        """Have the Hub asked about the caller's token until then, since another token was made in its name."""
        if caller.maker:
            self.hub.keep_asking(caller.maker, until_seconds)

    def _watch_both(
        self, token_id: str | None, hub_token: str, on_end: Callable[[Token | None], None]
    ) -> Callable[[], None]:
        ends: list[Callable[[], None]] = []

        def unwatch() -> None:
            while ends:
                ends.pop()()

        def end(token: Token | None) -> None:
            unwatch()  # both may end: the one is revoked because the other was
            on_end(token)

        def end_with_hub_token() -> None:
            # If another login has rotated the token, it is in the name of that login's Hub token, and lives on.
            if token_id is None or self._is_in_name_of(hub_token, token_id):
                end(None)

        if token_id is not None:
            ends.append(self.watch(token_id, end))
        if hub_token:
            ends.append(self.hub.watch(hub_token, end_with_hub_token))
        return unwatch

    def _is_in_name_of(self, hub_token: str, token_id: str) -> bool:
        try:
            return self._store.is_in_name_of(hub_token, token_id)
        except ExecError as error:  # work must not outlast a refused Hub token because the store is away
            self._log.warning("a token of JupyterHub's cannot be looked up, so its work ends: %s", error.message)
            return True

    def _schedule(self) -> None:
        if self._timer is None and self._watched and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.poll()
        self._schedule()

    def poll(self) -> None:
        """Read the watched tokens now, and notify the subscribers of those that have ended."""
        if not self._watched:
            return
        try:
            ended = self._store.ended(tuple(self._watched))
        except ExecError as error:  # new requests are refused, too; running work goes on until the store can be read
            if not self._failing:
                self._log.warning("tokens cannot be checked: %s", error.message)
            self._failing = True
            return
        self._failing = False
        for token_id, token in ended.items():
            if token is not None and token.revoked_at is None:
                self._journal.note_expired(token_id)
            # Taken out first: a callback may end its own subscription, which would change the dictionary.
            for on_end in self._watched.pop(token_id).values():
                on_end(token)

    def close(self) -> None:
        """Stop polling."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


def _nothing() -> None:
    pass


def why_ended(token: Token | None) -> str:
    """Return a sentence about how a token ended."""
    if token is None:  # it is a Hub token, or its database was damaged and is not used any more
        return "the token of the session is not known any more"
    return f"the token {token.id} was revoked" if token.revoked_at is not None else f"the token {token.id} expired"
