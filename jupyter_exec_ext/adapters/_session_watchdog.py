"""Watchdog process that ends a session when the program that opened it has ended, even by a kill.

A killed program cannot end its session, and to the server it looks like one that waits for a person. The watchdog waits
for the end of a pipe that only the program holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from ..client.server_connection import JupyterConnectionInfo


class SessionWatchdog:
    """A process that ends a session when this program has ended, unless it is dismissed first.

    Parameters
    ----------
    connection : JupyterConnectionInfo
        The session's server. Its token goes through the pipe, not on the command line or in the environment.
    session_id : str
        The session, or the kernel of a server without ``exec/v1``.
    is_kernel : bool
        Whether `session_id` is the id of a kernel.
    """

    def __init__(self, connection: JupyterConnectionInfo, session_id: str, *, is_kernel: bool = False) -> None:
        from ..executors.managed_server import command_of_module  # not above, so that the process is small

        # A process group of its own: MCP clients kill the whole process group of the program.
        self._process = subprocess.Popen(
            command_of_module(__name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Other programs can read an environment, so the token comes only through the pipe.
            env={k: v for k, v in os.environ.items() if k != "JUPYTER_TOKEN"},
            start_new_session=True,
        )
        # `why_lost` is a function, which JSON cannot hold.
        kept = {"connection": asdict(replace(connection, why_lost=None)), "id": session_id, "is_kernel": is_kernel}
        # The watchdog may have been killed; then the server ends the session after its idle time.
        with contextlib.suppress(BrokenPipeError):
            self._pipe.write(json.dumps(kept).encode() + b"\n")
            self._pipe.flush()

    @property
    def _pipe(self) -> IO[bytes]:
        pipe = self._process.stdin
        assert pipe is not None
        return pipe

    def dismiss(self) -> None:
        """End the process and keep the session."""
        self._process.kill()  # before the pipe closes, which would end the session
        self._process.wait()
        self._pipe.close()


def keep(pipe: IO[bytes]) -> None:
    """Read the session from a pipe, wait for the end of the pipe, and end the session."""
    line = pipe.readline()
    pipe.read()  # returns when the program has ended
    if not line:
        return
    # Imported only now, so that the process is small while it waits.
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


def main() -> None:
    """Keep the session of standard input."""
    keep(sys.stdin.buffer)
