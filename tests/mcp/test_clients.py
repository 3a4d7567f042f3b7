"""Real clients of MCP, unmodified: each tool, pictures, files, progress, cancellation, and tasks after a kill.

A commit has files and cancellation with the Python client on a Jupyter Server, in both revisions. In full: all of it,
with the clients in TypeScript too, on a gateway, at a Hub and behind nginx.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.driven_client import DRIVERS, DrivenClient, driven_client, start_client
from tests.mcp.places import Place
from tests.support.full import IS_FULL, only_in_full

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOLS = {
    *("execute_code", "start_session", "list_sessions", "end_session", "interrupt_session", "restart_session"),
    *("checkpoint_session", "restore_session", "branch_session"),
    *("list_files", "read_file", "write_file", "download_output"),
}
_SECONDS = 60.0
#: Longer than a call takes before it becomes a task.
_TASK_SECONDS = 8

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(params=[name for name in DRIVERS if IS_FULL or "python" in name])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def client(driver: str, place: Place) -> AsyncIterator[DrivenClient]:
    async with driven_client(driver, place.url, place.token, answer={"value": "Ada"}) as client:
        yield client


@pytest.fixture
async def session(client: DrivenClient) -> AsyncIterator[str]:
    """A session, which is ended afterwards."""
    started = data_of(await client.call("start_session", name="a test's"))
    yield str(started["session"])
    await client.call("end_session", session=started["session"])


def data_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return the structured content of a result that is no error."""
    assert not result.get("isError"), result
    return dict(result["structuredContent"])


