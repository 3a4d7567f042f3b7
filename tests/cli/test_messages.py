"""Messages of the commands on standard error."""

from __future__ import annotations

from pathlib import Path

from jupyter_exec_ext import cli

SOURCES = Path(cli.__file__).parent


def test_prefix_of_messages_is_written_in_one_module() -> None:
    names = {file.name for file in SOURCES.rglob("*.py") if '"jupyter exec:' in file.read_text(encoding="utf-8")}
    assert names == {"messages.py"}
