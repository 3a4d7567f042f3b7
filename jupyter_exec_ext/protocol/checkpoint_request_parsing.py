"""Parsing of the bodies of requests for checkpoints, branches and returns."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidRequest
from .field_reader import FieldReader
from .request_parsing import MAX_NAME_LENGTH

_MAX_ID_LENGTH = 64
MAX_BRANCHES = 16


def checkpoint_request_from_json(data: Any) -> tuple[str, bool]:
    """Read the body of ``POST /sessions/{sid}/checkpoints``: the name, and whether it is forced.

    Raises
    ------
    InvalidRequest
        Naming the field and what is wrong with it.
    """
    body = FieldReader(data)
    name, force = body.text("name", MAX_NAME_LENGTH) or "", body.flag("force")
    body.reject_unknown_fields()
    return name, force


def branch_request_from_json(data: Any) -> tuple[str | None, int, bool]:
    """Read the body of ``POST /sessions/{sid}/branches``: checkpoint, count, and whether random numbers are the same.

    Raises
    ------
    InvalidRequest
        Naming the field and what is wrong with it.
    """
    body = FieldReader(data)
    checkpoint_id = body.text("checkpoint", _MAX_ID_LENGTH) or None
    # For JSON Schema, 3.0 is a whole number.
    count: float | None = body.pop_field(
        "count",
        f"a whole number from 1 to {MAX_BRANCHES}",
        lambda v: type(v) in (int, float) and 1 <= v <= MAX_BRANCHES and v == int(v),
    )
    same_random = body.flag("same_random")
    body.reject_unknown_fields()
    return checkpoint_id, 1 if count is None else int(count), same_random


def restore_request_from_json(data: Any) -> tuple[str, bool]:
    """Read the body of ``POST /sessions/{sid}/restore``: the checkpoint's id, and whether random numbers are the same.

    Raises
    ------
    InvalidRequest
        Naming the field and what is wrong with it.
    """
    body = FieldReader(data)
    checkpoint_id, same_random = body.text("checkpoint", _MAX_ID_LENGTH), body.flag("same_random")
    body.reject_unknown_fields()
    if not checkpoint_id:
        raise InvalidRequest("'checkpoint' is missing: the id of a checkpoint of the session")
    return checkpoint_id, same_random
