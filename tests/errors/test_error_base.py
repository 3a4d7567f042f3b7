"""Errors: what an answer says of them."""

from __future__ import annotations

import pytest

from jupyter_exec_ext.errors import PolicyLimitReached


@pytest.mark.parametrize(("seconds", "header"), [(None, None), (0.0, "1"), (1.0, "1"), (1.4, "2"), (2.5, "3")])
def test_client_that_waits_as_long_as_it_is_told_does_not_come_too_early(
    seconds: float | None, header: str | None
) -> None:
    assert PolicyLimitReached("too often", retry_after_seconds=seconds).retry_after_header == header
