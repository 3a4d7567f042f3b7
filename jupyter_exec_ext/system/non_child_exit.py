"""Exit code of a process that is not our child, where Linux has it.

The system tells only a process's parent how it ended. Until the parent has asked, the process table has the code.
Afterwards, Linux 6.15 and later keeps it for programs that have a descriptor of the process.
"""

from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform == "linux":
    import fcntl

# `struct pidfd_info` in its first size, and the request for it with what it is to have, of Linux's ``pidfd.h``.
_INFO = struct.Struct("=QQ11Ii")
_GET_INFO = 0xC0000000 | _INFO.size << 16 | 0xFF << 8 | 11
_WANTS_EXIT = 1 << 3
# Fields of ``/proc/PID/stat`` after the name: the state and, the last one, the code.
_STATE, _CODE = 0, -1


def exit_code_of(pid: int, pidfd: int) -> int | None:
    """Return how a process ended, as `subprocess.Popen` tells it; None where that cannot be known.

    Parameters
    ----------
    pid : int
        The process, which has ended.
    pidfd : int
        Descriptor of it, opened while it lived.
    """
    status = _read_reaped_status(pidfd)
    if status is None:
        status = _read_zombie_status(pid)
    if status is None:
        status = _read_reaped_status(pidfd)  # its parent may have asked meanwhile
    return None if status is None else os.waitstatus_to_exitcode(status)


def _read_zombie_status(pid: int) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[_STATE] == "Z":
            return int(fields[_CODE])
    return None


def _read_reaped_status(pidfd: int) -> int | None:
    if sys.platform != "linux":
        return None
    answer = bytearray(_INFO.pack(_WANTS_EXIT, *[0] * 13))
    with suppress(OSError):
        fcntl.ioctl(pidfd, _GET_INFO, answer)
        mask, *_, status = _INFO.unpack(answer)
        if mask & _WANTS_EXIT:
            return int(status)
    return None
