"""Program that opens sockets in a sandbox's network namespace, for the server that started it. It imports little.

Usage: ``python -I -S namespace_program.py PID FD``. It joins the namespaces of process PID, and answers requests at FD
until that closes: ``listen PORT`` and ``socket 0``, with a socket, or with the number of an error. The server connects
the socket itself, since a program in the sandbox could keep this one waiting.
"""

from __future__ import annotations

import array
import ctypes
import os
import socket
import sys

_LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_MAX_REQUEST_BYTES = 64


def main(pid: int, control_fd: int) -> None:
    """Join the namespaces of a process, and answer requests until the server ends the connection."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    control = socket.socket(fileno=control_fd)
    process = os.pidfd_open(pid)
    # The user namespace, too: an unprivileged server has the right to join the other one only in there.
    if libc.setns(process, _CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        control.send(str(ctypes.get_errno()).encode())
        return
    os.close(process)
    control.send(b"0")
    while request := control.recv(_MAX_REQUEST_BYTES):
        verb, _, port = request.decode().partition(" ")
        try:
            opened = _open(verb, int(port))
        except OSError as error:
            control.send(str(error.errno).encode())
            continue
        with opened:
            control.sendmsg([b"0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [opened.fileno()]))])


def _open(verb: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if verb == "listen":
            opened.bind((_LOOPBACK, port))
            opened.listen(_BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
