"""Hindrances of checkpoints: things of a process that a fork does not have, such as threads, by kind and name.

A fork takes memory and open files along. It leaves behind threads, child processes, connections and what a graphics
processor holds. Objects that count on them would fail later, or wait for ever; so they are found and named before.

``protocol/kernel_checkpoint_messages.py`` sends this source to kernels; see ``checkpoint.py``. Linux alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import stat
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

# Threads of ipykernel, IPython and this package, which a new kernel starts anew.
_KERNEL_THREADS = ("IOPub", "Control", "Shell channel", "Heartbeat", "IPythonHistorySavingThread", "ParentPoller")
_KERNEL_PACKAGES = ("ipykernel", "tornado", "zmq", "jupyter_client", "IPython")
# ZeroMQ names its threads so.
_KERNEL_TASKS = "ZMQbg"
_OPENMP = ("libgomp", "libomp", "libiomp5")
_PAUSE_SOFT = 1  # `omp_pause_soft`: OpenMP's threads end, and are started again when they are needed
_OPENBLAS_COUNTS = [f"{prefix}openblas_get_num_threads{end}" for prefix in ("", "scipy_") for end in ("", "64_", "_64")]
_SQLITE_START = b"SQLite format 3\0"
# Maps of memory that are no data of code: locks of `multiprocessing`, which tqdm has, too, and indexes of databases.
_LOCKS, _INDEX = "/dev/shm/sem.", "-shm"  # noqa: S108  # nothing is written there
_WITHOUT_A_FILE = "/dev/zero"
_MAX_NAME = 100
_SETTLE_SECONDS, _LOOK_SECONDS = 0.1, 0.005


def find(kernel: Any) -> list[tuple[str, str]]:
    """Return what cannot be taken along, as pairs of a kind and a name.

    Parameters
    ----------
    kernel : ipykernel.ipkernel.IPythonKernel
    """
    libraries = _libraries()
    found = [("thread", name) for name in _threads(kernel)]
    if not found:  # those of code may be native ones, too, in the count
        found += [("native threads", name) for name in _native_threads(libraries)]
    found += [("child process", name) for name in _children()]
    found += [("connection", name) for name in _connections(kernel)]
    found += [("pipe", name) for name in _pipes(kernel)]
    found += [("database", name) for name in _databases(kernel)]
    found += [("shared memory", name) for name in _shared_memory()]
    found += [("asyncio task", name) for name in _tasks()]
    found += [("timer", name) for name in _timers()]
    if any("libcuda" in path for path in libraries):
        found.append(("graphics processor", "CUDA is in use"))
    return [(kind, name[:_MAX_NAME]) for kind, name in found]


# --- threads ---


def _threads(kernel: Any) -> Iterator[str]:
    """Yield the names of threads that run something of the user's."""
    idle = {id(thread) for executor in _executors() if _is_idle(executor) for thread in executor._threads}
    watching = {id(getattr(stream, "watch_fd_thread", None)) for stream in _streams(kernel)}
    for thread in threading.enumerate():
        if thread is threading.main_thread() or id(thread) in idle | watching:
            continue
        kind = type(thread).__module__.partition(".")[0]
        if thread.name in _KERNEL_THREADS or kind in _KERNEL_PACKAGES:
            continue
        yield thread.name


def _streams(kernel: Any) -> list[Any]:
    return [sys.stdout, sys.stderr, getattr(kernel, "_stdout", None), getattr(kernel, "_stderr", None)]


def _executors() -> list[Any]:
    """Return the thread pools of ``concurrent.futures`` that have threads, those of asyncio among them."""
    pools: Any = sys.modules.get("concurrent.futures.thread")
    found = {}
    for thread in list(getattr(pools, "_threads_queues", ())):
        for argument in getattr(thread, "_args", ()) or ():
            executor = argument() if isinstance(argument, weakref.ref) else None
            if isinstance(executor, pools.ThreadPoolExecutor):
                found[id(executor)] = executor
    return list(found.values())


