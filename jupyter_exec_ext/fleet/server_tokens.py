"""Scoped tokens on the pool's servers: one for each caller on each server, so that the server's own checks hold.

A caller's token on a server has the caller's policy there, and that of a token that the pool has issued is below its
creator's. Each is valid for an hour and renewed, so that nothing goes on for long in the name of a pool that has ended.
The pool keeps the secrets in memory only; after a restart it finds its tokens by their names and gives them new ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..auth.caller import is_within
from ..errors import ExecError, TokenExpired, TokenNotFound, TokenRevoked, Unauthenticated
from .callers import PoolCaller
from .pool_server import Server
from .server_requests import CALL_SECONDS, ServerRequests

LIFE_SECONDS = 3600.0
# The old secret is good for requests that are on their way.
_OVERLAP_SECONDS = 60.0
_KEPT_SECONDS = 86_400.0
# A server's answers about a token that has ended, and its sessions with it. Another 401 is about the pool's own token.
_ENDED = (TokenRevoked, TokenExpired, TokenNotFound)


@dataclass(slots=True)
class _Held:
    """A token on a server; one that an earlier process has left has no secret yet."""

    id: str
    principal: str
    policy: str
    # What the principal's work ends with, see `PoolCaller`.
    credential: str
    used_at: float
    secret: str = field(default="", repr=False)
    expires_at: float = 0.0
    renew_at: float = 0.0

    def take(self, issued: Mapping[str, Any], asked_at: float, life_seconds: float) -> None:
        """Keep a new secret. The server counts its life from a moment after `asked_at`, so it is valid a bit longer."""
        self.secret = str(issued["token"])
        self.expires_at = asked_at + life_seconds
        self.renew_at = asked_at + life_seconds / 2


class ServerTokens:
    """The tokens that the pool holds.

    Parameters
    ----------
    requests : ServerRequests
        Sends requests to the servers.
    log : logging.Logger
        The pool's log.
    """

    def __init__(self, requests: ServerRequests, log: logging.Logger) -> None:
        self._requests = requests
        self._log = log
        # By server, and by the name of the token there.
        self._held: dict[str, dict[str, _Held]] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def call_as(self, caller: PoolCaller, server: Server, method: str, path: str) -> Any:
        """Return the JSON of a server's answer to a caller; raise as `ServerRequests.call`."""
        secret = await self.secret(server, caller)
        try:
            return await self._requests.call(server, method, path, token=secret)
        except Unauthenticated:
            self.note_refused(server, secret)
        return await self._requests.call(server, method, path, token=await self.secret(server, caller))

    async def secret(self, server: Server, caller: PoolCaller) -> str:
        """Return the secret of a caller's token on a server; a new one is made, or a known one renewed, if need be."""
        return (await self._token(server, caller)).secret

    async def _token(self, server: Server, caller: PoolCaller) -> _Held:
        name = _name_of(server, caller)
        held = self._held.get(server.name, {}).get(name)
        if held is None or held.renew_at <= time.time():
            async with self._lock(server, name):
                held = await self._hold(server, caller)
        held.credential, held.used_at = caller.credential, time.time()
        above = self._held.get(server.name, {}).get(_name_above(name))
        if above is not None:  # without its renewal this one would end
            above.used_at = held.used_at
        return held

    def _lock(self, server: Server, name: str) -> asyncio.Lock:
        return self._locks.setdefault((server.name, name), asyncio.Lock())

    async def _hold(self, server: Server, caller: PoolCaller) -> _Held:
        """Return a caller's token on a server, renewed or made if need be."""
        tokens = await self._held_on(server)
        held = tokens.get(_name_of(server, caller))
        if held is not None and held.renew_at > time.time():
            return held
        above = None if caller.creator is None else await self._token(server, caller.creator)
        if held is not None:
            with suppress(*_ENDED):
                return await self._renew(server, held, above)
        try:
            held = tokens[_name_of(server, caller)] = await self._create(server, caller, above)
        except Unauthenticated:
            if above is None or caller.creator is None:
                raise
            above.renew_at = 0.0  # it has ended on the server
            above = await self._token(server, caller.creator)
            held = tokens[_name_of(server, caller)] = await self._create(server, caller, above)
        return held

    async def _create(self, server: Server, caller: PoolCaller, above: _Held | None) -> _Held:
        """Make a token on a server, below that of the creator; raises `Unauthenticated` if that one has ended."""
        asked_at, life_seconds = time.time(), _life_seconds(above)
        request: dict[str, Any] = {"name": _name_of(server, caller), "expires_in_seconds": life_seconds}
        if above is None:
            request |= {"policy": caller.policy, "scopes": sorted(caller.scopes | {"tokens:create"})}
        else:
            request |= {"limits": dict(caller.limits), "scopes": sorted(caller.scopes)}
        held = _Held("", caller.principal, caller.policy, caller.credential, time.time())
        issued = await self._requests.call(
            server, "POST", "tokens", token=above.secret if above else None, json=request
        )
        held.id = str(issued["id"])
        held.take(issued, asked_at, life_seconds)
        return held

    async def _renew(self, server: Server, held: _Held, above: _Held | None) -> _Held:
        asked_at, life_seconds = time.time(), _life_seconds(above)
        body = {"overlap_seconds": _OVERLAP_SECONDS, "expires_in_seconds": life_seconds}
        issued = await self._requests.call(server, "POST", f"tokens/{held.id}/rotate", json=body)
        held.take(issued, asked_at, life_seconds)
        return held

    async def has_token(self, server: Server, caller: PoolCaller) -> bool:
        """Return whether a caller has a token on a server, without which it has nothing there."""
        return _name_of(server, caller) in await self._held_on(server)

    async def _held_on(self, server: Server) -> dict[str, _Held]:
        """Return the tokens of a server by name; those that an earlier process has left are found at the first call."""
        if server.name not in self._held:
            found = await self._requests.call(server, "GET", "tokens")
            # Servers of one home directory have one list of tokens.
            ours = [token for token in found["tokens"] if str(token["name"]).startswith(_prefix_of(server))]
            left = {str(token["name"]): _left_token(server, token) for token in ours}
            self._held.setdefault(server.name, left)  # another request may have asked meanwhile
        return self._held[server.name]

    async def revoke(self, server: Server, principal: str) -> None:
        """Revoke the tokens of a principal on a server, and those below them, which ends what runs in their names."""
        tokens = await self._held_on(server)
        for name, held in sorted(tokens.items()):
            if is_within(held.principal, principal):
                with suppress(*_ENDED):
                    await self._requests.call(server, "DELETE", f"tokens/{held.id}")
                if tokens.get(name) is held:  # no other one was made meanwhile
                    del tokens[name]

    async def renew_due(self, server: Server) -> None:
        """Renew the tokens of a server that need it and were used within a day: their sessions end with them."""
        tokens = await self._held_on(server)
        for name in sorted(tokens):  # a creator's name comes before those of its tokens
            try:
                async with self._lock(server, name):  # a request may renew it, too
                    await self._renew_if_due(server, tokens, name)
            except ExecError as error:
                self._log.warning("pool: a token on %s could not be renewed now: %s", server.name, error.message)

    async def _renew_if_due(self, server: Server, tokens: dict[str, _Held], name: str) -> None:
        held, above, now = tokens.get(name), tokens.get(_name_above(name)), time.time()
        if held is None or now < held.renew_at:
            return
        if now > held.used_at + _KEPT_SECONDS:
            if now > held.expires_at:  # and its sessions with it
                tokens.pop(name, None)
            return
        # That one could not be renewed, and this one would be valid no longer.
        if above is not None and above.expires_at <= now:
            return
        try:
            await self._renew(server, held, above)
        except _ENDED:
            tokens.pop(name, None)

    def note_use(self, credentials: Collection[str]) -> None:
        """Count the tokens of some credentials as used now: they have open requests."""
        now = time.time()
        for held in (held for tokens in self._held.values() for held in tokens.values()):
            if held.credential in credentials:
                held.used_at = now

    def holders(self) -> dict[tuple[str, str], str]:
        """Return the credentials of all that have tokens on servers, by principal and policy."""
        found, credentials = set(), dict[str, str]()
        for held in (held for tokens in self._held.values() for held in tokens.values()):
            found.add((held.principal, held.policy))
            # The whole digest of a Hub token is longer than its beginning in the name of a token that was left.
            credentials[held.principal] = max(credentials.get(held.principal, ""), held.credential, key=len)
        return {holder: credentials[holder[0]] for holder in found}

    async def count_sessions(self, server: Server, account: str) -> int:
        """Return how many sessions the principals of an account have on a server."""
        tokens = await self._held_on(server)
        ids = {held.id for held in tokens.values() if held.principal.partition("/")[0] == account}
        if not ids:
            return 0
        sessions = (await self._requests.call(server, "GET", "sessions"))["sessions"]
        # A session's owner is a token, or a chain of tokens from the first one down.
        return sum(not ids.isdisjoint(str(session["owner"]).partition(":")[2].split("/")) for session in sessions)

    def note_refused(self, server: Server, secret: str) -> None:
        """Have a token renewed before its next use, since its server did not know its secret."""
        for held in self._held.get(server.name, {}).values():
            if held.secret == secret:
                held.renew_at = 0.0

    def forget(self, server_name: str) -> None:
        """Forget the tokens of a server that has ended."""
        self._held.pop(server_name, None)
        for key in [key for key in self._locks if key[0] == server_name]:
            del self._locks[key]


def _prefix_of(server: Server) -> str:
    return f"pool {server.name} "


def _name_of(server: Server, caller: PoolCaller) -> str:
    return f"{_prefix_of(server)}{caller.principal} {caller.policy}"


def _left_token(server: Server, token: Mapping[str, Any]) -> _Held:
    """Return a token that an earlier process has left; it is renewed before its next use."""
    principal, _, policy = str(token["name"]).removeprefix(_prefix_of(server)).rpartition(" ")
    # An issued token's id ends its principal's name. A Hub token's digest is known as soon as it is used.
    return _Held(str(token["id"]), principal, policy, principal.rpartition("/")[2], time.time())


def _name_above(name: str) -> str:
    """Return the name that the token of a token's creator has."""
    principal, _, policy = name.rpartition(" ")
    return f"{principal.rpartition('/')[0]} {policy}"


def _life_seconds(above: _Held | None) -> float:
    """Return for how long a token is to be valid: no longer than the one above it."""
    if above is None:
        return LIFE_SECONDS
    # A slow request would otherwise ask for longer than the token above is good for, and be refused.
    return max(1.0, min(LIFE_SECONDS, above.expires_at - time.time() - CALL_SECONDS))
