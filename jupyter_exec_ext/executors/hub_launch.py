"""Start of a user's server at a JupyterHub, followed by the Hub's progress events until the server is ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..client.api.steps import Operation, Pause, Reply
from ..errors import ConnectionFailed, ConnectionLost, ServerStartFailed
from .hub_api import POLL_SECONDS, HubServerApi, ServerState, message_of
from .remote_launch import Deadline, ProgressReporter, follow_events, to_one_line


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
