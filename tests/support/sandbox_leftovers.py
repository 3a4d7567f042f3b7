"""What sandboxed kernels leave behind, for tests that end them in every way."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from jupyter_exec_ext.isolation.common.cgroup import ROOT, new_group
from jupyter_exec_ext.isolation.common.launch_request import WORK_PLACES
from jupyter_exec_ext.isolation.common.leftovers import MARK, base_directory, own_name

# A variable that a test's kernels and what they start have in their environment; bubblewrap's processes have `MARK`.
TRACE = "SANDBOX_OF_TEST"
_PATIENCE_SECONDS = 3.0


# What sandboxed kernels see of the machine besides the system: this environment, and this package where it is editable.
SEEN = (sys.prefix, str(Path(__file__).parents[2]))
#: Where they find their working directory: not where something of these is.
WORK = next(place for place in WORK_PLACES if not any(f"{seen}/".startswith(f"{place}/") for seen in SEEN))
# A command for another one, to be somewhere that only root could be otherwise, as the user one is.
IN_NAMESPACES = ("unshare", "--user", "--map-current-user", "--keep-caps")
# What runs behind it without the rights that it has there: bubblewrap wants none.
WITHOUT_RIGHTS = ("setpriv", "--ambient-caps=-all", "--inh-caps=-all")


def kinds_of_sandbox() -> set[str]:
    """Return what `Watch.left` finds of a sandbox that runs."""
    group = new_group(None, 10)
    if group is not None:
        group.remove()
    return {"processes", "children", "socket directories", *(["control groups"] if group else [])}


def server_name(pid: int) -> str:
    """Return the name by which a server's sandboxes are known, while it runs."""
    for process in psutil.Process(pid).children():
        with suppress(OSError):
            for variable in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                if variable.startswith(f"{MARK}=".encode()):
                    return variable.partition(b"=")[2].decode()
    raise AssertionError(f"{pid} has no sandbox")


def processes_with(*variables: str) -> list[int]:
    """Return the processes, however far down in other namespaces, that were started with one of these variables."""
    wanted = [variable.encode() for variable in variables]
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError):
                if any(v in wanted for v in Path(f"/proc/{entry.name}/environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return found


def bwraps() -> list[int]:
    """Return the processes of bubblewrap's that this process has started, quickly."""
    found: list[int] = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return [pid for pid in found if name_of(pid) == "bwrap"]


def inner_of(pid: int) -> list[int]:
    """Return the inits that a process of bubblewrap's has."""
    with suppress(OSError):
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    return []


def name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def namespace_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def processes_in(namespaces: set[str]) -> list[int]:
    """Return the processes whose namespace of process ids is one of these."""
    found = []
    for pid in psutil.pids():
        with suppress(OSError):
            if namespace_of(pid) in namespaces:
                found.append(pid)
    return found


def directories_of(name: str) -> list[str]:
    """Return the directories of sockets of the server with this name."""
    return [str(path) for path in (base_directory() / name).glob("*")]


def groups_of(name: str) -> list[str]:
    """Return the control groups of the server with this name."""

    def directories(under: Path) -> Iterator[Path]:
        with suppress(OSError):  # groups of others come and go
            for entry in os.scandir(under):
                if entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)
                    yield from directories(Path(entry.path))

    return [str(path) for path in directories(ROOT) if path.name.startswith(f"jex-{name}-")]


def mounted() -> set[str]:
    """Return what is mounted here, but for what container engines keep, which may be at work meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line for line in lines if "/containers/" not in line and "/netns" not in line}


@dataclass
class Watch:
    """Looks for what the sandboxes of this process have left behind.

    Parameters
    ----------
    trace : str
        What to start kernels with: ``env={TRACE: watch.trace}``.
    """

    trace: str = field(default_factory=lambda: secrets.token_hex(8))
    namespaces: set[str] = field(default_factory=set)
    mounts: set[str] = field(default_factory=mounted)
    # Children that other tests in this process left behind are ignored.
    children: set[int] = field(default_factory=lambda: set(children()))

    def note(self, *pids: int | None) -> None:
        """Note the namespaces of processes, to look for others in them afterwards."""
        for pid in pids:
            if pid is not None:
                with suppress(OSError):
                    self.namespaces.add(namespace_of(pid))
        self.namespaces.discard(namespace_of(os.getpid()))

    def left(self) -> dict[str, object]:
        """Return what is there now, by what it is; nothing of it should be."""
        found = {
            "processes": processes_with(f"{MARK}={own_name()}", f"{TRACE}={self.trace}"),
            "children": [pid for pid in children() if pid not in self.children],
            "in their namespaces": processes_in(self.namespaces),
            "socket directories": directories_of(own_name()),
            "control groups": groups_of(own_name()),
            "mounts": sorted(mounted() - self.mounts),
        }
        return {what: of for what, of in found.items() if of}

    def left_at_last(self, patience_seconds: float = _PATIENCE_SECONDS) -> dict[str, object]:
        """Return what is there still after a while, in which what was killed can end."""
        return at_last(self.left, patience_seconds)


def at_last(left: Callable[[], dict[str, object]], patience_seconds: float) -> dict[str, object]:
    give_up_at = time.monotonic() + patience_seconds
    while (found := left()) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    return found


def children() -> list[int]:
    """Return the descendants of this process that are, or may have been, a sandbox's."""
    return [child.pid for child in psutil.Process().children(recursive=True) if is_ours(child)]


def is_ours(child: psutil.Process) -> bool:
    """Whether a child of this process is, or was, a sandbox's."""
    with suppress(psutil.Error):
        return child.status() == psutil.STATUS_ZOMBIE or child.name() == "bwrap"
    return False
