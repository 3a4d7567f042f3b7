"""How the pages on MCP clients are run. `tests/framework_pages` has a client of the protocol use what they print."""

from __future__ import annotations

from tests.docs.reader import Desk, Page

CLIENTS = ("claude-code", "cursor", "vscode", "codex")


def a_token_file(desk: Desk) -> dict[str, str]:
    """The file that the page before them has made."""
    desk.write("agent.token", "jex_abc_secret\n")
    (desk.directory / "agent.token").chmod(0o600)
    return {}


PAGES = {
    "docs/mcp/index.md": Page(),
    **{f"docs/mcp/{name}.md": Page(a_token_file) for name in CLIENTS},
}
