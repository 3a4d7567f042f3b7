"""What a client reads of the server as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_exec_ext.errors import Draining, WrongServer
from jupyter_exec_ext.models import Readiness
from jupyter_exec_ext.protocol.record_ids import parse_id


def test_ready_server_says_so(client: Any) -> None:
    assert client.ready() == Readiness(ready=True, draining=False)


def test_load_has_the_sessions(client: Any, fresh: Any) -> None:
    fresh.run("1")
    load = client.load()
    assert load.sessions >= 1
    assert load.free_places is not None and load.free_places > 0
    parsed = parse_id(fresh.id)
    assert parsed is not None
    assert (load.draining, load.server_name) == (False, parsed.server_name)


def test_session_of_another_server_is_refused_with_its_name(client: Any) -> None:
    with pytest.raises(WrongServer, match="on the server 'w9'"):
        client.get_session(f"ses_w9_{'a' * 24}")
    with pytest.raises(WrongServer, match="on the server 'w9'"):
        client.get_execution(f"exe_w9_{'a' * 24}")


@pytest.mark.owner
def test_drained_server_refuses_a_session_and_runs_code_in_the_old_one(client: Any, fresh: Any) -> None:
    fresh.run("kept = 1")
    assert client.drain() == Readiness(ready=False, draining=True)
    try:
        assert client.ready().draining
        for start in (client.session, lambda: client.run("1")):
            with pytest.raises(Draining, match="no new sessions"):
                start()
        assert fresh.run("print(kept)").stdout == "1\n"
    finally:
        assert client.drain(undo=True).ready
    assert client.run("print(2)").stdout == "2\n"
