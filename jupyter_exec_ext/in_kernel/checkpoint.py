"""Checkpoints of a live IPython kernel: frozen children, from which the kernel can be made again.

A checkpoint is a child of the kernel that waits. It shares the kernel's memory until one of the two writes to it, and
has none of its sockets. For each request of the server it forks, and its child makes itself a kernel around the same
shell: with new sockets, threads and streams, and with all variables as they were.

``protocol/kernel_checkpoint_messages.py`` sends this source to kernels, on Linux alone. A kernel's environment need not
have our package, and its Python and ipykernel may be older. ``frozen_process.py``, ``restored_kernel.py`` and
``checkpoint_hindrances.py`` have its parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import io
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
import warnings
import weakref
from typing import Any

from IPython import get_ipython

frozen_process: Any = importlib.import_module("jupyter_exec_frozen_process")
hindrances: Any = importlib.import_module("jupyter_exec_checkpoint_hindrances")
restored_kernel: Any = importlib.import_module("jupyter_exec_restored_kernel")

_NO_FORK_WARNING = ("ignore", None, DeprecationWarning, None, 0)
_FORK_SECONDS = 1.5  # the server waits for 2
_PLACEHOLDER_SECONDS = str(2**31 - 1)  # 68 years
#: The descriptor of the last checkpoint's process.
_last: list[int] = []
#: Not empty if this program has taken the present objects from the garbage collector.
_frozen_here: list[bool] = []
# The base of all files. Not `io.IOBase`, whose check is a Python function: after many restores the stack is deep, and
# where a call needs a further piece of it, Python maps and unmaps that memory each time. For all objects it took 2 s.
_FILE: Any = io.IOBase.__base__
# Files found at earlier checkpoints, and paths that are open in another way, such as databases.
_files: weakref.WeakSet[Any] = weakref.WeakSet()
_paths_without_file: set[str] = set()


def schedule_checkpoint(address: str, nonce: str, *, force: bool, placeholder_signal: int = 0) -> str:
    """Make a checkpoint soon, when the present request has been answered; called in the kernel's main thread.

    Parameters
    ----------
    address : str
        The Unix socket on which the server waits for the checkpoint's process.
    nonce : str
        Token that the process sends first, by which the server knows it.
    force : bool
        Make the checkpoint even if something cannot be taken along.
    placeholder_signal : int
        Signal at which this process is to become a placeholder, which keeps its sandbox alive for a kernel from a
        checkpoint; 0 for none. A sandbox ends with its first process.

    Returns
    -------
    str
        In JSON, what cannot be taken along: a list of pairs of a kind and a name.
    """
    found = hindrances.find(get_ipython().kernel)
    if force or not found:
        # From the loop itself: each life of the kernel adds to the stack, and this adds least. In this context, since
        # code may have set things in it, such as the precision of `decimal`.
        asyncio.get_running_loop().call_soon(_fork, address, nonce)
        if placeholder_signal:
            signal.signal(placeholder_signal, _become_placeholder)
    return json.dumps(found)


def _become_placeholder(*_: Any) -> None:
    """Become a program that does nothing, so that the sandbox goes on with another kernel."""
    sleep = shutil.which("sleep", path=os.defpath)
    if sleep is not None:  # without it, the server keeps the sandbox in another way
        # Not closed here: ZeroMQ's threads still use some, and abort the process when they find one closed.
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the one by which the directory was read
                os.set_inheritable(int(name), int(name) < 3)
        # Without the environment, by whose mark the server finds processes that a kernel has left behind.
        os.execve(sleep, ["sleep", _PLACEHOLDER_SECONDS], {})  # noqa: S606  # with no shell


def unfreeze_garbage() -> None:
    """Note that there are no checkpoints any more: the garbage collector may look at everything again."""
    if _frozen_here:
        _frozen_here.clear()
        gc.unfreeze()


def kill_last() -> None:
    """Kill the process of the last checkpoint, which has not answered the server."""
    while _last:
        number = _last.pop()
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(number, signal.SIGKILL)
        os.close(number)


def _fork(address: str, nonce: str) -> None:
    """Fork twice, so that code which waits for the kernel's children does not find the frozen process."""
    streams: list[Any] = [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__]
    for stream in streams:
        with contextlib.suppress(Exception):  # code may have put anything there
            stream.flush()
    _flush_files()
    hindrances.note_pools()
    loop = asyncio.get_running_loop()
    if not gc.get_freeze_count():  # a forked kernel has what it shares with others frozen already
        _frozen_here.append(True)
        gc.freeze()  # a collection would write to all objects, and so end the sharing of their memory
    before = {"loop": loop, "random_states": _random_states()}
    read_end, write_end = os.pipe()
    # Inserted, and not added: adding makes Python forget which warnings it has shown.
    filters: Any = warnings.filters
    filters.insert(0, _NO_FORK_WARNING)
    try:
        intermediate = os.fork()
        if not intermediate:
            _fork_again(address, nonce, write_end, before)
    except Exception as error:  # a hook of the user's, perhaps
        _report_problem(address, nonce, f"its process could not be forked: {type(error).__name__}: {error}")
        os.close(read_end)
        return
    finally:
        _remove_filter()
        os.close(write_end)
    _await_child(address, nonce, intermediate, read_end)


