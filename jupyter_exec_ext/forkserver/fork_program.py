"""The fork parent: a program of the kernel's environment, where our package need not be installed.

It imports what a kernel needs, and then forks a kernel for each byte that comes over its socket with four descriptors:
standard input, output and error, and a channel. What the kernel is to be told, its environment and its connection file,
comes over the channel, which only the kernel reads: a later kernel could find anything that this process has ever held
in memory. Where nothing is asked for, it forks a child ahead, for the next one who asks. It has one thread, and reports
which of its children have ended.

As arguments it takes the descriptor of the socket and, in JSON, `Program`'s ``arguments`` and ``preload`` and,
as ``bounded_output`` and ``defaults``, the files that bound the output of a session's kernel and set its defaults.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import io
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

# So long after a request another child is forked ahead.
_QUIET_SECONDS = 0.1
# What is written first into the area that other processes see as a kernel's environment.
_FIRST = "JUPYTER_EXEC_SESSION"
#: Keeps room there for the variables that only kernels have.
ROOM = "JUPYTER_EXEC_ROOM"
_INLINE = "module://matplotlib_inline.backend_inline"


class Area:
    """Where other processes see this one's environment, which is always what it was started with.

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
    area, started_with = Area(), dict(os.environ)
    del sys.path[0]  # the directory of this file
    del os.environ[ROOM]
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    orders = json.loads(sys.argv[2])
    # Before anything is imported: what is changed meanwhile shall count as changed.
    stamps = _stamps(_installed())
    notes: list[str] = []
    try:
        kernel = _load_kernel(orders, notes)
        stamps.update(_stamps([*kernel.config_files(), *_files_of(orders["preload"])]))
    except _ThreadsError as error:
        _say(control, {"problem": "it starts threads when it is imported", "module": error.module})
        os._exit(1)
    except BaseException as error:  # what a module does when it is imported is up to it
        _say(control, {"problem": f"{type(error).__name__}: {error}"})
        os._exit(1)
    pages = _sibling("written_pages")
    # Kernels shall look for modules anew. That writes all over the memory: here, while nobody shares it. From now on
    # nothing is imported any more, or what the import system learns by it would hold in all kernels.
    importlib.invalidate_caches()
    gc.collect()
    gc.freeze()
    gc.disable()
    added = {name: value for name, value in os.environ.items() if name not in started_with}
    written = pages.WrittenPages()
    _say(control, {"stamps": stamps, "notes": notes})
    descriptors = _serve(control, written.copy)
    # From here on, this is a child.
    channel, told = _enter(descriptors, area, added)
    gc.enable()
    kernel.run(told, channel.send, written.learn)


def _say(control: socket.socket, what: dict[str, Any]) -> None:
    control.sendall(json.dumps(what).encode() + b"\n")


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
        _draw_ahead(notes)
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


def _draw_ahead(notes: list[str]) -> None:
    """Draw a figure that nobody sees, so that kernels find looked up and cached what their first one takes.

    It is none of pyplot's, which would make it the current one, and choose a backend.
    """
    try:
        figure = importlib.import_module("matplotlib.figure").Figure()
        figure.subplots().plot([0, 1])
        figure.savefig(io.BytesIO(), format="png")
    except Exception as error:  # whatever is the matter with its configuration is for who draws to see
        notes.append(f"nothing is drawn ahead: {type(error).__name__}: {error}")
    _require_one_thread("matplotlib")


def _require_one_thread(imported: str) -> None:
    """See to it that there is one thread, now or when those that are about to end have ended."""
    give_up_at = time.monotonic() + 1.0
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


