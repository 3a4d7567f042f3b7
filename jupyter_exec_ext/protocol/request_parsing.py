"""The requests of our own HTTP API, as the server reads them: strictly.

An unknown field is an error that names the nearest known one.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import InvalidRequest
from ..models import (
    AUTO_CHECKPOINT_EACH_RUN,
    AUTO_CHECKPOINT_OFF,
    ISOLATION_LEVELS,
    ApprovalAnswer,
    ExecutionRequest,
    GrantRequest,
    SecretRequest,
    SessionRequest,
    TokenRequest,
)
from .field_reader import FieldReader
from .strict_json import is_encodable, utf8_size

MAX_NAME_LENGTH = 256
MAX_REASON_LENGTH = 4096
MAX_NOTEBOOK_NAME_BYTES = 240  # file systems take 255, and Jupyter's checkpoint has a longer name than the notebook
MAX_ENV_NAMES = 1000
MAX_PORT = 65_535
MAX_RULE_CHARACTERS = 500
MAX_SECRET_CHARACTERS = 4096
MAX_REQUIREMENTS, MAX_REQUIREMENT_CHARACTERS = 100, 500
MAX_ENV_CHARS = 100_000  # well below what the operating system lets a new process have
# As the API's description has it; well within the limits of file systems.
_DIRECTORY = re.compile(r"[^/\x00.][^/\x00]{0,59}(/[^/\x00.][^/\x00]{0,59}){0,14}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def env_from_json(env: Any) -> dict[str, str]:
    """Read the environment variables that a caller asks for; raises `InvalidRequest`."""
    if not isinstance(env, dict):
        raise InvalidRequest("'env' must be a JSON object")
    if len(env) > MAX_ENV_NAMES or sum(len(str(name)) + len(str(value)) for name, value in env.items()) > MAX_ENV_CHARS:
        raise InvalidRequest(f"'env' may have at most {MAX_ENV_NAMES} variables with {MAX_ENV_CHARS} characters in all")
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name):
            raise InvalidRequest(f"'env' has {name[:64]!r}, which is not a valid variable name")
        if not isinstance(value, str) or "\0" in value:
            raise InvalidRequest(f"'env' variable {name!r} must be a string without NUL")
        if not is_encodable(value):
            raise InvalidRequest(f"'env' variable {name!r} must be valid Unicode")
    return env


def session_request_from_json(data: Any) -> SessionRequest:
    """Read the body of ``POST /sessions``.

    Raises
    ------
    InvalidRequest
        Naming the field and what is wrong with it.
    """
    body = FieldReader(data)
    request = SessionRequest(
        kernel_name=body.text("kernel_name", MAX_NAME_LENGTH),
        name=body.text("name", MAX_NAME_LENGTH) or "",
        env=env_from_json(body.object("env")),
        metadata=body.metadata(),
        idle_timeout_seconds=body.seconds("idle_timeout_seconds", zero_allowed=True),
        kernel_id=body.text("kernel_id", MAX_NAME_LENGTH),
        isolation=body.text("isolation", MAX_NAME_LENGTH),
        cwd=body.text("cwd") or "",
        auto_checkpoint=body.text("auto_checkpoint") or AUTO_CHECKPOINT_OFF,
    )
    body.reject_unknown_fields()
    if request.cwd and not _DIRECTORY.fullmatch(request.cwd):
        raise InvalidRequest(
            "'cwd' must be a directory below the session's: at most 15 names of 60 characters, none with a dot first"
        )
    if not is_encodable(request.cwd):
        raise InvalidRequest("'cwd' must be valid Unicode")
    if request.isolation is not None and request.isolation not in ISOLATION_LEVELS:
        raise InvalidRequest(f"'isolation' must be one of {', '.join(ISOLATION_LEVELS)}")
    if request.auto_checkpoint not in (AUTO_CHECKPOINT_OFF, AUTO_CHECKPOINT_EACH_RUN):
        raise InvalidRequest("'auto_checkpoint' must be 'off' or 'each_run'")
    if request.kernel_id is not None and request.auto_checkpoint != AUTO_CHECKPOINT_OFF:
        raise InvalidRequest("'auto_checkpoint' goes without 'kernel_id': there are no checkpoints of attached kernels")
    if request.kernel_id is not None and (request.kernel_name is not None or request.env or request.cwd):
        raise InvalidRequest(
            "'kernel_id' attaches to a kernel that runs already, so it goes without 'kernel_name', 'env' and 'cwd'"
        )
    return request


def execution_request_from_json(data: Any) -> ExecutionRequest:
    """Read the body of ``POST /sessions/{sid}/executions``.

    Raises
    ------
    InvalidRequest
        Naming the field and what is wrong with it.
    """
    return _execution_request(FieldReader(data))


def fresh_run_from_json(data: Any) -> tuple[SessionRequest, ExecutionRequest]:
    """Read the body of ``POST /executions``: that of an execution, and in it that of its session.

    Raises
    ------
    InvalidRequest
        Naming the field and what is wrong with it.
    """
    body = FieldReader(data)
    session = session_request_from_json(body.object("session"))
    if session.kernel_id is not None:
        raise InvalidRequest("a fresh session has a kernel of its own; to attach to one, POST to 'sessions'")
    return session, _execution_request(body)


def _execution_request(body: FieldReader) -> ExecutionRequest:
    code = body.text("code")
    if code is None:
        raise InvalidRequest("'code' is missing: the source to run, as a string")
    if not is_encodable(code):  # a kernel would neither run it nor say so
        raise InvalidRequest("'code' must be valid Unicode; it has half of a surrogate pair")
    request = ExecutionRequest(
        code=code,
        language=body.text("language", 64),
        timeout_seconds=body.seconds("timeout_seconds", zero_allowed=False),
        metadata=body.metadata(),
        allow_input=body.flag("allow_input"),
        env=env_from_json(body.object("env")),
    )
    body.reject_unknown_fields()
    return request


def port_from_json(data: Any) -> int:
    """Read the body of ``POST /sessions/{sid}/ports``; raises `InvalidRequest`."""
    body = FieldReader(data)
    # For JSON Schema, 8501.0 is a whole number.
    port: float | None = body.pop_field(
        "port",
        "a whole number from 1 to 65535",
        lambda v: type(v) in (int, float) and 1 <= v <= MAX_PORT and v == int(v),
    )
    body.reject_unknown_fields()
    if port is None:
        raise InvalidRequest("'port' is missing")
    return int(port)


def rule_from_json(data: Any) -> str:
    """Read the body of ``POST /sessions/{sid}/network``; raises `InvalidRequest`."""
    body = FieldReader(data)
    rule = body.text("rule", MAX_RULE_CHARACTERS)
    body.reject_unknown_fields()
    if not rule:
        raise InvalidRequest("'rule' is missing: what to allow, such as 'example.com'")
    return rule


def secret_request_from_json(data: Any) -> SecretRequest:
    """Read the body of ``PUT /secrets/{name}``; raises `InvalidRequest`, never with the value."""
    body = FieldReader(data)
    value = body.text("value", MAX_SECRET_CHARACTERS)
    request = SecretRequest(value or "", body.texts("hosts"), body.text("header", MAX_NAME_LENGTH))
    body.reject_unknown_fields()
    if not value:
        raise InvalidRequest("'value' is missing: the secret itself, as a string")
    return request


def packages_from_json(data: Any) -> list[str]:
    """Read the body of ``POST /sessions/{sid}/packages``; raises `InvalidRequest`."""
    body = FieldReader(data)
    packages: list[str] | None = body.pop_field(
        "packages",
        f"a list of 1 to {MAX_REQUIREMENTS} requirements, such as 'pandas==2.2'",
        lambda v: (
            isinstance(v, list)
            and 1 <= len(v) <= MAX_REQUIREMENTS
            and all(isinstance(item, str) and 0 < len(item) <= MAX_REQUIREMENT_CHARACTERS for item in v)
        ),
    )
    body.reject_unknown_fields()
    if packages is None:
        raise InvalidRequest("'packages' is missing: what to install, such as ['pandas==2.2']")
    return packages


def notebook_path_from_json(data: Any) -> str:
    """Read the body of ``POST /sessions/{sid}/notebook``; raises `InvalidRequest`."""
    body = FieldReader(data)
    path = body.text("path", 1024)
    if not path or not path.endswith(".ipynb") or "\0" in path or not is_encodable(path):
        raise InvalidRequest("'path' must be where to save the notebook on the server, ending in '.ipynb'")
    parts = path.lstrip("/").split("/")
    # Jupyter writes what is hidden and then does not find it.
    if any(not part or part.startswith(".") for part in parts):
        raise InvalidRequest("'path' may have no part that is empty or begins with a dot")
    if any(utf8_size(part) > MAX_NOTEBOOK_NAME_BYTES for part in parts):
        raise InvalidRequest(f"'path' may have at most {MAX_NOTEBOOK_NAME_BYTES} bytes between two slashes")
    body.reject_unknown_fields()
    return "/".join(parts)


def input_from_json(data: Any) -> str:
    """Read the body of ``POST /executions/{eid}/input``; raises `InvalidRequest`."""
    body = FieldReader(data)
    value = body.text("value", 1024 * 1024)
    if value is None:
        raise InvalidRequest("'value' is missing: the text to answer with, as a string")
    body.reject_unknown_fields()
    return value


def token_request_from_json(data: Any) -> TokenRequest:
    """Read the body of ``POST /tokens``; raises `InvalidRequest`."""
    body = FieldReader(data)
    name = body.text("name", MAX_NAME_LENGTH)
    if not name:
        raise InvalidRequest("'name' is missing: what the token is for, so that a person recognises it in a list")
    request = TokenRequest(
        name=name,
        policy=body.text("policy", MAX_NAME_LENGTH),
        scopes=body.texts("scopes"),
        expires_in_seconds=body.seconds("expires_in_seconds", zero_allowed=False),
        limits=body.limits(),
    )
    body.reject_unknown_fields()
    return request


def grant_request_from_json(data: Any) -> GrantRequest:
    """Read the body of ``POST /grants``; raises `InvalidRequest`."""
    body = FieldReader(data)
    token_id, kernel_id = body.text("token_id", MAX_NAME_LENGTH), body.text("kernel_id", MAX_NAME_LENGTH)
    if not token_id or not kernel_id:
        raise InvalidRequest("'token_id' and 'kernel_id' are needed: the token, and the running kernel that it gets")
    name = body.text("name", MAX_NAME_LENGTH) or ""
    request = GrantRequest(token_id, kernel_id, name, body.seconds("expires_in_seconds", zero_allowed=False))
    body.reject_unknown_fields()
    return request


def rotation_from_json(data: Any) -> tuple[float, float | None]:
    """Read the body of ``POST /tokens/{tid}/rotate``: how long the old secret and the new one last, in seconds."""
    body = FieldReader(data)
    overlap = body.seconds("overlap_seconds", zero_allowed=True)
    expires_in = body.seconds("expires_in_seconds", zero_allowed=False)
    body.reject_unknown_fields()
    return overlap or 0.0, expires_in


def approval_answer_from_json(data: Any) -> ApprovalAnswer:
    """Read the body of ``POST /approvals/{eid}``; raises `InvalidRequest`."""
    body = FieldReader(data)
    decision = body.text("decision")
    if decision not in ("approve", "reject"):
        raise InvalidRequest("'decision' must be 'approve' or 'reject'")
    code = body.text("code")
    if code is not None and decision == "reject":
        raise InvalidRequest("'code' is what runs instead, so it goes with the decision 'approve'")
    if code is not None and not is_encodable(code):
        raise InvalidRequest("'code' must be valid Unicode; it has half of a surrogate pair")
    for_session = body.flag("for_session")
    if for_session and decision == "reject":
        raise InvalidRequest("'for_session' is about later code that may run, so it goes with the decision 'approve'")
    answer = ApprovalAnswer(decision == "approve", code, body.text("reason", MAX_REASON_LENGTH) or "", for_session)
    body.reject_unknown_fields()
    return answer
