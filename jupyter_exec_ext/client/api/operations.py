"""Operations of ``exec/v1`` on the server, sessions, tokens, policies and approvals; executions are in the base class.

Requests that create a secret or decide about code are sent once: after a lost answer, a person has to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from ...errors import (
    ApiNotFound,
    ConnectionLost,
    ExecError,
    Forbidden,
    NotFound,
    Unauthenticated,
    UnexpectedAnswer,
)
from ...models import (
    Execution,
    FoundExecution,
    IssuedToken,
    KernelGrant,
    KernelSpecInfo,
    RecordList,
    Session,
    SessionUsage,
    Token,
)
from ...protocol.found_executions import found_from_json
from ...protocol.records_json import (
    execution_from_json,
    issued_token_from_json,
    kernel_grant_from_json,
    kernelspec_from_json,
    session_from_json,
    token_from_json,
)
from ...protocol.view_json import usage_from_json
from .answers import list_in, parsed
from .event_stream import API
from .execution_operations import START_SECONDS, ExecutionOperations, environment_variables
from .request_exchange import exchange, is_of_api, segment
from .retries import DEFAULT_RETRY, NO_RETRY, RetryPolicy
from .steps import Operation, Request

_UNAVAILABLE = 503
# A notebook holds all outputs of a session, and the server has to read them first.
_NOTEBOOK_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class ExecApi(ExecutionOperations):
    """Operations of ``exec/v1``."""

    @property
    def without_retries(self) -> ExecApi:
        """The same operations without retries, for when an exception is on its way."""
        return replace(self, retry=NO_RETRY)

    def info(self) -> Operation[dict[str, Any]]:
        """Return the server's description of itself.

        Raises
        ------
        ApiNotFound
            If it is a Jupyter server without this extension.
        """
        # Without the final slash: with it, a Jupyter server without the extension redirects instead of answering 404.
        reply = yield from exchange(Request("GET", API.rstrip("/")), self.retry)
        if reply.status == 404:
            raise ApiNotFound(
                "the server has no exec/v1 API; install jupyter_exec_ext there (pip install jupyter-exec-ext) and "
                "restart it, or check the base URL"
            )
        info = parsed(reply)
        if not isinstance(info, dict) or info.get("name") != "jupyter_exec_ext":
            raise UnexpectedAnswer("something answers at exec/v1, but it is not jupyter_exec_ext")
        return info

    def kernelspecs(self) -> Operation[RecordList[KernelSpecInfo]]:
        """Return the kernelspecs that a session may use."""
        found = list_in((yield from self.info()), "kernelspecs")
        return RecordList(KernelSpecInfo, [kernelspec_from_json(item) for item in found])

    def open_session(self, request: Mapping[str, Any]) -> Operation[Session]:
        """Create a session, possibly on a server that is not known yet; return when its kernel is ready.

        Raises
        ------
        ApiNotFound
            If the server has no ``exec/v1`` API.
        Unauthenticated
            If the token is wrong.
        UnexpectedAnswer
            If the address is not a Jupyter server's.
        """
        creation = Request("POST", f"{API}sessions", request, read_timeout_seconds=START_SECONDS)
        try:
            reply = yield from exchange(creation, self.retry)
        except ConnectionLost:
            yield from self.info()  # raises the better error if there is no server at all
            raise
        if not reply.ok and not is_of_api(reply):
            yield from self.info()
            # Creating a session is not idempotent, but after 503 the proxy has not forwarded the request.
            if reply.status == _UNAVAILABLE:  # a proxy has answered while the server was starting
                reply = yield from exchange(creation, self.retry)
        return session_from_json(parsed(reply))

    def in_fresh_session(self, operation: Operation[Execution]) -> Operation[Execution]:
        """Run code in a session of its own, possibly on an unknown server; raise as `open_session` does."""
        try:
            return (yield from operation)
        except (Unauthenticated, Forbidden, NotFound, UnexpectedAnswer) as error:
            if error.request_id is None:  # another server or a proxy has answered
                yield from self.info()
            raise

    def get_session(self, session_id: str, *, memory: bool = False) -> Operation[Session]:
        """Read a session."""
        path = f"sessions/{segment(session_id)}{_flags(memory=memory)}"
        return session_from_json((yield from self._call("GET", path)))

    def session_usage(self, session_id: str) -> Operation[SessionUsage]:
        """Read what a session has used."""
        return usage_from_json((yield from self._call("GET", f"sessions/{segment(session_id)}/usage")))

    def list_sessions(self, *, ended: bool, memory: bool) -> Operation[RecordList[Session]]:
        """List sessions."""
        body = yield from self._call("GET", f"sessions{_flags(ended=ended, memory=memory)}")
        return RecordList(Session, [session_from_json(item) for item in list_in(body, "sessions")])

    def delete_session(self, session_id: str) -> Operation[None]:
        """End a session; one that has ended already is no error."""
        try:
            yield from self._call("DELETE", f"sessions/{segment(session_id)}")
        except ExecError as error:
            # A retry after a lost answer finds the session gone as well.
            if error.status not in (404, 410):
                raise

    def interrupt_session(self, session_id: str) -> Operation[Session]:
        """Interrupt the running code of a session."""
        return session_from_json((yield from self._call("POST", f"sessions/{segment(session_id)}/interrupt")))

    def restart_session(self, session_id: str) -> Operation[Session]:
        """Restart a session with a fresh kernel."""
        path = f"sessions/{segment(session_id)}/restart"
        return session_from_json((yield from self._call("POST", path, read_timeout_seconds=START_SECONDS)))

    def notebook(self, session_id: str) -> Operation[dict[str, Any]]:
        """Return a session as a notebook."""
        path = f"sessions/{segment(session_id)}/notebook"
        notebook = yield from self._call("GET", path, read_timeout_seconds=_NOTEBOOK_SECONDS)
        if not isinstance(notebook, dict):
            raise UnexpectedAnswer("the server sent something else than a notebook")
        return notebook

    def save_notebook(self, session_id: str, path: str) -> Operation[str]:
        """Save a session as a notebook on the server; return its path there."""
        url = f"sessions/{segment(session_id)}/notebook"
        saved = yield from self._call("POST", url, {"path": path}, read_timeout_seconds=_NOTEBOOK_SECONDS)
        return str(saved["path"])

    def list_executions(
        self, session_id: str, limit: int, before: str | None, after: str | None
    ) -> Operation[RecordList[Execution]]:
        """List a page of a session's executions, without their outputs."""
        query = _query(limit=limit, before=before, after=after)
        body = yield from self._call("GET", f"sessions/{segment(session_id)}/executions{query}")
        return RecordList(Execution, [execution_from_json(item) for item in list_in(body, "executions")])

    def search_executions(self, text: str, limit: int, before: str | None) -> Operation[FoundExecutions]:
        """Search all executions that the caller may see."""
        body = yield from self._call("GET", f"executions{_query(query=text, limit=limit, before=before)}")
        return FoundExecutions([found_from_json(item) for item in list_in(body, "found")], body.get("complete") is True)


