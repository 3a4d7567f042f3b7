from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from traitlets.config import Config

from jupyter_exec_ext.assembly import build_engine, build_host
from jupyter_exec_ext.engine.engine import ExecEngine
from tests.support.hosts import FORKED
from tests.support.kernelspecs import add_kernelspec


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[AsyncMappingKernelManager]:
    """The kernel manager that Jupyter Server uses, without the server."""
    specs = KernelSpecManager()
    if FORKED:
        add_kernelspec(tmp_path, "python3", "forkserver-provisioner")
        specs.kernel_dirs = [str(tmp_path / "jupyter_data_dir" / "kernels"), *specs.kernel_dirs]
    # Absolute, as in a server, since kernels have directories of their own; and short, since socket names must be.
    with tempfile.TemporaryDirectory() as runtime:
        yield AsyncMappingKernelManager(kernel_spec_manager=specs, connection_dir=runtime)


@pytest.fixture
async def make_engine(manager: AsyncMappingKernelManager) -> AsyncIterator[Callable[..., ExecEngine]]:
    """Make engines that are shut down at the end."""
    engines: list[ExecEngine] = []

    def make(max_kernels: int | None = None, config: Config | None = None, **traits: Any) -> ExecEngine:
        manager.update_config(config or Config())
        assert manager.kernel_spec_manager is not None
        engine = build_engine(build_host(manager, manager.kernel_spec_manager, max_kernels=max_kernels), **traits)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        await engine.shutdown()
    manager.__del__()


@pytest.fixture
def engine(make_engine: Callable[..., ExecEngine]) -> ExecEngine:
    return make_engine()
