"""One start of a server at a JupyterHub: what is asked of the Hub, and what its news mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..client.api.steps import Operation, Pause, Reply
from ..errors import ConnectionFailed, ConnectionLost, ServerStartFailed
from .hub_api import LOOK_SECONDS, HubServerApi, ServerState, words_of
from .remote_launch import Deadline, LaunchProgress, OnProgress, follow, one_line


class HubLaunch:
    """One start of a server: asks for it where need be, and waits until it is ready.

    Attributes
    ----------
    asked : bool
        Whether the server runs, or will, because of this. Two who start the same server in the same moment are both
        told by the Hub that it starts: then both take it for theirs.
    """

    def __init__(
        self,
        api: HubServerApi,
        options: Mapping[str, Any] | None,
        deadline: Deadline,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._api = api
        self._options = options
        self._deadline = deadline
        self._on_progress = on_progress
        self._phase = ""
        self._failure: str | None = None
        self.asked = False
        self._heard = False

    def run(self) -> Operation[ServerState]:
        """Return the server when it is ready.

        Raises
        ------
        ServerStartFailed, ServerStartTimeout
        """
        while True:
            server = yield from self._api.state()
            if server.ready:
                self._tell("ready", "", 100.0)
                return server
            if server.pending == "spawn":
                yield from self._follow()
            elif server.pending:  # it stops, or the Hub looks whether it lives
                yield Pause(LOOK_SECONDS)
            elif self._heard:
                yield from self._follow()  # which raises what the Hub knows of the reason
                raise ServerStartFailed(
                    f"the server of {self._api.full_name} stopped again while it started"
                    f" (the last that was heard: {self._deadline.heard}); its log, and the Hub's, say why"
                )
            else:
                yield from self._ask()

    def _ask(self) -> Operation[None]:
        self._tell("starting", "asking the Hub for the server")
        self.asked = True  # also if the answer gets lost: until just now nobody had started it
        try:
            reply = yield from self._api.ask_to_start(self._options)
        except ConnectionLost:  # asking once more starts nothing twice
            yield Pause(LOOK_SECONDS)
            return
        except ConnectionFailed:
            self.asked = False
            raise
        if reply.ok:
            self._heard = True
            return
        error = self._api.refusal(reply, "start the server", "start:servers")
        self.asked = reply.status >= 500  # a proxy may have given up waiting for the Hub
        wait = error.retry_after_seconds
        if reply.status in (429, 503) and wait is not None and wait < self._deadline.left_seconds:
            self._tell("starting", error.message)
            yield Pause(max(wait, LOOK_SECONDS))
        elif reply.status < 500 and reply.status != 400:
            raise error
        elif (yield from self._api.state()).stopped:
            if self.asked:
                yield from self._follow()  # where the Hub says more than "Internal Server Error"
            raise ServerStartFailed(f"the Hub did not start the server of {self._api.full_name}: {words_of(reply)}")
        # It has been started by somebody else, or still stops, or does start.

    def _follow(self) -> Operation[None]:
        """Wait for news; whatever breaks the stream, the server's state tells how things are."""
        self._heard = True
        outcome = yield from follow(self._api.progress_path, self._take)
        if self._failure is not None:
            self._tell("failed", self._failure)
            raise ServerStartFailed(
                f"the Hub could not start the server of {self._api.full_name}: {self._failure}; the Hub's log says more"
            )
        if isinstance(outcome, Reply) and outcome.status in (401, 403):
            raise self._api.refusal(outcome, "follow the server's start", "read:servers")
        if outcome is not None:
            yield Pause(LOOK_SECONDS)

    def _take(self, event: Mapping[str, Any]) -> bool:
        message = one_line(event.get("message"))
        if event.get("failed"):
            self._failure = message or "it does not say why"
            return True
        if event.get("ready"):
            return True
        percent = event.get("progress")
        self._tell("starting", message, float(percent) if isinstance(percent, (int, float)) else None)
        return False

    def _tell(self, phase: str, message: str, percent: float | None = None) -> None:
        begins, self._phase = phase != self._phase, phase
        self._deadline.heard = message or self._deadline.heard
        if self._on_progress is not None:
            self._on_progress(LaunchProgress(phase, message, percent, begins))
