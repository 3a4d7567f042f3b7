"""Spool of output that exceeds the cap: decides what is written to which file.

The spool holds what the record would have held without the cap. A stream of which text is left out is there as a
whole, from its first byte; of other outputs there are the values that were left out. ``clear_output`` empties it, and
an update of a display takes the place of what it updates, as in the record.

Nothing is written before something is left out. What a stream needs from before then is still in memory: its head in
the fold, the rest in the limiter's tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ..models import (
    ClearEvent,
    DisplayEvent,
    ErrorEvent,
    JSONObject,
    OutputEvent,
    ResultEvent,
    SpooledOutput,
    StreamEvent,
)
from ..models.mime_bundles import extension
from .large_values import TextContent, ValueContent
from .output_cap import METADATA, LeftOutWatcher
from .output_joining import OutputFold
from .output_sizes import error_as_data, head_of, value_size
from .strict_json import encoded_size, utf8_size

#: Files of values in a spool. Each is named twice in the log, with its MIME type and digest.
MAX_SPOOLED_VALUES = 100
# Of all entries together: a part of the 64 KiB that a log may have beyond its cap.
_MAX_NAMED_BYTES = 18 * 1024
_ENTRY_BYTES = 160  # of a file's entry, beside its MIME type
_MAX_NAMED_MIME_LENGTH = 64
OFF = "this server keeps nothing beyond the cap (ExecStore.max_spool_bytes is 0)"


@dataclass(frozen=True, slots=True)
class SpooledFile:
    """Result of writing one file; `complete` if nothing is missing."""

    size_bytes: int
    sha256: str
    complete: bool


class Spool(Protocol):
    """Files that are written behind."""

    @property
    def max_bytes(self) -> int:
        """How much they may have together."""

    def append(self, name: str, content: Iterable[bytes], size_bytes: int) -> None:
        """Write more to a file; it is made if it is not there. `size_bytes` is at least what `content` has."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""


S = TypeVar("S", bound=Spool)


@dataclass(slots=True)
class _Stream:
    """A stream's text: held as long as none of it is left out, then written."""

    held: list[str] | None = field(default_factory=list)
    full: bool = False


@dataclass(frozen=True, slots=True)
class _Value:
    mime_type: str
    size_bytes: int
    entry_bytes: int
    display_id: str | None


def _display_id(event: OutputEvent) -> str | None:
    return event.display_id if isinstance(event, DisplayEvent) else None


def _kind(event: OutputEvent, mime_type: str) -> str:
    if isinstance(event, ErrorEvent):
        return "error"
    return "metadata" if mime_type == METADATA else "display"


