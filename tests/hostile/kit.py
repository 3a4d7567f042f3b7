"""Functions that every trick has inside the kernel. This module's text is sent to it, so: standard library only.

`LARGE` says which form of a trick is wanted. A large one has messages of more than 256 KiB, which the server reads in a
worker thread.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

from ipykernel.connect import get_connection_file
from IPython import get_ipython

LARGE: bool = globals().get("LARGE", False)
FLOOD_SECONDS: float = globals().get("FLOOD_SECONDS", 0.6)
PADDING: str = "x" * (400_000 if LARGE else 10)
#: ZMTP flags: another frame follows, the length has 8 bytes, a command.
MORE, LONG, COMMAND = 1, 2, 4

kernel: Any = get_ipython().kernel


def parent() -> dict[str, Any]:
    """Return the header of the request that runs, with its id."""
    found: dict[str, Any] = kernel.get_parent("shell")
    return found


def ident() -> Any:
    """Return the identity of the client on the shell channel."""
    return kernel._parent_ident["shell"]


def publish(msg_type: Any, content: Any = None, **options: Any) -> None:
    """Send a signed message on iopub."""
    kernel.session.send(kernel.iopub_socket, msg_type, content=content or {}, parent=options.pop("parent", parent()))


def reply(content: Any, msg_type: str = "execute_reply", **options: Any) -> None:
    """Send a signed message on shell."""
    about = options.pop("parent", parent())
    kernel.session.send(kernel.shell_stream, msg_type, content, about, ident=ident())


def ask(content: Any, msg_type: str = "input_request") -> None:
    """Send a signed message on stdin."""
    kernel.session.send(kernel.stdin_socket, msg_type, content, parent(), ident=ident())


def answer_control(content: Any, msg_type: str = "kernel_info_reply", about: Any = None) -> None:
    """Send a signed message on control, to the client of the shell channel, which has the same identity."""
    kernel.session.send(kernel.control_stream, msg_type, content, about or parent(), ident=ident())


def part(value: Any) -> bytes:
    """Return a part of a message as it is sent: bytes as they are, else the JSON of a value."""
    return value if isinstance(value, bytes) else json.dumps(value, default=str).encode()


def frames(header: Any = None, about: Any = None, metadata: Any = None, content: Any = None) -> list[bytes]:
    """Return the four parts of a message, with proper ones where none is given."""
    proper = {"msg_id": "m", "msg_type": "stream", "session": "s", "username": "u", "date": "2026-01-01T00:00:00Z"}
    usual: Any = ({**proper, "version": "5.3"}, parent()["header"], {}, {"name": "stdout", "text": PADDING})
    return [part(usual[n] if each is None else each) for n, each in enumerate((header, about, metadata, content))]


def signed(parts: list[bytes]) -> list[bytes]:
    """Return parts with topic, delimiter and signature before them."""
    return [b"topic", b"<IDS|MSG>", kernel.session.sign(parts), *parts]


def send(*raw: bytes) -> None:
    """Send frames on iopub as they are."""
    kernel.iopub_socket.send_multipart(list(raw))


def send_parts(**parts: Any) -> None:
    """Send a signed message with some parts replaced."""
    send(*signed(frames(**parts)))


def padded(value: Any) -> bytes:
    """Return the JSON of a value; in the large form, inside of something that is large."""
    raw = part(value)
    return b'{"padding":"' + PADDING.encode() + b'","inner":' + raw + b"}" if LARGE else raw


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """Return JSON that is nested so deeply."""
    return opening * depth + closing * depth


def flood(step: Any, seconds: float = FLOOD_SECONDS) -> None:
    """Call something again and again for a while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        step()


# --- the sockets themselves


def socket_path(channel: str) -> str:
    """Return the path of a channel's Unix socket."""
    with open(get_connection_file()) as file:
        info = json.load(file)
    return f"{info['ip']}-{info[f'{channel}_port']}"


