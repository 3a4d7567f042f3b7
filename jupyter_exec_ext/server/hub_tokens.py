"""JupyterHub tokens in use: the Hub is asked about each again, and what runs in the name of a refused one ends.

While the Hub is away, its last answer about a token stays good for a time. The tokens themselves are kept in memory
only, as long as they are good; their digests name them everywhere else.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from tornado.httpclient import AsyncHTTPClient
from tornado.web import HTTPError

from ..errors import ExecError

#: Interval of questions about a token in whose name code runs or a stream is open.
ASK_SECONDS = 5.0
# A Hub that takes longer counts as away.
_ANSWER_SECONDS = 3.0
_MAX_TOKENS = 1000
_MAX_REQUESTS = 20
_REFUSALS = (401, 403, 404)
# Other text is no token of a Hub, and the Hub is not asked about it.
_TOKEN = re.compile(r"[\x20-\x7e]{1,1000}")
_AWAY = "JupyterHub does not answer, and has not said lately whose token this is; try again"


class HubAway(Exception):
    """The Hub does not say whose a token is."""


class HubUser(dict[str, Any]):
    """The Hub's answer about a token; `token` is its record here."""

    token: HubToken


@dataclass(eq=False, slots=True)
class HubToken:
    """State of one Hub token, as the Hub last described it.

    Parameters
    ----------
    digest : str
        Names it in the store and in callers.
    text : str
        The token, while the Hub knows it.
    user : HubUser or None
        The Hub's last answer; None if it refused the token, or was not asked yet.
    standing : object
        What that answer means for this server; None without any access.
    is_away : bool
        Whether the Hub was away at the last question.
    asked_at, answered_at : float or None
        Times of the last question and of the last answer, on the monotonic clock.
    wanted_until : float
        Time since the epoch until which tokens that were made in its name are good.
    """

    digest: str
    text: str = field(default="", repr=False)
    user: HubUser | None = None
    standing: object = None
    session_id: str = ""
    is_away: bool = False
    asked_at: float | None = None
    answered_at: float | None = None
    wanted_until: float = 0.0
    watchers: dict[object, Callable[[], None]] = field(default_factory=dict, repr=False)
    question: asyncio.Task[None] | None = field(default=None, repr=False)
    repeating: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def is_wanted(self) -> bool:
        """True if something ends with it."""
        return bool(self.watchers) or time.time() < self.wanted_until


class MadeTokens(Protocol):
    """Port to the tokens that were made in the name of Hub tokens."""

    def made_until(self, hub_token: str) -> float:
        """Return when the last active one expires, since the epoch; 0 without one."""

    async def end(self, hub_token: str) -> None:
        """Revoke them."""