def session_request(
    kernel_name: str | None,
    name: str,
    env: Mapping[str, str] | None,
    metadata: Mapping[str, Any] | None,
    idle_timeout_seconds: float | None,
    kernel_id: str | None,
    isolation: str | None,
    cwd: str | None,
    auto_checkpoint: str | None = None,
) -> dict[str, Any]:
    """Return the body of ``POST /sessions``."""
    body = {
        "kernel_name": kernel_name,
        "name": name or None,
        "env": None if env is None else environment_variables(env),
        "metadata": None if metadata is None else dict(metadata),
        "idle_timeout_seconds": idle_timeout_seconds,
        "kernel_id": kernel_id,
        "isolation": isolation,
        "cwd": cwd,
        "auto_checkpoint": auto_checkpoint,
    }
    return {field: value for field, value in body.items() if value is not None}


class FoundExecutions(RecordList[FoundExecution]):
    """List of executions that a search has found.

    Parameters
    ----------
    found : sequence of FoundExecution
        The executions, the newest first.
    complete : bool
        False while the server still indexes older executions: a later search may find more.
    """

    def __init__(self, found: Sequence[FoundExecution] = (), complete: bool = True) -> None:
        super().__init__(FoundExecution, found)
        self.complete = complete


def _query(**options: object) -> str:
    return "?" + urlencode({name: value for name, value in options.items() if value is not None})


def _flags(**flags: bool) -> str:
    query = "&".join(f"{name}=true" for name, flag in flags.items() if flag)
    return f"?{query}" if query else ""


