"""Transport of sessions' kernels: Unix sockets in Jupyter's runtime directory, where that works.

Over TCP a kernel has five ports. They are chosen before it binds them, so that another process may be quicker. All
users of the machine can connect to them, and each message takes longer.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.localinterfaces import localhost
from jupyter_client.manager import KernelManager

from .provisioners import ISOLATABLE, provisioner_name
from .shared_resources import DEFAULT_MAX_MESSAGE_BYTES

_MODULES = (("-m", "ipykernel_launcher"), ("-m", "ipykernel"))
# ipykernel numbers its five sockets, and adds the number to the path.
_LONGEST_END = "-ipc-5"


def is_ipython(argv: Sequence[str]) -> bool:
    """Return whether a kernelspec's command is an interpreter with an IPython kernel, and no wrapper of one.

    What wraps a kernel, a container for one, may have another view of the file system.
    """
    program = Path(argv[0]).name if argv else ""
    return program.startswith("python") and any(module in pairwise(argv) for module in _MODULES)


def has_room_for_sockets(connection_file: str) -> bool:
    """Return whether sockets beside a connection file have names that this system can use."""
    longest: int = zmq.IPC_PATH_MAX_LEN if zmq.has("ipc") and hasattr(socket, "AF_UNIX") else 0
    stem, _ = os.path.splitext(connection_file)
    return os.path.isabs(connection_file) and len(os.fsencode(stem + _LONGEST_END)) <= longest


def holds_sockets(directory: str) -> bool:
    """Return whether sockets can be made in a directory and connected to: some shared file systems have none."""
    path = os.path.join(directory, f"probe-{uuid.uuid4().hex}")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as connected:
        try:
            listening.bind(path)
            listening.listen(1)
            connected.connect(path)
        except OSError:
            return False
        finally:
            with suppress(OSError):
                os.unlink(path)
    return True


def kernel_id_of(options: Mapping[str, Any]) -> str:
    """Return the id of the kernel for which a multi-kernel manager has a manager made, with these options."""
    return Path(options.get("connection_file", "")).stem.removeprefix("kernel-")


def use_sockets(manager: KernelManager) -> None:
    """Have a kernel use Unix sockets beside its connection file, if it can.

    Only IPython kernels that run on this machine, without isolation: what isolates kernels chooses their sockets
    itself, and not every other kernel can use these. Where an administrator has chosen another address, it stays.
    """
    if _can_use_sockets(manager):
        manager.transport = "ipc"
        manager.ip = f"{os.path.splitext(manager.connection_file)[0]}-ipc"


def with_frame_limit(context: zmq.Context[Any]) -> zmq.Context[Any]:
    """Return a context that shares everything with another one, whose sockets take frames of limited size only.

    For what else reads a session's kernel in this process, such as the WebSocket of a notebook on it.
    """
    shadow = type(context)(shadow=context.underlying)
    # It holds for sockets that are made through this context, and not for other kernels' sockets.
    shadow.maxmsgsize = DEFAULT_MAX_MESSAGE_BYTES
    return shadow


def _can_use_sockets(manager: KernelManager) -> bool:
    spec = manager.kernel_spec
    return (
        spec is not None
        and provisioner_name(spec.metadata) in ISOLATABLE
        and is_ipython(spec.argv)
        and manager.transport == "tcp"
        and manager.ip == localhost()
        and has_room_for_sockets(manager.connection_file)
        and holds_sockets(os.path.dirname(manager.connection_file))  # last: it makes a socket to try
    )
