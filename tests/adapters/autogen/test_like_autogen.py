"""Behaviour that AutoGen's own tests expect of its executors, and what `like_autogen=False` does instead."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from jupyter_exec_ext import LocalJupyterServer
from jupyter_exec_ext.adapters.autogen import DockerJupyterCodeExecutor, JupyterCodeExecutor, JupyterCodeResult
from tests.adapters.beacon import SHOW_PICTURE
from tests.support.full import only_in_full

SHOW_PAGE = "from IPython.display import HTML; HTML('<p>here</p>')"


async def run(executor: JupyterCodeExecutor, *codes: str, language: str = "python") -> JupyterCodeResult:
    blocks = [CodeBlock(code, language) for code in codes]
    return await executor.execute_code_blocks(blocks, CancellationToken())


async def test_outputs_stand_on_lines_of_their_own(local_server: LocalJupyterServer) -> None:
    async with JupyterCodeExecutor(jupyter_server=local_server) as executor:
        assert (await run(executor, "print(1)", "x = 2", "print(x)")).output == "1\n\n\n2\n"
        assert (await run(executor, "print(1); 2")).output == "1\n\n2"
    async with JupyterCodeExecutor(jupyter_server=local_server, like_autogen=False) as executor:
        assert (await run(executor, "print(1)", "x = 2", "print(x)")).output == "1\n2\n"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (SHOW_PICTURE, "here\n\n<IPython.core.display.Image object>"),
        (SHOW_PAGE, "<IPython.core.display.HTML object>"),
        (
            "from IPython.display import SVG; SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')",
            "<IPython.core.display.SVG object>",
        ),
        ("import json; from IPython.display import JSON; JSON({'a': 1})", "<IPython.core.display.JSON object>"),
        (
            "from IPython.display import display; display({'text/plain': 't', 'image/gif': 'R0lG'}, raw=True)",
            "t",
        ),
    ],
)
async def test_objects_are_given_by_their_text_and_are_files(
    local_server: LocalJupyterServer, tmp_path: Path, code: str, text: str
) -> None:
    async with JupyterCodeExecutor(jupyter_server=local_server, output_dir=tmp_path) as executor:
        result = await run(executor, code)
    assert result.output == text
    assert len(result.output_files) == (0 if "JSON" in code else 1)
    assert all(file.parent == tmp_path for file in result.output_files)


async def test_the_one_for_docker_names_the_file_too(local_server: LocalJupyterServer, tmp_path: Path) -> None:
    async with DockerJupyterCodeExecutor(local_server, output_dir=tmp_path) as executor:
        result = await run(executor, SHOW_PAGE)
    (file,) = result.output_files
    assert result.output == f"<IPython.core.display.HTML object>\n{file}"


async def test_code_that_takes_too_long_raises(local_server: LocalJupyterServer) -> None:
    async with JupyterCodeExecutor(timeout=1, jupyter_server=local_server) as executor:
        await run(executor, "kept = 1")
        with pytest.raises(asyncio.TimeoutError, match="its time limit of 1 s was reached"):
            await run(executor, "while True: pass")
        assert (await run(executor, "print(kept)")).output == "1\n"  # it was stopped
    async with DockerJupyterCodeExecutor(local_server, timeout=1) as executor:
        result = await run(executor, "while True: pass")
        assert (result.exit_code, "Timeout" in result.output) == (1, True)


async def test_run_before_start_raises(local_server: LocalJupyterServer) -> None:
    executor = JupyterCodeExecutor(jupyter_server=local_server)
    with pytest.raises(RuntimeError, match="Executor must be started before executing cells"):
        await run(executor, "1")
    for starts_itself in (
        JupyterCodeExecutor(jupyter_server=local_server, like_autogen=False),
        DockerJupyterCodeExecutor(local_server),
    ):
        assert (await run(starts_itself, "print(1)")).output == "1\n"
        await starts_itself.stop()


def test_the_current_directory_for_files_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="Using the current directory as output_dir is deprecated"):
        assert JupyterCodeExecutor(output_dir=".").output_dir == Path(".")


@only_in_full
async def test_successful_pip_install_prints_nothing(local_server: LocalJupyterServer) -> None:
    async with JupyterCodeExecutor(jupyter_server=local_server) as executor:
        for code, language in (
            ("!pip install pip", "python"),
            ("%pip install pip", "python"),
            ("pip install pip", "sh"),
        ):
            result = await run(executor, code, language=language)
            assert (result.exit_code, "Requirement already satisfied" in result.output) == (0, False)
    async with JupyterCodeExecutor(jupyter_server=local_server, like_autogen=False) as executor:
        assert "Requirement already satisfied" in (await run(executor, "!pip install pip")).output


async def test_a_shell_block_of_ipythons_commands_is_a_cell(local_server: LocalJupyterServer) -> None:
    async with JupyterCodeExecutor(jupyter_server=local_server) as executor:
        assert (await run(executor, '!echo "hello world!"', language="bash")).output.strip() == "hello world!"
