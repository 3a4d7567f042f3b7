"""Fork parent: imports what kernels need, and forks one for each request on its socket.

A program of the kernel's environment, where our package need not be installed. A request is one byte with four
descriptors: standard input, output and error, and a channel. The kernel's environment and connection file come over the
channel, which only the kernel reads: a later kernel could find anything that this process has ever held in memory. It
has one thread, and reports which of its children have ended; `fork_parent` is its other end.

As arguments it takes the descriptor of the socket and, in JSON, `Program`'s ``arguments`` and ``preload`` and,
as ``bounded_output`` and ``defaults``, the files that bound the output of a session's kernel and set its defaults.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import json
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

# Written first into the area that other processes see as a kernel's environment, so that there is room for it.
_FIRST = "JUPYTER_EXEC_SESSION"
#: Keeps room there for the variables that only kernels have.
ROOM = "JUPYTER_EXEC_ROOM"
_INLINE = "module://matplotlib_inline.backend_inline"


class EnvironmentArea:
    """The memory where other processes read this one's environment (``/proc/PID/environ``).

    A kernel's is written over it, so that what a session has started can be found by its mark
    (``marked_processes.py``). To be made before anything changes the environment.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        if sys.platform == "darwin":
            library._NSGetEnviron.restype = ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))
            pointers = library._NSGetEnviron()[0]
        else:
            pointers = ctypes.POINTER(ctypes.c_void_p).in_dll(library, "environ")
        self.start = self.end = pointers[0] or 0
        count = 0
        while pointers[count] == self.end:  # they follow one another, and the list ends with a null
            self.end += len(ctypes.string_at(self.end)) + 1
            count += 1

    def write(self, environment: dict[str, str]) -> None:
        """Write as much of an environment as there is room for."""
        size = self.end - self.start
        text = b""
        for name in sorted(environment, key=lambda name: name != _FIRST):
            item = os.fsencode(f"{name}={environment[name]}") + b"\0"
            if len(text) + len(item) <= size:
                text += item
        ctypes.memmove(self.start, text.ljust(size, b"\0"), size)


def main() -> None:
    """Be a fork parent and, in each of its children, a kernel."""
    area, started_with = EnvironmentArea(), dict(os.environ)
    del sys.path[0]  # the directory of this file
    del os.environ[ROOM]
    control = socket.socket(fileno=int(sys.argv[1]))
    # Programs that imported modules start would otherwise keep the socket open.
    control.set_inheritable(False)
    orders = json.loads(sys.argv[2])
    # Before anything is imported: a file that changes meanwhile has to count as changed.
    stamps = _stamps(_installed())
    notes: list[str] = []
    try:
        kernel = _load_kernel(orders, notes)
        stamps.update(_stamps([*kernel.config_files(), *_files_of(orders["preload"])]))
    except _ThreadsError as error:
        _send_json(control, {"problem": "it starts threads when it is imported", "module": error.module})
        os._exit(1)  # `sys.exit` would wait for the threads that a module has started
    except BaseException as error:  # what a module does when it is imported is up to it
        _send_json(control, {"problem": f"{type(error).__name__}: {error}"})
        os._exit(1)
    # Kernels have to look for modules anew. Forgetting writes to many pages, so it is done before these are shared.
    # Nothing may be imported from now on: what the import system learns would hold in all kernels.
    importlib.invalidate_caches()
    gc.collect()
    # Later collections skip what exists by now. They would write to all of it, in each kernel.
    gc.freeze()
    gc.disable()
    # A kernel that is started gets these from the same imports.
    added = {name: value for name, value in os.environ.items() if name not in started_with}
    _send_json(control, {"stamps": stamps, "notes": notes})
    descriptors = _serve(control)
    # From here on, this is a child.
    channel, told = _enter(descriptors, area, added)
    gc.enable()
    kernel.run(told, channel.send)


def _send_json(control: socket.socket, message: dict[str, Any]) -> None:
    control.sendall(json.dumps(message).encode() + b"\n")


# --- what is imported ---


class _ThreadsError(Exception):
    def __init__(self, module: str) -> None:
        super().__init__(module)
        self.module = module


