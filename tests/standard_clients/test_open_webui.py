"""Open WebUI's code path for Jupyter: its own file, with its settings' module in the place of its application's."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.standard_clients.scoped_token import AFTER, ScopedToken


@pytest.fixture
def execute(token: ScopedToken, entered: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    settings = ModuleType("open_webui.env")
    settings.AIOHTTP_CLIENT_ALLOW_REDIRECTS = True  # type: ignore[attr-defined]
    settings.SRC_LOG_LEVELS = {"MAIN": "INFO"}  # type: ignore[attr-defined]
    for name, module in (("open_webui", ModuleType("open_webui")), ("open_webui.env", settings)):
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("code_interpreter", os.environ["EXEC_TEST_OPEN_WEBUI"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    url = entered("Open WebUI")
    return lambda code: module.execute_code_jupyter(url, code, token.text, "", 60)


async def test_runs_have_output_values_and_errors_and_end_their_session(
    token: ScopedToken, execute: Callable[..., Any]
) -> None:
    shown = await execute("print('made')\n'of ' + 'webui'")
    assert shown == {"stdout": "made", "stderr": "", "result": "'of webui'"}
    failed = await execute("print('first')\n1 / 0")
    assert failed["stdout"] == "first" and "division by zero" in failed["stderr"]
    assert token.sessions() == []
    (found,) = token.found("'of '")
    assert found["execution"]["state"] == "ok"


async def test_revoked_token_runs_nothing(token: ScopedToken, execute: Callable[..., Any]) -> None:
    token.revoke()
    refused = await execute(AFTER)
    assert "401" in refused["stderr"] and refused["result"] == ""
    assert token.found(AFTER) == []
