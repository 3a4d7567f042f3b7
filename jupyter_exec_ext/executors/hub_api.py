"""REST API of a JupyterHub for one user's server: requests, and the meaning of the answers.

References
----------
https://jupyterhub.readthedocs.io/en/stable/reference/rest-api.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..client.api.answers import error_from
from ..client.api.request_exchange import exchange, segment
from ..client.api.retries import DEFAULT_RETRY, RetryPolicy
from ..client.api.steps import Operation, Pause, Reply, Request
from ..client.server_connection import JupyterConnectionInfo
from ..errors import ExecError, InvalidRequest, LimitReached, MissingScope, NotFound, Unauthenticated, UnexpectedAnswer
from ..protocol.strict_json import loads_strict
from .remote_launch import to_one_line

_API = "hub/api/"
# The event stream reports changes at once; polling is for the states without a stream.
POLL_SECONDS = 0.25
# The Hub answers a start when the server runs, or after its slow_spawn_timeout, by default 10 seconds.
_START_ANSWER_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of a server; a stopped one is neither ready nor pending.

    Parameters
    ----------
    ready : bool
        Whether it answers.
    pending : str
        The change under way, such as ``"spawn"``; empty for none.
    url : str
        Its URL or path.
    started : str
        Time of its last start, which distinguishes it from earlier servers of the same name.
    """

    ready: bool = False
    pending: str = ""
    url: str = ""
    started: str = ""

    @property
    def is_stopped(self) -> bool:
        """True if it neither runs nor is about to run."""
        return not (self.ready or self.pending)


@dataclass(frozen=True, slots=True)
class IssuedHubToken:
    """A token of the Hub, and the id to revoke it by."""

    id: str
    text: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r})"


def hub_at(info: JupyterConnectionInfo) -> JupyterConnectionInfo:
    """Return the connection to the Hub of a page: its base URL is the path before ``/user/`` or ``/hub/``."""
    path = info.base_url.partition("/user/")[0] + "/"
    return replace(info, base_url=path.rpartition("/hub/")[0] if "/hub/" in path else path)


def whoami(retry: RetryPolicy = DEFAULT_RETRY) -> Operation[str]:
    """Return the name of the token's user.

    Raises
    ------
    Unauthenticated
        If the Hub does not know the token.
    ValueError
        If the token is a service's.
    """
    reply = yield from exchange(Request("GET", f"{_API}user"), retry)
    if not reply.ok:
        raise _refusal(reply, "name its user", "")
    model = model_of(reply)
    if model.get("kind") != "user" or not isinstance(model.get("name"), str):
        raise ValueError(
            f"the Hub's token is not a user's but a {model.get('kind')}'s; name the server's user with user=…"
        )
    return str(model["name"])


def list_addresses(user: str, timeout_seconds: float) -> Operation[dict[str, str]]:
    """Return the URLs of a user's servers behind the Hub's proxy, by name, with a slash at their ends.

    Raises
    ------
    MissingScope
        If the token lacks the scope ``proxy``.
    """
    request = Request("GET", f"{_API}proxy", total_seconds=timeout_seconds)
    reply = yield from exchange(request, RetryPolicy(max_retries=0))
    if not reply.ok:
        raise _refusal(reply, "see the proxy's routes", "proxy")
    addresses = {}
    for spec, route in model_of(reply).items():
        data, target = (route.get("data"), route.get("target")) if isinstance(route, dict) else (None, None)
        if isinstance(data, dict) and data.get("user") == user and isinstance(target, str):
            path = spec if spec.startswith("/") else f"/{spec.partition('/')[2]}"  # with subdomains, a host comes first
            addresses[str(data.get("server_name") or "")] = f"{target.rstrip('/')}/{path.strip('/')}/"
    return addresses


