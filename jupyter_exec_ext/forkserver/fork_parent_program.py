"""Program of a fork parent: imports what kernels need, and forks one for each request on its socket.

A program of the kernel's environment, where our package need not be installed. It has one thread. `fork_requests` has
the requests, and `fork_parent` is their other end.

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
import socket
import sys
import threading
import time
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
        requests = _sibling("fork_requests")
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
    descriptors = requests.serve(control)
    # From here on, this is a child.
    channel, told = requests.enter(descriptors)
    _take_on(told, area, added)
    requests.reseed_random_generators()
    if not told["independent"]:
        requests.end_with(channel)
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


# --- what a child makes of itself ---


def _take_on(told: dict[str, Any], area: EnvironmentArea, added: dict[str, str]) -> None:
    """Give this process the environment and directory of a kernel."""
    os.environ.clear()
    os.environ.update({**added, **told["environment"]})
    area.write(told["environment"])
    time.tzset()  # the C library keeps the `TZ` that it has read
    os.chdir(told["directory"])


if __name__ == "__main__":
    main()
