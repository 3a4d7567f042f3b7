"""Launch of the egress proxy's process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from .trusted_certificates import TRUST_VARIABLES

_PROGRAM = """\
import sys
sys.path[:] = sys.argv[3:]
from jupyter_exec_ext.isolation.network.proxy_process import main
main()
"""


def start_proxy_process(control: socket.socket) -> subprocess.Popen[bytes]:
    """Start the process with its end of the control connection, and without the server's environment and directory."""
    paths = [path for path in sys.path if os.path.isabs(path)]
    trust = {name: os.environ[name] for name in TRUST_VARIABLES if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _PROGRAM, str(control.fileno()), str(os.getpid()), *paths],
        pass_fds=[control.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={"LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "2", **trust},
        cwd="/",
        start_new_session=True,
    )
