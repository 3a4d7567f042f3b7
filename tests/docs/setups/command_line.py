"""How the pages on the command line are run."""

from __future__ import annotations

from pathlib import Path

from tests.docs.reader import URL, Desk, Page, the_servers_token
from tests.support.kernelspecs import add_kernelspec


def scripts(desk: Desk) -> dict[str, str]:
    """What the examples of the command line work with."""
    the_servers_token(desk)
    desk.write("script.py", "print('from a script')\n")
    desk.write("script.sh", "echo from bash\n")
    desk.write("analysis.ipynb", '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}')
    return {}


def a_project(desk: Desk) -> dict[str, str]:
    """Sources to migrate, a kernelspec to make another one like, a directory to show to kernels, and a secret."""
    the_servers_token(desk)
    desk.write("token.txt", "not-a-real-token-4711\n")
    desk.write("src/agent.py", "from autogen.coding.jupyter import LocalJupyterServer\n")
    desk.write("notebooks/empty.ipynb", '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}\n')
    (Path(desk.env["HOME"]) / "data").mkdir(exist_ok=True)
    add_kernelspec(Path(desk.env["HOME"]), "ir", "local-provisioner")
    return {}


PAGES = {
    "docs/howto/command-line.md": Page(scripts, {"https://hub.example/user/ada/": URL}),
    "docs/reference/commands.md": Page(
        a_project,
        {"https://REGION.dynamicsessions.io/subscriptions/…/sessionPools/POOL": f"{URL}exec/aca"},
        parts=("sandbox",),
    ),
}
