"""AutoGen 0.2's `LocalJupyterServer`: a Kernel Gateway of one's own, for as long as one needs it.

The gateway is a child process. The token reaches it through its standard input, so that neither its command line nor
its environment nor a file shows it. The same pipe tells it when its parent is gone, however the parent ended: the
gateway then shuts down its kernels and itself. Its output is read all the time, so it never blocks on a full pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from ..client.fork_safety import atexit_in_this_process
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.client import ExecClient
from ..errors import ExecError

if TYPE_CHECKING:
    from typing_extensions import Self

_STOP_SECONDS = 10.0
_KEPT_LINES = 40
# Without the current directory among the modules: it is the user's, who may have a `secrets.py` there.
_LAUNCH = """\
import sys
sys.path[:] = [path for path in sys.path if path]
from jupyter_exec_ext.cli.managed_gateway import main
main()
"""


class LocalJupyterServer:
    """Runs a Kernel Gateway with ``exec/v1`` on this machine. Also a context manager.

    Parameters
    ----------
    ip : str
        The address to listen on.
    port : int, optional
        The port; without it, a free one is chosen.
    token : str, GenerateToken or None
        The token to demand. By default a new one is made; None for no token, which the gateway accepts on a loopback
        address alone.
    log_file : str
        Where the gateway logs.
    log_level : str
        Such as ``"INFO"``.
    log_max_bytes, log_backup_count : int
        When the log file is rotated, and how many old ones are kept.
    startup_timeout_seconds : float
        How long the gateway may take until it answers.

    Raises
    ------
    ValueError
        If the gateway does not start, with its last lines of output.
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
    ) -> None:
        self.ip = ip
        self.token = secrets.token_hex(32) if isinstance(token, LocalJupyterServer.GenerateToken) else token
        self.port = port or 0
        settings = {
            "ip": ip,
            "port": self.port,
            "token": self.token or "",
            "log_file": os.path.abspath(log_file),
            "log_level": log_level,
            "log_max_bytes": log_max_bytes,
            "log_backup_count": log_backup_count,
        }
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._listening = threading.Event()
        self._subprocess = self._spawn(settings)
        atexit_in_this_process(self.stop)
        try:
            self._wait_until_ready(time.monotonic() + startup_timeout_seconds)
        except BaseException:
            self.stop()
            raise

    def _spawn(self, settings: dict[str, Any]) -> subprocess.Popen[str]:
        own_group: dict[str, Any] = (
            {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}  # type: ignore[attr-defined]
            if sys.platform == "win32"
            else {"start_new_session": True}
        )
        process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            **own_group,
        )
        assert process.stdin is not None and process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), name="gateway output", daemon=True)
        self._reader.start()
        with contextlib.suppress(BrokenPipeError):  # it died at once; its output says why
            process.stdin.write(json.dumps(settings) + "\n")
            process.stdin.flush()
        return process

    def _read(self, output: IO[str]) -> None:
        """Read what the gateway prints: one line tells the port, the last ones tell why it failed."""
        with output:
            for line in output:
                if line.startswith('{"listening":') and not self._listening.is_set():
                    self.port = int(json.loads(line)["listening"])
                    self._listening.set()
                else:
                    self._last_lines.append(line[:2000])

    def _wait_until_ready(self, deadline: float) -> None:
        while not self._listening.wait(0.05):
            if self._subprocess.poll() is not None:
                self._reader.join(1.0)
                raise ValueError(
                    f"Jupyter gateway server failed to start with exit code {self._subprocess.returncode}:\n"
                    + "".join(self._last_lines)
                )
            if time.monotonic() > deadline:
                raise ValueError("Jupyter gateway server did not start in time:\n" + "".join(self._last_lines))
        with ExecClient(self.connection_info) as client:
            try:
                client.info()
            except ExecError as error:
                raise ValueError(f"Jupyter gateway server does not answer: {error}") from error

    def stop(self) -> None:
        """Shut the gateway and its kernels down; calling it again does nothing."""
        atexit.unregister(self.stop)
        process = self._subprocess
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # the gateway takes this as the order to stop
        try:
            process.wait(_STOP_SECONDS if self._listening.is_set() else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join(_STOP_SECONDS)

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Where the gateway is."""
        return JupyterConnectionInfo(host=self.ip, use_https=False, port=self.port, token=self.token)

    def get_client(self) -> ExecClient:
        """Return a client of the gateway."""
        return ExecClient(self.connection_info)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection_info!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
