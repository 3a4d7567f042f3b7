"""How the pages on executors and clients are run."""

from __future__ import annotations

from tests.docs.reader import CLIENT, HERE, Page, the_servers_token

# What the first program of the page on tokens has; a session costs a kernel's start.
_OWNER = """\
from pathlib import Path
from jupyter_exec_ext import ExecClient
token = Path("token").read_text().strip()
owner = ExecClient("http://127.0.0.1:8888/", token)
"""


def with_session(*prints: str) -> Page:
    """Return a page whose programs have the client and the session of the page on clients."""
    return Page(the_servers_token, HERE, CLIENT, prints=prints)


def alone(*prints: str) -> Page:
    """Return a page whose programs have what they need."""
    return Page(the_servers_token, HERE, prints=prints)


PAGES = {
    "docs/executors/clients.md": Page(
        the_servers_token,
        HERE,
        CLIENT,
        is_preamble_shown=True,
        prints=("True 21\n", "'test'\n'for this run'\n", "0\n1\n2\n", "cancelled\n", "42\n"),
    ),
    "docs/executors/results.md": with_session(
        "True\n42\n42\nworking\n", "plot.svg\n", "ZeroDivisionError", "no-such-kernel"
    ),
    "docs/howto/checkpoints.md": with_session(
        "[3, 1, 2] first\n",
        "NameError [3, 1, 2]\n",
        "[3, 1, 2] [1, 2, 3] [2, 1, 3]\n",
        "0 x *= 3 -7.0\n1 x *= 3 -1.0\n2 x += 1 0.0\n10\n",
    ),
    "docs/executors/files.md": with_session("['answer.txt']\n"),
    "docs/executors/tokens.md": Page(the_servers_token, HERE, _OWNER, is_preamble_shown=True, prints=("report agent",)),
    "docs/executors/connect.md": alone("20\n", "2\n"),
    "docs/executors/running-code.md": alone("0 Hello, World!\n []\n"),
    "docs/executors/functions.md": alone("5.0\n"),
    "docs/executors/from-autogen-02.md": alone(),
    "docs/executors/without-a-server.md": alone("exit_code=0 output='Hello, World!\\n' output_files=[]\n"),
}
