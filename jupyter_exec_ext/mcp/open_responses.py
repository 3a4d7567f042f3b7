"""Open responses of the handshake revisions, kept for clients that were cut off, up to bounds in bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from mcp.types import INTERNAL_ERROR, ErrorData, RequestId

from ..protocol.strict_json import dump_bytes
from .message_stream import MessageStream
from .replies import make_error_message

#: Bounds of the unread responses of one principal, and of all together. Beyond them the oldest are dropped.
MAX_PRINCIPAL_BYTES = 64 * 1024 * 1024
MAX_ALL_BYTES = 256 * 1024 * 1024
_DROPPED = "the response was dropped, because too much was left unread; call again"


class OpenResponse:
    """A response that its client has not read to the end.

    Parameters
    ----------
    stream : MessageStream
        Its messages.
    task : asyncio.Task
        Makes it.
    request_id : str or int
        The client's id of the request.
    principal : str
        The client's caller.
    unread : UnreadResponses
        Bounds its memory while no client reads it.
    """

    def __init__(
        self,
        stream: MessageStream,
        task: asyncio.Task[None],
        request_id: RequestId,
        principal: str,
        unread: UnreadResponses,
    ) -> None:
        self.stream = stream
        self.task = task
        self.request_id = request_id
        self.principal = principal
        self._unread = unread
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        task.add_done_callback(self._note_end)

    def await_return(self, seconds: float, give_up: Callable[[], object]) -> None:
        """Note that the response was cut off; call `give_up` unless a client reads it when the time is up."""
        if self._is_closed:
            return
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, lambda: None if self.stream.readers else give_up())
        if self.stream.is_ended:
            self._unread.add(self)

    def attach(self) -> None:
        """Note that its client has come back."""
        self._unread.remove(self)
        self.stream.attach()

    def close(self) -> None:
        """Release its memory."""
        self._is_closed = True
        self._stop_timer()
        self._unread.remove(self)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not self.stream.readers and not self._is_closed:
            self._unread.add(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class UnreadResponses:
    """Responses that have ended and that no client reads."""

    def __init__(self) -> None:
        self._kept: dict[OpenResponse, int] = {}  # with their sizes, oldest first
        self._size_bytes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, response: OpenResponse) -> None:
        """Keep a response; while there are too many bytes, drop the oldest one."""
        self.remove(response)
        self._kept[response] = response.stream.size_bytes
        self._size_bytes[response.principal] += response.stream.size_bytes
        while self._size_bytes[response.principal] > MAX_PRINCIPAL_BYTES:
            self._drop(next(kept for kept in self._kept if kept.principal == response.principal))
        while self._size_bytes.total() > MAX_ALL_BYTES:
            self._drop(next(iter(self._kept)))

    def remove(self, response: OpenResponse) -> None:
        """Forget a response; one that is not kept is ignored."""
        self._size_bytes[response.principal] -= self._kept.pop(response, 0)
        if not self._size_bytes[response.principal]:
            del self._size_bytes[response.principal]

    def _drop(self, response: OpenResponse) -> None:
        self.remove(response)
        error = ErrorData(code=INTERNAL_ERROR, message=_DROPPED)
        response.stream.replace_messages(dump_bytes(make_error_message(response.request_id, error)))
