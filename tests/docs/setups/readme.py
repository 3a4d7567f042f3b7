"""How the README is run."""

from __future__ import annotations

from tests.docs.reader import Page

PAGES = {
    "README.md": Page(
        prints=(
            "ok hello\n 21\n",
            "timeout its time limit of 1 s was reached\n",
            "exit_code=0 output='Hello, World!\\n' output_files=[]\n",
        ),
    ),
}
