"""An IPython kernel of which as much as possible is there before the fork; loaded by ``fork_parent_program.py``.

What reads nothing but configuration is made by the parent: the application and the interactive shell. What has sockets,
threads, files or keys is made by the child, by ipykernel's own code.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

import zmq
from ipykernel.compiler import XCachingCompiler
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.application import BaseIPythonApplication

ipkernel: Any = importlib.import_module("ipykernel.ipkernel")
IPythonKernel = ipkernel.IPythonKernel
# Modules that a kernel imports when it begins, and with its first cells. Some versions do without some of them.
_LATER = (
    *("ipykernel.debugger", "tornado.locks", "tornado.platform.asyncio", "tornado.queues", "sqlite3", "faulthandler"),
    *("IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect", "IPython.core.completerlib"),
    *("IPython.extensions.storemagic", "IPython.core.magics.execution", "IPython.core.magics.ast_mod"),
    *("IPython.core._dunder_ops", "IPython.core.guarded_eval", "IPython.core.magic_arguments"),
    *("IPython.utils.module_paths", "IPython.utils.timing", "IPython.utils.wildcard", "psutil", "resource", "pwd"),
    *("encodings.ascii", "encodings.idna", "encodings.latin_1", "stack_data", "executing", "difflib", "mimetypes"),
    *("pygments.formatters.html", "pygments.formatters.terminal256", "pygments.lexers.python"),
    *("pygments.styles.default", "pexpect", "pydoc", "timeit", "concurrent.futures.thread"),
)
# Bytes that a kernel sends when its sockets are bound. The second means that it also waits for its readers.
_BOUND, _WAITS = b"b", b"w"
_OPENBLAS = [f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")]


class _Configured(BaseIPythonApplication):
    """Comes after ipykernel's application in the order of its bases, and reads the configuration once."""

    configured = False

    def initialize(self, argv: Any = None) -> None:
        """Read the command line and the configuration, unless that is done."""
        if not self.configured:
            base: Any = super()  # it has no types
            base.initialize(argv)
            self.configured = True


class _Module:
    """A module's file, without the module."""

    def __init__(self, file: str) -> None:
        self.__file__ = file


class _Modules:
    """Stands for `sys` while a kernel notes the files of all modules, for its debugger.

    To look at a module writes to the memory that it is in, which then is no longer shared with other kernels: megabytes
    for all of them. What is looked at here is in a few pages.
    """

    def __init__(self) -> None:
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        self.modules = {number: _Module("".join(file)) for number, file in enumerate(files) if isinstance(file, str)}

    def __getattr__(self, name: str) -> Any:
        """Return what else there is in `sys`."""
        return getattr(sys, name)


class _Application(IPKernelApp, _Configured):
    """ipykernel's, for a process whose parent is not the server."""

    name = "ipython-kernel"
    announce: Callable[[bytes], object]
    made_shell: Any = None
    max_unsent_messages = 0
    files_of_modules: Any = sys

    def init_poller(self) -> None:
        """Leave it to the channel to tell that the server is gone."""

    def write_connection_file(self, **kwargs: Any) -> None:
        """Say that all sockets are bound, too."""
        super().write_connection_file(**kwargs)
        # A session's kernel announces itself later, when it begins to answer.
        if not self.max_unsent_messages:
            self.announce(_BOUND)

    def _try_bind_socket(self, s: Any, port: int) -> int:
        """Let the socket for output wait for its readers, if that is wanted; later would be too late."""
        if self.max_unsent_messages and s.type in (zmq.PUB, zmq.XPUB):
            s.setsockopt(zmq.XPUB_NODROP, 1)
            s.setsockopt(zmq.SNDHWM, self.max_unsent_messages)
        base: Any = super()
        return int(base._try_bind_socket(s, port))

    def init_kernel(self) -> None:
        """Make the kernel around the shell that was made before."""
        shell = self.made_shell
        if shell is not None:
            _renew(shell)
        base: Any = super()
        ipkernel.sys = self.files_of_modules
        try:
            base.init_kernel()
        finally:
            ipkernel.sys = sys
        if shell is not None:
            shell.parent = shell.kernel = self.kernel


_Application.__name__ = IPKernelApp.__name__  # the name in its log


