"""Port of ``jupyter exec serve``: the named one or a clear refusal; otherwise the next free one."""

from __future__ import annotations

import argparse
import errno
import os
import re
import socket

import psutil

from .messages import UsageError, print_message

DEFAULT_PORT = 8888
_MAX_PORT = 65535
_TRIED_PORTS = 50


def port_number(text: str) -> int:
    """Parse a port.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is no whole number from 0 to 65535.
    """
    if re.fullmatch(r"[0-9]{1,5}", text) and int(text) <= _MAX_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port; write a number from 1 to {_MAX_PORT}, or 0 for any")


def choose_port(address: str, named: int | None) -> int:
    """Return the port to listen on, after trying it.

    Parameters
    ----------
    address : str
        The address to listen on.
    named : int or None
        The port that was asked for; None for 8888 or the next free one, which is then printed.

    Raises
    ------
    UsageError
        If the port, or every port that was tried, cannot be used; the message names the process that holds it.
    """
    if named is not None:
        problem = _problem(address, named)
        if problem is not None:
            raise UsageError(problem)
        return named
    first = _problem(address, DEFAULT_PORT)
    if first is None:
        return DEFAULT_PORT
    for port in range(DEFAULT_PORT + 1, DEFAULT_PORT + _TRIED_PORTS):
        if _problem(address, port) is None:
            print_message(f"{first.partition(';')[0]}; port {port} is used instead")
            return port
    raise UsageError(first)


def _problem(address: str, port: int) -> str | None:
    """Return why a port cannot be listened on, with the remedy; None if it can."""
    try:
        _bind(address, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"port {port} is in use{_holder(port)}; stop that program, or choose another port with --port"
        if error.errno == errno.EACCES:
            return f"you have no permission to use port {port}; choose one of 1024 or above with --port"
        # For example, an address that this machine does not have: the server has a message of its own.
    return None


def _bind(address: str, port: int) -> None:
    """Bind a port as a server does, for a moment; raises `OSError` if it cannot be bound."""
    host = None if address in ("", "*") else address
    for family, kind, number, _, place in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        with socket.socket(family, kind, number) as trial:
            if os.name != "nt":  # on Windows this option would let two servers have one port
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # else it binds the port of IPv4 as well
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            trial.bind(place)


def _holder(port: int) -> str:
    """Return the process that listens on a port, as part of a sentence; empty if that cannot be known."""
    try:
        found = psutil.net_connections(kind="tcp")
        pids = [c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port and c.pid]
        return f" by {psutil.Process(pids[0]).name()} (process {pids[0]})" if pids else ""
    except psutil.Error:  # another user's process, or one that has just ended
        return ""
