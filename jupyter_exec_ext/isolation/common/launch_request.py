"""`Launch`: the request to start one isolated kernel, with its visible files (`View`) and its `Limits`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """

    read_only: Sequence[str]
    links: Mapping[str, str]
    hidden: Sequence[str]
    work_directory: str
    read_only_inside_work: Sequence[str] = ()
    writable: Mapping[str, str] = field(default_factory=dict)


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
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    limits: Limits
    view: Callable[[], View]
    socket_directory: Path
    connection_file: str
    kernel_id: str
    host_network: bool = False
