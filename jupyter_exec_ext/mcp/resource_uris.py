"""URIs of resources: files of sessions, and outputs of executions that were too long for their records."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

FILE_TEMPLATE = "exec://session/{session}/files/{+path}"
OUTPUT_TEMPLATE = "exec://execution/{execution}/outputs/{name}"
_URI = re.compile(r"exec://(session|execution)/([A-Za-z0-9_-]{1,64})/(files|outputs)/(.{1,4096})", re.DOTALL)
_KINDS = {("session", "files"), ("execution", "outputs")}


def file_uri(session_id: str, path: str) -> str:
    """Return the URI of a session's file."""
    return f"exec://session/{session_id}/files/{quote(path, errors='surrogateescape')}"


def output_uri(execution_id: str, name: str) -> str:
    """Return the URI of an execution's output."""
    return f"exec://execution/{execution_id}/outputs/{quote(name)}"


def parse_uri(uri: str) -> tuple[str, str, str] | None:
    """Return kind (``files`` or ``outputs``), id, and path or name of a URI; None if it is none of ours."""
    match = _URI.fullmatch(uri)
    if match is None or (match[1], match[3]) not in _KINDS:
        return None
    return match[3], match[2], unquote(match[4], errors="surrogateescape")