class _Ahead:
    """A child that was forked before anybody has asked for one, and waits for that.

    It has been told nothing, and has done nothing but have memory copied that it is going to write to.
    """

    def __init__(self) -> None:
        self.pid = 0
        self._ours, self._theirs = socket.socketpair()

    def give(self, descriptors: list[int]) -> bool:
        """Give it what came with a request; return whether it was there to take it."""
        try:
            socket.send_fds(self._ours, [b"f"], descriptors)
        except OSError:  # somebody has ended it
            return False
        finally:
            self._ours.close()
        return True

    def forked(self, pid: int) -> None:
        """Go on as the parent."""
        self.pid = pid
        self._theirs.close()

    def take(self) -> list[int]:
        """Wait for a request, in the child, and return its descriptors."""
        self._ours.close()
        request, descriptors, _, _ = socket.recv_fds(self._theirs, 1, 4)
        if not request:  # there is none to come
            os._exit(0)
        self._theirs.close()
        return descriptors

    def close(self) -> None:
        """Let go of it, with which it ends."""
        self._ours.close()


def _serve(control: socket.socket, prepare: Callable[[], object]) -> list[int]:
    """Fork a child for each request, and report the ends; returns in the children, with a request's descriptors."""
    awake, wake = os.pipe()
    for end in (awake, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def be_child() -> None:
        signal.set_wakeup_fd(-1)
        for descriptor in (awake, wake, control.detach()):
            os.close(descriptor)

    ahead: _Ahead | None = None
    kernels: set[int] = set()
    wanted = True  # one for each request, so that nothing is forked again and again that cannot live
    sources = select.poll()  # not `select`: the server that this socket comes from may have thousands of descriptors
    for descriptor in (control.fileno(), awake):
        sources.register(descriptor, select.POLLIN)
    while True:
        readable = {number for number, _ in sources.poll(_QUIET_SECONDS * 1000 if wanted else None)}
        if awake in readable:
            os.read(awake, 4096)
            for pid, status in _ended():
                if ahead is not None and pid == ahead.pid:
                    ahead.close()
                    ahead = None
                elif pid in kernels:  # and not one that had ended before a request could be given to it
                    kernels.remove(pid)
                    _tell(control, f"exited {pid} {os.waitstatus_to_exitcode(status)}")
        if not readable:
            wanted, ahead = False, _fork_ahead()
            if ahead is not None and ahead.pid == 0:
                be_child()
                prepare()
                return ahead.take()
        if control.fileno() not in readable:
            continue
        request, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if not request:  # the server is gone, or wants no more kernels from here
            os._exit(0)
        wanted, chosen, ahead = True, ahead, None
        try:
            pid = chosen.pid if chosen is not None and chosen.give(descriptors) else os.fork()
        except OSError as error:
            _tell(control, f"failed {error.errno}")
        else:
            if pid == 0:
                be_child()
                return descriptors
            kernels.add(pid)
            _tell(control, f"forked {pid}")
        for descriptor in descriptors:
            os.close(descriptor)


def _fork_ahead() -> _Ahead | None:
    """Fork a child that waits; its `pid` is 0 in itself. None if there can be no further process."""
    ahead = _Ahead()
    try:
        pid = os.fork()
    except OSError:
        ahead.close()
        return None
    if pid:
        ahead.forked(pid)
    return ahead


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


def _tell(control: socket.socket, line: str) -> None:
    try:
        control.sendall(f"{line}\n".encode())
    except OSError:  # the server is gone
        os._exit(0)


# --- what a child makes of itself ---


def _enter(descriptors: list[int], area: Area, added: dict[str, str]) -> tuple[socket.socket, dict[str, Any]]:
    """Become a process of its own; return the channel and what it says."""
    os.setsid()
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
    if not line.endswith(b"\n"):  # nobody waits for this kernel any more
        os._exit(0)
    told: dict[str, Any] = json.loads(line)
    os.environ.clear()
    os.environ.update({**added, **told["environment"]})
    area.write(told["environment"])
    time.tzset()
    os.chdir(told["directory"])
    _forget_what_was_random()
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

    thread = threading.Thread(target=watch, name="ParentPoller", daemon=True)
    # As ipykernel says of its own threads.
    thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]
    thread.start()


def _forget_what_was_random() -> None:
    """Let nothing be the same in two kernels that is drawn by lot; `random` and `uuid` see to that by themselves."""
    import random

    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = tempfile._name_sequence = None


if __name__ == "__main__":
    main()
