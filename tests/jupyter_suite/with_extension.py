"""Fixtures for Jupyter Server's own tests: each of their servers has this package's extension.

`python -m tests.jupyter_suite` puts this file beside the tests, as their ``conftest.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_NAME = "jupyter_exec_ext"


@pytest.fixture(autouse=True)
def extension_is_enabled(jp_config_dir: Path) -> None:
    """Enable it as an installed package does."""
    directory = jp_config_dir / "jupyter_server_config.d"
    directory.mkdir()
    enabled = {"ServerApp": {"jpserver_extensions": {_NAME: True}}}
    (directory / f"{_NAME}.json").write_text(json.dumps(enabled))


@pytest.fixture
def jp_serverapp(jp_serverapp: Any) -> Any:
    """Return the tests' server, which has loaded it."""
    assert _NAME in jp_serverapp.extension_manager.extensions
    return jp_serverapp
