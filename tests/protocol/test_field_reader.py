"""Fields of a request body: what is read, and what a refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_exec_ext.errors import InvalidRequest
from jupyter_exec_ext.protocol.field_reader import MAX_LIMITS_BYTES, MAX_METADATA_BYTES, FieldReader


def nested(levels: int) -> dict[str, Any]:
    return {} if levels == 1 else {"a": nested(levels - 1)}


@pytest.mark.parametrize(("name", "max_bytes"), [("limits", MAX_LIMITS_BYTES), ("metadata", MAX_METADATA_BYTES)])
def test_object_that_is_too_deep_or_too_large_is_refused_with_the_limit_it_exceeds(name: str, max_bytes: int) -> None:
    fits = {"a": "x" * (max_bytes - len('{"a":""}'))}
    for value in (nested(32), fits):
        assert getattr(FieldReader({name: value}), name)() == value
    with pytest.raises(InvalidRequest, match=rf"'{name}' may be nested at most 32 levels deep"):
        getattr(FieldReader({name: nested(33)}), name)()
    with pytest.raises(InvalidRequest, match=rf"'{name}' may have at most {max_bytes} bytes of JSON"):
        getattr(FieldReader({name: {"a": fits["a"] + "x"}}), name)()


def test_field_that_is_left_is_refused_with_the_nearest_known_name() -> None:
    body = FieldReader({"code": "1", "tmeout": 1})
    assert (body.text("code"), body.seconds("timeout", zero_allowed=False)) == ("1", None)
    with pytest.raises(InvalidRequest, match="unknown field 'tmeout'; did you mean 'timeout'"):
        body.reject_unknown_fields()
