"""``jupyter exec mcp``: options are passed to the adapter, and a missing extra is named."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from jupyter_exec_ext.cli.main import main


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)  # marks a module that is not installed
    monkeypatch.delitem(sys.modules, "jupyter_exec_ext.adapters.mcp", raising=False)
    assert main(["mcp", "--server", "http://localhost:1/"]) == 2
    assert "pip install 'jupyter-exec-ext[mcp]'" in capsys.readouterr().err


def test_options_are_passed_to_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    adapter = ModuleType("jupyter_exec_ext.adapters.mcp")
    monkeypatch.setattr(adapter, "main", given.extend, raising=False)
    monkeypatch.setitem(sys.modules, adapter.__name__, adapter)
    assert main(["mcp", "--server", "http://localhost:1/", "--kernel", "python3", "--timeout", "5"]) == 0
    assert given == ["--server=http://localhost:1/", "--kernel=python3", "--timeout=5.0"]
