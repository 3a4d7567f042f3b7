"""semantic-kernel's sessions tool, which takes no address but one of https."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from semantic_kernel import Kernel
from semantic_kernel.core_plugins.sessions_python_tool.sessions_python_plugin import SessionsPythonTool
from semantic_kernel.core_plugins.sessions_python_tool.sessions_python_settings import SessionsPythonSettings
from semantic_kernel.exceptions.function_exceptions import FunctionExecutionException

from tests.aca_clients.credential import FakeCredential


@asynccontextmanager
async def sessions_tool(
    endpoint: str, tmp_path: Path, identifier: str | None = None, token: str | None = None
) -> AsyncIterator[SessionsPythonTool]:
    """The tool with a client of HTTP that knows our authority, and waits for a kernel to start."""
    trust = ssl.create_default_context(cafile=os.environ["EXEC_TEST_ACA_AUTHORITY"])
    settings = SessionsPythonSettings() if identifier is None else SessionsPythonSettings(identifier=identifier)
    async with httpx.AsyncClient(verify=trust, timeout=60) as http_client:
        yield SessionsPythonTool(
            pool_management_endpoint=endpoint,
            credential=FakeCredential(token),
            settings=settings,
            http_client=http_client,
            enable_dangerous_file_uploads=True,
            allowed_upload_directories=[str(tmp_path)],
        )


@pytest.fixture
async def tool(endpoint: str, tmp_path: Path) -> AsyncIterator[SessionsPythonTool]:
    async with sessions_tool(endpoint, tmp_path) as tool:
        yield tool


async def test_a_plugin_of_a_kernel_runs_code(tool: SessionsPythonTool) -> None:
    kernel = Kernel()
    kernel.add_plugin(tool, "sessions")
    result = await kernel.invoke(plugin_name="sessions", function_name="execute_code", code="print('out')\n6 * 7")
    assert str(result) == "Status:\nSuccess\nResult:\n42\nStdout:\nout\n\nStderr:\n"


async def test_state_is_kept_and_an_error_is_a_result(tool: SessionsPythonTool) -> None:
    assert await tool.execute_code("kept = 5") == "Status:\nSuccess\nResult:\n\nStdout:\n\nStderr:\n"
    failed = await tool.execute_code("kept / 0")
    assert failed.startswith("Status:\nFailure\nResult:\n\n")
    assert "ZeroDivisionError: division by zero" in failed
    assert "Result:\n5\n" in await tool.execute_code("kept")


@pytest.mark.parametrize("name", ["data.bin", "with a space.bin", "größe.bin"])
async def test_files_go_there_and_back(tool: SessionsPythonTool, tmp_path: Path, name: str) -> None:
    """After code was run it says that an upload is JSON, which it is not; before, it does not."""
    content = bytes(range(256)) * 5
    (tmp_path / name).write_bytes(content)
    before = await tool.upload_file(local_file_path=str(tmp_path / name))
    assert (before.full_path, before.size_in_bytes) == (f"/mnt/data/{name}", len(content))
    assert f"Result:\n{len(content)}\n" in await tool.execute_code(f"len(open({name!r}, 'rb').read())")
    (tmp_path / name).write_bytes(content * 2)
    after = await tool.upload_file(local_file_path=str(tmp_path / name))
    assert after.size_in_bytes == 2 * len(content)
    assert [file.filename for file in await tool.list_files()] == [name]
    back = await tool.download_file(remote_file_name=name)
    assert back is not None
    assert back.read() == content * 2


async def test_two_users_never_share_a_session(endpoint: str, tmp_path: Path, other_token: str) -> None:
    async with (
        sessions_tool(endpoint, tmp_path, "same-identifier") as mine,
        sessions_tool(endpoint, tmp_path, "same-identifier", other_token) as theirs,
    ):
        await mine.execute_code("secret = 5")
        assert "NameError" in await theirs.execute_code("secret")


@pytest.mark.parametrize(
    "identifier", ["user#1", "mine&identifier=theirs", "mine&api-version=2025-10-02-preview", "with a space"]
)
async def test_an_identifier_that_does_not_arrive_is_refused(endpoint: str, tmp_path: Path, identifier: str) -> None:
    """The tool puts it into the address as it is, and what follows ``#`` (its api-version, too) is not sent."""
    async with sessions_tool(endpoint, tmp_path, identifier) as tool:
        with pytest.raises(FunctionExecutionException, match="400"):
            await tool.execute_code("1")


async def test_with_one_token_nobody_can_tell_what_the_tool_has_cut_off(endpoint: str, tmp_path: Path) -> None:
    async with sessions_tool(endpoint, tmp_path, "one-user") as tool:
        await tool.execute_code("kept = 5")
    async with sessions_tool(endpoint, tmp_path, "one-user&b=2") as tool:
        assert "Result:\n5\n" in await tool.execute_code("kept")


async def test_a_token_that_is_none_of_ours_is_refused(endpoint: str, tmp_path: Path) -> None:
    async with sessions_tool(endpoint, tmp_path, token="none-of-ours") as tool:
        with pytest.raises(FunctionExecutionException, match="401"):
            await tool.execute_code("1")
