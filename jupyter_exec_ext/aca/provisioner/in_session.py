"""Part of a kernel that runs inside its ACA session: runs cells with the session's IPython, and records all outputs.

The text of this file is sent to a session once. This package is not installed there, so it imports nothing of it. The
service returns only the streams and one value of a run. So this code redirects the session's IPython, records all that
a notebook would show, and prints it, packed, between marks that the kernel side recognizes. The service may shorten
printed text, so the last answer is kept and can be requested again in pieces.
"""

from __future__ import annotations

import asyncio
import base64
import builtins
import getpass
import inspect
import io
import json
import os
import platform
import signal
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from IPython import get_ipython
from jupyter_client.session import Session

_NEVER_FULL = 1000


class Record:
    """Recorder of outputs, in order, up to a limit."""

    def __init__(self, max_characters: int) -> None:
        self._lock = threading.Lock()
        self._max_characters = max_characters
        self._reset()

    def _reset(self) -> None:
        self._messages: list[tuple[str, dict[str, Any]]] = []
        self._texts: list[str] = []  # of the last message, if it is a stream
        self._characters = self._dropped = 0

    def add_text(self, name: str, text: str) -> None:
        """Add text of a stream; consecutive texts of one stream are one message."""
        with self._lock:
            room = max(0, self._max_characters - self._characters)
            kept = text[:room]
            self._characters += len(kept)
            self._dropped += len(text) - len(kept)
            if not kept:
                return
            if not (self._texts and self._messages[-1][1]["name"] == name):
                self._join_text()
                self._messages.append(("stream", {"name": name, "text": ""}))
            self._texts.append(kept)

    def add(self, msg_type: str, content: dict[str, Any]) -> None:
        """Add a message that is not a stream."""
        size = len(json.dumps(content, default=repr))
        with self._lock:
            if self._characters + size > self._max_characters:
                self._dropped += size
                return
            self._characters += size
            self._join_text()
            self._messages.append((msg_type, content))

    def _join_text(self) -> None:
        if self._texts:
            self._messages[-1][1]["text"] = "".join(self._texts)
            self._texts = []

    def pop(self) -> dict[str, Any]:
        """Return the recorded outputs, and start again."""
        with self._lock:
            self._join_text()
            outputs = {"messages": self._messages, "dropped_characters": self._dropped}
            self._reset()
            return outputs


class RecordingStream(io.TextIOBase):
    """Replacement of ``sys.stdout`` or ``sys.stderr`` that records text; ipykernel's stream stays behind it."""

    encoding = "UTF-8"

    def __init__(self, name: str, record: Record) -> None:
        self.name = f"<{name}>"
        self.behind: Any = getattr(sys, name)
        self._stream_name = name
        self._record = record

    def write(self, text: str) -> int:
        """Record text."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text)}")
        self._record.add_text(self._stream_name, text)
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the stream behind, to which subprocesses write."""
        return int(self.behind.fileno())

    def __getattr__(self, name: str) -> Any:
        # The kernel sets the current request on its streams; without it, the printed answer would be lost.
        return getattr(self.behind, name)


