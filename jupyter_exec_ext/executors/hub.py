"""Server of a user at a JupyterHub: started for a program, with a token of its own, and stopped at its end."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..client.api.retries import NO_RETRY
from ..client.api.steps import Operation
from ..client.fork_safety import OwnerProcess, atexit_in_this_process
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.driver import SyncDriver
from ..errors import ClientError, ExecError, Unauthenticated, Unavailable
from .hub_api import HubServerApi, IssuedHubToken, hub_at, whoami
from .hub_launch import HubLaunch
from .managed_server import ManagedServer
from .remote_launch import (
    Deadline,
    OnProgress,
    ProgressReporter,
    run_until_deadline,
    server_at,
)

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
        token_lifetime_seconds: int = 30 * 24 * 3600,
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
        self._owner = OwnerProcess()
        self._own_token: IssuedHubToken | None = None
        self._connection_info: JupyterConnectionInfo | None = None
        # Start times of the server, and of the one that this object has started.
        self._started = ""
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
        # After a failure only what this call has begun is undone: clients may still use what was there before.
        with contextlib.ExitStack() as undo, contextlib.closing(SyncDriver(self._hub)) as driver:
            self._user = self._user or driver.perform(run_until_deadline(deadline, whoami()))
            if self._narrow_token and not self._is_own_token_good(deadline):
                issuing = self._api.issue_token(self._token_lifetime_seconds, _NOTE)
                self._own_token = driver.perform(run_until_deadline(deadline, issuing))
                undo.callback(_quietly, self._revoke_own_token)
            progress = ProgressReporter(deadline, self._on_progress)
            launch = HubLaunch(self._api, self._user_options, deadline, progress)
            undo.callback(_quietly, partial(self._stop_begun, launch))
            server = driver.perform(run_until_deadline(deadline, launch.run()))
            own_token = None if self._own_token is None else self._own_token.text
            there = server_at(server.url, self._hub, "the Hub", own_token or self._hub.token)
            self._connection_info = replace(there, why_lost=self._why_lost)
            self._started = server.started
            self._ours = server.started if launch.asked else self._ours
            undo.pop_all()
        atexit_in_this_process(self.stop)

    def _is_own_token_good(self, deadline: Deadline) -> bool:
        if self._own_token is None:
            return False
        # Asked with the token itself, since the Hub uses the ids of ended tokens again.
        with contextlib.closing(SyncDriver(replace(self._hub, token=self._own_token.text))) as driver:
            try:
                driver.perform(run_until_deadline(deadline, whoami()))
            except Unauthenticated:
                return False
        return True

    def _stop_begun(self, launch: HubLaunch) -> None:
        if launch.asked:  # its start time is not known
            self._stop_server("")

    def stop(self) -> None:
        """Stop the server, if this object has started it, and revoke its token.

        Calling it again, or in a forked child, does nothing.

        Raises
        ------
        ExecError
            If the Hub cannot be reached or refuses: the server may still run.
        """
        atexit.unregister(self.stop)
        self._connection_info = None
        if not self._owner.is_current():
            return
        try:
            if self._ours is not None:
                self._stop_server(self._ours)
            self._ours = None
        finally:
            self._revoke_own_token()

    def _stop_server(self, started: str) -> None:
        if self._stops:
            self._finish("stop the server", self._api.stop(started))

    def _revoke_own_token(self) -> None:
        if self._own_token is not None:
            self._finish("revoke the server's token", self._api.revoke_token(self._own_token.id))
            self._own_token = None

    def _finish(self, action: str, operation: Operation[None]) -> None:
        """Perform a request of the end; `action` says what the Hub is to do."""
        remedy = "it may still do it; look at the Hub's page"
        deadline = Deadline(_STOP_SECONDS, f"the Hub did not {action}", remedy, Unavailable)
        with contextlib.closing(SyncDriver(self._hub)) as driver:
            driver.perform(run_until_deadline(deadline, operation))

    def keep_token(self) -> None:
        """Leave the narrow token valid at the end: sessions and tokens that were made with it end when it does.

        It then lives for its whole lifetime, or until the user revokes it on the Hub's page of tokens.
        """
        self._own_token = None

    def _why_lost(self) -> str | None:
        """Return why the server will not come back, or None if it may or the Hub is silent."""
        hurried = replace(self._api, retry=NO_RETRY)
        deadline = Deadline(_STATE_SECONDS, "the Hub did not answer", "", Unavailable)
        try:
            with contextlib.closing(SyncDriver(self._hub)) as driver:
                state = driver.perform(run_until_deadline(deadline, hurried.state()))
        except ExecError:
            return None
        if state.is_stopped:
            return f"the JupyterHub reports that the server {self._api.full_name} was stopped or has failed"
        if state.started != self._started and self._started:
            return f"the JupyterHub reports that another server {self._api.full_name} was started meanwhile"
        return None

    @property
    def _api(self) -> HubServerApi:
        return HubServerApi(self._user, self._server_name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._hub.url!r}, user={self._user!r}, server_name={self._server_name!r})"


def _quietly(undo: Callable[[], None]) -> None:
    with contextlib.suppress(ExecError):  # the error that led here is the cause
        undo()
