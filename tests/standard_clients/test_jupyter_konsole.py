"""The command `jupyter konsole` of jupyter-kernel-client, at a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.standard_clients.scoped_token import AFTER, ScopedToken
from tests.support.terminals import Terminal


def test_console_runs_what_is_typed(token: ScopedToken, entered: Callable[[str], str], tmp_path: Path) -> None:
    command = entered("`jupyter konsole`").replace("TOKEN", token.text).split()
    env = {**os.environ, "TERM": "dumb", "HOME": str(tmp_path)}
    with Terminal([*command, "--simple-prompt"], env, tmp_path) as terminal:
        terminal.read_until("In [1]: ")
        terminal.type("n = 20; print('ma' 'de')")
        assert "made" in terminal.read_until("In [2]: ")
        terminal.type("n + 1")
        assert "Out[2]: 21" in terminal.read_until("In [3]: ")
        terminal.type("1 / 0")
        assert "ZeroDivisionError" in terminal.read_until("In [4]: ")
        assert token.executions()[:2] == [("n = 20; print('ma' 'de')", "ok"), ("n + 1", "ok")]
        token.revoke()
        terminal.type(AFTER)
        terminal.type(AFTER)
        terminal.read_until(f"{AFTER}\n")  # the echo; it waits for an answer from then on
    assert token.found(AFTER) == []
