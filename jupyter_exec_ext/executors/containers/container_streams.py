"""Standard streams of a container, and the wait until the server in it is ready."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections import deque
from http import HTTPStatus
from typing import Any

import requests

from ...client.server_connection import JupyterConnectionInfo

_HEADER = struct.Struct(">BxxxL")  # number of the stream, number of bytes
# The end of the output is enough for an error message, and a container may print without end.
_KEPT_LINES = 40
_KEPT_BYTES = 16 * 1024
_REQUEST_SECONDS = 5.0
# Short against the start of a gateway, which takes one second or more.
_POLL_SECONDS = 0.1


class ContainerStreams:
    """Open standard streams of a container. Create them before the container starts.

    A thread reads all output, so that the container never blocks on it, and keeps the last lines.

    Parameters
    ----------
    container : docker.models.containers.Container
        The container.
    stdin : bool
        Whether to hold its standard input open until `close` or the end of this process.

    Attributes
    ----------
    ended : threading.Event
        Set when the output ends, because the container has stopped.
    """

    def __init__(self, container: Any, *, stdin: bool) -> None:
        self.ended = threading.Event()
        self._tail: deque[bytes] = deque(maxlen=_KEPT_LINES)
        params = {"stdin": int(stdin), "stdout": 1, "stderr": 1, "stream": 1}
        # Without a reference to the library's object, the garbage collector would close its socket.
        self._attached = container.client.api.attach_socket(container.id, params=params)
        self._socket: Any = getattr(self._attached, "_sock", self._attached)
        self._socket.settimeout(None)
        self._reader = threading.Thread(target=self._read, name="container output", daemon=True)
        self._reader.start()

    def send(self, settings: dict[str, Any]) -> None:
        """Write the settings to the container's standard input."""
        self._socket.sendall(json.dumps(settings).encode() + b"\n")

    def last_lines(self) -> str:
        """Return the end of the container's output."""
        return b"".join(self._tail)[-_KEPT_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Close the streams; the container goes on unless it reads its standard input."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the reader, which `close` alone would not
        self._reader.join(5.0)
        response = getattr(self._attached, "_response", None)  # the library leaves it open
        for stream in (response, self._attached, self._socket):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while header := self._read_exactly(_HEADER.size):
                text = self._read_exactly(_HEADER.unpack(header)[1])
                self._tail.extend(text.splitlines(keepends=True)[-_KEPT_LINES:])
        self.ended.set()

    def _read_exactly(self, size: int) -> bytes:
        """Return `size` bytes, none if the output ends before."""
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                return b""
            data += piece
        return data


def wait_until_ready(info: JupyterConnectionInfo, streams: ContainerStreams, timeout_seconds: float) -> None:
    """Poll the server in a container until it lists its kernelspecs: a container that runs may not answer yet.

    Raises
    ------
    ValueError
        If the container stops, the server refuses the token, or the timeout expires; with the last lines of output.
    """
    deadline = time.monotonic() + timeout_seconds
    with requests.Session() as session:
        session.trust_env = False  # no credentials from a netrc file; `info` knows the proxy
        while True:
            try:
                status = session.get(
                    f"{info.url}api/kernelspecs",
                    headers=info.auth_headers,
                    proxies={"http": info.proxy} if info.proxy else {},
                    timeout=_REQUEST_SECONDS,
                    allow_redirects=False,
                ).status_code
            except requests.RequestException as error:
                problem = f"it did not answer: {type(error).__name__}"
            else:
                if status == HTTPStatus.OK:
                    return
                if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                    problem = f"refuses our token (status {status}); does its image respect TOKEN?"
                    raise _startup_error(problem, info, streams)
                problem = f"it answered with status {status}"
            if streams.ended.wait(_POLL_SECONDS):
                raise _startup_error("ended before it answered", info, streams)
            if time.monotonic() > deadline:
                raise _startup_error(f"was not ready within {timeout_seconds:g} s: {problem}", info, streams)


def _startup_error(problem: str, info: JupyterConnectionInfo, streams: ContainerStreams) -> ValueError:
    output = streams.last_lines()
    if info.token:  # an image may print it
        output = output.replace(info.token, "***")
    return ValueError(f"the server in the container, at {info.url}, {problem}\n{output}".rstrip())
