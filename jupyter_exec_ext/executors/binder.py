"""Server of a repository, launched at a BinderHub such as mybinder.org through its event stream.

A request for a launch joins a build of the image that is under way. Once the image is built, each request starts
another server. So a stream that is cut during the build is opened again, and one that is cut later is not: an orphaned
server may then run, which Binder ends when it has been idle for some time.

References
----------
https://binderhub.readthedocs.io/en/latest/api.html
"""

from __future__ import annotations

import atexit
import contextlib
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from ..client.api.answers import error_from
from ..client.api.request_exchange import exchange
from ..client.api.retries import DEFAULT_RETRY
from ..client.api.steps import Failure, Operation, Reply, Request
from ..client.fork_safety import OwnerProcess, atexit_in_this_process
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.driver import SyncDriver
from ..errors import (
    ClientError,
    ConnectionFailed,
    ConnectionLost,
    ExecError,
    LimitReached,
    NotFound,
    ServerStartFailed,
    UnexpectedAnswer,
)
from .managed_server import ManagedServer
from .remote_launch import (
    Deadline,
    OnProgress,
    ProgressReporter,
    follow_events,
    run_until_deadline,
    server_at,
    show_phases,
    to_one_line,
)

# In these phases no server has been started, so a request for another launch is safe.
_BUILD_PHASES = frozenset({"waiting", "fetching", "building", "pushing"})
_FAILED = frozenset({"failed", "failure"})
# Statuses of a proxy that could not forward the request.
_NOT_FORWARDED = frozenset({502, 503})
# The reason of a failed build is in the last lines of its log.
_KEPT_LINES = 15
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# BinderHub compares specs as text, so characters that need no quoting must stay as they are.
_SAFE_IN_A_PATH = "/%~+:@,=!$&'()*;"


def build_path(spec: str) -> str:
    """Return the path that launches ``provider/what/ref``, such as ``gh/org/repo/HEAD``.

    Raises
    ------
    ValueError
        If `spec` has another form.
    """
    segments = spec.split("/")
    if len(segments) < 2 or {"", ".", ".."} & {unquote(segment) for segment in segments} or not spec.isprintable():
        raise ValueError(f"a Binder's spec is provider/what/ref, such as gh/org/repo/HEAD, not {spec!r}")
    return f"build/{quote(spec, safe=_SAFE_IN_A_PATH)}"


@dataclass(frozen=True, slots=True)
class Moved:
    """Redirect of a launch to another address."""

    url: str = field(repr=False)