def texts_of(result: dict[str, Any]) -> str:
    """Return the text of a result."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


async def state_of(client: DrivenClient, session: str) -> str:
    """Return the state of a session, as `list_sessions` has it."""
    found = data_of(await client.call("list_sessions"))["sessions"]
    return next(str(each["state"]) for each in found if each["session"] == session)


async def wait_for_idle(client: DrivenClient, session: str) -> None:
    """Wait until a session runs nothing."""
    give_up_at = time.monotonic() + _SECONDS
    while await state_of(client, session) != "idle":  # MCP has no event for it
        assert time.monotonic() < give_up_at, "the code still runs"


async def test_client_that_negotiates_speaks_the_newest_revision(place: Place) -> None:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {place.token}"}) as http,
        Client(streamable_http_client(place.url, http_client=http)) as client,
    ):
        assert client.protocol_version == "2026-07-28"
        assert client.server_capabilities.prompts is None


@only_in_full
async def test_client_with_a_wrong_token_is_told_why(driver: str, place: Place) -> None:
    process = await start_client(driver, place.url, "wrong", stderr=asyncio.subprocess.STDOUT)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b'{"id": 1, "do": "tools"}\n')  # the Python client of the new revision sends nothing before
    told = ""
    async for line in process.stdout:
        told += line.decode()
        if '"error"' in told:
            process.stdin.close()
    await process.wait()
    assert "the server refused this token" in told


@only_in_full
async def test_tools_are_listed_with_their_schemas(client: DrivenClient) -> None:
    tools = {tool["name"]: tool for tool in await client.list_tools()}
    assert tools.keys() == TOOLS
    assert all(tool["description"] and tool["inputSchema"] and tool["outputSchema"] for tool in tools.values())
    assert tools["list_files"]["annotations"]["readOnlyHint"] is True
    assert tools["end_session"]["annotations"]["destructiveHint"] is True


@only_in_full
async def test_variables_are_kept_between_calls_and_gone_after_a_restart(client: DrivenClient, session: str) -> None:
    await client.call("execute_code", code="answer = 6 * 7", session=session)
    assert "42" in texts_of(await client.call("execute_code", code="answer", session=session))
    assert data_of(await client.call("interrupt_session", session=session))["session"] == session
    assert data_of(await client.call("restart_session", session=session))["kernel_starts"] == 2
    failed = await client.call("execute_code", code="answer", session=session)
    assert failed["isError"] is True
    assert "NameError" in texts_of(failed)


@only_in_full
async def test_session_that_is_ended_is_not_there_any_more(client: DrivenClient) -> None:
    ran = data_of(await client.call("execute_code", code="1"))
    assert ran["is_new_session"] is True
    assert data_of(await client.call("end_session", session=ran["session"]))["ended"] is True
    after = await client.call("execute_code", code="1", session=ran["session"])
    assert after["isError"] is True


@only_in_full
async def test_picture_is_a_block_of_its_own(client: DrivenClient, session: str) -> None:
    code = f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode('{PIXEL}'))"
    result = await client.call("execute_code", code=code, session=session)
    (picture,) = [block for block in result["content"] if block["type"] == "image"]
    assert (picture["mimeType"], base64.b64decode(picture["data"])) == ("image/png", base64.b64decode(PIXEL))


async def test_file_that_code_writes_is_a_link_that_can_be_read(client: DrivenClient, session: str) -> None:
    code = "open('a b.txt', 'w').write('written'); open('raw.bin', 'wb').write(bytes(range(256)))"
    result = await client.call("execute_code", code=code, session=session)
    links = {block["name"]: block["uri"] for block in result["content"] if block["type"] == "resource_link"}
    assert links.keys() == {"a b.txt", "raw.bin"}
    assert (await client.read(links["a b.txt"]))["text"] == "written"
    assert base64.b64decode((await client.read(links["raw.bin"]))["blob"]) == bytes(range(256))


@only_in_full
async def test_file_that_a_client_writes_is_listed_and_read(client: DrivenClient, session: str) -> None:
    written = data_of(await client.call("write_file", session=session, path="in/data.csv", text="x\n1\n"))
    assert written["created"] is True
    (found,) = data_of(await client.call("list_files", session=session))["files"]
    assert (found["path"], found["size_bytes"]) == ("in/data.csv", 4)
    assert data_of(await client.call("read_file", session=session, path="in/data.csv"))["text"] == "x\n1\n"
    assert (await client.read(found["uri"]))["text"] == "x\n1\n"


@only_in_full
async def test_output_that_was_cut_can_be_downloaded(client: DrivenClient, session: str) -> None:
    ran = data_of(await client.call("execute_code", code="print('x' * 9_000_000 + 'end')", session=session))
    execution = ran["execution"]
    (name,) = [each["name"] for each in execution["truncated"]["spooled"]]
    part = await client.call("download_output", execution=execution["id"], name=name, offset=8_999_990, max_bytes=13)
    assert data_of(part)["text"] == "x" * 10 + "end"


@only_in_full
async def test_progress_has_the_last_lines_while_code_prints(client: DrivenClient, session: str) -> None:
    code = "import time\nfor number in range(25):\n    print('line', number, flush=True)\n    time.sleep(0.1)"
    call = client.begin_call("execute_code", code=code, session=session)
    assert "line 24" in texts_of(await asyncio.wait_for(call.ended, _SECONDS))
    reports = [call.progress.get_nowait() for _ in range(call.progress.qsize())]
    assert len(reports) >= 2  # in 2.5 s, at least one a second
    assert all("line" in report["message"] for report in reports)
    assert [report["progress"] for report in reports] == sorted({report["progress"] for report in reports})


@only_in_full
async def test_subscriber_is_told_of_a_changed_file(client: DrivenClient, session: str) -> None:
    written = await client.call("write_file", session=session, path="a.txt", text="1")
    uri = data_of(written)["file"]["uri"]
    await client.watch(uri)
    await client.call("execute_code", code="open('a.txt', 'w').write('changed')", session=session)
    assert await asyncio.wait_for(client.updated.get(), _SECONDS) == uri


@only_in_full
async def test_input_of_code_is_asked_of_the_clients_user(client: DrivenClient, session: str) -> None:
    result = await client.call("execute_code", code="print('hello', input('who? '))", session=session)
    assert "hello Ada" in texts_of(result)
    assert client.asked == ["who? "]


async def test_cancelled_call_stops_the_code(client: DrivenClient, session: str) -> None:
    code = "import time\nwhile True:\n    print('runs', flush=True)\n    time.sleep(0.1)"
    call = client.begin_call("execute_code", code=code, session=session)
    await asyncio.wait_for(call.progress.get(), _SECONDS)
    await client.cancel(call)
    await wait_for_idle(client, session)
    assert "next" in texts_of(await client.call("execute_code", code="print('next')", session=session))


@only_in_full
@pytest.mark.parametrize("with_tasks", [name for name, (revision, _) in DRIVERS.items() if revision == "2026-07-28"])
async def test_task_is_resumed_after_its_client_was_killed(with_tasks: str, place: Place) -> None:
    code = f"import time\nprint('begun', flush=True)\ntime.sleep({_TASK_SECONDS})\nprint('ended')"
    async with driven_client(with_tasks, place.url, place.token) as first:
        task = await first.start_task("execute_code", code=code)
        assert task
        await first.kill()
    async with driven_client(with_tasks, place.url, place.token) as second:
        result = await second.resume_task(task)
        assert texts_of(result).split()[:2] == ["begun", "ended"]
        await second.call("end_session", session=data_of(result)["session"])
