"""Both tutorials in bash; `tests.newcomer` follows them in a fresh clone and environment, and in other shells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.tutorials import AGENT_TOKEN, RUN_CODE, Newcomer, follow_tutorial
from tests.support.full import only_in_full

pytestmark = pytest.mark.timeout(300)


def test_tutorial_on_running_code(tmp_path: Path) -> None:
    follow_tutorial(RUN_CODE, tmp_path, Newcomer())


@pytest.mark.needs("sandbox")
@only_in_full
def test_tutorial_on_a_token_for_an_agent(tmp_path: Path) -> None:
    follow_tutorial(AGENT_TOKEN, tmp_path, Newcomer())