@dataclass(frozen=True, slots=True)
class HubServerApi:
    """Operations on one server of one user.

    Parameters
    ----------
    user : str
        The user's name.
    server_name : str
        The named server; empty for the user's default server.
    retry : RetryPolicy
        When requests are repeated.
    """

    user: str
    server_name: str = ""
    retry: RetryPolicy = DEFAULT_RETRY

    @property
    def full_name(self) -> str:
        """The server's name in scopes and messages."""
        return f"{self.user}/{self.server_name}"

    @property
    def _user_path(self) -> str:
        return f"{_API}users/{segment(self.user)}"

    @property
    def _path(self) -> str:
        name = f"servers/{segment(self.server_name)}" if self.server_name else "server"
        return f"{self._user_path}/{name}"

    @property
    def progress_path(self) -> str:
        """Path of the Hub's event stream about the start."""
        return f"{self._path}/progress"

    def state(self) -> Operation[ServerState]:
        """Return the server's state."""
        return (yield from self.states()).get(self.server_name, ServerState())

    def states(self, *, with_stopped: bool = False) -> Operation[dict[str, ServerState]]:
        """Return the states of all servers of the user, by name; those of stopped ones only on request."""
        # Before version 6, the Hub has no GET for one server: they are part of the user's model.
        query = "?include_stopped_servers=1" if with_stopped else ""
        reply = yield from exchange(Request("GET", self._user_path + query), self.retry)
        if not reply.ok:
            raise self.refusal(reply, "see the servers", "read:servers")
        servers = model_of(reply).get("servers")
        if not isinstance(servers, dict):  # the Hub leaves out what a token may not see
            raise _missing_scope("see the servers", f"read:servers!user={self.user}")
        return {name: _server_state(server) for name, server in servers.items() if isinstance(server, dict)}

    def request_start(self, options: Mapping[str, Any] | None) -> Operation[Reply]:
        """Request a start of the server; a successful reply means that the Hub has begun it."""
        request = Request("POST", self._path, dict(options or {}), read_timeout_seconds=_START_ANSWER_SECONDS)
        return (yield from exchange(request, self.retry))

    def stop(self, started: str, *, remove: bool = False) -> Operation[None]:
        """Stop the server of this start time, and wait; do nothing if it has ended or another one runs.

        `remove` makes the Hub forget a named server, too, with what it stores for it.
        """
        if started and (yield from self.state()).started != started:
            return
        body = {"remove": True} if remove else None
        reply = yield from exchange(Request("DELETE", self._path, body), self.retry)
        if not reply.ok and reply.status != 404:
            raise self.refusal(reply, "stop the server", "delete:servers")
        if reply.status == 202:
            yield from self._wait_for_stop(started)

    def _wait_for_stop(self, started: str) -> Operation[None]:
        """Wait until the server of this start time has stopped, or another client has started it anew."""
        while True:
            state = yield from self.state()
            started = started or state.started
            if state.is_stopped or state.started not in ("", started):
                return
            yield Pause(POLL_SECONDS)

    def issue_token(
        self, lifetime_seconds: int, note: str, *, for_all_servers: bool = False
    ) -> Operation[IssuedHubToken]:
        """Create a token of the user that is valid for this server, or all servers of the user, and nothing else.

        One for this server lives as long as the Hub allows, if that is less than `lifetime_seconds`. One for all
        servers is refused then: its bearer, a pool, would renew it too late.
        """
        access = f"access:servers!user={self.user}" if for_all_servers else f"access:servers!server={self.full_name}"
        body = {"note": note, "expires_in": lifetime_seconds, "scopes": [access]}
        reply = yield from exchange(Request("POST", f"{self._user_path}/tokens", body), self.retry)
        # The Hub refuses a longer life than its longest, which it gives where none is named.
        if reply.status == 400 and not for_all_servers:
            del body["expires_in"]
            reply = yield from exchange(Request("POST", f"{self._user_path}/tokens", body), self.retry)
        if not reply.ok:
            error = self.refusal(reply, "make a token for the server", "tokens")
            if isinstance(error, MissingScope):
                error = MissingScope(f"{error.message}; narrow_token=False sends the server the Hub's token itself")
            raise error
        model = model_of(reply)
        if not (isinstance(model.get("id"), str) and isinstance(model.get("token"), str)):
            raise UnexpectedAnswer("the Hub created a token, but its answer has no token")
        return IssuedHubToken(model["id"], model["token"])

    def revoke_token(self, token_id: str) -> Operation[None]:
        """Revoke a token; one that has ended already is no error."""
        reply = yield from exchange(Request("DELETE", f"{self._user_path}/tokens/{segment(token_id)}"), self.retry)
        if not reply.ok and reply.status != 404:
            raise self.refusal(reply, "revoke the server's token", "tokens")

    def refusal(self, reply: Reply, action: str, scope: str) -> ExecError:
        """Return the error for a reply that refuses an action, which needs `scope`."""
        wanted = f"{scope}!user={self.user}"
        if reply.status == 404:
            return NotFound(
                f"the Hub has no user {self.user!r}, or its token may not {action} there (scope {wanted}); "
                f"{_said(reply)}"
            )
        return _refusal(reply, action, wanted)


def _server_state(model: Mapping[str, Any]) -> ServerState:
    pending, url, started = (str(model.get(name) or "") for name in ("pending", "url", "started"))
    return ServerState(bool(model.get("ready")), pending, url, started)


def _refusal(reply: Reply, action: str, scope: str) -> ExecError:
    message = message_of(reply)
    # JupyterHub answers 403, "Missing or invalid credentials.", also to a token that it does not know.
    if reply.status == 401 or (reply.status == 403 and "credentials" in message) or (reply.status == 403 and not scope):
        return Unauthenticated("the Hub does not know this token; was it revoked, or is its time over?")
    if reply.status == 403:
        return _missing_scope(action, scope, _said(reply))
    if reply.status == 404:
        return NotFound(
            "there is no JupyterHub's API at this address; name the Hub as https://host/ or https://host/hub/"
        )
    if reply.status == 400:
        return InvalidRequest(f"the Hub refuses to {action}: {message}")
    error = error_from(reply)
    if reply.status == 429:
        text = f"the Hub refuses to {action} now: {message}"
        return LimitReached(text, retry_after_seconds=error.retry_after_seconds)
    return error


def _missing_scope(action: str, scope: str, said: str = "") -> MissingScope:
    return MissingScope(
        f"the Hub's token may not {action}: it needs the scope {scope}; make another one on the Hub's page of tokens, "
        f"or have the administrator add it to a role{'; ' if said else ''}{said}"
    )


def model_of(reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a successful answer; raise `UnexpectedAnswer` if it is none."""
    try:
        model = loads_strict(reply.body)
    except ValueError:
        model = None
    if not isinstance(model, dict):
        raise UnexpectedAnswer("the server answered with something that is not JSON; is this a JupyterHub's address?")
    return model


def message_of(reply: Reply) -> str:
    """Return the Hub's message about a refusal."""
    try:
        message = to_one_line(model_of(reply).get("message"))
    except UnexpectedAnswer:
        message = ""
    return message or f"it answered {reply.status}"


def _said(reply: Reply) -> str:
    return f"the Hub says: {message_of(reply)}"
