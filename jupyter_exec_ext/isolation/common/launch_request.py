"""`Launch`: the request to start one isolated kernel, with its environment, visible files (`View`) and `Limits`.

A server's environment holds its secrets, and paths that a kernel cannot see. The kernel gets the variables that were
chosen for it: by the engine, which marks such an environment, by a kernelspec, or by the program that starts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

#: User of a kernel inside its sandbox. Outside it is the server's user.
USER, UID, GID = "jupyter", 1000, 1000
#: Its working directory, the first of these paths at which no other file is seen, and its home directory.
WORK_PLACES, HOME = ("/work", "/session", "/kernel-work"), "/home"
#: Directory of its sockets, the start of their names, and the size of that directory's own file system. The path is
#: short, since some kernels cannot use addresses of 32 bytes or more.
SOCKETS, SOCKET, SOCKETS_BYTES = "/sockets", "s", 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the processes of one kernel; None for no limit.

    Parameters
    ----------
    memory_bytes : int or None
        Address space of each process and, with control groups, memory of all together.
    cpu_seconds : int or None
        Processor time of each process.
    processes : int
        Processes and threads at once.
    open_files, file_bytes : int
        Of each process: open descriptors, and size of the largest file that it may write.
    tmp_bytes : int
        Capacity of each of ``/tmp``, the home directory and ``/dev/shm``. It is memory.
    """

    memory_bytes: int | None
    cpu_seconds: int | None
    processes: int
    open_files: int
    file_bytes: int
    tmp_bytes: int = 0

    def of_each_process(self) -> dict[str, tuple[int, int]]:
        """Return the resource limits of each process, soft and hard, by their names in `resource`."""
        limits = {
            "RLIMIT_NPROC": (self.processes, self.processes),
            "RLIMIT_NOFILE": (self.open_files, self.open_files),
            "RLIMIT_FSIZE": (self.file_bytes, self.file_bytes),
            "RLIMIT_CORE": (0, 0),
        }
        if self.memory_bytes is not None:
            # Linux has no limit on the memory that one process uses. This one also counts what is only reserved.
            limits["RLIMIT_AS"] = (self.memory_bytes, self.memory_bytes)
        if self.cpu_seconds is not None:
            # At the hard limit the system kills a process that ignores SIGXCPU.
            limits["RLIMIT_CPU"] = (self.cpu_seconds, self.cpu_seconds + 1)
        return limits


