"""Fixtures for Jupyter Server's own tests: each of their servers has this package's extension.

`python -m tests.jupyter_suite` puts this file beside the tests, as their ``conftest.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

_NAME = "jupyter_exec_ext"


@pytest.fixture(autouse=True)
def extension_is_enabled(jp_config_dir: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """Enable it as an installed package does, and check afterwards that the server has loaded it."""
    directory = jp_config_dir / "jupyter_server_config.d"
    directory.mkdir()
    enabled = {"ServerApp": {"jpserver_extensions": {_NAME: True}}}
    (directory / f"{_NAME}.json").write_text(json.dumps(enabled))
    yield
    if "jp_serverapp" in request.fixturenames:
        app = request.getfixturevalue("jp_serverapp")
        assert _NAME in app.extension_manager.extensions
