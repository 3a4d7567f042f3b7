"""Kernels that a provisioner isolates, started by a process of the world's user, as a server would.

Where the tests run as root and the user is root, that process has mounts of its own: nothing that a kernel does to them
is done to the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

import jupyter_exec_ext
from jupyter_exec_ext.engine.kernels.checkpoint_support import find_checkpoint_support
from jupyter_exec_ext.engine.kernels.restored_launch import RestoredLaunch
from jupyter_exec_ext.forkserver.frozen_kernel import FrozenKernelListener
from jupyter_exec_ext.protocol.kernel_checkpoint_messages import hindrances_of, loading_request, taking_request
from jupyter_exec_ext.system.worker_threads import in_thread
from tests.containment.plain import READY_SECONDS, as_user, wait_for_ready

if TYPE_CHECKING:
    from typing_extensions import Self

    from tests.containment.world import World

_ROOT = str(Path(jupyter_exec_ext.__file__).parent.parent)
_NAME = "under-test"
_START = """
import sys
sys.path.insert(0, {root!r})
exec(compile({text!r}, "isolated", "exec"), {{"__name__": "serve"}})
"""


class IsolatedKernel:
    """A kernel that is isolated, in a world.

    Parameters
    ----------
    world : World
    provisioner : str
        Module and class.
    config : mapping
        What its kernelspec says.
    is_restored : bool
        Whether each kernel is replaced by one from a checkpoint before it is used.
    """

    def __init__(
        self, world: World, provisioner: str, config: dict[str, Any] | None = None, *, is_restored: bool = False
    ) -> None:
        self._is_restored = is_restored
        self._world = world
        self._provisioner = provisioner
        self._config = config or {}
        self._server: subprocess.Popen[str] | None = None
        self._data = ""
        self.client: BlockingKernelClient | None = None

    def __enter__(self) -> Self:
        text = Path(__file__).read_text()
        # What belongs to the kernel alone may be here, and is not to be taken for the server's.
        self._data = tempfile.mkdtemp(prefix="data-")
        if os.geteuid() == 0:
            os.chown(self._data, self._world.user, -1)
        command = [sys.executable, "-c", _START.format(root=_ROOT, text=text), self._provisioner]
        command += [str(self._world.work), json.dumps(self._config), "restored" if self._is_restored else ""]
        self._server = subprocess.Popen(
            as_user(command, self._world.user, own_mounts=self._world.user == 0, needs=[_ROOT]),
            cwd="/",
            env=self._world.environment | {"JUPYTER_DATA_DIR": self._data},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=self._world.descriptors,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()
        assert self._server is not None
        assert self._server.stdin is not None and self._server.stdout is not None
        with contextlib.suppress(OSError):
            self._server.stdin.close()
        self._server.wait(READY_SECONDS)
        self._server.stdout.close()
        shutil.rmtree(self._data)

    def start(self) -> BlockingKernelClient:
        """Start it anew, and return a client that it has answered."""
        self._let_go()
        assert self._server is not None
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write("start\n")
        self._server.stdin.flush()
        self.client = BlockingKernelClient()
        self.client.load_connection_info(json.loads(self._server.stdout.readline()))
        self.client.start_channels()
        wait_for_ready(self.client)
        return self.client

    def _let_go(self) -> None:
        if self.client is not None:
            self.client.stop_channels()
            self.client = None


async def _serve(provisioner: str, work: str, config: dict[str, Any], *, is_restored: bool) -> None:
    module, _, name = provisioner.rpartition(".")
    kind = getattr(import_module(module), name)
    entry_point: Any = SimpleNamespace(name=_NAME, load=lambda: kind)
    KernelProvisionerFactory.instance().provisioners[_NAME] = entry_point
    manager = AsyncKernelManager()
    assert manager.kernel_spec is not None
    manager.kernel_spec.metadata = {"kernel_provisioner": {"provisioner_name": _NAME, "config": config}}
    while await asyncio.to_thread(sys.stdin.readline):
        if manager.has_kernel:
            await manager.restart_kernel(now=True)
        else:
            await manager.start_kernel(cwd=work)
        if is_restored:
            await _restore(manager)
        print(json.dumps({**manager.get_connection_info(), "key": manager.session.key.decode()}), flush=True)
    if manager.has_kernel:
        await manager.shutdown_kernel(now=True)


async def _restore(manager: AsyncKernelManager) -> None:
    """Make a checkpoint of a kernel, and restore it."""
    support = find_checkpoint_support(manager)
    assert support is not None
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready()
    listener = FrozenKernelListener(support.path)
    for request in (
        loading_request(),
        taking_request(support.address, "x", force=False, placeholder_signal=support.placeholder_signal),
    ):
        reply = await client.execute_interactive(
            request["code"], silent=True, user_expressions=request["user_expressions"], allow_stdin=False
        )
    assert hindrances_of(reply["content"]) == ()
    frozen = await in_thread(listener.accept, "x", 10)
    listener.close()
    client.stop_channels()
    launch = RestoredLaunch(frozen, same_random=False, new_output=support.new_output)
    await launch.begin()
    provisioner = manager.provisioner
    assert provisioner is not None
    await launch.replace_kernel_of(provisioner, provisioner.kill)
    _frozen[:] = [frozen]  # it ends with this object


_frozen: list[Any] = []


if __name__ == "serve":
    os.chdir("/")
    asyncio.run(_serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), is_restored=bool(sys.argv[4])))
