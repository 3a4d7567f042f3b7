"""Driver of the client's steps on embedded kernels: requests of the kernels API, and its WebSocket."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import zmq
from jupyter_client.kernelspec import KernelSpecManager

from ..client.api.outage_retry import NO_RETRY
from ..client.api.steps import Connect, Disconnect, Failure, ReceiveMessage, Reply, Request, SendMessage, Socket, Step
from ..client.jupyter.standard_session import open_standard_session
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.driver import SyncDriver
from ..client.sync.session import StandardExecSession
from ..errors import ConnectionFailed
from ..protocol.kernel_messages import WEBSOCKET_PROTOCOL
from ..protocol.kernel_preparation import DEFAULT_NAMES, inherited_environment, kernel_environment
from ..protocol.strict_json import dump_bytes
from ..system.resources import try_descriptors
from .embedded_channels import Channels
from .embedded_kernel import EmbeddedKernel, start_failure

# Descriptors of a kernel and its connections, at most. Without them, libzmq (4.3.5, `epoll.cpp`) ends the program.
_DESCRIPTORS_PER_KERNEL = 32
_MAX_OUTPUT_BYTES = 32 * 1024 * 1024


class EmbeddedDriver(SyncDriver):
    """A driver whose server is in this process, and knows nothing but kernels.

    Parameters
    ----------
    env : mapping
        Environment of the kernels, beside what a program needs in order to run at all.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(JupyterConnectionInfo("localhost", False))  # to which nothing is ever sent
        self._env = kernel_environment(inherited_environment(os.environ, DEFAULT_NAMES), env, caller_names=["*"])
        self._kernels: dict[str, EmbeddedKernel] = {}
        self._pid = os.getpid()

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise ConnectionFailed(
                f"the kernel belongs to the process that has started it ({self._pid}), which has forked this one; make "
                "another executor here"
            )
        super()._check_open()

    def open_session(self, kernel_name: str, *, max_output_bytes: int = _MAX_OUTPUT_BYTES) -> StandardExecSession:
        """Start a kernel and return a session on it.

        Raises
        ------
        KernelSpecNotFound, KernelStartFailed, KernelStartTimeout, OutOfResources
        """
        # A kernel that ended while nothing ran is noticed before the next run, which gets a fresh one.
        operation = open_standard_session(kernel_name, None, NO_RETRY, max_output_bytes, trusted_seconds=0.0)
        return StandardExecSession(self, self.perform(operation))

    def close(self) -> None:
        """End all kernels."""
        super().close()
        shut_down(self._kernels)

    @property
    def kernels(self) -> dict[str, EmbeddedKernel]:
        """The kernels that there are, by id."""
        return self._kernels

    # --- the kernels API ---

    def _request(self, request: Request) -> Reply | Failure:
        match (request.method, *request.path.split("/")[1:]):
            case ("GET", "kernelspecs"):
                specs = KernelSpecManager().get_all_specs()
                return _reply(200, {"default": "python3", "kernelspecs": specs})
            case ("POST", "kernels"):
                with _system_failures_named():
                    kernel = EmbeddedKernel(request.json["name"], self._env)
                self._kernels[kernel.kernel_id] = kernel
                return _reply(201, {"id": kernel.kernel_id})
            case ("GET", "kernels", kernel_id) if kernel_id in self._kernels:
                return _reply(200, {"id": kernel_id})
            case ("DELETE", "kernels", kernel_id) if kernel_id in self._kernels:
                self._kernels.pop(kernel_id).shutdown()
                return _reply(204)
            case ("POST", "kernels", kernel_id, "interrupt") if kernel_id in self._kernels:
                self._kernels[kernel_id].interrupt()
                return _reply(204)
            case ("POST", "kernels", kernel_id, "restart") if kernel_id in self._kernels:
                self._kernels[kernel_id].restart()
                return _reply(200, {"id": kernel_id})
        return _reply(404, {"message": "there is no such kernel"})

    # --- its WebSocket ---

    def _websocket(self, step: Step) -> Any:
        if isinstance(step, Connect):
            kernel = self._kernels.get(step.path.split("/")[2])
            if kernel is None:
                return Failure(False, "there is no such kernel")
            kernel.revive()
            with _system_failures_named():
                channels = kernel.connection = Channels(kernel)
            return Socket(WEBSOCKET_PROTOCOL, channels)
        if isinstance(step, SendMessage):
            assert isinstance(step.data, bytes)
            return step.socket.handle.send(step.data)
        if isinstance(step, ReceiveMessage):
            return step.socket.handle.receive(step.timeout_seconds)
        assert isinstance(step, Disconnect)
        return step.socket.handle.close()


def shut_down(kernels: dict[str, EmbeddedKernel]) -> None:
    """End kernels at once, and forget them."""
    while kernels:
        kernels.popitem()[1].shutdown(now=True)


@contextmanager
def _system_failures_named() -> Iterator[None]:
    """Raise what the system or ZeroMQ refuses as one of this package's errors."""
    try:
        try_descriptors(_DESCRIPTORS_PER_KERNEL)
        yield
    except (OSError, zmq.ZMQError) as error:
        raise start_failure(error) from error


def _reply(status: int, body: Any = None) -> Reply:
    return Reply(status, {}, b"" if body is None else dump_bytes(body))
