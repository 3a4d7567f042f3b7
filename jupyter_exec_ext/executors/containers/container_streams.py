"""The other end of a container's standard streams."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
from collections import deque
from typing import Any

_HEADER = struct.Struct(">BxxxL")  # which stream, how many bytes
_KEPT_LINES = 40
_KEPT_BYTES = 16 * 1024


class Attached:
    """Reads all that a container prints, so that it never waits, and keeps the end; holds its standard input open.

    To be made before the container starts.

    Parameters
    ----------
    container : docker.models.containers.Container
    stdin : bool
        Whether to hold its standard input, too. It ends when this is closed, or this process ends.

    Attributes
    ----------
    ended : threading.Event
        Set when the container prints nothing any more, since it has ended.
    """

    def __init__(self, container: Any, *, stdin: bool) -> None:
        self.ended = threading.Event()
        self._tail: deque[bytes] = deque(maxlen=_KEPT_LINES)
        params = {"stdin": int(stdin), "stdout": 1, "stderr": 1, "stream": 1}
        # Kept as the library gives it: the connection goes with it.
        self._attached = container.client.api.attach_socket(container.id, params=params)
        self._socket: Any = getattr(self._attached, "_sock", self._attached)
        self._socket.settimeout(None)
        self._reader = threading.Thread(target=self._read, name="container output", daemon=True)
        self._reader.start()

    def send(self, settings: dict[str, Any]) -> None:
        """Give the container its settings."""
        self._socket.sendall(json.dumps(settings).encode() + b"\n")

    def last_lines(self) -> str:
        """Return the end of what the container printed."""
        return b"".join(self._tail)[-_KEPT_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Let go of it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(2)  # wakes the reader, which a close would not
        self._reader.join(5.0)
        answer = getattr(self._attached, "_response", None)  # the library leaves it there, with buffers of its own
        for end in (answer, self._attached, self._socket):
            if end is not None:
                end.close()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while (header := self._exactly(_HEADER.size)) is not None:
                _, size = _HEADER.unpack(header)
                text = self._exactly(size)
                if text is None:
                    break
                self._tail.extend(text.splitlines(keepends=True)[-_KEPT_LINES:])
        self.ended.set()

    def _exactly(self, size: int) -> bytes | None:
        parts = b""
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                return None
            parts += part
        return parts
