"""Server of a repository, launched at a BinderHub such as mybinder.org."""

from __future__ import annotations

import atexit
import contextlib
from dataclasses import replace
from urllib.parse import urljoin, urlsplit

from ..client.api.outage_retry import DEFAULT_RETRY
from ..client.api.request_exchange import error_from, exchange
from ..client.api.steps import Request
from ..client.fork_safety import atexit_in_this_process
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.driver import SyncDriver
from ..errors import ClientError, ConnectionFailed, ConnectionLost, UnexpectedAnswer
from .binder_launch import BinderLaunch, Moved, build_path
from .managed_server import ManagedServer
from .remote_launch import Deadline, OnProgress, ProgressReporter, run_until_deadline, server_at, show_phases

# mybinder.org needs one redirect; BinderHubs that point to each other must not keep a client busy.
_MAX_REDIRECTS = 5
# Statuses that a JupyterHub answers for a server that does not run.
_GONE = frozenset({404, 424, 503})


class BinderServer(ManagedServer):
    """Launches a Binder, waits for it, and shuts it down again. Also a context manager.

    A first launch builds an image, which takes minutes. A BinderHub limits the number of launches and ends servers that
    are idle; mybinder.org does so after ten minutes.

    Parameters
    ----------
    spec : str
        The Binder to launch: ``provider/what/ref``, such as ``gh/org/repo/HEAD``, the part of a Binder link after
        ``/v2/``.
    binder_url : str
        The BinderHub.
    binder_token : str, optional
        A user's token, for a BinderHub with users. It is sent to this address only, also after a redirect.
    startup_timeout_seconds : float
        Timeout of building and launching in seconds.
    stop : bool
        Whether `stop`, leaving the context and the end of the process shut the server down.
    on_progress : callable or None
        Called with a `LaunchProgress` for each event. By default the phases are printed to standard error; None for
        silence.
    verify : bool or str
        As for `JupyterConnectionInfo`.
    client_cert : str or (str, str), optional
        As for `JupyterConnectionInfo`.

    Raises
    ------
    ValueError
        For a wrong argument.
    ServerStartFailed
        If building or launching fails, with the last lines of its log.
    ServerStartTimeout
        If the server does not come up in time.
    LimitReached
        If the BinderHub launches no more for now; `retry_after_seconds` is the time to wait, if the BinderHub gives it.
    ConnectionFailed, ConnectionLost
        If the BinderHub cannot be reached, or the connection is lost when a server may have been started already.

    Examples
    --------
    ::

        with BinderServer("gh/binder-examples/requirements/HEAD") as server, ExecClient(server) as client:
            print(client.run("1 + 1").outputs)
    """

    def __init__(
        self,
        spec: str,
        *,
        binder_url: str = "https://mybinder.org",
        binder_token: str | None = None,
        startup_timeout_seconds: float = 1800.0,
        stop: bool = True,
        on_progress: OnProgress | None = show_phases,
        verify: bool | str = True,
        client_cert: str | tuple[str, str] | None = None,
    ) -> None:
        self._spec = spec
        self._stops = stop
        self._binder = JupyterConnectionInfo.from_url(binder_url, binder_token, verify=verify, client_cert=client_cert)
        path, deadline = build_path(spec), Deadline.of_start(startup_timeout_seconds, f"the Binder of {spec}")
        launch = BinderLaunch(spec, ProgressReporter(deadline, on_progress))
        self._connection_info: JupyterConnectionInfo | None = self._launch(launch, deadline, path)
        atexit_in_this_process(self.stop)

    def _launch(self, launch: BinderLaunch, deadline: Deadline, path: str) -> JupyterConnectionInfo:
        """Launch the Binder, following redirects: mybinder.org is a federation of BinderHubs."""
        place = self._binder
        for _ in range(_MAX_REDIRECTS + 1):
            with contextlib.closing(SyncDriver(place)) as driver:
                outcome = driver.perform(run_until_deadline(deadline, launch.run(place, path)))
            if not isinstance(outcome, Moved):
                return outcome
            url = urljoin(place.url + path, outcome.url)
            parts = urlsplit(url)
            there = replace(server_at(url, place, "the BinderHub", None), base_url="/")
            same = (there.host, there.port, there.use_https) == (place.host, place.port, place.use_https)
            place = replace(there, token=place.token if same else None)
            path = parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")
        raise UnexpectedAnswer(f"the BinderHub has redirected more than {_MAX_REDIRECTS} times")

    @property
    def spec(self) -> str:
        """The spec of the Binder."""
        return self._spec

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Address and token of the server.

        Raises
        ------
        ClientError
            If it was stopped.
        """
        if self._connection_info is None:
            raise ClientError("the Binder was shut down; make a new BinderServer to launch another one")
        return self._connection_info

    def stop(self) -> None:
        """Shut the server down; calling it again does nothing. A server that has ended already is no error.

        Raises
        ------
        ExecError
            If the server refuses. It then runs until Binder ends it.
        """
        atexit.unregister(self.stop)
        place, self._connection_info = self._connection_info, None
        if place is None or not self._stops:
            return
        # A server that cannot be reached has ended, or its answer was lost on its way out.
        with contextlib.closing(SyncDriver(place)) as driver, contextlib.suppress(ConnectionFailed, ConnectionLost):
            reply = driver.perform(exchange(Request("POST", "api/shutdown"), DEFAULT_RETRY))
            if not reply.ok and reply.status not in _GONE:
                raise error_from(reply)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._spec!r}, binder_url={self._binder.url!r})"
