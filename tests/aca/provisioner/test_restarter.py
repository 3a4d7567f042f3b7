"""How often an application looks whether a kernel that is a session still lives: that is what idle ones cost."""

from __future__ import annotations

import os
from typing import Any

import pytest
from jupyter_client.ioloop.manager import AsyncIOLoopKernelManager, IOLoopKernelManager
from jupyter_client.multikernelmanager import AsyncMultiKernelManager
from traitlets.config import Config

from jupyter_exec_ext.aca.provisioner import ACAProvisioner

from .pools import add_plain_kernelspec, add_pool_kernelspec

SESSION, LOCAL = "session", "local"
OURS_SECONDS, JUPYTERS_SECONDS = 15.0, 3.0


@pytest.fixture(autouse=True)
def _kernelspecs() -> None:
    add_pool_kernelspec(os.environ["JUPYTER_DATA_DIR"], SESSION, "http://127.0.0.1:9/pool")
    add_plain_kernelspec(LOCAL)


def started_by(config: Config | None = None) -> AsyncMultiKernelManager:
    """Return what starts kernels in an application with a configuration."""
    return AsyncMultiKernelManager(config=config or Config(), connection_dir=os.environ["JUPYTER_DATA_DIR"])


def interval_seconds(manager: Any) -> float:
    """Return how often the restarter of a running kernel really looks."""
    return float(manager._restarter._pcallback.callback_time) / 1000


async def intervals(manager: AsyncMultiKernelManager, *names: str) -> list[float]:
    """Start kernels one after the other and return the interval of each."""
    try:
        ids = [await manager.start_kernel(kernel_name=name) for name in names]
        return [interval_seconds(manager.get_kernel(kernel_id)) for kernel_id in ids]
    finally:
        await manager.shutdown_all(now=True)


async def test_a_session_is_looked_at_less_often_and_other_kernels_as_ever() -> None:
    manager = started_by()
    assert await intervals(manager, SESSION, LOCAL, SESSION) == [OURS_SECONDS, JUPYTERS_SECONDS, OURS_SECONDS]
    assert manager.config == Config()


@pytest.mark.parametrize(
    "config",
    [
        {"KernelRestarter": {"time_to_dead": 2.0}},
        {"IOLoopKernelRestarter": {"time_to_dead": 2.0}},
        {"AsyncIOLoopKernelRestarter": {"time_to_dead": 2.0}},
        {"AsyncIOLoopKernelManager": {"KernelRestarter": {"time_to_dead": 2.0}}},
    ],
)
async def test_a_deployments_own_interval_is_kept(config: dict[str, Any]) -> None:
    assert await intervals(started_by(Config(config)), SESSION) == [2.0]


async def test_other_settings_of_the_restarter_and_what_the_application_has_set_stay() -> None:
    config = Config({"KernelRestarter": {"restart_limit": 1}, "KernelManager": {"shutdown_wait_time": 7.0}})
    manager = AsyncIOLoopKernelManager(kernel_name=SESSION, config=config)
    manager.shutdown_wait_time = 1.0
    await manager.start_kernel()
    try:
        assert (interval_seconds(manager), manager._restarter.restart_limit) == (OURS_SECONDS, 1)
        assert manager.shutdown_wait_time == 1.0
    finally:
        await manager.shutdown_kernel(now=True)


async def test_a_restarted_kernel_is_looked_at_as_before() -> None:
    manager = AsyncIOLoopKernelManager(kernel_name=SESSION)
    await manager.start_kernel()
    try:
        await manager.restart_kernel()
        assert interval_seconds(manager) == OURS_SECONDS
    finally:
        await manager.shutdown_kernel(now=True)


async def test_it_is_so_for_applications_whose_managers_block() -> None:
    manager = IOLoopKernelManager(kernel_name=SESSION)
    manager.start_kernel()
    try:
        assert interval_seconds(manager) == OURS_SECONDS
    finally:
        manager.shutdown_kernel(now=True)


async def test_without_a_manager_nothing_is_set() -> None:
    provisioner = ACAProvisioner(endpoint="http://127.0.0.1:9/pool", credential="env:NO_TOKEN")
    provisioner._set_poll_interval()
    assert provisioner.config == Config()