class BinderLaunch:
    """Launch of one Binder, over any number of connections.

    Parameters
    ----------
    spec : str
        The Binder, for messages.
    progress : ProgressReporter
        Gets the BinderHub's messages.
    """

    def __init__(self, spec: str, progress: ProgressReporter) -> None:
        self._spec = spec
        self._progress = progress
        self._retries = 0
        self._phase = ""
        self._log: deque[str] = deque(maxlen=_KEPT_LINES)
        self._last_event: Mapping[str, Any] = {}

    def run(self, service: JupyterConnectionInfo, path: str) -> Operation[JupyterConnectionInfo | Moved]:
        """Launch the Binder and return the connection to its server, or a redirect.

        Parameters
        ----------
        service : JupyterConnectionInfo
            The BinderHub.
        path : str
            The path to request there.

        Raises
        ------
        ServerStartFailed
            If building or launching fails.
        LimitReached
            If the BinderHub launches no more for now.
        ConnectionFailed, ConnectionLost
            If the BinderHub cannot be reached, or the connection is lost after the build.
        """
        while True:
            # Unknown until the first event: if the image is built already, a request starts a server at once.
            self._phase = ""
            outcome = yield from follow_events(path, self._handle_event)
            if outcome is None:
                if str(self._last_event.get("phase")).lower() in _FAILED:
                    raise self._launch_error()
                return _server_of(self._last_event, service)
            if isinstance(outcome, Reply) and outcome.status in _REDIRECTS:
                return Moved(outcome.headers.get("location", ""))
            if self._retries >= DEFAULT_RETRY.max_retries or not self._can_retry(outcome):
                raise self._request_error(outcome)
            yield DEFAULT_RETRY.pause(self._retries)
            self._retries += 1

    def _handle_event(self, event: Mapping[str, Any]) -> bool:
        """Report an event; return whether it is the last one."""
        self._phase = to_one_line(str(event.get("phase") or "unknown"))
        # The message of the last event names the server's address.
        message = "" if self._phase == "ready" else to_one_line(event.get("message"))
        self._log.append(message)
        self._progress.report(self._phase, message, _percent_pushed(event))
        if self._phase == "ready" or self._phase.lower() in _FAILED:
            self._last_event = event
        return bool(self._last_event)

    def _can_retry(self, outcome: Reply | Failure) -> bool:
        if isinstance(outcome, Reply):
            return outcome.status in _NOT_FORWARDED
        return not outcome.sent or self._phase in _BUILD_PHASES

    def _request_error(self, outcome: Reply | Failure) -> ExecError:
        if isinstance(outcome, Reply):
            error = error_from(outcome)
            if outcome.status == 404:
                return NotFound("there is no BinderHub at this address; name it as https://binder.example/")
            return self._limit_error(error.message, error.retry_after_seconds) if outcome.status == 429 else error
        if not outcome.sent:
            return ConnectionFailed(f"the BinderHub cannot be reached: {outcome.message}")
        return ConnectionLost(
            f"the connection was lost while {self._spec} was launched ({outcome.message}); a server may run that "
            "nobody uses, which Binder ends by itself; launching again starts another one"
        )

    def _launch_error(self) -> ExecError:
        said = to_one_line(self._last_event.get("message"))
        if self._last_event.get("status_code") == 429:
            # An event has no Retry-After header; the seconds are in its message.
            wait = re.search(r"(\d+) seconds", said)
            return self._limit_error(said, float(wait[1]) if wait else None)
        lines = [line for line in self._log if line]
        log = "; the last lines of the log:\n" + "\n".join(lines) if len(lines) > 1 else ""
        return ServerStartFailed(f"Binder could not launch {self._spec}: {said or 'it gives no reason'}{log}")

    def _limit_error(self, said: str, retry_after_seconds: float | None) -> LimitReached:
        when = "later" if retry_after_seconds is None else f"in {retry_after_seconds:g} s"
        return LimitReached(
            f"the BinderHub launches no more for now ({said}); try again {when}",
            retry_after_seconds=retry_after_seconds,
        )


def _percent_pushed(event: Mapping[str, Any]) -> float | None:
    """Return the percentage of an image that was pushed, among the layers of known size."""
    layers = event.get("progress")
    if not isinstance(layers, dict):
        return None
    sized = [layer for layer in layers.values() if isinstance(layer, dict)]
    pairs = [(layer.get("current"), layer.get("total")) for layer in sized]
    known = [(c, t) for c, t in pairs if isinstance(c, (int, float)) and isinstance(t, (int, float)) and t > 0]
    total = sum(t for _, t in known)
    return min(100.0, 100.0 * sum(c for c, _ in known) / total) if total else None


def _server_of(ready: Mapping[str, Any], service: JupyterConnectionInfo) -> JupyterConnectionInfo:
    url, token = ready.get("url"), ready.get("token")
    if not (isinstance(url, str) and isinstance(token, str) and token):
        raise UnexpectedAnswer("the Binder is ready, but its address or token is missing; was it asked to build only?")
    return server_at(url, service, "the BinderHub", token)


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
        self._owner = OwnerProcess()
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
        """Shut the server down; calling it again, or in a forked child, does nothing.

        A server that has ended already is no error.

        Raises
        ------
        ExecError
            If the server refuses. It then runs until Binder ends it.
        """
        atexit.unregister(self.stop)
        place, self._connection_info = self._connection_info, None
        if place is None or not self._stops or not self._owner.is_current():
            return
        # A server that cannot be reached has ended, or its answer was lost on its way out.
        with contextlib.closing(SyncDriver(place)) as driver, contextlib.suppress(ConnectionFailed, ConnectionLost):
            reply = driver.perform(exchange(Request("POST", "api/shutdown"), DEFAULT_RETRY))
            if not reply.ok and reply.status not in _GONE:
                raise error_from(reply)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._spec!r}, binder_url={self._binder.url!r})"
