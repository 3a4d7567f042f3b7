"""Installed Node.js clients of MCP, with a Node.js that is new enough for them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from tests.support.outside_parts import require_part

#: The npm project; what it installs is only for tests in full.
CLIENTS = Path(__file__).parent / "clients"
#: The project's own Node.js.
NODE = str(CLIENTS / "node_modules" / ".bin" / "node")
_INSTALL_SECONDS = 600.0


@cache
def install_clients() -> None:
    """Install what the lock names, unless it is there. It takes a minute and 340 MB."""
    require_part("node and npm")
    lock = CLIENTS / "package-lock.json"
    mark = CLIENTS / "node_modules" / ".installed"
    if mark.exists() and mark.read_text() == lock.read_text():
        return
    command = ["npm", "ci", "--prefix", str(CLIENTS), "--silent", "--no-audit", "--no-fund"]
    subprocess.run(command, check=True, timeout=_INSTALL_SECONDS)
    mark.write_text(lock.read_text())
