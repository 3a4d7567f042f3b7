"""IPython shell for code that runs unattended: exits, shell cells and descriptors as in a script.

IPython is made for a person at a terminal. There ``exit()`` ends the kernel, after the rest of the cell has run, and
``sys.exit()`` is an error with advice on how to exit. A ``%%bash`` cell lasts until all processes that it has started
have closed its output, so one with a server in the background never ends. And ``sys.stdout.fileno()`` is the terminal,
past the pipe by which ipykernel gets what processes write.

Read by ``protocol/kernel_preparation.py``. A kernel's environment need not have our package, and its Python and IPython
may be older.
"""

from __future__ import annotations

import codecs
import functools
import os
import selectors
import shlex
import signal
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

from IPython.core import interactiveshell

if os.name == "posix":
    import fcntl
    import resource
    import termios

_CHUNK_BYTES = 64 * 1024
# As much as a pipe may hold: what a shell wrote before it ended is read, and a flood from the background is not.
_LEFT_BYTES = 1024 * 1024
_GRACE_SECONDS = 0.5
_F_SETPIPE_SZ = 1031  # Linux; not in the module `fcntl` before Python 3.10
_PIPE_BYTES = 1024 * 1024
_YIELD_SECONDS = 0.002
_SCRIPT_CELLS = ("bash", "sh", "script", "perl", "ruby", "python", "python2", "python3", "pypy")
_SHEBANG_OPTIONS = ("--out", "--err", "--bg", "--proc", "--no-raise-error", "--raise-error")


def set_up(shell: Any) -> None:
    """Change a kernel's shell, once."""
    if not isinstance(shell.exiter, EndsCode):
        # The banner of each answer to `kernel_info_request` has a tip, for which IPython draws a number from the
        # generator of the code: what code draws after `random.seed` would depend on how often its kernel was asked.
        shell.enable_tip = False
        _end_code_on_exit(shell)
        if os.name == "posix":
            _end_cells_with_their_shell(shell)
            _publish_output_by_descriptor(shell)


# --- exit(), quit(), sys.exit() ---


class EndsCode:
    """``exit`` and ``quit``: end the code, as they do in a script; the kernel lives."""

    def __call__(self, code: Any = None, keep_kernel: Any = None) -> None:
        """Raise `SystemExit`; `keep_kernel` is IPython's argument, and true in any case."""
        raise SystemExit(code)


def _end_code_on_exit(shell: Any) -> None:
    replaced = shell.exiter
    shell.exiter = type("Exit", (EndsCode, type(replaced)), {})(shell)  # the shell checks its class
    # In both: `%who` hides a name only while they have the same object.
    for namespace in (shell.user_ns, shell.user_ns_hidden):
        for name in ("exit", "quit"):
            if namespace.get(name) is replaced:
                namespace[name] = shell.exiter
    # Modules have them as built-ins, which IPython hides while a cell runs.
    shell.builtin_trap.auto_builtins.update(exit=shell.exiter, quit=shell.exiter)
    # ipykernel reads the result for its reply after this event.
    shell.events.register("post_run_cell", _forgive_success)
    show = shell.showtraceback

    def show_traceback(exc_tuple: Any = None, *args: Any, **options: Any) -> Any:
        value = sys.exc_info()[1] if exc_tuple is None else exc_tuple[1]
        if not isinstance(value, SystemExit):
            return show(exc_tuple, *args, **options)
        text = _exit_text(value.code)
        if text is not None:
            shell._showtraceback(SystemExit, SystemExit(text), ["SystemExit: " + text])
        return None

    shell.showtraceback = show_traceback
    # How IPython gives its advice, which is for a person at a terminal.
    if hasattr(interactiveshell, "warn"):
        interactiveshell.warn = _warn_of_anything_else


def _forgive_success(result: Any) -> None:
    error = result.error_in_exec
    if isinstance(error, SystemExit):
        text = _exit_text(error.code)
        result.error_in_exec = None if text is None else SystemExit(text)


def _exit_text(code: Any) -> str | None:
    """Return what an exit with a code has to say, a number or a text; None for success."""
    if code is None or (isinstance(code, int) and code == 0):
        return None
    if isinstance(code, int):
        return str(int(code))
    text = str(code)
    # Python ends with 1 for any text, whatever it says.
    return text if text.strip() and not text.strip().lstrip("+-").isdecimal() else repr(text)


def _warn_of_anything_else(message: Any, *args: Any, **options: Any) -> None:
    if not str(message).startswith("To exit:"):
        warnings.warn(message, *args, **{**options, "stacklevel": options.get("stacklevel", 1) + 1})


# --- sys.stdout.fileno() ---

_waits: list[Any] = []


def _publish_output_by_descriptor(shell: Any) -> None:
    """Have the streams name the descriptors from which ipykernel reads, and not its copies of the first ones.

    A kernel that goes on from a checkpoint has new streams, and does it again (``checkpoint.py``).
    """
    shell.publish_output_by_descriptor = functools.partial(_publish_output_by_descriptor, shell)
    for earlier in _waits:
        shell.events.unregister("post_execute", earlier)
    _waits.clear()
    pipes: list[int] = []
    written: set[int] = set()
    streams: list[Any] = [sys.stdout, sys.stderr]
    for number, stream in enumerate(streams, 1):
        pipe = getattr(stream, "_fid", None)
        if pipe is None or getattr(stream, "watch_fd_thread", None) is None or not _is_roomy(pipe):
            continue
        pipes.append(pipe)

        def fileno(number: int = number, pipe: int = pipe) -> int:
            written.add(pipe)  # the code may write to it by itself, past `write`
            return number

        stream.fileno = fileno
    ended_processes = _ended_processes()

    def wait(*_: Any) -> None:
        """Let the threads that read the pipes take what processes have written, before the cell counts as ended."""
        nonlocal ended_processes
        before, ended_processes = ended_processes, _ended_processes()
        written.update([pipe for pipe in pipes if before != ended_processes or _waiting_bytes(pipe)])
        give_up_at = time.monotonic() + _GRACE_SECONDS  # something in the background may write without end
        empty = 0
        while written and empty < 2 and time.monotonic() < give_up_at:
            time.sleep(_YIELD_SECONDS)  # the thread may have read, and wait for its turn to publish
            empty = 0 if any(map(_waiting_bytes, written)) else empty + 1
        written.clear()

    if pipes:
        shell.events.register("post_execute", wait)
        _waits.append(wait)


