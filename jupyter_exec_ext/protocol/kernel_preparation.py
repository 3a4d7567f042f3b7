"""Preparation of a kernel: its environment, and requests for backpressure, defaults and unattended code in IPython.

A server's environment holds its secrets (its token, its Hub's, a cloud's). Variables that any program needs in order to
run are let through by name.

ZeroMQ has no backpressure by itself: a publisher silently drops what a full queue cannot take. An IPython kernel can be
told otherwise (``ZMQ_XPUB_NODROP``). Then its sending thread waits for its readers, and all code that publishes waits
for that thread. What is printed is handed over in parts of bounded size (``in_kernel/bounded_output.py``).

Each kernel of ours is told before its first cell, and again when there is a subscription: a socket that listens gives
new connections the queue of a thousand messages that it had when it began to. A forked kernel is told before it begins,
and has no connections by then. Where none of it works, as with kernels in other languages, the server reads ahead
instead, up to a bound. Beyond that, such a kernel drops output.

All code is sent as an expression with a namespace of its own: nothing of it is in the user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ..errors import InvalidRequest
from .kernel_messages import execute_request

#: Messages of one kernel that wait in our memory, once the kernel waits for us.
MAX_WAITING_MESSAGES = 4
#: Messages that wait in the kernel's memory, for each connection.
MAX_UNSENT_MESSAGES = 16
_IN_KERNEL = Path(__file__).parent.parent / "in_kernel"
#: Makes a kernel print in parts; it has `bound_output`.
BOUNDED_OUTPUT = _IN_KERNEL / "bounded_output.py"
#: Sets a kernel's defaults, such as no colours; it has `set_defaults`.
DEFAULTS = _IN_KERNEL / "defaults.py"
_UNATTENDED = _IN_KERNEL / "unattended.py"
_PACKAGES = _IN_KERNEL / "package_environment.py"

_WAITS = "waits"
_SHELL = "\nfrom IPython import get_ipython\n"
# Run by the thread that sends output: a socket belongs to one thread at a time.
_IN_SENDING_THREAD = """
thread, done = get_ipython().kernel.iopub_thread, threading.Event()
thread.schedule(keep_all)
if not done.wait(10):
    raise TimeoutError("the thread that sends output does not answer")
"""
# Leaves alone the connections that are there by then: ZeroMQ crashes where the queue of a connection that is being
# closed, such as the host's own, is made shorter.
_WAITING = f"""{_SHELL}
import threading, zmq

def keep_all():
    thread.socket.setsockopt(zmq.XPUB_NODROP, 1)
    done.set()
{_IN_SENDING_THREAD}
bound_output(get_ipython().kernel)
"""
_KEEPING = f"""{_SHELL}
import threading, zmq

def keep_all():
    # Counts all that any connection got so far and has perhaps not confirmed. A mark below that would never be left
    # again: a reader confirms only when it reads. An even one is confirmed when it is reached.
    sent = get_ipython().kernel.session.message_count
    thread.socket.setsockopt(zmq.SNDHWM, max({MAX_UNSENT_MESSAGES}, sent + 2 - sent % 2))
    done.set()
{_IN_SENDING_THREAD}"""


def waiting_request(*, draws_plots: bool | None) -> dict[str, Any]:
    """Return the content of a request that makes an IPython kernel wait for its readers, and sets its defaults.

    Parameters
    ----------
    draws_plots : bool or None
        True to add pictures to plots that are data alone; see ``in_kernel/defaults.py``. None sets no defaults.
    """
    # The parts are expressions of their own, so that neither depends on what the other finds.
    defaults = {} if draws_plots is None else default_expressions(draws_plots=draws_plots)
    return silent_request({_WAITS: _expression(_source(BOUNDED_OUTPUT) + _WAITING), **defaults})


def keeping_request() -> dict[str, Any]:
    """Return the content of a request that makes a kernel which has agreed to wait do so for new connections, too."""
    return silent_request({_WAITS: _expression(_KEEPING)})


def agrees_to_wait(reply: Mapping[str, Any]) -> bool:
    """Return whether a kernel's reply to the request says that it waits from now on."""
    answers = reply.get("user_expressions")
    answer = answers.get(_WAITS) if isinstance(answers, Mapping) else None
    return isinstance(answer, Mapping) and answer.get("status") == "ok"


