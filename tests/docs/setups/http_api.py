"""How the pages on the HTTP API are run."""

from __future__ import annotations

import json
import urllib.request

from jupyter_exec_ext.client import ExecClient
from tests.docs.reader import CLIENT, HERE, Desk, Page, the_servers_token


def an_execution(desk: Desk) -> dict[str, str]:
    """An execution that has ended, as the reader has one from the page on the HTTP API."""
    with ExecClient(desk.host.info) as client:
        execution = client.run("print(42)")
    return {**the_servers_token(desk), "EXECUTION": execution.id}


def a_notebooks_kernel(desk: Desk) -> dict[str, str]:
    """A kernel that was started through Jupyter's own API, as by a person with a notebook."""
    request = urllib.request.Request(
        f"{desk.url}api/kernels", b"{}", {"Authorization": f"token {desk.token}", "Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        kernel = json.load(answer)["id"]
    with ExecClient(desk.host.info) as client:
        token_id, other_id = (client.tokens.create(name, ["sessions:create"]).token.id for name in ("agent", "other"))
        grant_id = client.tokens.grant(other_id, kernel).id
    return {**the_servers_token(desk), "KERNEL": kernel, "TOKEN_ID": token_id, "GRANT_ID": grant_id}


PAGES = {
    "docs/howto/attach.md": Page(a_notebooks_kernel, HERE, CLIENT, ("2\n",)),
    "docs/howto/follow-changes.md": Page(
        an_execution,
        {**HERE, "client.events()": "itertools.islice(client.events(), 1)"},
        f"import itertools\n{CLIENT}",
    ),
    "docs/howto/resume-a-stream.md": Page(an_execution, HERE, CLIENT, (" stream\n", " end\n")),
    "docs/howto/transfer-files.md": Page(the_servers_token, HERE, CLIENT),
    "docs/howto/use-http.md": Page(the_servers_token, {"SERVER=http://127.0.0.1:8888": "SERVER=$SERVER"}),
}
