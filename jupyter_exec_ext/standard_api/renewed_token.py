"""Scoped token that is renewed before its end, for as long as its server runs."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from tornado.ioloop import IOLoop

from ..auth.caller import Caller
from ..engine.access.token_service import TokenService
from ..errors import ExecError, TokenExpired, TokenNotFound, TokenRevoked
from ..models import IssuedToken, TokenRequest

_log = logging.getLogger(__name__)
# A server that is killed leaves its token for this time at most. An outage of the store may last half of it.
_LIFE_SECONDS = 86_400.0
# Longer than a shutdown takes.
_LIFE_AFTER_CLOSE_SECONDS = 120.0
_OVERLAP_SECONDS = 60.0  # for requests that have the earlier secret already
# The system's time is looked at so often, because timers stand still while a machine sleeps.
_LOOK_SECONDS = 60.0
_LOOKS_IN_A_LIFE = 10.0  # of a token that lives for less than ten minutes


class RenewedToken:
    """Token under the default policy, with the given scopes. If the owner revokes it, it stays revoked.

    Parameters
    ----------
    tokens : TokenService
        Service that creates the token.
    caller : Caller
        Creator of the token.
    name : str
        A name for lists.
    scopes : tuple of str
        The token's scopes.
    max_seconds : float
        Longest life of a token, in seconds.

    Attributes
    ----------
    text : str
        The token with its present secret; empty until it is created.
    """

    def __init__(
        self, tokens: TokenService, caller: Caller, name: str, scopes: tuple[str, ...], max_seconds: float
    ) -> None:
        self.text = ""
        self._tokens = tokens
        self._caller = caller
        self._name = name
        self._scopes = scopes
        self._life_seconds = min(_LIFE_SECONDS, max_seconds)
        self._issued: IssuedToken | None = None
        self._renewing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Create the token, and begin to renew it, as soon as the event loop runs."""
        IOLoop.current().add_callback(self._start)

    def _start(self) -> None:
        self._renewing = asyncio.get_running_loop().create_task(self._renew_before_end())

    async def _renew_before_end(self) -> None:
        renew_at = 0.0
        while True:
            try:
                if time.time() >= renew_at:
                    await self._renew(self._life_seconds)
                    renew_at = time.time() + self._life_seconds / 2
                elif self._issued is not None:
                    await self._tokens.get(self._caller, self._issued.token.id)
            except TokenRevoked:
                return
            except (TokenExpired, TokenNotFound):  # after a long outage of the store, or with a new database
                self._issued, renew_at = None, 0.0
                continue
            except ExecError as error:
                _log.warning("the token %r is not renewed yet: %s", self._name, error.message)
            await asyncio.sleep(min(_LOOK_SECONDS, self._life_seconds / _LOOKS_IN_A_LIFE))

    async def _renew(self, life_seconds: float) -> None:
        if self._issued is None:
            request = TokenRequest(self._name, scopes=self._scopes, expires_in_seconds=life_seconds)
            self._issued = await self._tokens.create(self._caller, request)
        else:
            token_id = self._issued.token.id
            self._issued = await self._tokens.rotate(self._caller, token_id, _OVERLAP_SECONDS, life_seconds)
        self.text = self._issued.text

    async def close(self) -> None:
        """Let the token end soon.

        It is not revoked, since the sessions that the shutdown ends would then end as `token_revoked`.
        """
        if self._renewing is not None:
            self._renewing.cancel()
        if self._issued is not None:
            with suppress(ExecError):  # it then ends with its life
                await self._renew(min(_LIFE_AFTER_CLOSE_SECONDS, self._life_seconds))