class ForkedKernel:
    """The parts of a kernel that exist before the fork.

    Parameters
    ----------
    arguments : list of str
        The kernel's command line, without its connection file.
    prepare : callable
        Takes the kernel; bounds its output and sets its defaults (``bounded_output.py``, ``defaults.py``).
    """

    def __init__(self, arguments: list[str], prepare: Callable[[Any], object]) -> None:
        for name in _LATER:
            try:
                importlib.import_module(name)
            except ImportError:
                continue  # these versions do without it
        self._arguments = arguments
        self._prepare = prepare
        self._application = _Application.instance()
        # Not the application's own `initialize`, which also binds the sockets.
        _Configured.initialize(self._application, arguments)
        #: Notes for the log.
        self.notes: list[str] = []
        try:
            self._application.made_shell = _shell(self._application)
        except Exception as error:  # of a version that does something else
            # Each kernel would take the half-made singleton for its shell.
            ZMQInteractiveShell.clear_instance()
            self.notes.append(f"each makes its own shell: {type(error).__name__}: {error}")
        self._application.files_of_modules = _Modules()
        self._blas = _openblas()
        self._launcher = _launcher()
        _gather_names()

    def config_files(self) -> list[str]:
        """Return the files that the configuration comes from, or would come from."""
        names = ("ipython_config", "ipython_kernel_config")
        files = [f"{name}{end}" for name in names for end in (".py", ".json")]
        return [os.path.join(path, file) for path in self._application.config_file_paths for file in files]

    def run(self, told: dict[str, Any], announce: Callable[[bytes], object]) -> None:
        """Be a kernel, in a child; it announces when its sockets are bound or, a session's, when it begins."""
        sys.argv = [self._launcher, *self._arguments, "-f", told["connection_file"]]
        application: Any = self._application
        application.connection_file = told["connection_file"]
        application.parent_handle = int(not told["independent"])  # it only tells whether there is one
        application.announce = announce
        application.max_unsent_messages = told["max_unsent_messages"]
        # It was made when the parent began, and may have been removed since.
        if not os.path.isdir(application.profile_dir.location):
            os.makedirs(application.profile_dir.location, exist_ok=True)
        application.profile_dir.check_dirs()
        application.initialize([])  # the rest of it: the configuration was read by the parent
        self._finish(application.shell)
        if told["max_unsent_messages"]:
            announce(_WAITS if self._sends_our_way() else _BOUND)
        application.start()

    def _sends_our_way(self) -> bool:
        try:
            self._prepare(self._application.kernel)
        except Exception:  # of a version that is made otherwise; the server asks for it later, as of any other kernel
            return False
        return True

    def _finish(self, shell: Any) -> None:
        backend = sys.modules.get("matplotlib_inline.backend_inline")
        if backend is not None:
            # It runs when the backend is imported, but the parent had no shell yet.
            backend._enable_matplotlib_integration()
        if self._blas is not None and shell is not None:
            _with_first_cell(shell, self._blas)


def _shell(application: Any) -> Any:
    """Return a shell for kernels that use the usual one."""
    configured = application.config.get("IPythonKernel", {})
    # A kernel or shell of another class, by configuration, may be made in another way.
    if application.kernel_class is not IPythonKernel or "shell_class" in configured:
        return None
    kind: Any = ZMQInteractiveShell
    # A database and a thread; and what is named after what they hold.
    later = {name: getattr(kind, name) for name in ("init_history", "init_user_ns")}
    for name in later:
        setattr(kind, name, lambda self: None)
    try:
        return kind.instance(
            parent=application,
            profile_dir=application.profile_dir,
            user_module=None,
            user_ns=None,
            compiler_class=XCachingCompiler,
        )
    finally:
        for name, method in later.items():
            setattr(kind, name, method)


def _renew(shell: Any) -> None:
    """Do again what depends on the process: its environment, its directory, its streams; and open the history."""
    shell.starting_dir = os.getcwd()
    shell.init_environment()
    shell.save_sys_module_state()
    shell.init_history()
    # Exit handlers run in reverse order. The shell's writes the history, so it must run before the database is closed.
    atexit.unregister(shell.atexit_operations)
    atexit.register(shell.atexit_operations)
    shell.configurables.insert(1, shell.configurables.pop())  # where it is otherwise
    shell.init_encoding()
    shell.init_user_ns()


def _gather_names() -> None:
    """Put the names of all modules beside one another; a kernel's shell notes them, which writes to each."""
    # Encoding makes a copy; any shorter way returns the same string.
    modules = {name.encode().decode(): module for name, module in sys.modules.items()}
    sys.modules.clear()
    sys.modules.update(modules)


def _launcher() -> str:
    specification = importlib.util.find_spec("ipykernel_launcher")
    return str(specification.origin) if specification is not None else "ipykernel_launcher"


# --- OpenBLAS, whose threads would not outlive a fork ---


def _openblas() -> Callable[[int], object] | None:
    """Return a function that sets the number of OpenBLAS's threads; None if OpenBLAS is not loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split(None, 5)[5].strip() for line in maps if "openblas" in line}
    except OSError:
        return None
    setters = [getattr(ctypes.CDLL(path), name, None) for path in sorted(paths) for name in _OPENBLAS]
    found = [setter for setter in setters if setter is not None]

    def set_all(count: int) -> None:
        for setter in found:
            setter(count)

    return set_all if found else None


def _wanted_threads() -> int:
    # In the order in which OpenBLAS itself looks for them.
    for name in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _with_first_cell(shell: Any, set_threads: Callable[[int], object]) -> None:
    """Make the threads of OpenBLAS when there is something to run: an idle kernel needs none."""

    def begin(*_: Any) -> None:
        shell.events.unregister("pre_run_cell", begin)
        set_threads(_wanted_threads())

    shell.events.register("pre_run_cell", begin)
