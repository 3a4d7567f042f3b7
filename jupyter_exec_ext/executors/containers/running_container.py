"""Lifecycle of one container: its network, streams and watchdog, and the wait until its server is ready."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
import uuid
from collections import deque
from http import HTTPStatus
from typing import Any

import requests

from ...client.server_connection import JupyterConnectionInfo
from .container_engine import engine_errors
from .container_options import Reach
from .container_watchdog import dismiss_watchdog, start_watchdog, stop_container

# Docker's frames for the output of a container without a terminal.
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
        # The library mostly returns a `SocketIO`, which has neither timeouts nor `shutdown`. The socket is inside.
        self._socket: Any = getattr(self._attached, "_sock", self._attached)
        self._socket.settimeout(None)  # the library's own would end the reader of a silent container
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


DEFAULT_PORT = 8888
# With this prefix a user recognises our containers and networks in the engine's lists.
_NAME_PREFIX = "jupyter-exec-"


class RunningContainer:
    """A container that was started here.

    Parameters
    ----------
    client : docker.DockerClient
        The engine; `end` and `detach` close it.
    image : docker.models.images.Image
        The image to run.
    options : dict
        As the library's ``containers.create`` takes them.
    name : str or None
        The container's name; None for a new one.
    settings : dict or None
        Settings to write to the container's standard input.
    port : int
        The port on which its server listens.
    reach : Reach
        The way to its server.
    internet : bool
        Whether it may reach other machines. If not, it gets an internal network to itself.
    stop : bool
        Whether a watchdog stops it when this process ends.
    remove : bool
        Whether it is removed when it has stopped.

    Attributes
    ----------
    id : str
        Its id at the engine.
    host : str
        The host of its server.
    port : int
        The port of its server, as seen from here.
    streams : ContainerStreams
        Its standard streams.

    Raises
    ------
    ValueError
        If the engine refuses.
    """

    def __init__(
        self,
        client: Any,
        image: Any,
        options: dict[str, Any],
        *,
        name: str | None,
        settings: dict[str, Any] | None,
        port: int,
        reach: Reach,
        internet: bool,
        stop: bool,
        remove: bool,
    ) -> None:
        self._client = client
        unique = f"{_NAME_PREFIX}{uuid.uuid4()}"
        # The stack ends in reverse order: a network, for example, can be removed once its container is gone.
        with contextlib.ExitStack() as undo, engine_errors("the container cannot be started"):
            network = reach.network
            if not internet:
                undo.callback(client.networks.create(unique, driver="bridge", internal=True).remove)
                network = unique
            container = client.containers.create(
                image.id,
                name=name or unique,
                auto_remove=remove,
                network=network,
                ports={} if reach.publish_at is None else {f"{port}/tcp": (reach.publish_at, None)},
                stdin_open=settings is not None,
                **options,
            )
            self.id: str = container.id
            undo.callback(stop_container, client, self.id, remove=remove)
            if stop:
                watchdog = start_watchdog(self.id, remove=remove, network=None if internet else unique)
                undo.callback(dismiss_watchdog, watchdog)
                # The container has to stop before the watchdog is dismissed. The call above is for a watchdog that
                # does not start; on a container that is gone it does nothing.
                undo.callback(stop_container, client, self.id, remove=remove)
            self.streams = ContainerStreams(container, stdin=settings is not None)
            undo.callback(self.streams.close)
            container.start()
            if settings is not None:
                self.streams.send(settings)
            # The engine chooses the port and the address when the container starts.
            container.reload()
            networking = container.attrs["NetworkSettings"]
            if reach.publish_at is not None:
                self.host, self.port = str(reach.host), int(networking["Ports"][f"{port}/tcp"][0]["HostPort"])
            else:
                self.host, self.port = str(networking["Networks"][network]["IPAddress"]), port
            self._undo = undo.pop_all()

    def end(self) -> None:
        """Stop the container, and remove it unless it is to be kept; calling it again does nothing."""
        try:
            with engine_errors("the container cannot be stopped"):
                self._undo.close()
        finally:
            self._client.close()

    def detach(self) -> None:
        """Close the streams and leave the container running; `end` can still be called."""
        self.streams.close()
        self._client.close()
