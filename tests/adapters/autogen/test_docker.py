"""AutoGen's executor on a server in a container, of a real engine."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from jupyter_exec_ext.adapters.autogen import DockerJupyterCodeExecutor, DockerJupyterServer
from tests.support.container_engines import running_engine
from tests.support.full import only_in_full


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    with running_engine() as client:
        yield client


@pytest.mark.timeout(600)
async def test_code_runs_in_a_container_that_ends_with_its_server(engine: Any, tmp_path: Path) -> None:
    name = "jupyter-exec-test-autogen"
    async with await asyncio.to_thread(DockerJupyterServer, container_name=name, build_network="host") as server:
        assert str(server.connection_info.token) not in repr(server)
        async with DockerJupyterCodeExecutor(server, timeout=20, output_dir=tmp_path) as executor:
            code = (
                "import os; print(os.getcwd(), os.path.exists('/.dockerenv') or os.path.exists('/run/.containerenv'))"
            )
            result = await executor.execute_code_blocks([CodeBlock(code, "python")], CancellationToken())
            assert (result.exit_code, result.output) == (0, "/workspace True\n")
        assert engine.containers.get(name).status == "running"
    assert name not in [container.name for container in engine.containers.list(all=True)]


async def said_by(server: DockerJupyterServer, code: str) -> str:
    async with DockerJupyterCodeExecutor(server, timeout=20) as executor:
        result = await executor.execute_code_blocks([CodeBlock(code, "python")], CancellationToken())
    assert result.exit_code == 0, result.output
    return str(result.output)


# autogen-ext 0.7.5. Its module needs more packages than ours, so it is not imported.
THEIRS = {
    "custom_image_name": None,
    "container_name": None,
    "auto_remove": True,
    "stop_container": True,
    "docker_env": None,
    "expose_port": 8888,
    "token": None,
    "work_dir": "/workspace",
    "bind_dir": None,
}


def test_every_argument_of_autogens_is_there_with_its_default() -> None:
    ours = inspect.signature(DockerJupyterServer).parameters.values()
    assert {one.name: one.default for one in ours if one.kind is inspect.Parameter.KEYWORD_ONLY} == THEIRS


@pytest.mark.timeout(600)
@only_in_full
async def test_port_token_environment_and_directory_are_as_asked(engine: Any) -> None:
    name = "jupyter-exec-test-autogen-arguments"
    async with await asyncio.to_thread(
        DockerJupyterServer,
        container_name=name,
        auto_remove=False,
        docker_env={"COLOUR": "green"},
        expose_port=9999,
        token=None,
        work_dir="/data/code",
        build_network="host",
    ) as server:
        assert len(str(server.connection_info.token)) == 64
        assert "9999/tcp" in str(engine.containers.get(name).attrs["NetworkSettings"]["Ports"]) or (
            server.connection_info.port == 9999
        )
        code = "import os; open('made', 'w').close(); print(os.getcwd(), os.listdir('.'), os.environ['COLOUR'])"
        assert await said_by(server, code) == "/data/code ['made'] green\n"
    stopped = engine.containers.get(name)
    assert stopped.status == "exited"
    stopped.remove()


@pytest.mark.timeout(600)
@only_in_full
async def test_a_directory_of_this_machine_is_made_and_mounted(engine: Any, tmp_path: Path) -> None:
    directory = tmp_path / "made" / "here"
    async with await asyncio.to_thread(
        DockerJupyterServer, bind_dir=str(directory), work_dir="/data", token="a-token-of-ours", build_network="host"
    ) as server:
        assert server.connection_info.token == "a-token-of-ours"
        code = "import os; open('result', 'w').write('42'); print(os.getcwd())"
        assert await said_by(server, code) == "/data\n"
    assert (directory / "result").read_text() == "42"


@pytest.mark.timeout(600)
@only_in_full
async def test_container_without_auto_stop_runs_until_stop(engine: Any) -> None:
    name = "jupyter-exec-test-autogen-goes-on"
    server = await asyncio.to_thread(
        DockerJupyterServer, container_name=name, stop_container=False, build_network="host"
    )
    async with server:
        image = engine.containers.get(name).image.id
    try:
        assert engine.containers.get(name).status == "running"
    finally:
        await server.close()
    assert name not in [container.name for container in engine.containers.list(all=True)]
    async with await asyncio.to_thread(DockerJupyterServer, custom_image_name=image) as custom:
        assert await said_by(custom, "print(6 * 7)") == "42\n"