class HubTokens:
    """Asks the Hub about tokens, once for all requests that wait for the same answer.

    Parameters
    ----------
    hub_auth : object
        The identity provider's `HubAuth`: the Hub's address, and the age up to which an answer needs no question.
    made : MadeTokens
        Tokens that end with a Hub token.
    standing_of : callable
        Returns what an answer means for this server; None without any access. With another standing than before, what
        was begun under the earlier one ends.
    stale_seconds : float
        How long the last answer stays good while the Hub is away.
    ask_seconds : float
        Interval of questions about a token that something depends on.
    """

    def __init__(
        self,
        hub_auth: Any,
        made: MadeTokens,
        standing_of: Callable[[Mapping[str, Any]], object],
        *,
        stale_seconds: float,
        log: Any,
        ask_seconds: float = ASK_SECONDS,
    ) -> None:
        self._hub_auth = hub_auth
        self._made = made
        self._standing_of = standing_of
        self._stale_seconds = stale_seconds
        self._ask_seconds = ask_seconds
        self._log = log
        # The least recently used first. Anyone can send many unknown tokens, which must not push a good one out.
        self._good: dict[str, HubToken] = {}
        self._others: dict[str, HubToken] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._http: AsyncHTTPClient | None = None
        self._ssl_context: Any = None

    # --- questions ---

    async def user_for_token(self, text: str, use_cache: bool = True, session_id: str = "") -> HubUser | None:
        """Return the Hub's answer about a token; None if the Hub refuses it.

        Raises
        ------
        HTTPError
            With status 503, if the Hub is away and its last answer is too old.
        """
        if not _TOKEN.fullmatch(text):
            return None
        digest = hashlib.sha256(f"jupyterhub:{text}".encode()).hexdigest()
        token = self._good.get(digest) or self._others.get(digest) or HubToken(digest)
        self._keep(token)
        if session_id != token.session_id or not use_cache or self._is_due(token):
            token.session_id = session_id
            question = self._ask(token, text)
            if not self._is_stale(token):  # an outage is waited for once, and not by each request
                await asyncio.shield(question)
        if token.is_away and not self._is_stale(token):
            raise HTTPError(503, _AWAY)
        return token.user

    def _keep(self, token: HubToken) -> None:
        """Keep a token as the most recently used one, and no more than there may be."""
        self._good.pop(token.digest, None)
        self._others.pop(token.digest, None)
        tokens = self._others if token.user is None else self._good
        tokens[token.digest] = token
        if len(tokens) > _MAX_TOKENS:
            # Those that something depends on are as few as sessions, streams and made tokens.
            idle = (each for each in tokens.values() if not each.is_wanted and each.question is None)
            oldest = next(idle, token)
            del tokens[oldest.digest]

    def _is_due(self, token: HubToken) -> bool:
        if token.asked_at is None or (token.is_away and not self._is_stale(token)):
            return True
        max_age: float = self._hub_auth.cache_max_age  # 0 is for ever, as JupyterHub has it
        return max_age > 0 and time.monotonic() - token.asked_at >= max_age

    def _is_stale(self, token: HubToken) -> bool:
        """Return whether the Hub was away at the last question, and its last answer is still good."""
        if not token.is_away or token.answered_at is None:
            return False
        return time.monotonic() - token.answered_at <= self._stale_seconds

    def _ask(self, token: HubToken, text: str) -> asyncio.Task[None]:
        if token.question is None:
            token.question = asyncio.get_running_loop().create_task(self._put_question(token, text))
        return token.question

    async def _put_question(self, token: HubToken, text: str) -> None:
        try:
            answer = await self._fetch(text)
        except HubAway as error:
            if not token.is_away:  # once for each outage
                self._log.warning("JupyterHub could not be asked whose a token is: %s", error)
            token.is_away, token.asked_at = True, time.monotonic()
            return
        finally:
            token.question = None
        is_first = token.answered_at is None
        token.is_away, token.asked_at = False, time.monotonic()
        token.answered_at = token.asked_at
        before, token.standing = token.standing, None if answer is None else self._standing_of(answer)
        token.text, token.user = ("", None) if answer is None else (text, HubUser(answer))
        if token.user is not None:
            token.user.token = token
        self._keep(token)
        if token.standing is None if is_first else token.standing != before:
            self._end(token, retry=not is_first)
        elif is_first:  # tokens that were made in its name while an earlier server ran
            self._want_until(token, self._read_made_until(token))

    async def _fetch(self, text: str) -> dict[str, Any] | None:
        """Ask ``GET /hub/api/user``; return None for a refused token.

        Raises
        ------
        HubAway
            If there is no answer, or one that does not say whose the token is.
        """
        if self._http is None:
            self._ssl_context = _ssl_context(self._hub_auth)
            self._http = AsyncHTTPClient(force_instance=True, max_clients=_MAX_REQUESTS)
        try:
            answer = await self._http.fetch(
                f"{self._hub_auth.api_url.rstrip('/')}/user",
                headers={"Authorization": f"token {text}"},
                connect_timeout=_ANSWER_SECONDS,
                request_timeout=_ANSWER_SECONDS,
                follow_redirects=False,
                raise_error=False,
                ssl_options=self._ssl_context,
            )
            if answer.code in _REFUSALS:
                return None
            user = json.loads(answer.body) if answer.code == 200 else None
        except Exception as error:  # an HTTP library raises whatever the network does
            raise HubAway(type(error).__name__) from None
        if not isinstance(user, dict) or not isinstance(user.get("scopes"), list) or not user.get("name"):
            raise HubAway(f"it answered {answer.code}")
        return user

    # --- what depends on a token ---

    def get(self, digest: str) -> HubUser | None:
        """Return the Hub's last answer about a token; None if there is none, or the Hub refused it."""
        token = self._good.get(digest)
        return None if token is None else token.user

    def watch(self, hub_token: str, on_end: Callable[[], None]) -> Callable[[], None]:
        """Keep asking about a token, and call `on_end` when it ends; return what ends the subscription."""
        token, key = self._good.get(hub_token), object()
        if token is not None:
            token.watchers[key] = on_end
            self._repeat(token)
            return partial(_remove, token.watchers, key)
        if hub_token in self._others:  # it ended in this moment
            asyncio.get_running_loop().call_soon(on_end)
        return _nothing  # it has not been used since the server's start

    def keep_asking(self, hub_token: str, until_seconds: float) -> None:
        """Keep asking about a token until then, since another token was made in its name."""
        if hub_token in self._good:
            self._want_until(self._good[hub_token], until_seconds)
        elif hub_token in self._others:  # it ended while the other one was made
            self._end(self._others[hub_token], retry=True)

    def _want_until(self, token: HubToken, until_seconds: float) -> None:
        token.wanted_until = max(token.wanted_until, until_seconds)
        self._repeat(token)

    def _read_made_until(self, token: HubToken) -> float:
        try:
            return self._made.made_until(token.digest)
        except ExecError as error:  # these tokens cannot be used either while the store cannot be read
            self._log.warning("the tokens that a Hub token has made cannot be read: %s", error.message)
            return 0.0

    def _repeat(self, token: HubToken) -> None:
        if token.repeating is None and token.is_wanted:
            token.repeating = asyncio.get_running_loop().create_task(self._ask_again(token))

    async def _ask_again(self, token: HubToken) -> None:
        """Ask about a token in intervals as long as something depends on it and the Hub knows it."""
        try:
            while token.user is not None and token.is_wanted:
                due_in = (token.asked_at or 0.0) + self._ask_seconds - time.monotonic()
                if due_in > 0:
                    await asyncio.sleep(due_in)
                else:
                    await asyncio.shield(self._ask(token, token.text))
        finally:
            token.repeating = None

    def _end(self, token: HubToken, *, retry: bool) -> None:
        """End what depends on a token that the Hub refuses, or that has another standing now."""
        token.wanted_until = 0.0
        on_ends = list(token.watchers.values())
        token.watchers.clear()
        for on_end in on_ends:
            on_end()
        task = asyncio.get_running_loop().create_task(self._end_made(token.digest, retry))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_made(self, digest: str, retry: bool) -> None:
        """Revoke what was made in the name of a token; with `retry`, as soon as the store takes it."""
        while True:
            try:
                await self._made.end(digest)
                return
            except ExecError as error:
                self._log.error("tokens made in the name of a refused Hub token are not revoked: %s", error.message)
                if not retry:  # the token was never known here, and anyone can send such a one
                    return
                await asyncio.sleep(self._ask_seconds)

    def close(self) -> None:
        """Stop asking."""
        tokens = [*self._good.values(), *self._others.values()]
        for task in (*self._ending, *(task for token in tokens for task in (token.question, token.repeating))):
            if task is not None:
                task.cancel()
        if self._http is not None:
            self._http.close()


def _ssl_context(hub_auth: Any) -> Any:
    if not hub_auth.certfile and not hub_auth.keyfile:
        return None
    from jupyterhub.utils import make_ssl_context

    return make_ssl_context(hub_auth.keyfile, hub_auth.certfile, cafile=hub_auth.client_ca)


def _remove(watchers: dict[object, Callable[[], None]], key: object) -> None:
    watchers.pop(key, None)


def _nothing() -> None:
    pass
