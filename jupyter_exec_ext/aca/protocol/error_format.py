"""Errors in the ACA protocol: written by a server of ours, and read from the service's answers."""

from __future__ import annotations

from typing import Any

from ...errors import (
    ClientError,
    Conflict,
    ExecError,
    FileNotFound,
    Forbidden,
    Gone,
    InternalError,
    InvalidRequest,
    LimitReached,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    PropertiesMissing,
    SessionEnded,
    SessionNotFound,
    StorageFull,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
    WrongServer,
)
from ...protocol.strict_json import loads_strict

CODE_HEADER = "x-ms-error-code"
#: Names the error as exec/v1 does. A pool of servers looks at it.
OWN_CODE_HEADER = "jupyter-exec-error-code"
NO_SUCH_SESSION = "SessionWithIdentifierNotFound"
PROPERTIES_MISSING = "SessionPropertiesMissing"
FILE_NOT_FOUND = "FileNotFound"
VALIDATION_FAILED = "SessionRequestValidationFailed"
NOT_SUPPORTED = "SessionRequestNotSupported"
_MAX_MESSAGE = 2000

# By class, subclasses first. Codes that the specification does not name follow Azure's naming.
_CODES: tuple[tuple[type[ExecError], str], ...] = (
    (PropertiesMissing, PROPERTIES_MISSING),
    (SessionNotFound, NO_SUCH_SESSION),
    (SessionEnded, NO_SUCH_SESSION),
    (FileNotFound, FILE_NOT_FOUND),
    (MethodNotAllowed, NOT_SUPPORTED),
    (InvalidRequest, VALIDATION_FAILED),
    (Unauthenticated, "Unauthorized"),
    (Forbidden, "Forbidden"),
    (NotFound, "NotFound"),
    (Conflict, "Conflict"),
    (Gone, "Gone"),
    (PayloadTooLarge, "PayloadTooLarge"),
    (UnsupportedMediaType, "UnsupportedMediaType"),
    (WrongServer, "MisdirectedRequest"),
    (LimitReached, "TooManyRequests"),
    (Unavailable, "ServiceUnavailable"),
    (StorageFull, "InsufficientStorage"),
)
_BY_STATUS: dict[int, tuple[type[ExecError], str]] = {
    400: (InvalidRequest, "the request was refused"),
    401: (
        Unauthenticated,
        "the access token was not accepted; it must be for the scope https://dynamicsessions.io/.default",
    ),
    403: (
        Forbidden,
        (
            "the identity may not use this session pool; give it the role 'Azure ContainerApps Session Executor' on the"
            " pool (a new role can take some minutes to work)"
        ),
    ),
    404: (
        NotFound,
        "there is no such pool, file or run, or the pool has as many sessions as it may have",
    ),
    409: (Conflict, "the request does not fit the session's state"),
    413: (PayloadTooLarge, "the upload is larger than the 128 MB that the service takes"),
    429: (LimitReached, "the pool has as many sessions or requests as it may have; try again later"),
}


def error_to_json(error: ExecError, *, trace_id: str | None = None) -> tuple[int, str, dict[str, Any]]:
    """Return the HTTP status, the code and the body for an error."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "InternalServerError")
    # The service answers an identifier without a session with 400, not 404.
    status = 400 if isinstance(error, (SessionNotFound, SessionEnded, MethodNotAllowed)) else error.status
    body: dict[str, Any] = {"code": code, "message": error.message or str(error)}
    if trace_id is not None:
        body["traceId"] = trace_id
    return status, code, {"error": body}


def error_from_answer(status: int, body: bytes, *, retry_after_seconds: float | None = None) -> ExecError:
    """Return the error for an answer with an HTTP status of 400 or more.

    The message contains the service's message and, if one is known, the remedy.
    """
    code, message = _read_code_and_message(body)
    # By the code: the service sends it with the status 400, not 404.
    if code == NO_SUCH_SESSION:
        return SessionNotFound(message or "the pool has no such session")
    if status >= 500:
        kind: type[ExecError] = Unavailable if status in (502, 503, 504) else InternalError
        advice = "the service failed"
    elif status in _BY_STATUS:
        kind, advice = _BY_STATUS[status]
    else:
        kind, advice = ClientError, "the service refused the request"
    if code == PROPERTIES_MISSING:
        kind, advice = PropertiesMissing, "the service wants another form of request; try another api-version"
    if code == FILE_NOT_FOUND:
        kind, advice = FileNotFound, "the session has no such file"
    shown_message = f": {message}" if message else ""
    shown_code = f" ({code})" if code else ""
    return kind(f"HTTP {status}{shown_code}: {advice}{shown_message}", retry_after_seconds=retry_after_seconds)


def _read_code_and_message(body: bytes) -> tuple[str, str]:
    try:
        data = loads_strict(body)
    except ValueError:
        # Proxies on the way answer with HTML or plain text.
        return "", body[:_MAX_MESSAGE].decode("utf-8", "replace").strip()
    error = data.get("error") if isinstance(data, dict) else None
    fields = error if isinstance(error, dict) else data
    if not isinstance(fields, dict):
        return "", str(fields)[:_MAX_MESSAGE]
    code, message, target = (fields.get(name) for name in ("code", "message", "target"))
    text = str(message)[:_MAX_MESSAGE] if message else ""
    return str(code)[:100] if code else "", f"{text} (target: {str(target)[:200]})" if target else text