def accepted(channel: str) -> list[socket.socket]:
    """Return the sockets over which clients are connected to a channel; they share their descriptors with libzmq."""
    found, path = [], socket_path(channel)
    for number in range(3, 512):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                made = socket.socket(fileno=os.dup(number))
                listens = made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if made.family == socket.AF_UNIX and made.getsockname() == path and not listens:
                    made.setblocking(True)
                    found.append(made)
    return found


def inject(channel: str, data: bytes, times: int = 1) -> None:
    """Write bytes among those that libzmq sends, in a thread, since the server may stop reading."""

    def write() -> None:
        for made in accepted(channel):
            with suppress(OSError):
                made.settimeout(5)
                for _ in range(times):
                    made.sendall(data)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(FLOOD_SECONDS)


def frame(data: bytes, flags: int = 0) -> bytes:
    """Return a frame of ZMTP."""
    if len(data) < 256:
        return bytes([flags, len(data)]) + data
    return bytes([flags | LONG]) + struct.pack(">Q", len(data)) + data


def head(size: int, flags: int = 0) -> bytes:
    """Return what announces a frame of a size."""
    return bytes([flags | LONG]) + struct.pack(">Q", size)


def close_channel(channel: str) -> None:
    """Close the kernel's socket of a channel, so that its clients connect anew."""
    if channel == "iopub":
        thread, done = kernel.iopub_thread, threading.Event()

        def close() -> None:
            thread.socket.close(linger=0)
            done.set()

        thread.io_loop.add_callback(close)
        done.wait(2)
    else:
        for made in accepted(channel):
            with suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)


def pose(channel: str, conversation: Any, greeting: bytes | None = None) -> None:
    """Take the place of a channel's socket: answer its clients by `conversation(socket)`."""
    path = socket_path(channel)
    close_channel(channel)
    with suppress(OSError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)
    for made in accepted(channel):
        with suppress(OSError):
            made.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=talk, args=(peer,), daemon=True).start()

    def talk(peer: socket.socket) -> None:
        with suppress(OSError):
            if greeting is None:
                shake_hands(peer, "PUB" if channel == "iopub" else "ROUTER")
            else:
                peer.sendall(greeting)
            conversation(peer)

    threading.Thread(target=serve, daemon=True).start()


def shake_hands(peer: socket.socket, socket_type: str) -> None:
    """Greet a client in ZMTP 3.1 without security."""
    peer.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32))
    got = b""
    while len(got) < 64:
        got += peer.recv(64 - len(got)) or b"\0" * 64
    kind = socket_type.encode()
    peer.sendall(frame(b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind, COMMAND))


# --- files

WORK = os.getcwd()
HOME = os.path.expanduser("~")
TEMPORARY = tempfile.gettempdir()


def outside() -> str:
    """Return a directory that is not the kernel's, for links.

    Where the kernel may write to the system's own, as without isolation, it is another one: a later trick removes what
    it finds behind the links of an earlier one.
    """
    if not os.access("/etc", os.W_OK):
        return "/etc"
    made = os.path.join(HOME, "outside")
    os.makedirs(made, exist_ok=True)
    touch(os.path.join(made, "passwd"))
    return made


def enter_new(base: str = WORK) -> str:
    """Make a directory of a new name in one of the places that the kernel may write, and return its path."""
    return tempfile.mkdtemp(prefix="trick", dir=base)


def places() -> list[str]:
    """Return new directories in all places that the kernel may write."""
    found = []
    for base in (WORK, HOME, TEMPORARY):
        with suppress(OSError):
            found.append(enter_new(base))
    return found


def touch(path: str | bytes) -> None:
    """Make an empty file."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def later(work: Any) -> None:
    """Go on with something after the run has ended, for a while."""

    def repeat() -> None:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            with suppress(OSError):
                work()

    threading.Thread(target=repeat, daemon=True).start()
