"""Check whether a kernel's provisioner allows checkpoints, and where the socket for them is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from ..ports import CheckpointSupport
from .provisioners import ISOLATABLE, provisioner_name

_NAME = "chkpt"


def find_checkpoint_support(manager: KernelManager) -> CheckpointSupport | None:
    """Return how the server gets checkpoints of a manager's kernel; None if there can be none."""
    if sys.platform != "linux":
        return None
    provisioner: Any = manager.provisioner
    new_output, shared = getattr(provisioner, "new_output", None), getattr(provisioner, "shared_directory", None)
    if new_output is not None and shared is not None:
        directory, inside = shared
        return CheckpointSupport(directory / _NAME, f"{inside}/{_NAME}", provisioner.placeholder_signal, new_output)
    spec = manager.kernel_spec
    if provisioner_name(None if spec is None else spec.metadata) not in ISOLATABLE:
        return None
    stem = Path(manager.connection_file).with_suffix("")
    path = stem.with_name(f"{stem.name}-{_NAME}")  # no longer than the kernel's own sockets: see `unix_transport`
    return CheckpointSupport(path, str(path))
