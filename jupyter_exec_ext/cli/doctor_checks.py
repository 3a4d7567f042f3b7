"""Checks of ``jupyter exec doctor`` on isolation and on the JupyterLab front end, and the record of one finding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..client.sync.client import ExecClient
from ..errors import ExecError, IsolationRequired

if TYPE_CHECKING:
    from .kernelspecs.local_kernels import LocalKernel

#: Levels of isolation on the server's machine, the strongest first.
LOCAL_LEVELS = ("sandbox", "landlock")
_WORDS = {"sandbox": "sandboxed", "landlock": "isolated by Landlock"}
# Arbitrary limits for a trial control group.
_TRIAL_MEMORY_BYTES, _TRIAL_PROCESSES = 1024**3, 512
_VERSION_SECONDS = 20.0

NAME = "@jupyter-exec-ext/labextension"
_INSTALL = (
    "install a wheel of this package, which carries it (pip install --force-reinstall --no-deps jupyter-exec-ext), or "
    "from a checkout with Node.js: REQUIRE_LABEXTENSION=1 pip install . ; the server works without it"
)
_REFUSED = "so scoped tokens may not run code there, unless ExecEngine.allow_unprotected_tokens is set"
_ALLOWED = (
    "scoped tokens may run code there all the same (ExecEngine.allow_unprotected_tokens), so their scopes and policies "
    "bind well-behaved code only"
)
_CONTROL_GROUPS = (
    "let servers make control groups with the controllers 'memory' and 'pids' (systemd: Delegate=yes in their unit; a "
    "container: /sys/fs/cgroup mounted so that it can be written)"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Parameters
    ----------
    what : str
        The result, in words.
    remedy : str
        The remedy or the consequence; empty for a good result.
    fails : bool
        False for a note: a result with a consequence that is no failure.
    """

    what: str
    remedy: str = ""
    fails: bool = True

    @property
    def mark(self) -> str:
        """``ok``, ``note`` or ``FAIL``."""
        if not self.remedy:
            return "ok"
        return "FAIL" if self.fails else "note"


def unprotected(names: Sequence[str], level: str | None, *, allowed: bool = False) -> Iterator[Finding]:
    """Report kernels without isolation, and the consequences.

    Parameters
    ----------
    names : sequence of str
        Their kernelspecs.
    level : str or None
        The strongest isolation that these kernels can get on request; None for none.
    allowed : bool
        Whether scoped tokens may use them without isolation.
    """
    if names:
        given = (
            f"scoped tokens get the isolation {level!r} for them; for yourself, ask for it (jupyter exec run "
            f"--isolation {level}), or set ExecEngine.default_isolation"
        )
        yield Finding(
            f"without isolation: {', '.join(names)}; code in these kernels has all rights of the server's user",
            _ALLOWED if allowed else _REFUSED if level is None else given,
            fails=False,
        )


def level_on_request(client: ExecClient, kernel_name: str) -> str | None:
    """Return the strongest isolation that a server gives a kernel on request, found by starting it."""
    for level in LOCAL_LEVELS:
        try:
            client.session(kernel_name, isolation=level).close()
        except IsolationRequired:
            continue
        except ExecError:  # the server failed for another reason, which the next check reports
            return None
        return level
    return None


def problems_here() -> dict[str, str | None]:
    """Return, for each level of isolation, the problem that it has on this machine, or None."""
    from .kernelspecs.local_kernels import PROVISIONERS, provisioner_class, why_unavailable

    installed = [level for level in LOCAL_LEVELS if provisioner_class(PROVISIONERS[level]) is not None]
    return {level: why_unavailable(level) for level in installed or LOCAL_LEVELS[:1]}


def isolation_here(kernels: Sequence[LocalKernel], problems: Mapping[str, str | None]) -> Iterator[Finding]:
    """Report the isolation that kernels of this machine can have, and its limits.

    Parameters
    ----------
    kernels : sequence of LocalKernel
        The installed kernelspecs.
    problems : mapping
        The result of `problems_here`.
    """
    if not sys.platform.startswith("linux"):
        yield Finding(
            f"kernels can be isolated on Linux only, and this is {sys.platform}",
            "for code that is not yours, use a server on Linux or a remote kernel",
            fails=False,
        )
        return
    for level, problem in problems.items():
        if problem is None:
            by = f" ({_bubblewrap()})" if level == "sandbox" else ""
            yield Finding(f"kernels can be {_WORDS[level]} here{by}")
            continue
        # Isolation is optional, so only a kernelspec that asks for it fails.
        broken = [kernel.name for kernel in kernels if kernel.level == level]
        which = f", so these do not start: {', '.join(broken)}" if broken else ""
        yield Finding(f"kernels cannot be {_WORDS[level]} here{which}", problem, fails=bool(broken))
    if problems.get("sandbox", "") is None:
        yield from _limits()


def _bubblewrap() -> str:
    from ..isolation.sandbox.bubblewrap import find_tools

    command = [find_tools().bwrap, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False)
    return done.stdout.strip() or "bubblewrap"


def _limits() -> Iterator[Finding]:
    """Report the limits that hold for all processes of a sandbox together."""
    from ..isolation.common.cgroup import new_group

    group = new_group(_TRIAL_MEMORY_BYTES, _TRIAL_PROCESSES)
    limits = [] if group is None else group.limits
    if group is not None:
        group.remove()
    if "memory" in limits:
        yield Finding("the memory of a sandbox is limited as a whole (control group)")
    else:
        yield Finding(
            "the memory of a sandbox is not limited as a whole, but that of each of its processes",
            _CONTROL_GROUPS,
            fails=False,
        )
    if "processes" in limits:
        yield Finding("the number of processes of a sandbox is limited (control group)")
    elif os.geteuid() == 0:  # RLIMIT_NPROC does not bind root
        yield Finding(
            "the number of processes of a sandbox is not limited where the server runs as root: code can start "
            "processes until the machine has no more (a fork bomb)",
            f"run servers as another user, or {_CONTROL_GROUPS}",
            fails=False,
        )
    else:
        yield Finding("the number of processes of a sandbox is limited (RLIMIT_NPROC)")


def front_end() -> Iterator[Finding]:
    """Check the front end in the directories that JupyterLab and Notebook load, if one of them is installed."""
    if find_spec("jupyterlab_server") is None:
        return
    from jupyter_core.paths import jupyter_path
    from jupyterlab_server.config import get_page_config

    paths = jupyter_path("labextensions")
    found = next((path for path in (Path(place, NAME, "package.json") for place in paths) if path.is_file()), None)
    if found is None:
        yield Finding("the JupyterLab front end is not installed", _INSTALL, fails=False)
        return
    page = get_page_config(paths)
    loaded = [extension["name"] for extension in page["federated_extensions"]]
    theirs = str(json.loads(found.read_text()).get("version"))
    if NAME not in loaded:
        yield Finding(f"the JupyterLab front end is not whole ({found.parent})", _INSTALL)
    elif NAME in page["disabledExtensions"]:
        yield Finding("the JupyterLab front end is disabled", f"jupyter labextension enable {NAME}", fails=False)
    elif theirs != __version__:
        what = f"the JupyterLab front end is of version {theirs}, and this package is {__version__} ({found.parent})"
        yield Finding(what, _INSTALL)
    else:
        yield Finding("the JupyterLab front end is enabled")
