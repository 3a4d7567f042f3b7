"""How the pages on executors and clients are run."""

from __future__ import annotations

from tests.docs.reader import CLIENT, HERE, Page, the_servers_token

PAGES = {
    "docs/executors.md": Page(
        the_servers_token,
        HERE,
        CLIENT,
        ("exit_code=0 output='Hello, World!\\n' output_files=[]\n", "['answer.txt']\n"),
    ),
}