def _is_idle(executor: Any) -> bool:
    """Return whether all threads of a pool wait for work: then each is in the pool's own function."""
    frames = sys._current_frames()
    waiting = [getattr(frames.get(thread.ident), "f_code", None) for thread in executor._threads]
    return bool(
        executor._work_queue.empty() and all(code is not None and code.co_name == "_worker" for code in waiting)
    )


def revive_pools() -> None:
    """Have pools start threads anew, in a process that has none of those that they count on."""
    pools: Any = sys.modules.get("concurrent.futures.thread")
    if pools is None:
        return
    for executor in _dead_executors:
        executor._threads.clear()
        executor._idle_semaphore = threading.Semaphore(0)
    pools._threads_queues.clear()


_dead_executors: list[Any] = []


def note_pools() -> None:
    """Note the pools that have threads, before the process is forked."""
    _dead_executors[:] = _executors()


def _native_threads(libraries: set[str]) -> Iterator[str]:
    """Yield a name for threads that are neither Python's nor of a library that starts them again by itself."""
    _pause_openmp(libraries)
    expected = sum(_openblas_threads(libraries))
    give_up_at = time.monotonic() + _SETTLE_SECONDS  # threads begin without a name, and end in their own time
    while (others := _count_native_threads()) > expected and time.monotonic() < give_up_at:
        time.sleep(_LOOK_SECONDS)
    if others > expected:
        native = sorted({os.path.basename(path).partition(".")[0] for path in libraries if _may_have_threads(path)})
        yield f"{others - expected} of {', '.join(native) or 'a library'}"


def _count_native_threads() -> int:
    # After a fork, older versions of Python have another process's number for the main thread.
    known = {os.getpid(), *(thread.native_id for thread in threading.enumerate())}
    others = 0
    for number in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{number}/comm", encoding="utf-8") as file:
            others += int(number) not in known and not file.read().startswith(_KERNEL_TASKS)
    return others


def _pause_openmp(libraries: set[str]) -> None:
    for path in libraries:
        if os.path.basename(path).startswith(_OPENMP):
            with contextlib.suppress(OSError, AttributeError):  # a version before OpenMP 5
                ctypes.CDLL(path).omp_pause_resource_all(_PAUSE_SOFT)


def _openblas_threads(libraries: set[str]) -> Iterator[int]:
    """Yield how many threads each OpenBLAS may have, which ends them before a fork and starts them again after it."""
    for path in libraries:
        if "openblas" in path:
            library = ctypes.CDLL(path)
            counts = (getattr(library, name, None) for name in _OPENBLAS_COUNTS)
            yield next((int(count()) for count in counts if count is not None), 0)


def _may_have_threads(path: str) -> bool:
    return os.path.basename(path).startswith((*_OPENMP, "libmkl", "libtorch", "libtbb", "libarrow", "libduckdb"))


def _libraries() -> set[str]:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if ".so" in line}
    return {path for path in paths if path.startswith("/")}


# --- processes, connections, databases and tasks ---


def _children() -> Iterator[str]:
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="utf-8") as file:
            for pid in file.read().split():
                name = _name_of(pid)
                if name is not None:
                    yield f"{name} (process {pid})"


def _name_of(pid: str) -> str | None:
    """Return what a process runs; None for one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")  # a name may have brackets
    except OSError:
        return None
    return None if rest.split()[0] in "ZX" else name


def _connections(kernel: Any) -> Iterator[str]:
    """Yield the addresses of sockets that are none of the kernel's own."""
    own = _own_addresses(kernel)
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            if not stat.S_ISSOCK(os.fstat(int(descriptor)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(descriptor))) as copy:
                address = _address_of(copy, own)
            if address:
                yield address