def unattended_request(more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the content of a request that sets an IPython kernel up for unattended code; done twice, it is the same.

    Parameters
    ----------
    more : mapping of str to str, optional
        Further expressions, each evaluated by itself, such as `default_expressions`.
    """
    set_up = _expression(f"{_source(_UNATTENDED)}{_SHELL}set_up(get_ipython())\n")
    return silent_request({"unattended": set_up, **(more or {})})


def default_expressions(*, draws_plots: bool) -> dict[str, str]:
    """Return the expressions that set the defaults, for a request to a kernel that is not made to wait."""
    call = f"set_defaults(get_ipython().kernel, draws_plots={draws_plots})\n"
    return {"defaults": _expression(_source(DEFAULTS) + _SHELL + call)}


def packages_code(session_directory: str, environment: Mapping[str, str]) -> str:
    """Return code that gives a Python kernel packages of its session: see ``in_kernel/package_environment.py``."""
    return _expression(f"{_source(_PACKAGES)}\nset_up({session_directory!r}, {dict(environment)!r})\n")


def install_code(requirements: Sequence[str], wheels: Mapping[str, str]) -> str:
    """Return code that installs packages in a kernel that has run `packages_code`.

    Parameters
    ----------
    wheels : mapping of str to str
        The SHA-256 of each wheel, by its path.
    """
    return f"__import__('jupyter_exec_packages').install({list(requirements)!r}, {dict(wheels)!r})"


@cache
def _source(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _expression(code: str) -> str:
    # An expression, not a cell: IPython replaces the streams' `write` while it runs a cell, and puts it back.
    return f"exec({code!r}, {{'__name__': 'jupyter_exec_ext_prepared'}})"


def silent_request(expressions: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of a request that runs expressions of ours: it has no number, and is in no history."""
    request = execute_request("", allow_input=False)
    # IPython evaluates the expressions of a silent request all the same.
    return {**request, "silent": True, "store_history": False, "user_expressions": dict(expressions)}


DEFAULT_NAMES = [
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "LC_*"),
    *("TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "MPLBACKEND", "MPLCONFIGDIR"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERNAME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH"),
    *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES*", "NUMBER_OF_PROCESSORS", "PROCESSOR_*"),
]

# Jupyter's own: with them a caller could redirect where a kernel finds its parent, its configuration or its secrets.
_RESERVED = ("JPY_*", "JUPYTER_*", "JUPYTERHUB_*", "KG_*")


# Programs of a kernel take these as settings.
_OF_PROGRAMS = ("*_PROXY", "*_CA_BUNDLE", "*_CERT", "*_CERTS", "LD_*", "DYLD_*", "PYTHON*", "PS1", "IFS", "ENV")


@lru_cache(16)  # the same few lists at every session's start
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    # Translated patterns are anchored at their ends. An empty expression would match every name, hence (?!).
    return re.compile("|".join(map(translate, patterns)) or "(?!)")


def inherited_environment(server_env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return what kernels get of the server's environment: the variables whose names match one of the patterns."""
    is_inherited = _any_of(tuple(names)).match
    return {name: value for name, value in server_env.items() if is_inherited(name)}


def is_taken_name(name: str) -> bool:
    """Return whether a variable already has a meaning for programs in kernels, or for Jupyter."""
    return _any_of((*DEFAULT_NAMES, *_RESERVED, *_OF_PROGRAMS)).match(name) is not None


def kernel_environment(
    inherited: Mapping[str, str], caller_env: Mapping[str, str], *, caller_names: Iterable[str]
) -> dict[str, str]:
    """Return the whole environment of a new kernel.

    Parameters
    ----------
    inherited : mapping
        The part of the server's environment that it gets.
    caller_names : iterable of str
        Patterns of the names that a caller may set.

    Raises
    ------
    InvalidRequest
        Naming the first variable that the caller may not set.
    """
    allowed = tuple(caller_names)
    for name in caller_env:
        # Checked first: a setting that lets callers set `*` must not open these.
        if _any_of(_RESERVED).match(name):
            raise InvalidRequest(f"'env' may not set {name!r}: names like {', '.join(_RESERVED)} are Jupyter's own")
        if not _any_of(allowed).match(name):
            names = ", ".join(allowed) or "none"
            raise InvalidRequest(f"'env' may not set {name!r}: this server lets callers set {names}")
    return {**inherited, **caller_env}