@dataclass(frozen=True, slots=True)
class View:
    """Files of the machine that a kernel sees.

    Parameters
    ----------
    read_only : sequence of str
        Directories and files, under their paths outside.
    links : mapping of str to str
        Targets of symbolic links to make, by the paths of the links.
    hidden : sequence of str
        Directories below the read-only ones that the kernel sees as empty.
    writable : mapping of str to str
        Directories that the kernel may write, by their paths inside.
    work_directory : str
        Directory that the kernel sees at one of `WORK_PLACES`, and at `DATA`.
    read_only_inside_work : sequence of str
        Paths below `work_directory`, relative to it, that the kernel may not write.
    hidden_inside_work : sequence of str
        Directories below those, relative to `work_directory`, that the kernel sees as empty.
    mounts : mapping of str to str
        Shared directories, read-only, by their paths inside.
    devices : sequence of str
        Nodes of devices that the kernel may use.
    """

    read_only: Sequence[str]
    links: Mapping[str, str]
    hidden: Sequence[str]
    work_directory: str
    read_only_inside_work: Sequence[str] = ()
    hidden_inside_work: Sequence[str] = ()
    writable: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    devices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """Request to start a kernel.

    Parameters
    ----------
    command : sequence of str
        Command line of the kernel.
    environment : mapping of str to str
        Its whole environment.
    limits : Limits
        Its limits.
    view : callable
        Returns the `View` of the kernel; it may block.
    socket_directory : Path
        Path of the link through which the server reaches the kernel's sockets; the launch makes it.
    connection_file : str
        Path of the connection file.
    kernel_id : str
        Name of the kernel in the log.
    host_network : bool
        Whether the kernel gets the machine's network.
    is_proxied : bool
        Whether the kernel gets a proxy's port, as its only way out.
    certificates : str
        Path of the certificates that a proxied kernel is to trust; empty for the system's.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    limits: Limits
    view: Callable[[], View]
    socket_directory: Path
    connection_file: str
    kernel_id: str
    host_network: bool = False
    is_proxied: bool = False
    certificates: str = ""


#: Limits of a policy. They are variables, since a kernel manager passes only these on to a provisioner.
MEMORY_VARIABLE, CPU_VARIABLE = "JUPYTER_EXEC_MAX_MEMORY_BYTES", "JUPYTER_EXEC_MAX_CPU_SECONDS"
#: Tells a sandbox to give its kernel a proxy's port. The value is the path of certificates, or empty.
NETWORK_VARIABLE = "JUPYTER_EXEC_NETWORK"
#: Names directories that an isolated kernel reads beside its others, separated by the system's separator of paths.
READABLE_VARIABLE = "JUPYTER_EXEC_READABLE"
#: Tells a sandbox which directories and devices to show. The value is JSON.
GRANTS_VARIABLE = "JUPYTER_EXEC_GRANTS"
#: Mark of an environment that the engine has chosen from the server's and the caller's variables.
CHOSEN_MARK = "JUPYTER_EXEC_SESSION"

# Jupyter's own variables, and the exceptions that a kernel may have. Some are secrets: JUPYTER_TOKEN, KG_AUTH_TOKEN,
# JUPYTERHUB_API_TOKEN.
_JUPYTERS_OWN = ("JPY_*", "JUPYTER*", "KG_*")
_HARMLESS = ("JPY_SESSION_NAME", CHOSEN_MARK)
# Variables with paths of this machine that a kernel does not see.
_PLACES = ("HOME", "TMPDIR", "TEMP", "TMP", "XDG_*", "IPYTHONDIR", "MPLCONFIGDIR", "PWD", "OLDPWD", "PYTHONPATH")
_INHERITED = (
    *("PATH", "TERM", "TZ", "LANG", "LANGUAGE", "LC_*", "MPLBACKEND", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("OPENBLAS_CORETYPE", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONUTF8", "PYTHONIOENCODING"),
)


def sandbox_environment(
    given: Mapping[str, str],
    server_env: Mapping[str, str],
    allowed_names: Iterable[str],
    kernelspec_names: Iterable[str],
    *,
    home: str = HOME,
) -> dict[str, str]:
    """Return the whole environment of an isolated kernel.

    Parameters
    ----------
    given : mapping of str to str
        Environment that the kernel would get without isolation.
    server_env : mapping of str to str
        Environment of the server: a variable with the same value was inherited, not chosen.
    allowed_names : iterable of str
        Patterns of further names that may be inherited.
    kernelspec_names : iterable of str
        Names that the kernelspec sets.
    home : str
        Home directory of the kernel.
    """
    chosen_by_engine = CHOSEN_MARK in given
    inheritable, chosen = [*_INHERITED, *allowed_names], set(kernelspec_names)

    def is_passed_on(name: str, value: str) -> bool:
        if _matches(name, _JUPYTERS_OWN) and name not in _HARMLESS:
            return False
        if name in chosen or server_env.get(name) != value:
            return True
        if _matches(name, _PLACES):
            return _matches(name, allowed_names)
        return chosen_by_engine or _matches(name, inheritable)

    # NUL separates the arguments that bubblewrap reads, so a value with one could add arguments of its own.
    kept = {name: value for name, value in given.items() if is_passed_on(name, value) and "\0" not in name + value}
    # The kernel ends with its parent process. With this value, ipykernel does not watch it or print how to end it.
    fixed = {"HOME": home, "USER": USER, "LOGNAME": USER, "SHELL": "/bin/sh", "JPY_PARENT_PID": "1"}
    return {**fixed, **kept}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
