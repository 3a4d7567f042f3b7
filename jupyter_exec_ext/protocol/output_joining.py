"""Fold of output events into an execution's outputs (nbformat). Pure.

`OutputFold` is the one definition of what a log of events means. The server folds as the events come, a client can
fold the log it read, and both get the same outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..models import (
    ClearEvent,
    DisplayEvent,
    ErrorEvent,
    ErrorInfo,
    Execution,
    ExecutionState,
    FileInfo,
    FilesEvent,
    JSONObject,
    OutputEvent,
    ResultEvent,
    SessionStateLostEvent,
    StateLoss,
    StreamEvent,
    TruncatedEvent,
    Truncation,
)


def truncation_marker(dropped_bytes: int, name: str) -> str:
    """Return the line that stands in a stream's text where bytes were left out."""
    return f"\n[... {dropped_bytes:,} bytes of {name} left out ...]\n"


@dataclass(slots=True)
class _Stream:
    name: str
    chunks: list[str]
    late_from: str | None = None

    def text(self) -> str:
        """Return the whole text; joined once, so that a record holds it once, too."""
        if len(self.chunks) > 1:
            self.chunks = ["".join(self.chunks)]
        return self.chunks[0]


@dataclass(slots=True)
class _Shown:
    output: JSONObject


@dataclass(slots=True)
class OutputFold:
    """Fold output events into nbformat outputs.

    A ``display_id`` that this execution did not show yet (it belongs to an earlier one) is shown as a new output,
    so that nothing an agent printed is lost.

    Late output of an earlier execution is an output like any other, and `late_from` names where it is from. Its text
    is not joined with that of this execution.
    """

    error: ErrorInfo | None = None
    truncated: Truncation | None = None
    files: tuple[FileInfo, ...] = ()
    files_omitted: int = 0
    session_state_lost: StateLoss | None = None
    late_from: tuple[str, ...] = ()
    _items: list[_Stream | _Shown] = field(default_factory=list)
    _by_display_id: dict[str, list[_Shown]] = field(default_factory=dict)
    _clear_pending: bool = False

    def add(self, event: OutputEvent) -> None:
        """Take in the next event; types that are not output change nothing."""
        if event.late_from is not None and event.late_from not in self.late_from:
            self.late_from += (event.late_from,)
        if isinstance(event, ClearEvent):
            # Jupyter: with ``wait`` the old output stays until new output comes, so that animations do not flicker.
            self._clear_pending = event.wait
            if not event.wait:
                self._clear()
        elif isinstance(event, StreamEvent):
            self._stream(event.name, event.text, event.late_from)
        elif isinstance(event, DisplayEvent):
            self._display(event)
        elif isinstance(event, ResultEvent):
            self._show(
                {
                    "output_type": "execute_result",
                    "data": event.data,
                    "metadata": event.metadata,
                    "execution_count": event.execution_count,
                }
            )
        elif isinstance(event, ErrorEvent):
            self.error = ErrorInfo(event.name, event.value, event.traceback)
            self._show(
                {
                    "output_type": "error",
                    "ename": event.name,
                    "evalue": event.value,
                    "traceback": event.traceback.split("\n") if event.traceback else [],
                }
            )
        elif isinstance(event, TruncatedEvent):
            self._truncate(event.truncated)
        elif isinstance(event, SessionStateLostEvent):
            self.session_state_lost = StateLoss(event.reason, event.kernel_exit_code, event.kernel_signal)
        elif isinstance(event, FilesEvent):
            self.files, self.files_omitted = tuple(event.files), event.omitted

    @property
    def clear_pending(self) -> bool:
        """True if the next output voids all that came before it."""
        return self._clear_pending

    def shows(self, display_id: str | None) -> bool:
        """True if an output with this id was shown and not cleared."""
        return display_id in self._by_display_id

    def _before_output(self) -> None:
        if self._clear_pending:
            self._clear_pending = False
            self._clear()

    def _clear(self) -> None:
        # `error` stays, because the run has failed even if its traceback is cleared.
        self._items.clear()
        self._by_display_id.clear()

    def _stream(self, name: str, text: str, late_from: str | None = None) -> None:
        self._before_output()
        last = self._items[-1] if self._items else None
        if isinstance(last, _Stream) and last.name == name and last.late_from == late_from:
            last.chunks.append(text)
        else:
            self._items.append(_Stream(name, [text], late_from))

    def _show(self, output: JSONObject, display_id: str | None = None) -> None:
        self._before_output()
        shown = _Shown(output)
        self._items.append(shown)
        if display_id:
            self._by_display_id.setdefault(display_id, []).append(shown)

    def _display(self, event: DisplayEvent) -> None:
        known = self._by_display_id.get(event.display_id or "", ()) if event.update else ()
        for item in known:
            # A new dictionary, because `outputs` may have returned the old one.
            item.output = {**item.output, "data": event.data, "metadata": event.metadata}
        if not known:
            self._show(
                {"output_type": "display_data", "data": event.data, "metadata": event.metadata}, event.display_id
            )

    def _truncate(self, truncated: Truncation) -> None:
        self.truncated = truncated
        # The event comes between head and tail, so the marker stands where the bytes are missing.
        for name, dropped in (("stdout", truncated.stdout_bytes), ("stderr", truncated.stderr_bytes)):
            if dropped:
                self._stream(name, truncation_marker(dropped, name))

    def outputs(self) -> list[JSONObject]:
        """Return the outputs as nbformat 4 has them."""
        return [
            {"output_type": "stream", "name": item.name, "text": item.text()}
            if isinstance(item, _Stream)
            else item.output
            for item in self._items
        ]

    def text(self, name: str) -> str:
        """Return all text of the stream `name`, joined exactly as it came."""
        # One text alone is returned as it is: `outputs` has the same object, so that it is in memory once.
        texts = [item.text() for item in self._items if isinstance(item, _Stream) and item.name == name]
        return texts[0] if len(texts) == 1 else "".join(texts)


def with_outputs(record: Execution, fold: OutputFold, **fields: Any) -> Execution:
    """Return `record` with what `fold` made of its events, to which none is added any more."""
    return replace(record, stdout=fold.text("stdout"), stderr=fold.text("stderr"), outputs=fold.outputs(), **fields)


def text_in(outputs: Sequence[JSONObject], name: str) -> str:
    """Return all text of the stream `name` in nbformat outputs: as `OutputFold.text` has it."""
    texts = [output["text"] for output in outputs if output["output_type"] == "stream" and output["name"] == name]
    return texts[0] if len(texts) == 1 else "".join(texts)


def finished_record(record: Execution, fold: OutputFold, state: ExecutionState, **fields: Any) -> Execution:
    """Return `record` in its terminal state, with what `fold` made of its events."""
    error = fold.error
    if error is None and state is ExecutionState.ERROR:
        error = ErrorInfo("Error", "the kernel reported an error without saying which")
    return with_outputs(
        record,
        fold,
        state=state,
        error=error,
        truncated=fold.truncated,
        files=fold.files,
        files_omitted=fold.files_omitted,
        session_state_lost=fold.session_state_lost,
        late_from=fold.late_from,
        **fields,
    )
