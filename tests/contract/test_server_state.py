"""What a client reads of the server as a whole."""

from __future__ import annotations

from typing import Any

from jupyter_exec_ext.models import Readiness


def test_ready_server_says_so(client: Any) -> None:
    assert client.ready() == Readiness(ready=True, draining=False)


def test_load_has_the_sessions(client: Any, fresh: Any) -> None:
    fresh.run("1")
    load = client.load()
    assert load.sessions >= 1
    assert load.free_places is not None and load.free_places > 0
    assert (load.draining, load.server_name) == (False, "")
