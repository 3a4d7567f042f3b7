"""Watching a host's change feed, in a thread."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import requests
from typing_extensions import Self

from jupyter_exec_ext.protocol.sse import EventStreamDecoder
from tests.support.bearers import Bearer

_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Seen:
    """An event of the feed, and when it came."""

    id: str
    kind: str
    data: Any
    at: float

    def has(self, kind: str, thing_id: str, state: str | None = None) -> bool:
        """Whether it is of this thing, in this state if one is named."""
        record = self.data.get(kind, {}) if self.kind == kind else {}
        return record.get("id") == thing_id and state in (None, record.get("state"))


class Watcher:
    """Reads the feed of whoever sends a token.

    Attributes
    ----------
    seen : list of Seen
        What has come.
    raw : bytes
        The same, as it came.
    """

    def __init__(self, bearer: Bearer, after: str = "", *, header: bool = True) -> None:
        headers = {"Last-Event-ID": after} if after and header else {}
        query = f"?after={after}" if after and not header else ""
        self.seen: list[Seen] = []
        self.raw = b""
        self.ended_at: float | None = None
        self._news = threading.Condition()
        self.answer = bearer.call("GET", f"/events{query}", headers=headers, stream=True)
        assert self.answer.status_code == 200, self.answer.text
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        decoder = EventStreamDecoder()
        # It is cut, by this side or the other.
        with contextlib.suppress(requests.RequestException, AttributeError, ValueError, OSError):
            for chunk in self.answer.iter_content(None):
                with self._news:
                    self.raw += chunk
                    self.seen += [
                        Seen(e.id, e.event, json.loads(e.data), time.monotonic()) for e in decoder.feed(chunk)
                    ]
                    self._news.notify_all()
        with self._news:
            self.ended_at = time.monotonic()
            self._news.notify_all()

    def wait(self, wanted: Callable[[Seen], bool]) -> Seen:
        """Return the first event that is wanted, once it is there."""

        def found() -> Seen | None:
            return next((event for event in self.seen if wanted(event)), None)

        with self._news:
            self._news.wait_for(lambda: found() or self.ended_at, _PATIENCE_SECONDS)
            event = found()
        assert event is not None, f"it did not come; there were {[(e.kind, e.data) for e in self.seen]}"
        return event

    def wait_for(self, kind: str, thing_id: str, state: str | None = None) -> Seen:
        """Return the first event of a thing, in a state if one is named."""
        return self.wait(lambda event: event.has(kind, thing_id, state))

    def wait_for_text(self, text: bytes) -> None:
        """Return once something has come as it is."""
        with self._news:
            assert self._news.wait_for(lambda: text in self.raw, _PATIENCE_SECONDS), f"{text!r} did not come"

    def wait_for_end(self) -> float:
        """Return when the stream ended."""
        with self._news:
            self._news.wait_for(lambda: self.ended_at, _PATIENCE_SECONDS)
        assert self.ended_at is not None, "it did not end"
        return self.ended_at

    def ids_of(self, kind: str) -> set[str]:
        """Return of which things of a kind there was anything to see."""
        return {event.data[kind]["id"] for event in self.seen if event.kind == kind}

    def close(self) -> None:
        """Stop watching."""
        # Closing what a thread reads would wait for it.
        raw: Any = self.answer.raw
        with contextlib.suppress(OSError, AttributeError):
            raw._fp.fp.raw._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(_PATIENCE_SECONDS)
        self.answer.close()