def _remove_filter() -> None:
    filters: Any = warnings.filters
    if _NO_FORK_WARNING in filters:
        filters.remove(_NO_FORK_WARNING)


def _flush_files() -> None:
    """Write what open files have in memory: both processes have it after the fork, and would both write it."""
    if _unknown_paths():
        # Only if it has to be: counting the references to all objects ends the sharing of their memory.
        for thing in gc.get_objects():
            if issubclass(type(thing), _FILE):  # `isinstance` would ask the object itself, which may be anything
                with contextlib.suppress(TypeError):  # it cannot be remembered
                    _files.add(thing)
        _paths_without_file.update(_unknown_paths())
    for file in list(_files):
        with contextlib.suppress(Exception):  # what it writes to may be anything
            file.flush()


def _unknown_paths() -> set[str]:
    """Return the paths that are open for writing, as far as no file object is known to have them."""
    known = set()
    for file in list(_files):
        with contextlib.suppress(Exception):  # it is closed, or has no descriptor
            known.add(file.fileno())
    opened = frozen_process.open_files()
    written = {descriptor for descriptor, (_, flags, _) in opened.items() if flags & os.O_ACCMODE != os.O_RDONLY}
    return {opened[descriptor][0] for descriptor in written - known} - _paths_without_file


def _await_child(address: str, nonce: str, intermediate: int, read_end: int) -> None:
    """Wait until a child has forked the frozen process, and note which it is; a child that hangs is killed."""
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    has_answered = bool(poll.poll(_FORK_SECONDS * 1000))
    number = os.read(read_end, 8) if has_answered else b""
    os.close(read_end)
    while _last:
        os.close(_last.pop())
    if number:
        with contextlib.suppress(OSError):  # it has ended already
            _last.append(os.pidfd_open(int.from_bytes(number, "little")))
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(intermediate, signal.SIGKILL)
        how = "ended at once" if has_answered else f"did not begin within {_FORK_SECONDS:g} s, and was killed"
        _report_problem(address, nonce, f"its process {how}")
    with contextlib.suppress(ChildProcessError):  # where code has told the system to ignore the ends of children
        os.waitpid(intermediate, 0)


def _fork_again(address: str, nonce: str, write_end: int, before: dict[str, Any]) -> None:
    status = 1
    try:
        frozen = os.fork()
        if frozen:
            os.write(write_end, frozen.to_bytes(8, "little"))
            status = 0
        else:
            _remove_filter()
            closable = restored_kernel.find_closable_descriptors(get_ipython().kernel)
            settings, channel = frozen_process.run_frozen_process(address, nonce, closable)
            # From here on, this is a child of the frozen process.
            restored_kernel.run_restored_kernel(settings, channel, before)
            raise SystemExit(0)  # the interpreter ends as it would have ended after the kernel's first life
    except SystemExit:
        raise
    except BaseException:
        with contextlib.suppress(Exception):
            os.write(2, traceback.format_exc().encode(errors="replace"))
    os._exit(status)


def _report_problem(address: str, nonce: str, problem: str) -> None:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as control:
        frozen_process.connect(control, address)
        control.sendall(json.dumps({"nonce": nonce, "problem": problem}).encode() + b"\n")


def _random_states() -> dict[str, Any]:
    """Return the states of the global random generators; Python seeds its own anew in each fork."""
    random, numpy_random = sys.modules.get("random"), sys.modules.get("numpy.random")
    states: dict[str, Any] = {}
    if random is not None:
        states["random"] = random.getstate()
    if numpy_random is not None:
        states["numpy.random"] = numpy_random.get_state()
    return states
