"""Descriptor limits: the server's own is raised, its kernels keep theirs, and there are no more sessions than fit."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from typing import Any

import psutil
import pytest
import zmq
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext.engine.kernels.kernel_host import ManagerKernelHost
from jupyter_exec_ext.engine.kernels.process_limits import fitting_sessions, keeping_descriptor_limit
from jupyter_exec_ext.errors import OutOfResources
from jupyter_exec_ext.system.resources import is_out_of_resources

_LOWERED = """
import os, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
from jupyter_exec_ext.engine.kernels.process_limits import descriptor_limit, raise_descriptor_limit
assert raise_descriptor_limit() == 200 == raise_descriptor_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
assert descriptor_limit() == hard
if (pid := os.fork()) == 0:  # as terminals and worker processes are started
    os._exit(0 if resource.getrlimit(resource.RLIMIT_NOFILE) == (200, hard) else 1)
assert os.waitpid(pid, 0)[1] == 0
"""


def test_the_soft_limit_is_raised_once_and_forked_children_get_the_old_one() -> None:
    subprocess.run([sys.executable, "-c", _LOWERED], check=True, timeout=60)


@pytest.mark.parametrize(
    ("limit", "opened", "kept", "pooled", "sessions"),
    [
        (1024, 20, 32, 4, 77),
        (1024, 20, 32, 0, 81),
        (256, 20, 32, 4, 13),
        (524_288, 20, 32, 4, 43_682),
        (60, 20, 32, 4, 1),
        (10, 20, 32, 0, 1),
    ],
)
def test_sessions_are_as_many_as_descriptors_suffice_for(
    limit: int, opened: int, kept: int, pooled: int, sessions: int
) -> None:
    assert fitting_sessions(limit, opened, kept, pooled) == sessions


async def test_a_kernel_keeps_its_soft_limit_over_a_restart() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    specs = KernelSpecManager()
    manager = AsyncMappingKernelManager(kernel_spec_manager=specs)
    manager.kernel_manager_factory = keeping_descriptor_limit(manager.kernel_manager_factory, 300)
    host = ManagerKernelHost(manager, specs)
    kernel = await host.start("python3", {}, None)
    try:
        for _ in range(2):
            assert kernel.pid is not None
            assert resource.prlimit(kernel.pid, resource.RLIMIT_NOFILE) == (300, hard)
            await kernel.restart(now=True)
    finally:
        await kernel.shutdown(now=True)


async def test_a_start_for_which_zeromq_has_no_socket_is_out_of_resources() -> None:
    specs = KernelSpecManager()
    manager = AsyncMappingKernelManager(kernel_spec_manager=specs)
    context: Any = manager.context
    context.set(zmq.MAX_SOCKETS, 1)
    taken = context.socket(zmq.DEALER)
    before = set(psutil.Process().children())
    with pytest.raises(OutOfResources, match="too many open files"):
        await ManagerKernelHost(manager, specs).start("python3", {}, None)
    assert set(psutil.Process().children()) <= before  # the launched process has ended
    await manager.shutdown_all(now=True)
    taken.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL])
def test_zeromq_errors_of_exhaustion_are_known(number: int) -> None:
    assert is_out_of_resources(zmq.ZMQError(number))
    assert not is_out_of_resources(zmq.ZMQError(errno.EINVAL))
