"""The page on the endpoint lists all tools, with the scopes that they need."""

from __future__ import annotations

import re

from jupyter_exec_ext.mcp.tools import TOOLS
from tests.docs.blocks import ROOT

_ROW = re.compile(r"^\| `(\w+)` \| .* \| (`\w+:\w+`(?:, `\w+:\w+`)*) \|$", re.MULTILINE)


def test_page_lists_tools_and_scopes() -> None:
    page = (ROOT / "docs/mcp/endpoint.md").read_text(encoding="utf-8")
    scopes = {
        tool.name: [scope for right in tool.rights for scope in (right.scope, right.and_scope) if scope]
        for tool in TOOLS
    }
    assert {name: re.findall(r"[\w:]+", found) for name, found in _ROW.findall(page)} == scopes
