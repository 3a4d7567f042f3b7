"""How the pages for administrators are run: settings, tokens, isolation, audit."""

from __future__ import annotations

from jupyter_exec_ext.client import ExecClient
from tests.docs.reader import CLIENT, HERE, Desk, Page, the_servers_token


def a_trail(desk: Desk) -> dict[str, str]:
    """Something that was recorded."""
    with ExecClient(desk.host.info) as client, client.session() as session:
        session.run("1")
    return {}


PAGES = {
    "docs/howto/audit.md": Page(a_trail),
    "docs/howto/configure.md": Page(the_servers_token),
    "docs/howto/pool.md": Page(the_servers_token),
    "docs/howto/fork-kernels.md": Page(),
    "docs/howto/isolate-kernels.md": Page(parts=("sandbox",)),
    "docs/tokens/approval.md": Page(the_servers_token),
    "docs/tokens/index.md": Page(the_servers_token, HERE, CLIENT, ("jex_", "\n42\n"), ("sandbox",)),
    "docs/tokens/policies.md": Page(the_servers_token),
}
