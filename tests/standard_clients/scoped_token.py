"""A scoped token, and what its bearer has done at the server; the clients' environments have the standard library."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: Code whose value shows that it has run after the token's end, and is not part of the code.
AFTER = "'after' + '_revocation'"
_VALUE = "after_revocation"
_END_SECONDS = 60.0


@dataclass
class ScopedToken:
    """A scoped token of a host.

    Parameters
    ----------
    url : str
        The host's base URL.
    owner : str
        The token of the host's owner.
    """

    url: str
    owner: str = field(repr=False)
    text: str = field(default="", repr=False)
    id: str = ""

    def __post_init__(self) -> None:
        if not self.text:
            scopes = ["sessions", "executions"]
            rights = [f"{scope}:{right}" for scope in scopes for right in ("read", "create")]
            request = {"name": "client", "scopes": [*rights, "sessions:delete", "executions:control"]}
            made = self._call("POST", "exec/v1/tokens", {**request, "policy": "trusted"}, self.owner)
            self.text, self.id = made["token"], made["id"]

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2].strip("/")

    def sessions(self) -> list[str]:
        """Return the ids of the bearer's live sessions."""
        return [session["id"] for session in self._call("GET", "exec/v1/sessions")["sessions"]]

    def executions(self) -> list[tuple[str, str]]:
        """Return code and state of each execution in the bearer's only session."""
        (session,) = self.sessions()
        deadline = time.monotonic() + _END_SECONDS
        while True:
            listed = self._call("GET", f"exec/v1/sessions/{session}/executions")["executions"]
            runs = [(execution["code"], execution["state"]) for execution in listed]
            # Some clients return with the error's message, before the run has ended.
            if all(state not in ("queued", "running") for _, state in runs) or time.monotonic() > deadline:
                return runs

    def found(self, text: str) -> list[Any]:
        """Return the executions that have a text, also those of sessions that have ended, as the owner sees them."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            answer = self._call("GET", f"exec/v1/executions?query={urllib.parse.quote(text)}", token=self.owner)
            if answer["complete"]:
                found: list[Any] = answer["found"]
                return found
            assert time.monotonic() < deadline, "the search is not complete"

    def revoke(self) -> None:
        self._call("DELETE", f"exec/v1/tokens/{self.id}", token=self.owner)

    def check_end(self, run_after: Callable[[], object], errors: tuple[type[Exception], ...]) -> None:
        """Revoke the token: the client's connection ends, and its code is refused until then.

        Parameters
        ----------
        run_after : callable
            Runs `AFTER` in the client, and returns all that the client gets.
        errors : tuple of exception types
            Errors of the client without a connection.
        """
        self.revoke()
        deadline = time.monotonic() + _END_SECONDS
        try:
            while True:
                shown = repr(run_after())
                assert _VALUE not in shown and time.monotonic() < deadline, shown
        except errors:
            pass
        assert not (ran := self.found(AFTER)), ran

    def _call(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token or self.text}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from None
