"""Processes that a kernel leaves behind, found by a mark in their environment, and killed.

A child that called ``setsid`` survives its kernel, and nothing in the process table leads back to it. What it cannot
easily lose is the environment it inherited, so every kernel gets its session's id there. Code that wants to hide from
this can (it may start its children with an empty environment); only a sandbox stops that.

Everything here blocks for as long as the process table takes to read: call it in a thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil

MARK = "JUPYTER_EXEC_SESSION"

# A process may fork between being found and being killed; a few rounds outrun that.
_MAX_ROUNDS = 50
_ROUND_SECONDS = 0.01
# Where to connect to what listens at an address. What listens at `::` may do so for IPv6 alone, and another program
# may have the port for IPv4.
_REACHED_AT = {"127.0.0.1": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::1": "::1", "::": "::1"}  # noqa: S104  # compared


def kill_marked(session_ids: set[str]) -> list[int]:
    """Kill every process of our user that carries the mark of one of these sessions.

    Parameters
    ----------
    session_ids : set of str
        Sessions whose kernels have ended. The processes of other sessions, other users and this one stay.

    Returns
    -------
    list of int
        The ids of the processes that were killed.
    """
    return _kill(session_ids, None)


def kill_left_behind(session_id: str, kernel_pid: int | None) -> list[int]:
    """Kill what earlier kernels of a session left behind, but not its present kernel and that one's children.

    Only for a kernel that has run no code yet: what is not below it belongs to its predecessors.
    """
    return _kill({session_id}, kernel_pid)


def listening_address(session_id: str, port: int) -> str | None:
    """Return the loopback address at which a process of a session is reached by a port; None if none listens there."""
    listening = (
        connection.laddr.ip
        for process in _marked({session_id})
        for connection in _connections(process)
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    )
    return next((_REACHED_AT[ip] for ip in listening if ip in _REACHED_AT), None)


def _connections(process: psutil.Process) -> list[Any]:
    try:  # psutil 6 has renamed the method
        read = getattr(process, "net_connections", None) or process.connections
        return list(read("tcp"))
    except (psutil.Error, OSError):  # it has ended meanwhile
        return []


def _kill(session_ids: set[str], spared_root: int | None) -> list[int]:
    killed: list[int] = []
    if not session_ids:
        return killed
    for _ in range(_MAX_ROUNDS):
        spared = _with_descendants(spared_root)
        found = [process for process in _marked(session_ids) if process.pid not in spared]
        if not found:
            break
        for process in found:
            with suppress(psutil.Error):  # it ended meanwhile, or changed its user
                process.kill()
                killed.append(process.pid)
        # Not `psutil.wait_procs`: it would take a child's exit status from the code that waits for it.
        time.sleep(_ROUND_SECONDS)
    return list(dict.fromkeys(killed))


def _with_descendants(pid: int | None) -> set[int]:
    if pid is None:
        return set()
    try:
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    except psutil.Error:
        return {pid}


def _marked(session_ids: set[str]) -> Iterator[psutil.Process]:
    """Yield living processes of our user with a mark in `session_ids`."""
    uid = os.getuid() if hasattr(os, "getuid") else None
    for pid in psutil.pids():
        if pid == os.getpid():  # a server that was started from a kernel has its mark
            continue
        try:
            process = psutil.Process(pid)
            ours = uid is None or process.uids().real == uid
            # A zombie would be found again in every round, although it has ended.
            if ours and process.environ().get(MARK) in session_ids and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (psutil.Error, OSError):
            continue  # ended meanwhile, or not ours to see
