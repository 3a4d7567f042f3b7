"""A person at a terminal: what a command shows there, and what is typed into it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_SECONDS = 60.0


class Terminal:
    """A terminal of 60 columns with one command in it."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], directory: Path | None = None) -> None:
        self._fd, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        self._shown = ""
        self.process = subprocess.Popen(
            command, env=dict(env), cwd=directory, stdin=end, stdout=end, stderr=end, start_new_session=True
        )
        os.close(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def read_until(self, words: str) -> str:
        """Return what is shown up to `words`."""
        deadline = time.monotonic() + _SECONDS
        while words not in self._shown:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self._shown
            self._shown += os.read(self._fd, 65536).decode().replace("\r\n", "\n")
        before, _, self._shown = self._shown.partition(words)
        return before

    def type(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(_SECONDS)
        os.close(self._fd)
