"""A real server for hostile kernels, with what is measured of it while they run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import psutil

from tests.support.bearers import UNPROTECTED
from tests.support.hosts import Host, running_host

from .corpus import KINDS

if TYPE_CHECKING:
    from typing_extensions import Self

MIB = 1024 * 1024
#: What is allowed of each figure; `docs/contributing/faults.md` names them.
MAX_STOP_SECONDS = 15.0
MAX_LOG_BYTES = 100_000
MAX_STORE_BYTES = 64 * MIB
MAX_KERNEL_BYTES = (128 + 64) * MIB  # of the server's memory, for each hostile kernel
WATCHDOG_SECONDS = 10.0

_ABOUT_A_SESSION = re.compile(
    rb"^\[I [^\]]+\] (Kernel (started|shutdown|restarted|interrupted): [0-9a-f-]{36}$"
    rb"|session ses_[0-9a-f]+: kernel [0-9a-f-]{36} )"
)
_SAMPLE_SECONDS = 0.05
_MANY = 1_000_000
_HOSTILE = {
    "base": "restricted",
    "max_executions_per_minute": _MANY,
    "max_sessions": 3,
    "max_memory_bytes": 3 * 512 * MIB,
    "max_session_seconds": None,
    "max_open_executions": 50,
}


@dataclass(frozen=True)
class Limits:
    """Times that hostile runs are given.

    Parameters
    ----------
    run_seconds, grace_seconds : float
        The time limit of a run, and how long it may take to end after that.
    flood_seconds : float
        How long a trick goes on that repeats something.
    """

    run_seconds: float = 2.0
    grace_seconds: float = 0.5
    flood_seconds: float = 0.6

    @property
    def most_seconds(self) -> float:
        """The time at which a run must have ended, whatever it does."""
        return self.run_seconds + self.grace_seconds + WATCHDOG_SECONDS


def policy_of(kind: str) -> str:
    """Return the name of the policy of hostile tokens with a kind of kernel."""
    return f"hostile-{kind}"


@contextmanager
def running_server(home: Path, limits: Limits, token: str) -> Iterator[Host]:
    """Start a server with the owner's token on a directory, which may be an earlier one's; stop it at the end."""
    policies: dict[str, object] = {policy_of(kind): {**_HOSTILE, "isolation": kind} for kind in KINDS}
    policies["other"] = {
        "max_executions_per_minute": _MANY,
        "max_open_executions": 100,
        "max_sessions": 20,
        "max_session_seconds": None,
        "max_stored_bytes": MAX_STORE_BYTES // 2,  # that its records stay is looked at, and it has thousands
    }
    options: dict[str, object] = {
        "ExecEngine.interrupt_grace_seconds": limits.grace_seconds,
        "ExecEngine.policies": policies,
        "ExecStore.max_bytes": MAX_STORE_BYTES,
    }
    options["Application.logging_config"] = _logging_to(log_file(home))
    private = {"TMPDIR": home / "tmp", "XDG_RUNTIME_DIR": home / "x"}
    for directory in private.values():
        directory.mkdir(mode=0o700, exist_ok=True)
    arguments = [UNPROTECTED, *(f"--{name}={value}" for name, value in options.items())]
    environment = {name: str(directory) for name, directory in private.items()}
    with running_host("server", home, *arguments, token=token, env=environment) as host:
        yield host


def log_file(home: Path) -> Path:
    """Return the file with what the server itself logs.

    Kernels without isolation have the server's standard streams, so theirs is in the log of the process, too.
    """
    return home / "own.log"


def _logging_to(path: Path) -> dict[str, object]:
    path.unlink(missing_ok=True)
    handler = {"class": "logging.FileHandler", "filename": str(path), "level": "INFO", "formatter": "console"}
    loggers: dict[str, object] = {name: {"handlers": ["own"]} for name in ("asyncio", "tornado", "concurrent")}
    for name in ("ServerApp", "ExecExtensionApp"):
        loggers[name] = {"level": "INFO", "handlers": ["own", "console"]}
    return {"handlers": {"own": handler}, "loggers": loggers}


def terminate(host: Host) -> float:
    """End a server as the system does, and return how long it took; it is killed if it takes too long."""
    began = time.monotonic()
    host.process.send_signal(signal.SIGTERM)
    try:
        host.process.wait(MAX_STOP_SECONDS + 10)
    except subprocess.TimeoutExpired:
        host.process.kill()
        host.process.wait()
    return time.monotonic() - began


def directory_bytes(directory: Path) -> int:
    """Return how much the files below a directory have on the disk."""
    total = 0
    for parent, directories, files in os.walk(directory):  # pathlib's walk fails where a directory is removed meanwhile
        for name in (*directories, *files):
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total


@dataclass(frozen=True)
class LogSizes:
    """Sizes of a server's log.

    Parameters
    ----------
    session_bytes : int
        Lines about the start and end of sessions and their kernels: a few for each session that a request opens.
    other_bytes : int
        All other lines.
    """

    session_bytes: int
    other_bytes: int


def log_sizes(log: bytes) -> LogSizes:
    """Return what a log has of each kind of line."""
    lines = log.splitlines(keepends=True)
    session_bytes = sum(len(line) for line in lines if _ABOUT_A_SESSION.search(line))
    return LogSizes(session_bytes, len(log) - session_bytes)


class Gauge:
    """The most memory and disk that a server takes, for the time of the ``with``.

    Attributes
    ----------
    memory_before_bytes, memory_most_bytes, store_most_bytes : int
        Memory of the server's process, and what its store has on the disk.
    """

    def __init__(self, host: Host) -> None:
        self._process = psutil.Process(host.pid)
        self._store = host.home / "jupyter_data_dir" / "jupyter_exec_ext" / "logs"
        self.memory_before_bytes = self.memory_most_bytes = self._process.memory_info().rss
        self.store_most_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _watch(self) -> None:
        number = 0
        while not self._over.wait(_SAMPLE_SECONDS):
            try:
                self.memory_most_bytes = max(self.memory_most_bytes, self._process.memory_info().rss)
            except psutil.NoSuchProcess:
                return
            if number % 20 == 0:
                self.measure_store()
            number += 1

    def measure_store(self) -> None:
        """Look at the store's size now."""
        self.store_most_bytes = max(self.store_most_bytes, directory_bytes(self._store))

    @property
    def growth_bytes(self) -> int:
        """By how much the server's memory has grown at the most."""
        return self.memory_most_bytes - self.memory_before_bytes

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
