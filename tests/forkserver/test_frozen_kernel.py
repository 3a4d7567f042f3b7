"""The socket on which the server waits for the process of a checkpoint."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("checkpoints need Linux", allow_module_level=True)

from jupyter_exec_ext.errors import CheckpointFailed
from jupyter_exec_ext.forkserver.frozen_kernel import FrozenKernelListener


def test_socket_may_have_a_long_path_and_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    listener = FrozenKernelListener(directory / "kernel-chkpt")
    try:
        assert (directory / "kernel-chkpt").stat().st_mode & 0o777 == 0o600
        short = tmp_path / "short"
        short.symlink_to(directory)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(short / "kernel-chkpt"))
            client.sendall(b'{"nonce": "n", "problem": "there is none"}\n')
            with pytest.raises(CheckpointFailed, match="there is none"):
                listener.accept("n", 5.0)
    finally:
        listener.close()
    assert list(directory.iterdir()) == []