@dataclass(frozen=True, slots=True)
class TokensApi:
    """Operations on scoped tokens, the kernels granted to them, policies and approvals."""

    retry: RetryPolicy = DEFAULT_RETRY

    def _call(self, method: str, path: str, json: Any = None) -> Operation[Any]:
        return parsed((yield from exchange(Request(method, API + path, json), self.retry)))

    def _list(self, path: str, name: str) -> Operation[Sequence[Any]]:
        return list_in((yield from self._call("GET", path)), name)

    def create(self, request: Mapping[str, Any]) -> Operation[IssuedToken]:
        """Create a token; see `token_request`."""
        return issued_token_from_json((yield from self._call("POST", "tokens", request)))

    def list(self, *, ended: bool) -> Operation[RecordList[Token]]:
        """List tokens."""
        found = yield from self._list(f"tokens{'?ended=true' * ended}", "tokens")
        return RecordList(Token, [token_from_json(item) for item in found])

    def get(self, token_id: str) -> Operation[Token]:
        """Read a token."""
        return token_from_json((yield from self._call("GET", f"tokens/{segment(token_id)}")))

    def rotate(
        self, token_id: str, overlap_seconds: float, expires_in_seconds: float | None = None
    ) -> Operation[IssuedToken]:
        """Replace a token's secret."""
        body = {"overlap_seconds": overlap_seconds}
        if expires_in_seconds is not None:
            body["expires_in_seconds"] = expires_in_seconds
        return issued_token_from_json((yield from self._call("POST", f"tokens/{segment(token_id)}/rotate", body)))

    def revoke(self, token_id: str) -> Operation[None]:
        """Revoke a token."""
        yield from self._call("DELETE", f"tokens/{segment(token_id)}")

    def grant(
        self, token_id: str, kernel_id: str, name: str, expires_in_seconds: float | None
    ) -> Operation[KernelGrant]:
        """Grant a kernel to a token."""
        body: dict[str, Any] = {"token_id": token_id, "kernel_id": kernel_id, "name": name}
        if expires_in_seconds is not None:
            body["expires_in_seconds"] = expires_in_seconds
        return kernel_grant_from_json((yield from self._call("POST", "grants", body)))

    def grants(self, *, ended: bool) -> Operation[RecordList[KernelGrant]]:
        """List grants of kernels."""
        found = yield from self._list(f"grants{_flags(ended=ended)}", "grants")
        return RecordList(KernelGrant, [kernel_grant_from_json(item) for item in found])

    def revoke_grant(self, grant_id: str) -> Operation[None]:
        """Revoke a grant of a kernel."""
        yield from self._call("DELETE", f"grants/{segment(grant_id)}")

    def policies(self) -> Operation[Sequence[dict[str, Any]]]:
        """List the policies."""
        return (yield from self._list("policies", "policies"))

    def approvals(self) -> Operation[RecordList[Execution]]:
        """List the executions that wait for approval."""
        found = yield from self._list("approvals", "executions")
        return RecordList(Execution, [execution_from_json(item) for item in found])

    def decide(self, execution_id: str, answer: Mapping[str, Any]) -> Operation[Execution]:
        """Approve or reject an execution; see `approval` and `rejection`."""
        return execution_from_json((yield from self._call("POST", f"approvals/{segment(execution_id)}", answer)))

    def withdraw(self, session_id: str, kind: str | None) -> Operation[Session]:
        """Ask again about a kind of code, or about all that were approved for a session."""
        query = "" if kind is None else f"?kind={segment(kind)}"
        return session_from_json(
            (yield from self._call("DELETE", f"sessions/{segment(session_id)}/approved-kinds{query}"))
        )


def token_request(
    name: str,
    scopes: Sequence[str],
    policy: str | None,
    expires_in_seconds: float | None,
    limits: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the body of ``POST /tokens``.

    Raises
    ------
    TypeError
        If `scopes` is a string, which would be sent as its letters.
    """
    if isinstance(scopes, str):
        raise TypeError(f"'scopes' is a list of scopes, not a string; write [{scopes!r}]")
    optional = {"policy": policy, "expires_in_seconds": expires_in_seconds, "limits": dict(limits) if limits else None}
    return {"name": name, "scopes": list(scopes)} | {k: value for k, value in optional.items() if value is not None}


def approval(code: str | None, reason: str, *, for_session: bool = False) -> dict[str, Any]:
    """Return the body of ``POST /approvals/{eid}`` that approves code, or other code in its place."""
    optional = ({} if code is None else {"code": code}) | ({"for_session": True} if for_session else {})
    return {"decision": "approve", "reason": reason} | optional


def rejection(reason: str) -> dict[str, Any]:
    """Return the body of ``POST /approvals/{eid}`` that rejects code."""
    return {"decision": "reject", "reason": reason}