def _ended_processes() -> int:
    """Return a number that changes when a child process has ended."""
    # A child's page faults, of which each process has some, are added when its exit is read.
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _is_roomy(pipe: int) -> bool:
    """Make room in a pipe for all that ``faulthandler`` writes, since no thread can read meanwhile."""
    try:
        return fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES) >= _PIPE_BYTES
    except OSError:  # another system, or this user's pipes have all the memory that they may have
        return False


def _waiting_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


# --- %%bash, %%sh and other cells that are scripts ---


class CalledProcessError(subprocess.CalledProcessError):
    """A script has failed; shown as one line."""

    # IPython calls a method of this name for the traceback that it shows.
    def _render_traceback_(self) -> list[str]:
        return [f"CalledProcessError: {self}"]


def _end_cells_with_their_shell(shell: Any) -> None:
    run_cell_magic = shell.run_cell_magic

    def run(magic_name: str, line: str, cell: str) -> Any:
        words = _script_words(shell, magic_name, line)
        # IPython's own options for output and background stay with IPython.
        if not words or any(word.startswith(_SHEBANG_OPTIONS) for word in words):
            return run_cell_magic(magic_name, line, cell)
        returncode = run_script(words, cell if cell.endswith("\n") else cell + "\n")  # IPython adds the line end, too
        if returncode:
            raise CalledProcessError(returncode, " ".join(words)) from None
        return None

    shell.run_cell_magic = run


def _script_words(shell: Any, magic_name: str, line: str) -> list[str]:
    """Return the command that a cell is the script of; empty if that is no script cell of IPython's."""
    if magic_name not in _SCRIPT_CELLS:
        return []
    magics = shell.magics_manager.registry["ScriptMagics"]  # loaded by this, in new versions
    if type(magics).__name__ not in repr(shell.magics_manager.magics["cell"].get(magic_name)):
        return []  # an extension has put its own there
    program = "" if magic_name == "script" else magics.script_paths.get(magic_name, magic_name)
    return shlex.split(f"{program} {line}")


def run_script(words: list[str], script: str) -> int:
    """Run a script and print what it writes until its interpreter ends; return the exit status.

    What the script has left in the background goes on. A thread prints what comes of that, for as long as it comes.
    """
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ended, end = os.pipe()
    threading.Thread(target=_feed, args=(process, script.encode("utf-8", "replace"), end), daemon=True).start()
    outputs = Outputs(process)
    try:
        try:
            outputs.print_until(ended)
        except KeyboardInterrupt:
            _stop(process)
            raise
        finally:
            outputs.print_what_is_left()
    finally:
        os.close(ended)
    return process.wait()


def _feed(process: Any, script: bytes, end: int) -> None:
    """Write the script, wait for the end of its interpreter, and tell of it by closing a pipe."""
    try:
        process.stdin.write(script)
        process.stdin.close()
    except OSError:  # it ended before it had read all
        pass
    process.wait()
    os.close(end)


def _stop(process: Any) -> None:
    for stop in (lambda: process.send_signal(signal.SIGINT), process.terminate, process.kill):
        stop()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return


class Outputs:
    """The output pipes of a process, printed as the kernel's own output."""

    def __init__(self, process: Any) -> None:
        self._selector = selectors.DefaultSelector()
        for pipe, stream in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            # `print_what_is_left` reads until a pipe is empty, while a process in the background keeps it open.
            os.set_blocking(pipe.fileno(), False)
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            self._selector.register(pipe, selectors.EVENT_READ, (stream, decoder))

    def print_until(self, ended: int) -> None:
        """Print what comes until something happens on a descriptor."""
        self._selector.register(ended, selectors.EVENT_READ)
        try:
            while True:
                ready = [key for key, _ in self._selector.select()]
                if any(key.fd == ended for key in ready):
                    return
                for key in ready:
                    self._print(key)
        finally:
            self._selector.unregister(ended)

    def print_what_is_left(self) -> None:
        """Print what is in the pipes; a thread goes on with those that are still open at their other end."""
        for key in list(self._selector.get_map().values()):
            left = _LEFT_BYTES
            while left > 0:
                size = self._print(key)
                if not size:
                    break
                left -= size
        if self._selector.get_map():
            threading.Thread(target=self._go_on, daemon=True).start()
        else:
            self._selector.close()

    def _go_on(self) -> None:
        while self._selector.get_map():
            for key, _ in self._selector.select():
                self._print(key)
        self._selector.close()

    def _print(self, key: Any) -> int:
        """Print a part of what has come; return its size, 0 if there was none."""
        stream, decoder = key.data
        try:
            data = os.read(key.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        text = decoder.decode(data, not data)
        if text:
            stream.write(text)
            stream.flush()
        if not data:
            self._selector.unregister(key.fileobj)
            key.fileobj.close()
        return len(data)