def descriptors_of_clients(kernel: Any) -> set[int]:
    """Return the descriptors by which the kernel's clients are connected."""
    own, found = _own_addresses(kernel), set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            if stat.S_ISSOCK(os.fstat(int(descriptor)).st_mode):
                with socket.socket(fileno=os.dup(int(descriptor))) as copy:
                    here = copy.getsockname() if copy.family in (socket.AF_UNIX, socket.AF_INET) else None
                if (here[1] if isinstance(here, tuple) else here) in own:
                    found.add(int(descriptor))
    return found


def _address_of(copy: socket.socket, own: set[Any]) -> str:
    """Return where a socket of the user's leads to or listens; nothing for one of the kernel's, or of a pair."""
    if copy.family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        return ""
    here = copy.getsockname()
    try:
        there = copy.getpeername()
    except OSError:
        there = ""
    if copy.family == socket.AF_UNIX:
        named = [str(name) for name in (there, here) if name]
        return "" if not named or own.intersection(named) else named[0]
    if {here[1], there[1] if there else 0} & own:
        return ""
    return f"{there[0]}:{there[1]}" if there else f"listening at {here[0]}:{here[1]}"


def _own_addresses(kernel: Any) -> set[Any]:
    """Return the ports and paths of the kernel's own sockets."""
    application = kernel.parent
    ports = {getattr(application, name, 0) for name in ("shell_port", "iopub_port", "stdin_port", "control_port")}
    ports |= {getattr(application, "hb_port", 0), getattr(kernel.iopub_thread, "_pipe_port", 0)}
    paths = {f"{application.ip}-{port}" for port in ports} if application.transport == "ipc" else set()
    return (ports - {0}) | paths


def _pipes(kernel: Any) -> Iterator[str]:
    """Yield the descriptors of pipes that are none of those by which ipykernel reads what is printed."""
    numbers = [0, 1, 2]
    for stream in _streams(kernel):
        numbers += [getattr(stream, name, None) or 0 for name in ("_fid", "_original_stdstream_copy")]
    own = set()
    for number in numbers:
        with contextlib.suppress(OSError):
            own.add(os.fstat(number).st_ino)
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found = os.fstat(int(descriptor))
            if stat.S_ISFIFO(found.st_mode) and found.st_ino not in own:
                yield f"descriptor {descriptor}"


def _databases(kernel: Any) -> Iterator[str]:
    history = str(getattr(kernel.shell.history_manager, "hist_file", ""))
    others = ("/dev/", history) if history else ("/dev/",)
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if not path.startswith("/") or path.startswith(others):
                continue
            # By the descriptor that there is: to close another one would end SQLite's locks on the file.
            if os.pread(int(descriptor), len(_SQLITE_START), 0) == _SQLITE_START:
                yield path


def _shared_memory() -> Iterator[str]:
    """Yield the names of memory that a fork shares for good: what one process writes, the others have at once."""
    names = set()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if "w" in fields[1] and "s" in fields[1]:
                names.add(fields[5].strip().removesuffix(" (deleted)"))
    for name in sorted(names):
        if not name.startswith(_LOCKS) and not name.endswith(_INDEX):
            yield "a map without a file" if name == _WITHOUT_A_FILE else name


def _timers() -> Iterator[str]:
    """Yield the names of interval timers that run."""
    for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):
        seconds, _ = signal.getitimer(getattr(signal, name))
        if seconds:
            yield f"{name}, of `signal.setitimer` or `signal.alarm`"


def _tasks() -> Iterator[str]:
    """Yield the names of tasks that none of Jupyter's packages has started."""
    for task in asyncio.all_tasks():
        code: Any = getattr(task.get_coro(), "cr_code", None)
        parts = str(getattr(code, "co_filename", "")).split(os.sep)
        if not task.done() and not set(parts).intersection(_KERNEL_PACKAGES):
            yield f"{task.get_name()} ({getattr(code, 'co_qualname', getattr(code, 'co_name', '?'))})"
