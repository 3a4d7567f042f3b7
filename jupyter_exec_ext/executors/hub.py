"""Server of a user at a JupyterHub: its start, with the Hub's progress events, and its stop."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..client.api.retries import NO_RETRY
from ..client.api.steps import Operation, Pause, Reply
from ..client.fork_safety import atexit_in_this_process
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.driver import SyncDriver
from ..errors import ClientError, ConnectionFailed, ConnectionLost, ExecError, ServerStartFailed, Unavailable
from .hub_api import POLL_SECONDS, HubServerApi, IssuedHubToken, ServerState, hub_at, message_of, whoami
from .managed_server import ManagedServer
from .remote_launch import (
    Deadline,
    OnProgress,
    ProgressReporter,
    follow_events,
    run_until_deadline,
    server_at,
    to_one_line,
)


class HubLaunch:
    """Start of one server: requests it if need be, and waits until the server is ready.

    Attributes
    ----------
    asked : bool
        Whether this launch has started the server. If two programs request a start at the same moment, the Hub confirms
        both, and both take the server for theirs.
    """

    def __init__(
        self, api: HubServerApi, options: Mapping[str, Any] | None, deadline: Deadline, progress: ProgressReporter
    ) -> None:
        self._api = api
        self._options = options
        self._deadline = deadline
        self._progress = progress
        self._failure: str | None = None
        self.asked = False
        self._has_begun = False

    def run(self) -> Operation[ServerState]:
        """Start the server if need be, and return its state once it is ready.

        Raises
        ------
        ServerStartFailed
            If the Hub reports a failure, or the server stops again.
        """
        while True:
            server = yield from self._api.state()
            if server.ready:
                self._progress.report("ready", "", 100.0)
                return server
            if server.pending == "spawn":
                yield from self._follow()
            elif server.pending:  # it stops, or the Hub checks whether it runs
                yield Pause(POLL_SECONDS)
            elif self._has_begun:
                yield from self._follow()  # raises the Hub's reason, if it has one
                raise ServerStartFailed(
                    f"the server of {self._api.full_name} stopped again while it started"
                    f" (the last that was heard: {self._deadline.last_message}); its log, and the Hub's, say why"
                )
            else:
                yield from self._request_start()

    def _request_start(self) -> Operation[None]:
        self._progress.report("starting", "asking the Hub for the server")
        self.asked = True  # also if the reply is lost: just now the server did not run
        try:
            reply = yield from self._api.request_start(self._options)
        except ConnectionLost:  # the next request finds the start under way
            yield Pause(POLL_SECONDS)
            return
        except ConnectionFailed:
            self.asked = False
            raise
        if reply.ok:
            self._has_begun = True
            return
        error = self._api.refusal(reply, "start the server", "start:servers")
        self.asked = reply.status >= 500  # a proxy may have given up waiting for the Hub
        wait = error.retry_after_seconds
        if reply.status in (429, 503) and wait is not None and wait < self._deadline.left_seconds:
            self._progress.report("starting", error.message)
            yield Pause(max(wait, POLL_SECONDS))
        elif reply.status < 500 and reply.status != 400:
            raise error
        elif (yield from self._api.state()).is_stopped:
            if self.asked:
                yield from self._follow()  # the event stream has the reason for an "Internal Server Error"
            raise ServerStartFailed(f"the Hub did not start the server of {self._api.full_name}: {message_of(reply)}")
        # Otherwise the server is starting, by another request or by this one, or is still stopping.

    def _follow(self) -> Operation[None]:
        """Read progress events; if the stream is cut, the caller polls the server's state."""
        self._has_begun = True
        outcome = yield from follow_events(self._api.progress_path, self._handle_event)
        if self._failure is not None:
            self._progress.report("failed", self._failure)
            raise ServerStartFailed(
                f"the Hub could not start the server of {self._api.full_name}: {self._failure}; the Hub's log says more"
            )
        if isinstance(outcome, Reply) and outcome.status in (401, 403):
            raise self._api.refusal(outcome, "follow the server's start", "read:servers")
        if outcome is not None:
            yield Pause(POLL_SECONDS)

    def _handle_event(self, event: Mapping[str, Any]) -> bool:
        message = to_one_line(event.get("message"))
        if event.get("failed"):
            self._failure = message or "it gives no reason"
            return True
        if event.get("ready"):
            return True
        percent = event.get("progress")
        self._progress.report("starting", message, float(percent) if isinstance(percent, (int, float)) else None)
        return False


