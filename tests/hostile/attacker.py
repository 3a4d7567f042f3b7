"""A hostile token's session, in which tricks are played one after the other."""

from __future__ import annotations

import time
from dataclasses import dataclass

import requests

from tests.support.bearers import Bearer, mint
from tests.support.hosts import Host

from .corpus import Case
from .server import Limits, policy_of

_TOKEN_SECONDS = 86_400.0
_TERMINAL = ("ok", "error", "interrupted", "timeout", "cancelled", "kernel_died", "oom_killed")
#: Errors that no trick means to have.
_MISTAKES = ("NameError", "AttributeError", "SyntaxError", "ImportError", "IndentationError")
#: Of the answers of a full store: for all, and for a token with its share.
_STORE_IS_FULL = ("storage_full", "max_stored_bytes")
_SCOPES = ("sessions:create", "sessions:delete", "sessions:read", "executions:create", "executions:read", "files:read")


@dataclass(frozen=True)
class Outcome:
    """The end of a case.

    Parameters
    ----------
    state : str
        The run's state.
    seconds : float
        How long the run took, from the request on.
    delete_seconds : float
        How long its session's end took; 0 if that was not ended.
    problem : str
        What was not as it must be; empty if all was.
    error : str
        What the kernel says of the code, if it has failed.
    """

    name: str
    state: str
    seconds: float
    delete_seconds: float = 0.0
    problem: str = ""
    error: str = ""


def mint_hostile(host: Host, kind: str) -> str:
    """Return a new token for a kind of kernel."""
    return mint(host, _SCOPES, policy_of(kind), name=f"hostile-{kind}", expires_in_seconds=_TOKEN_SECONDS).token


def _says_full(problem: str) -> bool:
    return any(words in problem for words in _STORE_IS_FULL)


class Attacker:
    """A session of a hostile token, made anew whenever it is of no use.

    Parameters
    ----------
    kind : str
        How isolated its kernels are.
    """

    def __init__(self, host: Host, token: str, kind: str, limits: Limits) -> None:
        self.kind = kind
        self._limits = limits
        self._token = token
        self._bearer = Bearer(host, token)
        self._session: str | None = None
        self._submitted_at = 0.0

    def move_to(self, host: Host) -> None:
        """Go on at another server."""
        self._bearer = Bearer(host, self._token)
        self._session = None

    def play(self, case: Case) -> Outcome:
        """Run a trick and wait for its end; leave a session that the next one can use."""
        self._submitted_at = time.monotonic()
        try:
            state, problem, error_text = self._run(case)
        except (requests.RequestException, AssertionError) as error:
            state, problem, error_text = "none", f"{type(error).__name__}: {str(error)[:300]}", ""
        seconds = time.monotonic() - self._submitted_at
        if not problem and error_text.startswith(_MISTAKES):
            problem = f"the trick itself is wrong: {error_text}"
        if not problem and seconds > self._limits.most_seconds:
            problem = f"ended after {seconds:.1f} s; at most {self._limits.most_seconds:g} s"
        delete_seconds = 0.0
        is_slow = seconds > self._limits.run_seconds + self._limits.grace_seconds  # its output is lost, mostly
        if problem or case.trick.breaks_kernel or is_slow or state not in ("ok", "error"):
            delete_seconds, not_deleted = self.end_session()
            problem = problem or not_deleted
        return Outcome(case.name, state, seconds, delete_seconds, problem, error_text)

    def _run(self, case: Case) -> tuple[str, str, str]:
        """Run a trick; return the execution's state, what was wrong, and the code's error.

        A full store refuses hostile code until some of it ends, which a client has to wait for.
        """
        until = time.monotonic() + self._limits.most_seconds
        while True:
            try:
                answered = self._run_once(case)
            except AssertionError as error:  # of a session that was refused
                if not _says_full(str(error)) or time.monotonic() > until:
                    raise
            else:
                if not _says_full(answered[1]) or time.monotonic() > until:
                    return answered
            time.sleep(0.2)

    def _run_once(self, case: Case) -> tuple[str, str, str]:
        session = self._open_session()
        answer = self._submit(session, case, wait_seconds=self._limits.most_seconds + 2)
        if answer.status_code in (404, 409, 410):  # an earlier trick has ended the session since
            self._session = None
            session = self._open_session()
            answer = self._submit(session, case, wait_seconds=self._limits.most_seconds + 2)
        if answer.status_code not in (200, 202):
            return "none", f"answer {answer.status_code}: {answer.text[:300]}", ""
        run = answer.json()
        error = run.get("error") or {}
        text = f"{error.get('name')}: {error.get('value')}"[:200] if error else ""
        return run["state"], "" if run["state"] in _TERMINAL else f"still {run['state']}", text

    def _open_session(self) -> str:
        if self._session is None:
            self._session = self._bearer.session()
        return self._session

    def _submit(self, session: str, case: Case, wait_seconds: float) -> requests.Response:
        text = case.trick.text(self._limits.flood_seconds)
        self._submitted_at = time.monotonic()
        return self._bearer.call(
            "POST",
            f"/sessions/{session}/executions",
            json={"code": text, "timeout_seconds": self._limits.run_seconds},
            headers={"Prefer": f"return=minimal, respond-async, wait={int(wait_seconds)}"},
        )

    def leave_running(self, case: Case) -> Outcome:
        """Begin a trick, and do not wait for its end."""
        began = time.monotonic()
        problem = ""
        try:
            answer = self._submit(self._open_session(), case, wait_seconds=0)
            if answer.status_code not in (200, 202):
                problem = f"answer {answer.status_code}: {answer.text[:200]}"
        except (requests.RequestException, AssertionError) as error:
            problem = f"{type(error).__name__}: {str(error)[:300]}"
        return Outcome(f"{case.name} (left running)", "ok", time.monotonic() - began, problem=problem)

    def look_at_files(self) -> None:
        """Ask for the session's files, as a client would; what the answer is does not matter, if there is one."""
        self._bearer.call("GET", f"/sessions/{self._open_session()}/files")

    def end_session(self) -> tuple[float, str]:
        """End the session; return how long that took, and what was wrong with it."""
        if self._session is None:
            return 0.0, ""
        session, self._session = self._session, None
        began = time.monotonic()
        try:
            answer = self._bearer.call("DELETE", f"/sessions/{session}")
        except requests.RequestException as error:
            return time.monotonic() - began, f"the session was not deleted: {error}"
        seconds = time.monotonic() - began
        if answer.status_code not in (204, 404):
            return seconds, f"deleting the session: {answer.status_code} {answer.text[:200]}"
        most = self._limits.most_seconds
        return seconds, "" if seconds <= most else f"deleting the session took {seconds:.1f} s; at most {most:g} s"