class RecordingSession(Session):
    """Jupyter session that records IPython's messages instead of sending them."""

    record: Record

    def send(self, stream: Any, msg_or_type: Any, content: Any = None, *_: Any, **__: Any) -> Any:
        """Record a message."""
        if isinstance(msg_or_type, dict):
            self.record.add(str(msg_or_type["msg_type"]), dict(msg_or_type["content"]))
            return msg_or_type
        self.record.add(str(msg_or_type), dict(content or {}))
        return None


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Let SIGINT, as at a time limit, end the cell at once instead of at the request's next ``await``."""
    # Subshells of ipykernel run cells in other threads, where Python cannot set handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class InSession:
    """The session's side of a kernel.

    Parameters
    ----------
    mark : str
        Text around answers, by which the kernel side finds them.
    environment : dict of str to str
        Environment variables for the code.
    directory : str
        Directory of the session's files, and first working directory of the code.
    max_characters : int
        Highest number of recorded characters of a run.
    """

    def __init__(self, mark: str, environment: dict[str, str], directory: str, max_characters: int) -> None:
        self._mark = mark
        self._shell: Any = get_ipython()
        self._kernel: Any = self._shell.kernel
        self._record = Record(max_characters)
        self._streams = {name: RecordingStream(name, self._record) for name in ("stdout", "stderr")}
        self._users: dict[str, Any] = dict(self._streams)
        for name, stream in self._streams.items():
            setattr(sys, name, stream)
        self._session = RecordingSession()
        self._session.record = self._record
        self._inputs: tuple[Any, ...] | None = None
        self._answered = ""
        self._answer = ""
        # A cell and its request would be the same line of IPython's history on disk, so do not write it.
        self._shell.history_manager.db_cache_size = _NEVER_FULL
        os.environ.update(environment)
        with suppress(OSError):  # a session without that directory has no files
            os.chdir(directory)

    async def __call__(self, request_text: str) -> None:
        """Answer one request of the kernel side."""
        self._restore_user_streams()
        try:
            await self._reply(json.loads(request_text))
        finally:
            self._restore_own_streams()

    async def _reply(self, request: dict[str, Any]) -> None:
        if request["verb"] != "more":
            reply = await getattr(self, f"_{request['verb']}")(**request["arguments"])
            # As UTF-8: with escapes, text that is not ASCII could exceed the limit of the kernel side.
            text = json.dumps({"reply": reply, **self._record.pop()}, default=repr, ensure_ascii=False)
            self._answer = base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 1)).decode()
            self._answered = request["id"]
        elif request["id"] != self._answered:
            raise LookupError("there is no such answer")
        start = request["start"]
        piece = self._answer[start : start + request["max_characters"]]
        out = self._streams["stdout"].behind
        out.write(f"<{self._mark} {request['id']} {start} {len(self._answer)}:{piece}:{self._mark}>")
        out.flush()

    def _restore_user_streams(self) -> None:
        for name, stream in self._streams.items():
            if getattr(sys, name, None) is stream:
                setattr(sys, name, self._users[name])
        # ipykernel sends values and displays through these sessions, past the streams.
        for sender in (self._shell.displayhook, self._shell.display_pub):
            sender.session = self._session

    def _restore_own_streams(self) -> None:
        # Code can replace the streams, and the next cell finds them so. But the kernel needs streams that know the
        # current request and can be flushed.
        for name, stream in self._streams.items():
            self._users[name] = getattr(sys, name, None)
            setattr(sys, name, stream)

    async def _about(self) -> Any:
        return {"python": platform.python_version(), "banner": self._kernel.banner}

    async def _execute(self, count: int, code: str, silent: bool, store_history: bool, expressions: Any) -> Any:
        history, shell, kernel = self._shell.history_manager, self._shell, self._kernel
        # The surrounding request is counted and remembered, too. Hide that from the user.
        shell.execution_count = count
        history.db_input_cache.clear()
        for inputs in (history.input_hist_parsed, history.input_hist_raw):
            del inputs[count:]
            inputs.extend([""] * (count - len(inputs)))
        if self._inputs is not None:
            history._i00, history._i, history._ii, history._iii = self._inputs
        before = builtins.input, getpass.getpass, getattr(kernel, "_sys_raw_input", None)
        try:
            with allow_interrupts():
                reply = await _awaited(kernel.do_execute(code, silent, store_history, expressions, False))
        finally:
            # The kernel has replaced these by functions that refuse, since input is not allowed.
            builtins.input, getpass.getpass, kernel._sys_raw_input = before
        self._inputs = history._i00, history._i, history._ii, history._iii
        reply.pop("engine_info", None)
        return {**reply, "next_count": shell.execution_count}

    async def _complete(self, code: str, cursor_pos: int) -> Any:
        return await _awaited(self._kernel.do_complete(code, cursor_pos))

    async def _inspect(self, code: str, cursor_pos: int, detail_level: int) -> Any:
        return await _awaited(self._kernel.do_inspect(code, cursor_pos, detail_level))

    async def _is_complete(self, code: str) -> Any:
        return await _awaited(self._kernel.do_is_complete(code))


async def _awaited(found: Any) -> Any:
    return await found if inspect.isawaitable(found) or asyncio.isfuture(found) else found
