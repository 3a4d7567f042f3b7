"""Notices that a token has been revoked or has expired, while something goes on in its name.

Whoever revokes it may be another server of the same user, so the database is asked; often enough for what goes on to
end within a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ...errors import ExecError
from ...models import Token
from ..ports import TokenStore

_LOOK_SECONDS = 0.25


class TokenWatch:
    """Calls back, once, when a watched token has ended.

    Parameters
    ----------
    on_expired : callable
        Called with the id of each token that was seen expired.
    """

    def __init__(
        self,
        store: TokenStore,
        log: logging.Logger | logging.LoggerAdapter[Any],
        on_expired: Callable[[str], None],
    ) -> None:
        self._store = store
        self._log = log
        self._on_expired = on_expired
        self._watched: dict[str, dict[object, Callable[[Token | None], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False
        self._closed = False

    def watch(self, token_id: str, on_end: Callable[[Token | None], None]) -> Callable[[], None]:
        """Call `on_end` when the token ends, without it if it is not known any more.

        Returns
        -------
        callable
            Ends the watch.
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

    def _schedule(self) -> None:
        if self._timer is None and self._watched and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.look()
        self._schedule()

    def look(self) -> None:
        """Ask now."""
        if not self._watched:
            return
        try:
            ended = self._store.ended(tuple(self._watched))
        except ExecError as error:  # new requests are refused, too; what runs goes on until the store can be asked
            if not self._failing:
                self._log.warning("tokens cannot be checked: %s", error.message)
            self._failing = True
            return
        self._failing = False
        for token_id, token in ended.items():
            if token is not None and token.revoked_at is None:
                self._on_expired(token_id)
            for on_end in self._watched.pop(token_id).values():
                on_end(token)

    def close(self) -> None:
        """Watch no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


def why_ended(token: Token | None) -> str:
    """Return, in a sentence, how a token ended."""
    if token is None:  # its database was damaged and is not used any more
        return "the token of the session is not known any more"
    return f"the token {token.id} was revoked" if token.revoked_at is not None else f"the token {token.id} expired"
