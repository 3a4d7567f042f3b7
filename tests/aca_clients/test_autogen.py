"""autogen-ext's executor: what its own tests, which are run beside these, do not ask."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponseError
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_ext.code_executors.azure import ACADynamicSessionsCodeExecutor

from tests.aca_clients.credential import FakeCredential


def executor(endpoint: str, work_dir: Path, token: str | None = None, **options: Any) -> ACADynamicSessionsCodeExecutor:
    return ACADynamicSessionsCodeExecutor(
        pool_management_endpoint=endpoint, credential=FakeCredential(token), work_dir=str(work_dir), **options
    )


async def run(client: ACADynamicSessionsCodeExecutor, *blocks: str) -> CodeResult:
    code_blocks = [CodeBlock(code=block, language="python") for block in blocks]
    return await client.execute_code_blocks(code_blocks, CancellationToken())


async def status_of(client: ACADynamicSessionsCodeExecutor) -> int:
    """Run code that is refused; return the status, which the client's own message leaves out."""
    with pytest.raises(ConnectionError) as caught:
        await run(client, "pass")
    assert isinstance(caught.value.__cause__, ClientResponseError)
    return int(caught.value.__cause__.status)


async def test_values_are_shown_as_azure_shows_them(endpoint: str, tmp_path: Path) -> None:
    client = executor(endpoint, tmp_path)
    assert (await run(client, "print('out')", "6 * 7")).output == "out\n42"
    assert (await run(client, "'text'")).output == "text"
    assert (await run(client, "[1, 2]")).output == "[1, 2]"
    assert (await run(client, "None")).output == ""


async def test_an_error_is_a_result_and_the_session_lives_on(endpoint: str, tmp_path: Path) -> None:
    client = executor(endpoint, tmp_path)
    failed = await run(client, "kept = 5", "1 / 0")
    assert failed.exit_code == 1
    assert "ZeroDivisionError: division by zero" in failed.output
    assert "\x1b" not in failed.output
    assert (await run(client, "print(kept)")).output == "5\n"


async def test_packages_are_those_of_the_kernel(endpoint: str, tmp_path: Path) -> None:
    client = executor(endpoint, tmp_path)
    await run(client, "pass")
    packages = await client.get_available_packages(CancellationToken())
    assert {"ipykernel", "polars"} <= packages
    assert all(package and not set(package) & set("[]'\n ") for package in packages)


async def test_files_keep_their_names_and_their_bytes(endpoint: str, tmp_path: Path) -> None:
    client = executor(endpoint, tmp_path)
    content = bytes(range(256)) * 40
    names = ["plain.bin", "with a space.bin", "50% & more.bin", "größe.bin"]
    for name in names:
        (tmp_path / name).write_bytes(content)
    await client.upload_files(names, CancellationToken())
    assert set(names) <= set(await client.get_file_list(CancellationToken()))
    assert (await run(client, f"print([len(open(name, 'rb').read()) for name in {names}])")).output == (
        f"{[len(content)] * len(names)}\n"
    )
    for name in names:
        (tmp_path / name).unlink()
    await client.download_files(names, CancellationToken())
    assert [(tmp_path / name).read_bytes() for name in names] == [content] * len(names)


async def test_its_time_limit_ends_the_wait_and_not_the_code(endpoint: str, tmp_path: Path) -> None:
    hasty = executor(endpoint, tmp_path, session_id="a-long-run", timeout=2)
    await run(hasty, "import time")
    with pytest.raises(asyncio.TimeoutError):
        await run(hasty, "time.sleep(3); done = 5")
    assert (await run(executor(endpoint, tmp_path, session_id="a-long-run"), "print(done)")).output == "5\n"


async def test_a_restart_begins_a_new_session(endpoint: str, tmp_path: Path) -> None:
    client = executor(endpoint, tmp_path)
    await run(client, "kept = 5")
    await client.restart()
    assert "NameError" in (await run(client, "kept")).output


async def test_two_executors_share_a_session_by_its_identifier(endpoint: str, tmp_path: Path) -> None:
    await run(executor(endpoint, tmp_path, session_id="shared-session"), "kept = 5")
    assert (await run(executor(endpoint, tmp_path, session_id="shared-session"), "print(kept)")).output == "5\n"


async def test_two_users_never_share_a_session(endpoint: str, tmp_path: Path, other_token: str) -> None:
    """The client cuts an identifier at ``#``: both name the session ``user-of-one-name``."""
    await run(executor(endpoint, tmp_path, session_id="user-of-one-name#1"), "secret = 5")
    other = executor(endpoint, tmp_path, other_token, session_id="user-of-one-name#2")
    assert "NameError" in (await run(other, "secret")).output


async def test_with_one_token_nobody_can_tell_what_the_client_has_cut_off(endpoint: str, tmp_path: Path) -> None:
    """For all of these it names the session ``one-user``; what comes after ``&`` is a parameter that nothing reads."""
    await run(executor(endpoint, tmp_path, session_id="one-user"), "kept = 5")
    for identifier in ("one-user#1", "one-user#2", "one-user&b=2"):
        assert (await run(executor(endpoint, tmp_path, session_id=identifier), "print(kept)")).output == "5\n"


@pytest.mark.parametrize("identifier", ["mine&identifier=theirs", "mine&api-version=2025-10-02-preview"])
async def test_an_identifier_that_adds_parameters_is_refused(endpoint: str, tmp_path: Path, identifier: str) -> None:
    assert await status_of(executor(endpoint, tmp_path, session_id=identifier)) == 400


async def test_a_token_that_is_none_of_ours_is_refused(endpoint: str, tmp_path: Path) -> None:
    assert await status_of(executor(endpoint, tmp_path, "none-of-ours")) == 401