# A stop may have to wait until a container has ended, and must not delay the program's exit for longer.
_STOP_SECONDS = 60.0
# This is asked between two retries of a request, which must not be delayed by a Hub that is down as well.
_STATE_SECONDS = 5.0
# The note shows the token's origin on the Hub's page of tokens.
_NOTE = "jupyter_exec_ext"


class JupyterHubServer(ManagedServer):
    """Starts a user's server at a JupyterHub, waits for it, and stops it again. Also a context manager.

    Parameters
    ----------
    hub_url : str
        The Hub, as a browser shows it: ``https://hub.example/``, or any page below it.
    token : str, optional
        A token of the Hub: the user's own, or that of a service or administrator who may start servers for others. By
        default the one in the URL.
    user : str, optional
        The server's user; by default the token's.
    server_name : str
        One of the user's named servers; empty for the default one.
    user_options : mapping, optional
        Options for the Hub's spawner, as on the Hub's page of options. By default the Hub takes those of the server's
        last start.
    startup_timeout_seconds : float
        Timeout of the server's start in seconds.
    stop : bool
        Whether `stop`, leaving the context and the end of the process stop the server. A server that this object has
        not started is never stopped.
    narrow_token : bool
        Whether the server gets a token of its own, which is valid for this server only and is revoked at the end.
        False sends it `token` itself, with all its rights at the Hub: not for other people's servers.
    token_lifetime_seconds : int
        Lifetime of the narrow token in seconds, if it is not revoked before; less if the Hub allows no more.
    on_progress : callable, optional
        Called with a `LaunchProgress` for each message of the Hub.
    verify : bool or str
        As for `JupyterConnectionInfo`.
    client_cert : str or (str, str), optional
        As for `JupyterConnectionInfo`.

    Raises
    ------
    ValueError
        For a wrong argument.
    Unauthenticated, MissingScope, NotFound
        If the Hub does not know the token, or it may not do this; the message names the scope.
    ServerStartFailed, ServerStartTimeout
        If the server does not come up. What was begun is stopped.
    LimitReached
        If the Hub starts no more servers for now.

    Examples
    --------
    ::

        with JupyterHubServer("https://hub.example/", token="…") as server, ExecClient(server) as client:
            print(client.run("1 + 1").outputs)
    """

    def __init__(
        self,
        hub_url: str,
        token: str | None = None,
        *,
        user: str | None = None,
        server_name: str = "",
        user_options: Mapping[str, Any] | None = None,
        startup_timeout_seconds: float = 300.0,
        stop: bool = True,
        narrow_token: bool = True,
        token_lifetime_seconds: int = 24 * 3600,
        on_progress: OnProgress | None = None,
        verify: bool | str = True,
        client_cert: str | tuple[str, str] | None = None,
    ) -> None:
        self._hub = hub_at(JupyterConnectionInfo.from_url(hub_url, token, verify=verify, client_cert=client_cert))
        if self._hub.token is None:
            raise ValueError("a token of the Hub's is needed; the Hub's page of tokens makes one")
        if token_lifetime_seconds < 1:
            raise ValueError("token_lifetime_seconds must be at least 1")
        self._user_options = user_options
        self._startup_timeout_seconds = startup_timeout_seconds
        self._stops = stop
        self._narrow_token = narrow_token
        self._token_lifetime_seconds = token_lifetime_seconds
        self._on_progress = on_progress
        self._own_token: IssuedHubToken | None = None
        self._connection_info: JupyterConnectionInfo | None = None
        # Start time of the server, if this object has started it; empty if that server never got ready.
        self._ours: str | None = None
        self._user = user or ""
        self._server_name = server_name
        self.start()

    @property
    def user(self) -> str:
        """The server's user."""
        return self._user

    @property
    def server_name(self) -> str:
        """The named server; empty for the default one."""
        return self._server_name

    @property
    def started(self) -> bool:
        """True if this object has started the server, so that it will stop it."""
        return self._ours is not None

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Address and token of the server.

        Raises
        ------
        ClientError
            If it was stopped.
        """
        if self._connection_info is None:
            raise ClientError("the server was stopped; start() starts it again")
        return self._connection_info

    def start(self) -> None:
        """Start the server if it does not run, and wait until it does; existing clients find it again.

        Raises
        ------
        ServerStartFailed, ServerStartTimeout
            If it does not come up. Other errors are those of the class.
        """
        deadline = Deadline.of_start(self._startup_timeout_seconds, f"the server at {self._hub.url}")
        atexit_in_this_process(self.stop)
        with contextlib.ExitStack() as undo:
            undo.callback(self._stop_quietly)
            with contextlib.closing(SyncDriver(self._hub)) as driver:
                self._user = self._user or driver.perform(run_until_deadline(deadline, whoami()))
                if self._narrow_token and self._own_token is None:
                    issuing = self._api.issue_token(self._token_lifetime_seconds, _NOTE)
                    self._own_token = driver.perform(run_until_deadline(deadline, issuing))
                progress = ProgressReporter(deadline, self._on_progress)
                launch = HubLaunch(self._api, self._user_options, deadline, progress)
                try:
                    server = driver.perform(run_until_deadline(deadline, launch.run()))
                finally:
                    # If the launch fails there is no start time: what it has asked for is stopped in any case.
                    self._ours = "" if launch.asked else self._ours
                self._ours = server.started if launch.asked else self._ours
            own_token = None if self._own_token is None else self._own_token.text
            there = server_at(server.url, self._hub, "the Hub", own_token or self._hub.token)
            self._connection_info = replace(there, why_lost=partial(self._why_lost, server.started))
            undo.pop_all()

    def _stop_quietly(self) -> None:
        with contextlib.suppress(ExecError):  # the error that led here is the cause
            self.stop()

    def stop(self) -> None:
        """Stop the server, if this object has started it, and revoke its token; calling it again does nothing.

        Raises
        ------
        ExecError
            If the Hub cannot be reached or refuses: the server may still run.
        """
        atexit.unregister(self.stop)
        self._connection_info = None
        with contextlib.closing(SyncDriver(self._hub)) as driver:
            try:
                if self._ours is not None and self._stops:
                    driver.perform(run_until_deadline(_stop_deadline("stop the server"), self._api.stop(self._ours)))
                self._ours = None
            finally:
                if self._own_token is not None:
                    revoking = self._api.revoke_token(self._own_token.id)
                    driver.perform(run_until_deadline(_stop_deadline("revoke the server's token"), revoking))
                    self._own_token = None

    def keep_token(self) -> None:
        """Leave the narrow token valid at the end: sessions and tokens that were made with it end when it does.

        It then lives for its whole lifetime, or until the user revokes it on the Hub's page of tokens.
        """
        self._own_token = None

    def _why_lost(self, started: str) -> str | None:
        """Return why a server that was `started` then will not come back, or None if it may or the Hub is silent."""
        hurried = replace(self._api, retry=NO_RETRY)
        deadline = Deadline(_STATE_SECONDS, "the Hub did not answer", "", Unavailable)
        try:
            with contextlib.closing(SyncDriver(self._hub)) as driver:
                state = driver.perform(run_until_deadline(deadline, hurried.state()))
        except ExecError:
            return None
        if state.is_stopped:
            return f"the JupyterHub reports that the server {self._api.full_name} was stopped or has failed"
        if state.started != started and started:
            return f"the JupyterHub reports that another server {self._api.full_name} was started meanwhile"
        return None

    @property
    def _api(self) -> HubServerApi:
        return HubServerApi(self._user, self._server_name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._hub.url!r}, user={self._user!r}, server_name={self._server_name!r})"


def _stop_deadline(action: str) -> Deadline:
    return Deadline(
        _STOP_SECONDS, f"the Hub did not {action}", "it may still do it; look at the Hub's page", Unavailable
    )
