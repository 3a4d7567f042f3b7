"""Tasks after the server was killed and started again on the same state: results, and an end for what was running."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.mcp.mcp_handler import McpRequest
from jupyter_exec_ext.mcp.tasks import TaskParams, Tasks
from jupyter_exec_ext.models import Execution, StreamEvent
from jupyter_exec_ext.store.store import ExecStore
from tests.mcp.raw_client import TASKS, RawClient
from tests.store.test_execution_store import QUEUED, RUNNING, accept, finished
from tests.support.bearers import UNPROTECTED, Bearer, mint
from tests.support.full import only_in_full
from tests.support.hosts import free_port, running_host

_TOKEN = "a" * 32


def check_tasks(ended: dict[str, Any], cut: dict[str, Any]) -> None:
    """Compare the task of a run that printed 'ended', and that of one that printed 'begun' and was running."""
    assert (ended["status"], ended["result"]["isError"]) == ("completed", False)
    assert ended["result"]["structuredContent"]["text"] == "ended\n"
    assert (cut["status"], cut["result"]["isError"]) == ("completed", True)
    assert cut["result"]["structuredContent"]["execution"]["state"] == "server_restarted"
    assert "begun" in cut["result"]["structuredContent"]["text"]
    assert "server" in cut["statusMessage"]


@pytest.fixture
async def store_after_kill(tmp_path: Path) -> AsyncIterator[ExecStore]:
    """The store of a server that had run 'ended' and was killed while 'cut' ran."""
    killed = ExecStore(path=str(tmp_path / "store"), reserve_bytes=4096)
    done = replace(QUEUED, id="ended")
    log = await accept(killed, done)
    outputs = [{"output_type": "stream", "name": "stdout", "text": "ended\n"}]
    await killed.executions.finish(replace(finished(done, "ended\n"), outputs=outputs), "me", log)
    log = await accept(killed, replace(QUEUED, id="cut"))
    log.append(RUNNING)
    log.append(StreamEvent("stdout", "begun\n"))
    await log.changed(1)
    await killed._writer.run(lambda db: db.execute("UPDATE executions SET server = 'ended'"), write=True)
    killed.close()
    store = ExecStore(path=str(tmp_path / "store"), reserve_bytes=4096)
    store.recover()
    yield store
    store.close()


async def test_tasks_in_the_store_of_a_killed_server_have_an_end(store_after_kill: ExecStore) -> None:
    async def check(access: object) -> None:
        pass

    async def get_execution(caller: object, execution_id: str) -> Execution:
        stored = await store_after_kill.executions.get(execution_id)
        assert stored is not None
        return stored.execution

    capabilities = SimpleNamespace(extensions={TASKS: {}}, elicitation=None)
    session = SimpleNamespace(client_capabilities=capabilities)
    request = cast(McpRequest, SimpleNamespace(caller=owner("me"), check=check))
    context = cast(Any, SimpleNamespace(session=session, request=request, protocol_version="2026-07-28"))
    tasks = Tasks(cast(ExecEngine, SimpleNamespace(get_execution=get_execution)))
    check_tasks(*[await tasks.get(context, TaskParams(taskId=name)) for name in ("ended", "cut")])


@only_in_full
@pytest.mark.parametrize("name", ["server", "gateway"])
def test_tasks_are_read_after_the_server_was_killed(name: str, tmp_path: Path) -> None:
    with running_host(name, tmp_path, UNPROTECTED, token=_TOKEN, port=free_port()) as host:
        client = RawClient.of(bearer := mint(host), extensions={TASKS: {}})
        ended = start_task(client, "import time; time.sleep(6); print('ended')")
        cut = start_task(client, "import time; print('begun', flush=True); time.sleep(600)")
        while client.ask("tasks/get", {"taskId": ended})["result"]["status"] == "working":
            time.sleep(0.1)
        host.process.kill()
        host.process.wait()
    with running_host(name, tmp_path, UNPROTECTED, token=_TOKEN, port=host.info.port) as host:
        client = RawClient.of(Bearer(host, bearer.token), extensions={TASKS: {}})
        check_tasks(*[client.ask("tasks/get", {"taskId": task})["result"] for task in (ended, cut)])
        assert client.ask("tasks/cancel", {"taskId": cut})["result"]["resultType"] == "complete"
        stranger = RawClient.of(mint(host), extensions={TASKS: {}})
        assert stranger.ask("tasks/get", {"taskId": ended})["error"]["code"] == -32602


def start_task(client: RawClient, code: str) -> str:
    """Run code that takes long enough for a task; return the task's id."""
    created = client.tool("execute_code", code=code)
    assert (created["resultType"], created["status"]) == ("task", "working")
    return str(created["taskId"])
