"""Gateway process that ends with the process that started it; run by `LocalJupyterServer`.

The first line of standard input has the settings as JSON, including the token. The gateway stops when the input ends,
or when its parent process changes. It prints one line with its port.

In a container of `DockerJupyterServer` it logs to standard error, and a setting lets it outlive its input.
"""

from __future__ import annotations

import ctypes
import json
import logging.handlers
import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from traitlets.config import Config

from .gateway_app import ExecGatewayApp, launch

_LOOK_SECONDS = 1.0
# Shorter than the 10 seconds after which `LocalJupyterServer` kills this process.
_STOP_SECONDS = 8.0
_PR_SET_DUMPABLE = 4


def _has_lost_parent(parent: int) -> bool:
    """Wait a while and return whether the parent has ended; its forked children may hold the pipe open."""
    if os.name != "posix":  # on Windows `select` takes sockets only
        return not sys.stdin.read(1)
    readable, _, _ = select.select([sys.stdin], [], [], _LOOK_SECONDS)
    return (bool(readable) and not sys.stdin.read(1)) or os.getppid() != parent


def _stop_with_parent(app: ExecGatewayApp, parent: int) -> None:
    while not _has_lost_parent(parent):
        pass
    app.stop_soon()
    # This thread is a daemon, so the process ends during the sleep if it stops in time.
    time.sleep(_STOP_SECONDS)
    os._exit(1)  # it did not stop in time; its kernels end with it


def _log_to_file(app: ExecGatewayApp, settings: dict[str, Any]) -> None:
    handler = logging.handlers.RotatingFileHandler(
        settings["log_file"],
        maxBytes=settings["log_max_bytes"],
        backupCount=settings["log_backup_count"],
        encoding="utf-8",
    )
    handler.setLevel(settings["log_level"])
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for logger in (app.log, logging.getLogger()):
        logger.addHandler(handler)


def _hide_memory() -> None:
    """Keep other processes of the user, such as kernels, from reading the token in this one's memory (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def configuration(settings: Mapping[str, Any]) -> Config:
    """Return the gateway's configuration for the settings of `LocalJupyterServer`."""
    # Not as command-line options, which every user of the machine can read.
    config = Config()
    config.KernelGatewayApp.ip = settings["ip"]
    config.KernelGatewayApp.port = settings["port"]
    config.KernelGatewayApp.auth_token = settings["token"]
    config.KernelGatewayApp.log_level = settings["log_level"]
    config.JupyterWebsocketPersonality.list_kernels = True
    config.ExecEngine.caller_env = ["*"]
    # AutoGen's users expect that code works in the directory in which the server was started.
    config.ExecEngine.session_directories = False
    config.ExecPersonality.allowed_hosts = settings.get("allowed_hosts", [])
    if settings.get("pool_size") is not None:
        config.ExecEngine.pool_size = settings["pool_size"]
    if settings.get("inherited_env"):
        config.KernelGatewayApp.env_process_whitelist = settings["inherited_env"]
    return config


def main() -> None:
    """Read the settings and run."""
    parent = os.getppid()
    _hide_memory()
    # After `_hide_memory`, since this line has the token.
    settings = json.loads(sys.stdin.readline() or "{}")

    def on_listening(app: ExecGatewayApp) -> None:
        if "log_file" in settings:
            _log_to_file(app, settings)
        if not settings.get("outlives_input"):
            threading.Thread(target=_stop_with_parent, args=(app, parent), daemon=True).start()
        # Last, since the parent uses the gateway as soon as it has read this line.
        print(json.dumps({"listening": app.port}), flush=True)

    launch([], configuration(settings), on_listening)


if __name__ == "__main__":
    main()