class Overflow(LeftOutWatcher, Generic[S]):
    """Writes to a spool what an `OutputLimiter` leaves out.

    For each event: `see`, then the limiter's turn, then `flush`; the first and the last only once it is `active`.

    Parameters
    ----------
    fold : OutputFold
        Of what the limiter lets pass.
    open_spool : callable
        Called when there is something to write; returns None where nothing is kept.

    Attributes
    ----------
    active : bool
        True once anything has been held back or left out.
    spool : Spool or None
        The spool, once it was opened.
    """

    def __init__(self, fold: OutputFold, open_spool: Callable[[], S | None]) -> None:
        self._fold = fold
        self.active = False
        self._open_spool = open_spool
        self.spool: S | None = None
        self._opened = False
        self._tailing = False
        self._head_is_void = False
        self._clear_pending = False
        self._streams = {"stdout": _Stream(), "stderr": _Stream()}
        self._cut: list[str] = []
        self._held: dict[int, str | None] = {}  # other events in the tail that are not void, and their display ids
        self._values: dict[str, _Value] = {}
        self._named = self._named_bytes = 0
        self._used_bytes = 0
        self._reason: str | None = None

    # --- before the limiter ---

    def see(self, event: OutputEvent) -> None:
        """Take in what `event` does to earlier outputs."""
        if isinstance(event, ClearEvent):
            self._clear_pending = event.wait
            if not event.wait:
                self._clear()
        elif isinstance(event, DisplayEvent) and event.update and self._shows(event.display_id):
            self._replace(event.display_id)
        elif self._clear_pending and isinstance(event, (StreamEvent, DisplayEvent, ResultEvent, ErrorEvent)):
            self._clear_pending = False
            self._clear()

    def _shows(self, display_id: str | None) -> bool:
        """True if there is something to update, as the fold has it: if not, an update is a new output."""
        if display_id in (None, ""):
            return False
        in_tail = [*self._held.values(), *(value.display_id for value in self._values.values())]
        return display_id in in_tail or (not self._head_is_void and self._fold.shows(display_id))

    def _clear(self) -> None:
        self._head_is_void = self._tailing  # before the tail, the fold takes care of that
        for name, stream in self._streams.items():
            stream.full = False
            if stream.held is not None:
                stream.held.clear()
            elif self.spool is not None:
                self.spool.remove(name)
        self._held.clear()
        for name in list(self._values):
            self._forget(name)
        self._used_bytes = 0
        self._reason = None

    def _replace(self, display_id: str | None) -> None:
        self._held = {key: held for key, held in self._held.items() if held != display_id}
        for name, value in list(self._values.items()):
            if value.display_id == display_id:
                self._forget(name)

    def _forget(self, name: str) -> None:
        value = self._values.pop(name)
        self._used_bytes -= value.size_bytes
        self._named_bytes -= value.entry_bytes
        if self.spool is not None:
            self.spool.remove(name)

    # --- told by the limiter ---

    def held_back(self, event: OutputEvent) -> None:
        """Keep or write text that is not logged now."""
        first, self._tailing, self.active = not self._tailing, True, True
        if isinstance(event, StreamEvent):
            held = self._streams[event.name].held
            if held is None:
                self._append(event.name, event.text)
            else:
                held.append(event.text)
        elif not isinstance(event, ClearEvent):
            # The limiter's tail keeps these events alive, so no id is used twice.
            self._held[id(event)] = _display_id(event)
        elif first:  # the first that the fold does not hear of
            self.see(event)

    def cut(self, name: str) -> None:
        """Note that the stream is to be written from now on."""
        if self._streams[name].held is not None and name not in self._cut:
            self._cut.append(name)

    def dropped(self, event: DisplayEvent | ResultEvent | ErrorEvent) -> None:
        """Write the values of what was held back, unless it has been cleared or replaced since."""
        if id(event) in self._held:
            del self._held[id(event)]
            if isinstance(event, ErrorEvent):
                self.left_out(event, *error_as_data(event))
            else:
                self.left_out(event, event.data, {mime: value_size(value) for mime, value in event.data.items()})

    def left_out(
        self, event: DisplayEvent | ResultEvent | ErrorEvent, data: JSONObject, sizes: Mapping[str, int]
    ) -> None:
        """Write values."""
        self.active = True
        spool = self._the_spool()
        if spool is None:
            return
        for mime_type, value in data.items():
            self._named += 1
            size = sizes[mime_type]
            named = mime_type[:_MAX_NAMED_MIME_LENGTH]
            entry_bytes = _ENTRY_BYTES + encoded_size(named)
            if len(self._values) >= MAX_SPOOLED_VALUES or self._named_bytes + entry_bytes > _MAX_NAMED_BYTES:
                self._reason = f"of the values left out, only {len(self._values)} are kept"
            # A part of a picture or of JSON is of no use, so values are kept whole or left out.
            elif size > spool.max_bytes - self._used_bytes:
                self._too_much(spool)
            else:
                # `extension` takes the suffix from tables: a kernel's MIME type must not choose a file's name.
                name = f"{_kind(event, mime_type)}-{self._named}.{extension(mime_type)}"
                self._values[name] = _Value(named, size, entry_bytes, _display_id(event))
                self._named_bytes += entry_bytes
                self._used_bytes += size
                spool.append(name, ValueContent(mime_type, value), size)

    # --- after the limiter ---

    def flush(self) -> None:
        """Begin to write the streams that were cut, now that the fold has what was logged of them."""
        while self._cut:
            name = self._cut.pop()
            stream = self._streams[name]
            held, stream.held = stream.held, None
            # After a clear, what the log has of the stream is no longer a part of its output.
            void = self._head_is_void or self._fold.clear_pending
            for text in ("" if void else self._fold.text(name), *(held or ())):
                self._append(name, text)

    def _append(self, name: str, text: str) -> None:
        stream, spool = self._streams[name], self._the_spool()
        if spool is None or stream.full or not text:
            return
        size, left = utf8_size(text), spool.max_bytes - self._used_bytes
        if size > left:
            self._too_much(spool)
            stream.full = True
            text = head_of(text, left)
            size = utf8_size(text)
        if text:
            self._used_bytes += size
            spool.append(name, TextContent(text), size)

    def _too_much(self, spool: S) -> None:
        self._reason = f"at most {spool.max_bytes:,} bytes are kept (ExecStore.max_spool_bytes)"

    def _the_spool(self) -> S | None:
        if not self._opened:
            self._opened = True
            self.spool = self._open_spool()
        return self.spool

    # --- in the end ---

    def report(self, files: Mapping[str, SpooledFile], problem: str | None) -> tuple[list[SpooledOutput], str | None]:
        """Return what is in the spool, and why not everything is.

        Parameters
        ----------
        files : mapping
            The results of writing them.
        problem : str or None
            Why some could not be written.
        """
        if self._opened and self.spool is None:
            return [], OFF
        kinds = dict.fromkeys(self._streams, "text/plain") | {n: v.mime_type for n, v in self._values.items()}
        spooled = []
        for name, mime_type in kinds.items():
            file = files.get(name)
            if file is not None and (file.complete or file.size_bytes):
                complete = file.complete and not (name in self._streams and self._streams[name].full)
                spooled.append(SpooledOutput(name, mime_type, file.size_bytes, file.sha256, complete))
        return spooled, problem or self._reason
