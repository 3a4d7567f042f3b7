"""Make the synchronous client from the asynchronous one, so that the two cannot drift apart.

    python tools/make_sync_client.py            write jupyter_exec_ext/client/sync*.py
    python tools/make_sync_client.py --check    exit with 1 if they are not up to date

The idea is httpcore's. The result is formatted by ruff.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "jupyter_exec_ext" / "client"
MODULES = {
    "aio.py": "sync.py",
    "aio_aca.py": "sync_aca.py",
    "aio_execution.py": "sync_execution.py",
    "aio_tokens.py": "sync_tokens.py",
}

REPLACEMENTS = [
    (
        r"The asynchronous client\. `sync` is made from this module by `tools/make_sync_client\.py`; change this one\.",
        "The synchronous client, safe to use from several threads. Made from `aio` by `tools/make_sync_client.py`.",
    ),
    (
        r"of the asynchronous client\. `sync_(\w+)` is made from this module, as `sync` is from `aio`\.",
        r"of the synchronous client. Made from `aio_\1` by `tools/make_sync_client.py`.",
    ),
    (r"print\(\(await session\.run\((.*?)\)\)\.outputs\)", r"print(session.run(\1).outputs)"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\(await ([^()]*(?:\([^()]*\))?[^()]*)\)(?=\[)", r"\1"),
    (r"\bawait ", ""),
    (r"\basyncio\b", "threading"),
    (r"import AsyncTokenProvider, TokenProvider", "import TokenProvider"),
    (r"TokenProvider( \||\ or) AsyncTokenProvider", "TokenProvider"),
    (
        r" or ``azure.identity.aio``. One that blocks\n\s*is asked in a thread. It",
        ". It is\n        asked in a thread and",
    ),
    (r"\baclose\b", "close"),
    (r"\bAsync(ACA|Exec|Execution|Standard|Iterator)", r"\1"),
    (r"\bAio(Driver|Credential)\b", r"Sync\1"),
    (r"\b(?<!`)aio_(credential|driver|execution|tokens)\b", r"sync_\1"),
    (r"__a(enter|exit)__", r"__\1__"),
]


def make(source: str) -> str:
    """Return the synchronous twin of `source`."""
    for pattern, replacement in REPLACEMENTS:
        source = re.sub(pattern, replacement, source)
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--stdin-filename", str(CLIENT / "sync.py"), "-"]
    for command in (["check", "--quiet", "--fix", "--unsafe-fixes", "--select", "I,UP028"], ["format", "--quiet"]):
        done = subprocess.run([*ruff, *command, *options], input=source, capture_output=True, text=True, check=True)
        source = done.stdout
    return source


def main() -> int:
    """Write or check."""
    made = {CLIENT / sync: make((CLIENT / aio).read_text()) for aio, sync in MODULES.items()}
    if "--check" in sys.argv[1:]:
        return 0 if all(path.exists() and path.read_text() == text for path, text in made.items()) else 1
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
