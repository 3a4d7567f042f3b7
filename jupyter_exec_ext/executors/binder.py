"""A server made from a repository: launched at a BinderHub, such as mybinder.org."""

from __future__ import annotations

import atexit
import contextlib
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from ..client.api.outage_retry import DEFAULT_RETRY
from ..client.api.request_exchange import error_from, exchange
from ..client.api.steps import Request
from ..client.fork_safety import atexit_in_this_process
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.driver import SyncDriver
from ..errors import ClientError, ConnectionFailed, ConnectionLost, ExecError, UnexpectedAnswer
from .binder_launch import BinderLaunch, Moved, build_path, place_at
from .remote_launch import Deadline, OnProgress, show_phases, within

if TYPE_CHECKING:
    from typing_extensions import Self

_MAX_REDIRECTS = 5
# What a JupyterHub answers for a server that runs no more.
_GONE = frozenset({404, 424, 503})


class BinderServer:
    """Launches a Binder, waits for it, and shuts it down again. Also a context manager.

    A first launch builds an image, which takes minutes. Whoever runs the BinderHub limits how many launches there may
    be, and ends servers that nobody uses, mybinder.org after ten minutes.

    Parameters
    ----------
    spec : str
        What to launch: ``provider/what/ref``, such as ``gh/org/repo/HEAD``, as it stands in a Binder link after
        ``/v2/``.
    binder_url : str
        The BinderHub.
    binder_token : str, optional
        Where a BinderHub has users, the token of one. It goes to no other address, also if the BinderHub points to one.
    startup_timeout_seconds : float
        How long building and launching may take.
    stop : bool
        Whether `stop`, leaving the context and the end of the process shut the server down.
    on_progress : callable or None
        Is given a `LaunchProgress` for each event. By default the phases are printed to standard error; None for
        silence.
    verify, client_cert
        As of `JupyterConnectionInfo`.

    Raises
    ------
    ValueError
        For a wrong argument.
    ServerStartFailed
        If building or launching fails, with the last lines of its log.
    ServerStartTimeout
        If the server does not come up in time.
    LimitReached
        If the BinderHub launches no more for now; `retry_after_seconds` is when it does again, where that was said.
    ConnectionFailed, ConnectionLost
        If the BinderHub cannot be reached, or the connection is lost when a server may have been started already.
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
        launch = BinderLaunch(spec, deadline, on_progress)
        self._connection_info: JupyterConnectionInfo | None = self._launch(launch, deadline, path)
        atexit_in_this_process(self.stop)

    def _launch(self, launch: BinderLaunch, deadline: Deadline, path: str) -> JupyterConnectionInfo:
        """Ask, and go where the BinderHub points to: mybinder.org is several."""
        place = self._binder
        for _ in range(_MAX_REDIRECTS + 1):
            with contextlib.closing(SyncDriver(place)) as driver:
                outcome = driver.perform(within(deadline, launch.run(place, path)))
            if not isinstance(outcome, Moved):
                return outcome
            url = urljoin(place.url + path, outcome.url)
            parts = urlsplit(url)
            there = replace(place_at(url, place), base_url="/")
            same = (there.host, there.port, there.use_https) == (place.host, place.port, place.use_https)
            place = replace(there, token=place.token if same else None)
            path = parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")
        raise UnexpectedAnswer(f"the BinderHub has redirected more than {_MAX_REDIRECTS} times")

    @property
    def spec(self) -> str:
        """What was launched."""
        return self._spec

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Where the server is.

        Raises
        ------
        ClientError
            If it was stopped.
        """
        if self._connection_info is None:
            raise ClientError("the Binder was shut down; make a new BinderServer to launch another one")
        return self._connection_info

    def stop(self) -> None:
        """Shut the server down; calling it again does nothing. One that is gone already is no error.

        Raises
        ------
        ExecError
            If the server refuses: it then runs until Binder ends it.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        # An exception that is on its way says more than that stopping fails, too.
        with contextlib.suppress(ExecError) if exc_type is not None else contextlib.nullcontext():
            self.stop()
