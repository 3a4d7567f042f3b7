"""A process that ends a session once the program that opened it is gone, however that ended.

A program that is killed cannot tell the server that its session is over, and the server cannot tell it from one that
waits for a person. The keeper waits for the end of a pipe that the program alone can write to.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from ..client.server_connection import JupyterConnectionInfo


class SessionKeeper:
    """A process that ends a session as soon as this program is gone, unless it is dismissed before.

    Parameters
    ----------
    connection : JupyterConnectionInfo
        Where the session's server is. Its token goes through the pipe: no command line and no environment has it.
    session_id : str
        The session; with `is_kernel`, the id of a kernel of a server without ``exec/v1``.
    """

    def __init__(self, connection: JupyterConnectionInfo, session_id: str, *, is_kernel: bool = False) -> None:
        # In a session of its own: MCP clients end the program with its whole process group.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != "JUPYTER_TOKEN"},
            start_new_session=True,
        )
        kept = {"connection": asdict(replace(connection, why_lost=None)), "id": session_id, "is_kernel": is_kernel}
        # A keeper that somebody has killed: the server ends the session when it has been idle for long.
        with contextlib.suppress(BrokenPipeError):
            self._pipe.write(json.dumps(kept).encode() + b"\n")
            self._pipe.flush()

    @property
    def _pipe(self) -> BinaryIO:
        pipe = self._process.stdin
        assert pipe is not None
        return pipe  # type: ignore[return-value]  # opened in binary mode

    def dismiss(self) -> None:
        """End the process, and leave the session as it is."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def keep(pipe: BinaryIO) -> None:
    """Read which session it is, wait until nobody can write any more, and end it."""
    line = pipe.readline()
    pipe.read()
    if not line:
        return
    # Imported only now: the process is small for as long as it waits.
    from ..client.api.operations import ExecApi
    from ..client.jupyter.kernels_api import KernelsApi
    from ..client.server_connection import JupyterConnectionInfo
    from ..client.sync.driver import SyncDriver

    kept = json.loads(line)
    driver = SyncDriver(JupyterConnectionInfo(**kept["connection"]))
    try:
        api = KernelsApi().delete if kept["is_kernel"] else ExecApi().delete_session
        driver.perform(api(kept["id"]))
    finally:
        driver.close()


if __name__ == "__main__":
    keep(sys.stdin.buffer)
