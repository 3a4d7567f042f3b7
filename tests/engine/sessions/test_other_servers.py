"""Two servers of one user that share the store: each serves what it has, and names the other for the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import ExecutionNotFound, SessionNotFound, WrongServer
from jupyter_exec_ext.models import ExecutionRequest, SessionRequest, SessionState
from jupyter_exec_ext.protocol.record_ids import new_id, parse_id, server_slug
from tests.support.waiting import until

ME = owner("me")


@pytest.fixture
def servers(make_engine: Callable[..., ExecEngine]) -> tuple[ExecEngine, ExecEngine]:
    return make_engine(server_name="w1"), make_engine(server_name="w2", pool_size=0)


def test_server_has_its_name_at_the_hub_unless_it_is_set(
    make_engine: Callable[..., ExecEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_SERVER_NAME", "My Server")
    assert make_engine(pool_size=0).server_name == server_slug("My Server") != ""
    assert make_engine(pool_size=0, server_name="W-2").server_name == server_slug("W-2")
    assert make_engine(pool_size=0, server_name="").server_name == ""


async def test_ids_have_the_servers_name_also_from_the_pool(servers: tuple[ExecEngine, ExecEngine]) -> None:
    first, _ = servers
    ids = [(await first.create_session(ME, SessionRequest())).id]
    await until(first.status.pooled)
    ids.append((await first.create_session(ME, SessionRequest())).id)
    ids.append((await first.execute(ME, ids[0], ExecutionRequest("1"))).record.id)
    parsed = [parse_id(one) for one in ids]
    assert [one[:2] for one in parsed if one] == [("ses", "w1"), ("ses", "w1"), ("exe", "w1")]


async def test_what_lives_on_another_server_is_refused_with_its_name(servers: tuple[ExecEngine, ExecEngine]) -> None:
    first, second = servers
    session = (await first.create_session(ME, SessionRequest())).id
    running = await first.execute(ME, session, ExecutionRequest("import time; time.sleep(600)"))
    execution = running.record.id
    await running.durable()
    for refused in (
        second.get_session(ME, session),
        second.execute(ME, session, ExecutionRequest("1")),
        second.interrupt_session(ME, session),
        second.delete_session(ME, session),
        second.sessions.usage(ME, session),
        second.get_execution(ME, execution),
        second.open_log(ME, execution),
        second.cancel(ME, execution),
        second.answer_input(ME, execution, ""),
    ):
        with pytest.raises(WrongServer, match="'w1', and this one is 'w2'"):
            await refused
    assert (await first.get_session(ME, session)).state is SessionState.BUSY
    await first.delete_session(ME, session)


async def test_what_is_over_is_read_from_the_shared_store(servers: tuple[ExecEngine, ExecEngine]) -> None:
    first, second = servers
    session = (await first.create_session(ME, SessionRequest())).id
    execution = await (await first.execute(ME, session, ExecutionRequest("print(1)"))).wait()
    await first.delete_session(ME, session)
    assert (await second.get_session(ME, session)).state is SessionState.ENDED
    assert (await second.get_execution(ME, execution.id)).stdout == "1\n"


async def test_unknown_id_is_not_found_unless_it_has_another_servers_name(
    servers: tuple[ExecEngine, ExecEngine],
) -> None:
    _, second = servers
    for name in ("", "w2"):
        with pytest.raises(SessionNotFound):
            await second.get_session(ME, new_id("ses", name))
        with pytest.raises(ExecutionNotFound):
            await second.get_execution(ME, new_id("exe", name))
    for text in ("ses_w1_unknown", "nothing"):
        with pytest.raises(SessionNotFound):
            await second.get_session(ME, text)
