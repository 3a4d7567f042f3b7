"""`Launch`: the request to start one isolated kernel, with what it sees (`View`) and may use (`Limits`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: Who a kernel is inside. Outside it is the server's user.
USER, UID, GID = "jupyter", 1000, 1000
#: Where it finds its working directory, at the first of these places where nothing else is seen, and its home.
WORK_PLACES, HOME = ("/work", "/session", "/kernel-work"), "/home"
#: Where it makes its sockets, and what their names begin with. Some kernels know only addresses of less than 32 bytes.
#: The directory is a file system of its own, with room for little more, and ends with the sandbox.
SOCKETS, SOCKET, SOCKETS_BYTES = "/sockets", "s", 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What the processes of one kernel may use; None for no limit.

    Parameters
    ----------
    memory_bytes : int or None
        Address space of each process and, where control groups can be had, memory of all together.
    cpu_seconds : int or None
        Processor time of each process.
    processes : int
        Processes and threads at once.
    open_files, file_bytes : int
        For each process: descriptors, and the largest file it may write.
    tmp_bytes : int
        What each of ``/tmp``, the home directory and ``/dev/shm`` can hold. It is memory.
    """

    memory_bytes: int | None
    cpu_seconds: int | None
    processes: int
    open_files: int
    file_bytes: int
    tmp_bytes: int = 0

    def of_each_process(self) -> dict[str, tuple[int, int]]:
        """Return the limits of the system on each process, soft and hard, by their names."""
        limits = {
            "RLIMIT_NPROC": (self.processes, self.processes),
            "RLIMIT_NOFILE": (self.open_files, self.open_files),
            "RLIMIT_FSIZE": (self.file_bytes, self.file_bytes),
            "RLIMIT_CORE": (0, 0),
        }
        if self.memory_bytes is not None:
            limits["RLIMIT_AS"] = (self.memory_bytes, self.memory_bytes)
        if self.cpu_seconds is not None:
            # The second number is when a process is killed that has made itself deaf to SIGXCPU.
            limits["RLIMIT_CPU"] = (self.cpu_seconds, self.cpu_seconds + 1)
        return limits


@dataclass(frozen=True, slots=True)
class View:
    """What of the machine a kernel sees.

    Parameters
    ----------
    read_only : sequence of str
        Directories and files, under the paths that they have outside.
    links : mapping of str to str
        Symbolic links to make, by their places.
    hidden : sequence of str
        Directories below those that are read-only, which are empty to the kernel.
    writable : mapping of str to str
        Directories that it may write, by their places inside.
    work_directory : str
        What is at one of `WORK_PLACES`, and at `DATA`.
    read_only_inside_work : sequence of str
        Paths below `work_directory`, relative to it, that it may not write.
    """

    read_only: Sequence[str]
    links: Mapping[str, str]
    hidden: Sequence[str]
    work_directory: str
    read_only_inside_work: Sequence[str] = ()
    writable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Parameters
    ----------
    command : sequence of str
        The kernel's own.
    view : callable
        Works out what the kernel sees.
    socket_directory : Path
        Where the kernel's sockets are reached: a link, which is made anew, to the directory that has them.
    kernel_id : str
        Its name in the log.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    limits: Limits
    view: Callable[[], View]
    socket_directory: Path
    connection_file: str
    kernel_id: str
    host_network: bool = False
