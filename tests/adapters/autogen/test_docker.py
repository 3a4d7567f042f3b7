"""AutoGen's executor on a server in a container, of a real engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from jupyter_exec_ext.adapters.autogen import DockerJupyterCodeExecutor, DockerJupyterServer
from tests.engines import running_engine


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
