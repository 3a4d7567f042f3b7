"""How the pages on executors and clients are run."""

from __future__ import annotations

from tests.docs.reader import CLIENT, HERE, Page, the_servers_token

# A session costs a kernel's start, so only pages that use one have it.
_TOKEN = """\
from pathlib import Path
from jupyter_exec_ext import ExecClient
token = Path("token").read_text().strip()
"""


def with_session(*prints: str) -> Page:
    """Return a page whose programs have a client and a session."""
    return Page(the_servers_token, HERE, CLIENT, prints)


def with_token(*prints: str) -> Page:
    """Return a page whose programs have the server's token."""
    return Page(the_servers_token, HERE, _TOKEN, prints)


PAGES = {
    "docs/executors/clients.md": with_session(
        "True 21\n", "'test'\n'for this run'\n", "0\n1\n2\n", "cancelled\n", "42\n"
    ),
    "docs/executors/results.md": with_session(
        "True\n42\n42\nworking\n", "plot.svg\n", "ZeroDivisionError", "no-such-kernel"
    ),
    "docs/executors/files.md": with_session("['answer.txt']\n"),
    "docs/executors/tokens.md": with_token("report agent"),
    "docs/executors/connect.md": with_token("20\n", "2\n"),
    "docs/executors/running-code.md": with_token("0 Hello, World!\n []\n"),
    "docs/executors/functions.md": with_token("5.0\n"),
    "docs/executors/from-autogen-02.md": with_token(),
    "docs/executors/without-a-server.md": with_token("exit_code=0 output='Hello, World!\\n' output_files=[]\n"),
}
