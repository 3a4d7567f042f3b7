"""How the pages on the HTTP API are run."""

from __future__ import annotations

from jupyter_exec_ext.client import ExecClient
from tests.docs.reader import CLIENT, HERE, Desk, Page, the_servers_token


def a_session(desk: Desk) -> dict[str, str]:
    """A session that has made a file, and an execution that printed more than is kept."""
    with ExecClient(desk.host.info) as client:
        session = client.session()
        session.run("import os\nos.mkdir('out')\nopen('out/plot.png', 'wb').write(b'png')")
        large = session.run("print('x' * 10**8)")
    return {**the_servers_token(desk), "SESSION": session.id, "EXECUTION": large.id}


PAGES = {
    "docs/http-api.md": Page(
        a_session,
        {**HERE, "10**9": "10**8", "client.events()": "itertools.islice(client.events(), 1)"},
        f"import itertools\n{CLIENT}",
    ),
}