def _sibling(name: str) -> Any:
    """Import a module that lies beside this one."""
    return _loaded(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py"))


def _loaded(path: str) -> Any:
    """Import a module of a package that need not be installed here."""
    name = os.path.splitext(os.path.basename(path))[0]
    specification = importlib.util.spec_from_file_location(f"_jupyter_exec_forked_{name}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _load_kernel(orders: dict[str, Any], notes: list[str]) -> Any:
    """Import what kernels need, and what they are to find imported; return what makes a kernel of a child."""
    module = _sibling("prepared_kernel")
    _require_one_thread("ipykernel")
    kept = {name: os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "MPLBACKEND")}
    # OpenBLAS makes its threads when it is loaded; the kernel makes them before its first cell.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.setdefault("MPLBACKEND", _INLINE)  # as ipykernel does, before anything can import matplotlib
    for name in orders["preload"]:
        try:
            importlib.import_module(name)
        except ImportError as error:
            notes.append(f"{name} is not imported ahead: {error}")
        _require_one_thread(name)
    if "matplotlib" in sys.modules:
        importlib.import_module("matplotlib_inline.backend_inline")
    for name, value in kept.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    bounded_output, defaults = _loaded(orders["bounded_output"]), _loaded(orders["defaults"])

    def prepare(made: Any) -> None:
        bounded_output.bound_output(made)
        defaults.set_defaults(made, draws_plots=True)

    kernel = module.ForkedKernel(orders["arguments"], prepare)
    _require_one_thread("IPython")
    notes += kernel.notes
    return kernel


def _require_one_thread(imported: str) -> None:
    """Wait until there is one thread; raise `_ThreadsError` if others do not end within a second."""
    give_up_at = time.monotonic() + 1.0  # some modules use a thread for a moment while they are imported
    while _threads() > 1:
        if time.monotonic() > give_up_at:
            raise _ThreadsError(imported)
        time.sleep(0.005)


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


# --- what it depends on ---


def _installed() -> list[str]:
    """Return what changes when packages are installed into this environment, or removed."""
    directories = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    return [*directories, os.path.join(sys.prefix, "pyvenv.cfg"), sys.executable]


def _files_of(modules: list[str]) -> list[str]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in modules)
    return [file for file in files if file]


def _stamps(paths: list[str]) -> dict[str, int]:
    """Return when files and directories were changed last; 0 for those that are not there."""
    stamps = {}
    for path in paths:
        try:
            stamps[path] = os.stat(path).st_mtime_ns
        except OSError:
            stamps[path] = 0
    return stamps


# --- forking ---


def _serve(control: socket.socket) -> list[int]:
    """Fork a child for each request, and report the ends; returns in the children, with a request's descriptors."""
    awake, wake = os.pipe()
    for end in (awake, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It does nothing: `set_wakeup_fd` only reports signals that have a handler.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)  # any byte in the pipe wakes us
    sources = select.poll()  # not `select`: the server that this socket comes from may have thousands of descriptors
    for descriptor in (control.fileno(), awake):
        sources.register(descriptor, select.POLLIN)
    while True:
        readable = {number for number, _ in sources.poll()}
        if awake in readable:
            os.read(awake, 4096)
            for pid, status in _ended():
                _report(control, f"exited {pid} {os.waitstatus_to_exitcode(status)}")
        if control.fileno() not in readable:
            continue
        # One byte a call, or the descriptors of two requests could come together.
        request, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if not request:  # the server is gone, or wants no more kernels from here
            os._exit(0)
        try:
            pid = os.fork()
        except OSError as error:
            _report(control, f"failed {error.errno}")
        else:
            if pid == 0:
                signal.set_wakeup_fd(-1)
                # Detached: the socket object would later close its number, which is another descriptor's by then.
                for descriptor in (awake, wake, control.detach()):
                    os.close(descriptor)
                return descriptors
            _report(control, f"forked {pid}")
        for descriptor in descriptors:
            os.close(descriptor)


def _ended() -> Iterator[tuple[int, int]]:
    """Yield the children that have ended, with what the system says of how."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _report(control: socket.socket, line: str) -> None:
    try:
        control.sendall(f"{line}\n".encode())
    except OSError:  # the server is gone
        os._exit(0)


# --- what a child makes of itself ---


def _enter(
    descriptors: list[int], area: EnvironmentArea, added: dict[str, str]
) -> tuple[socket.socket, dict[str, Any]]:
    """Become a process of its own; return the channel and what it says."""
    os.setsid()  # Jupyter sends interrupts to the process group
    *standard, number = descriptors
    for target, descriptor in enumerate(standard):
        os.dup2(descriptor, target)
        os.close(descriptor)
    for name in ("SIGINT", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel = socket.socket(fileno=number)
    channel.set_inheritable(False)
    with channel.makefile("rb") as said:
        line = said.readline()
    if not line.endswith(b"\n"):  # the server has closed the channel already
        os._exit(0)
    told: dict[str, Any] = json.loads(line)
    os.environ.clear()
    os.environ.update({**added, **told["environment"]})
    area.write(told["environment"])
    time.tzset()  # the C library keeps the `TZ` that it has read
    os.chdir(told["directory"])
    _reseed_random_generators()
    if not told["independent"]:
        _end_with(channel)
    return channel, told


def _end_with(channel: socket.socket) -> None:
    """End this process when the other end of the channel is closed."""

    def watch() -> None:
        try:
            channel.recv(1)
        finally:
            os._exit(1)

    thread: Any = threading.Thread(target=watch, name="ParentPoller", daemon=True)
    # As ipykernel marks its own threads, so that the debugger leaves them alone.
    thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
    thread.start()


def _reseed_random_generators() -> None:
    """Seed generators anew, so that no two kernels draw the same numbers; `uuid` takes the system's."""
    # The parent has seeded it when it imported `random`.
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        # `tempfile` keeps the directory that it has found in the parent.
        tempfile.tempdir = tempfile._name_sequence = None


if __name__ == "__main__":
    main()
