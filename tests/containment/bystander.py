"""The process outside that is attacked in the server's stead, and tells what reached it.

Run with this file's text as ``-c``, since its user may not be able to read it: the first line of its input tells it
what to hold, each later one asks for a report. It ends when its input does. Its command line has a secret, by which it
is known among the processes.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

_WAIT_SECONDS = 5.0
# So many that attacks which take one from the queue leave some for the others.
_MESSAGES = 8
_IPC_CREAT, _IPC_RMID = 0o1000, 0


class Bystander:
    """What is held, and what has come."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._banner = told["banner"].encode()
        self._received: list[str] = []
        self._signals = 0
        self._kept: list[Any] = []
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.scratch = ctypes.create_string_buffer(256)
        self.memory = ctypes.create_string_buffer(told["memory"].encode())
        self._shared: int | None = None
        self._queue: int | None = None

    def hold(self) -> dict[str, Any]:
        """Open all that may be attacked, and return where it is."""
        signal.signal(signal.SIGUSR1, self._signalled)
        os.chdir(self._told["directory"])
        opened = os.open(self._told["unlinked"], os.O_RDONLY)
        Path(self._told["unlinked"]).unlink()
        for path in self._told["sockets"]:
            self._listen(socket.AF_UNIX, path)
        for name in self._told["abstract"]:
            self._listen(socket.AF_UNIX, "\0" + name)
        self._local_datagrams("\0" + self._told["datagrams"])
        return {
            "server": os.getpid(),
            "server_descriptor": opened,
            "tcp4": self._listen(socket.AF_INET, ("127.0.0.1", 0)),
            "tcp6": self._listen(socket.AF_INET6, ("::1", 0)),
            "udp4": self._datagrams(socket.AF_INET, ("127.0.0.1", 0)),
            "udp6": self._datagrams(socket.AF_INET6, ("::1", 0)),
            "memory": [ctypes.addressof(self.memory), len(self.memory)],
            "scratch": [ctypes.addressof(self.scratch), len(self.scratch)],
            "shared_memory": self._share(),
            "posted": self._post(),
        }

    def report(self) -> dict[str, Any]:
        """Return what has come since the last report."""
        received, self._received = self._received, []
        signals, self._signals = self._signals, 0
        written, self.scratch.value = self.scratch.value.decode(errors="replace"), b""
        return {"received": received, "signals": signals, "scratch": written}

    def let_go(self) -> None:
        """Remove what would outlive the process."""
        if self._shared is not None:
            self._libc.shmctl(self._shared, _IPC_RMID, None)
        if self._queue is not None:
            self._libc.mq_unlink(self._told["queue"].encode())

    def _signalled(self, _number: int, _frame: object) -> None:
        self._signals += 1

    def _note(self, data: bytes) -> None:
        self._received.append(data.decode(errors="replace"))

    def _listen(self, family: int, address: Any) -> int | None:
        try:
            listener = socket.socket(family)
            listener.bind(address)
        except OSError:  # without IPv6
            return None
        listener.listen()
        self._kept.append(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return int(listener.getsockname()[1]) if family != socket.AF_UNIX else 0

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(self._banner + b"\n")
                if select.select([connection], [], [], _WAIT_SECONDS)[0]:
                    self._note(connection.recv(4096))
            except OSError:
                pass

    def _datagrams(self, family: int, address: Any) -> int | None:
        try:
            receiver = socket.socket(family, socket.SOCK_DGRAM)
            receiver.bind(address)
        except OSError:
            return None
        self._receive(receiver)
        return int(receiver.getsockname()[1])

    def _local_datagrams(self, name: str) -> None:
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.bind(name)
        self._receive(receiver)

    def _receive(self, receiver: socket.socket) -> None:
        def receive() -> None:
            while True:
                self._note(receiver.recv(4096))

        self._kept.append(receiver)
        threading.Thread(target=receive, daemon=True).start()

    def _share(self) -> int | None:
        """Put a secret into System V shared memory."""
        secret = self._told["shared"].encode()
        number = self._libc.shmget(self._told["shared_key"], 4096, _IPC_CREAT | 0o600)
        if number < 0:
            return None
        self._shared = number
        self._libc.shmat.restype = ctypes.c_void_p
        address = self._libc.shmat(number, None, 0)
        ctypes.memmove(address, secret, len(secret))
        return int(number)

    def _post(self) -> bool:
        """Put a secret into a POSIX message queue."""
        name = self._told["queue"].encode()
        queue = self._libc.mq_open(name, os.O_CREAT | os.O_RDWR | os.O_NONBLOCK, 0o600, None)
        if queue < 0:
            return False
        self._queue = queue
        secret = self._told["message"].encode()
        for _ in range(_MESSAGES):
            self._libc.mq_send(queue, secret, len(secret), 0)
        return True


def main() -> None:
    """Serve whoever started this."""
    bystander = Bystander(json.loads(sys.stdin.readline()))
    try:
        print(json.dumps(bystander.hold()), flush=True)
        for _ in sys.stdin:
            print(json.dumps(bystander.report()), flush=True)
    finally:
        bystander.let_go()


if __name__ == "__main__":
    main()
