"""`LocalJupyterServer` of AutoGen 0.2: a Kernel Gateway as a child process.

The token reaches the gateway through its standard input, so that neither its command line nor its environment nor a
file shows it. When the parent ends, also by a crash, the pipe ends, and the gateway shuts down its kernels and itself.
A thread reads the gateway's output, so that the gateway never blocks on a full pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import subprocess
import threading
import time
from collections import deque
from typing import IO, Any

from ..client.fork_safety import atexit_in_this_process
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.client import ExecClient
from ..errors import ExecError, PoliciesInvalid
from .managed_server import ManagedServer, command_of_module

# A gateway with hanging kernels is killed after this time, and its kernels end with it.
_STOP_SECONDS = 10.0
# The end of the output is enough for an error message.
_KEPT_LINES = 40


class LocalJupyterServer(ManagedServer):
    """Runs a Kernel Gateway with ``exec/v1`` on this machine. Also a context manager.

    Parameters
    ----------
    ip : str
        The address to listen on.
    port : int, optional
        The port; by default a free one.
    token : str, GenerateToken or None
        The token to demand; by default a new one. None is for no token, which the gateway accepts on a loopback
        address only.
    log_file : str
        Path of the gateway's log.
    log_level : str
        Least severe level that is logged, such as ``"INFO"``.
    log_max_bytes : int
        Size in bytes at which the log file is rotated.
    log_backup_count : int
        Number of rotated log files to keep.
    startup_timeout_seconds : float
        Timeout of the gateway's start in seconds.
    pool_size : int, optional
        Number of kernels that are kept ready for the next sessions; by default one. Set 0 for a single session.

    Raises
    ------
    ValueError
        If the gateway does not start, with its last lines of output.
    PoliciesInvalid
        If the policies in the user's configuration have a mistake.

    Examples
    --------
    ::

        with LocalJupyterServer() as server, JupyterCodeExecutor(server) as executor:
            print(executor.execute_code_blocks([CodeBlock("1 + 1", "python")]).output)
    """

    class GenerateToken:
        """Stands for a new random token."""

    def __init__(
        self,
        ip: str = "127.0.0.1",
        port: int | None = None,
        token: str | GenerateToken | None = GenerateToken(),  # noqa: B008  # AutoGen's signature
        log_file: str = "jupyter_gateway.log",
        log_level: str = "INFO",
        log_max_bytes: int = 1048576,
        log_backup_count: int = 3,
        *,
        startup_timeout_seconds: float = 60.0,
        pool_size: int | None = None,
    ) -> None:
        self.ip = ip
        self.token = secrets.token_hex(32) if isinstance(token, LocalJupyterServer.GenerateToken) else token
        # The gateway itself chooses a free one: one that is chosen here could be taken before it listens.
        self.port = port or 0
        log_file = os.path.abspath(log_file)
        settings = {
            "ip": ip,
            "port": self.port,
            "token": self.token or "",
            "log_file": log_file,
            "log_level": log_level,
            "log_max_bytes": log_max_bytes,
            "log_backup_count": log_backup_count,
            "pool_size": pool_size,
        }
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._listening = threading.Event()
        self._subprocess = self._spawn(settings)
        atexit_in_this_process(self.stop)
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            self._wait_until_ready(startup_timeout_seconds, log_file)
            undo.pop_all()

    def _spawn(self, settings: dict[str, Any]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command_of_module("jupyter_exec_ext.cli.managed_gateway"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # a Ctrl-C in the terminal is for this program, not for the gateway
        )
        assert process.stdin is not None and process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), name="gateway output", daemon=True)
        self._reader.start()
        with contextlib.suppress(BrokenPipeError):  # it has ended already; `_wait_until_ready` raises its output
            process.stdin.write(json.dumps(settings) + "\n")
            process.stdin.flush()
        return process

    def _read(self, output: IO[str]) -> None:
        """Read the gateway's output: take the port from its line, and keep the last lines for an error message."""
        with output:
            for line in output:
                if line.startswith('{"listening":') and not self._listening.is_set():
                    self.port = int(json.loads(line)["listening"])
                    self._listening.set()
                else:
                    self._last_lines.append(line[:2000])

    def _wait_until_ready(self, timeout_seconds: float, log_file: str) -> None:
        deadline = time.monotonic() + timeout_seconds
        while not self._listening.wait(0.05):
            if self._subprocess.poll() is not None:
                self._reader.join(1.0)  # its exit may be seen before its last lines are read
                raise ValueError(
                    f"Jupyter gateway server failed to start with exit code {self._subprocess.returncode}:\n"
                    + "".join(self._last_lines)
                )
            if time.monotonic() > deadline:
                raise ValueError(
                    f"Jupyter gateway server did not start within {timeout_seconds:g} seconds; raise"
                    f" startup_timeout_seconds, or look for the cause in {log_file} or in its last lines:\n"
                    + "".join(self._last_lines)
                )
        with ExecClient(self.connection_info) as client:
            try:
                client.info()
            except PoliciesInvalid:  # it answers, and its message names the file and the field to correct
                raise
            except ExecError as error:
                raise ValueError(f"Jupyter gateway server does not answer: {error}") from error

    def stop(self) -> None:
        """Shut the gateway and its kernels down; calling it again does nothing."""
        atexit.unregister(self.stop)
        process = self._subprocess
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # the gateway stops when its input ends
        try:
            # A gateway that does not listen yet has no kernels to shut down, and is killed.
            process.wait(_STOP_SECONDS if self._listening.is_set() else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join(_STOP_SECONDS)

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Address and token of the gateway."""
        return JupyterConnectionInfo(host=self.ip, use_https=False, port=self.port, token=self.token)

    def get_client(self) -> ExecClient:
        """Return a client of the gateway."""
        return ExecClient(self.connection_info)
