"""The page on the endpoint lists all tools, with the scopes that they need."""

from __future__ import annotations

import re

from jupyter_exec_ext.mcp.tools import TOOLS
from tests.docs.blocks import ROOT

_ROW = re.compile(r"^\| `(\w+)` \| .* \| `(\w+:\w+)` \|$", re.MULTILINE)


def test_page_lists_tools_and_scopes() -> None:
    page = (ROOT / "docs/mcp/endpoint.md").read_text(encoding="utf-8")
    scopes = {tool.name: [right.scope for right in tool.rights] for tool in TOOLS}
    assert {name: [scope] for name, scope in _ROW.findall(page)} == scopes
