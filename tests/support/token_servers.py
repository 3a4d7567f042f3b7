"""Tokens of a pool's Hub and servers in memory. Those of a server expire, and end with the one above."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_exec_ext.auth.caller import is_within
from jupyter_exec_ext.errors import (
    TokenExpired,
    TokenNotFound,
    TokenRevoked,
    TokenTooBroad,
    Unauthenticated,
    Unavailable,
)
from jupyter_exec_ext.fleet.pool_server import Server
from jupyter_exec_ext.fleet.router import NothingSent

ADA_MODEL = {"kind": "user", "name": "ada", "admin": False, "token_id": "a1", "scopes": ["custom:exec:run"]}


class TokenHub:
    """What the Hub says of tokens, by their texts; raises `Unavailable` while it is away.

    Attributes
    ----------
    failures : dict
        Errors that questions about single tokens raise.
    """

    def __init__(self) -> None:
        self.models: dict[str, Mapping[str, Any]] = {"ada": ADA_MODEL, "ada-too": ADA_MODEL}
        self.failures: dict[str, Exception] = {}
        self.is_away = False
        self.asked_texts: list[str] = []

    @property
    def asked(self) -> int:
        return len(self.asked_texts)

    async def ask(self, text: str) -> Mapping[str, Any] | None:
        self.asked_texts.append(text)
        if text in self.failures:
            raise self.failures[text]
        if self.is_away:
            raise Unavailable("away")
        return self.models.get(text)


@dataclass
class ServerToken:
    """A token of a server."""

    id: str
    name: str
    principal: str
    parent: ServerToken | None
    expires_at: float
    secret: str
    is_revoked: bool = False


class TokenServers:
    """Answers a pool's requests for tokens on its servers.

    Attributes
    ----------
    away : set of str
        Servers that do not answer.
    errors : dict
        Errors of single tokens by their names, and of servers by theirs.
    clock : callable
        Returns the time.
    on_answer : callable
        Called before each answer, such as to let time pass.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.tokens: dict[str, dict[str, ServerToken]] = {}
        self.away: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.clock = clock
        self.on_answer: Callable[[], None] = lambda: None
        self._numbers = itertools.count()

    async def call(self, server: Server, method: str, path: str, *, token: str | None = None, json: Any = None) -> Any:
        try:
            return self._answer(server, method, path, token, json)
        finally:
            self.on_answer()

    def _answer(self, server: Server, method: str, path: str, token: str | None, json: Any) -> Any:
        if server.name in self.away:
            raise NothingSent("away")
        if server.name in self.errors:
            raise self.errors[server.name]
        tokens = self.tokens.setdefault(server.name, {})
        if (method, path) == ("GET", "tokens"):
            return {"tokens": [{"id": each.id, "name": each.name} for each in tokens.values() if self._is_valid(each)]}
        if (method, path) == ("POST", "tokens"):
            return self._create(tokens, token, json)
        if token is not None:
            return {"principal": self._bearer(tokens, token).principal}
        found = tokens.get(path.split("/")[1])
        if found is None:
            raise TokenNotFound("there is none")
        if found.name in self.errors:
            raise self.errors[found.name]
        if method == "DELETE":
            for each in tokens.values():
                each.is_revoked |= is_within(each.principal, found.principal)
            return None
        return self._rotate(found, json)

    def names(self, server: str) -> set[str]:
        """Return the names of a server's tokens that have not ended."""
        return {each.name for each in self.tokens.get(server, {}).values() if self._is_valid(each)}

    def _is_valid(self, token: ServerToken) -> bool:
        return not token.is_revoked and token.expires_at > self.clock()

    def _bearer(self, tokens: dict[str, ServerToken], secret: str) -> ServerToken:
        for token in tokens.values():
            if token.secret == secret and self._is_valid(token):
                return token
        raise Unauthenticated("this token is not valid")

    def _create(self, tokens: dict[str, ServerToken], secret: str | None, request: Any) -> Any:
        parent = self._bearer(tokens, secret) if secret is not None else None
        token_id = f"t{next(self._numbers)}"
        principal = f"{parent.principal}/{token_id}" if parent else token_id
        expires_at = self._expiry(request, parent)
        made = ServerToken(token_id, request["name"], principal, parent, expires_at, f"secret of {token_id}")
        tokens[token_id] = made
        return {"id": made.id, "token": made.secret}

    def _expiry(self, request: Any, parent: ServerToken | None) -> float:
        expires_at: float = self.clock() + request["expires_in_seconds"]
        if parent is not None and expires_at > parent.expires_at:
            raise TokenTooBroad("the token above is not good for that long")
        return expires_at

    def _rotate(self, token: ServerToken, request: Any) -> Any:
        if token.is_revoked:
            raise TokenRevoked("it was revoked")
        if not self._is_valid(token):
            raise TokenExpired("it has expired")
        token.expires_at = self._expiry(request, token.parent)
        token.secret = f"{token.secret}+"
        return {"id": token.id, "token": token.secret}
