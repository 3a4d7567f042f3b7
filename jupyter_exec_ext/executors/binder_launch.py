"""One launch of a Binder, through BinderHub's stream of events: what each event means, and when asking again is safe.

A request for a launch that finds the image being built joins that build. One that finds it built starts another server.
So a stream that is cut during the build is opened again, and one that is cut later is not: a server that nobody has
the address of may then run, and ends by itself.

References
----------
https://binderhub.readthedocs.io/en/latest/api.html
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ..client.api.outage_retry import DEFAULT_RETRY, RetryPolicy
from ..client.api.request_exchange import error_from
from ..client.api.steps import Failure, Operation, Reply
from ..client.server_connection import JupyterConnectionInfo
from ..errors import (
    ConnectionFailed,
    ConnectionLost,
    ExecError,
    LimitReached,
    NotFound,
    ServerStartFailed,
    UnexpectedAnswer,
)
from .remote_launch import Deadline, LaunchProgress, OnProgress, follow, one_line

_BUILD_PHASES = frozenset({"waiting", "fetching", "building", "pushing"})
_FAILED = frozenset({"failed", "failure"})
# Answers of a proxy that could not hand the request on.
_NOT_HANDED_ON = frozenset({502, 503})
_KEPT_LINES = 15
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE_IN_A_PATH = "/%~+:@,=!$&'()*;"


def build_path(spec: str) -> str:
    """Return the path that launches ``provider/what/ref``, such as ``gh/org/repo/HEAD``.

    Raises
    ------
    ValueError
        If it is none.
    """
    segments = spec.split("/")
    if len(segments) < 2 or {"", ".", ".."} & {unquote(segment) for segment in segments} or not spec.isprintable():
        raise ValueError(f"a Binder's spec is provider/what/ref, such as gh/org/repo/HEAD, not {spec!r}")
    return f"build/{quote(spec, safe=_SAFE_IN_A_PATH)}"


@dataclass(frozen=True, slots=True)
class Moved:
    """Another address is to be asked."""

    url: str = field(repr=False)


class BinderLaunch:
    """Reads the events of one launch, over as many connections as it takes.

    Parameters
    ----------
    spec : str
        What is launched, for messages.
    """

    def __init__(
        self,
        spec: str,
        deadline: Deadline,
        on_progress: OnProgress | None = None,
        retry: RetryPolicy = DEFAULT_RETRY,
    ) -> None:
        self._spec = spec
        self._deadline = deadline
        self._on_progress = on_progress
        self._retry = retry
        self._tries = 0
        self._shown = ""
        self._phase = ""
        self._log: deque[str] = deque(maxlen=_KEPT_LINES)
        self._end: Mapping[str, Any] = {}

    def run(self, place: JupyterConnectionInfo, path: str) -> Operation[JupyterConnectionInfo | Moved]:
        """Return where the server is, or where else to ask.

        Parameters
        ----------
        place : JupyterConnectionInfo
            Where the BinderHub is.
        path : str
            What is asked for there.

        Raises
        ------
        ServerStartFailed, LimitReached, ConnectionFailed, ConnectionLost
        """
        while True:
            self._phase = ""
            outcome = yield from follow(path, self._take)
            if outcome is None:
                if str(self._end.get("phase")).lower() in _FAILED:
                    raise self._failure()
                return _server(self._end, place)
            if isinstance(outcome, Reply) and outcome.status in _REDIRECTS:
                return Moved(outcome.headers.get("location", ""))
            if self._tries >= self._retry.max_retries or not self._may_ask_again(outcome):
                raise self._error(outcome)
            yield self._retry.pause(self._tries)
            self._tries += 1

    def _take(self, event: Mapping[str, Any]) -> bool:
        phase = str(event.get("phase") or "unknown")
        message = one_line(event.get("message"))
        if phase == "ready" or phase.lower() in _FAILED:
            self._end = event
        if phase != "ready":  # its message, too, names what is none of anybody's business
            self._deadline.heard = message or self._deadline.heard
            self._log.append(message)
        self._phase = phase
        if self._on_progress is not None:
            phase = one_line(phase)
            shown = LaunchProgress(phase, "" if phase == "ready" else message, _percent(event), phase != self._shown)
            self._shown = phase
            self._on_progress(shown)
        return bool(self._end)

    def _may_ask_again(self, outcome: Reply | Failure) -> bool:
        if isinstance(outcome, Reply):
            return outcome.status in _NOT_HANDED_ON
        return not outcome.sent or self._phase in _BUILD_PHASES

    def _error(self, outcome: Reply | Failure) -> ExecError:
        if isinstance(outcome, Reply):
            error = error_from(outcome)
            if outcome.status == 404:
                return NotFound("there is no BinderHub at this address; name it as https://binder.example/")
            return self._limit(error.message, error.retry_after_seconds) if outcome.status == 429 else error
        if not outcome.sent:
            return ConnectionFailed(f"the BinderHub cannot be reached: {outcome.message}")
        return ConnectionLost(
            f"the connection was lost while {self._spec} was launched ({outcome.message}); a server may run that "
            "nobody uses, which Binder ends by itself; launching again starts another one"
        )

    def _failure(self) -> ExecError:
        said = one_line(self._end.get("message"))
        if self._end.get("status_code") == 429:
            wait = re.search(r"(\d+) seconds", said)
            return self._limit(said, float(wait[1]) if wait else None)
        lines = [line for line in self._log if line]
        log = "; the last lines of the log:\n" + "\n".join(lines) if len(lines) > 1 else ""
        return ServerStartFailed(f"Binder could not launch {self._spec}: {said or 'it does not say why'}{log}")

    def _limit(self, said: str, retry_after_seconds: float | None) -> LimitReached:
        when = "later" if retry_after_seconds is None else f"in {retry_after_seconds:g} s"
        return LimitReached(
            f"the BinderHub launches no more for now ({said}); try again {when}",
            retry_after_seconds=retry_after_seconds,
        )


def _percent(event: Mapping[str, Any]) -> float | None:
    """Return how much of an image was pushed, of all the layers whose size is known."""
    layers = event.get("progress")
    if not isinstance(layers, dict):
        return None
    sized = [layer for layer in layers.values() if isinstance(layer, dict)]
    pairs = [(layer.get("current"), layer.get("total")) for layer in sized]
    known = [(c, t) for c, t in pairs if isinstance(c, (int, float)) and isinstance(t, (int, float)) and t > 0]
    total = sum(t for _, t in known)
    return min(100.0, 100.0 * sum(c for c, _ in known) / total) if total else None


def _server(ready: Mapping[str, Any], place: JupyterConnectionInfo) -> JupyterConnectionInfo:
    url, token = ready.get("url"), ready.get("token")
    if not (isinstance(url, str) and isinstance(token, str) and token):
        raise UnexpectedAnswer("the Binder is ready, but its address or token is missing; was it asked to build only?")
    return place_at(url, place, token)


def place_at(url: str, place: JupyterConnectionInfo, token: str | None = None) -> JupyterConnectionInfo:
    """Return where a URL that came from `place` leads, without its query.

    Raises
    ------
    UnexpectedAnswer
        If it is none, or leads from HTTPS to HTTP.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UnexpectedAnswer("the BinderHub names an address that is no URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise UnexpectedAnswer("the BinderHub names an address that is no URL of a server")
    if place.use_https and parts.scheme != "https":
        raise UnexpectedAnswer("the BinderHub is reached by HTTPS and names an address that is not; it is not used")
    return JupyterConnectionInfo(
        host=parts.hostname,
        use_https=parts.scheme == "https",
        port=port,
        token=token,
        base_url=unquote(parts.path),
        verify=place.verify,
        client_cert=place.client_cert,
    )
