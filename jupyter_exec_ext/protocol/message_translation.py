"""Translator of the messages of one ``execute_request``: output events, an error, an end.

References
----------
https://jupyter-client.readthedocs.io/en/stable/messaging.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..models import (
    ClearEvent,
    DisplayEvent,
    ErrorEvent,
    ErrorInfo,
    ExecutionState,
    InputRequestEvent,
    OutputEvent,
    ResultEvent,
    StreamEvent,
)
from ..models.mime_bundles import normalized_bundle
from ..models.plain_text import keep_colours, strip_ansi
from .kernel_messages import KernelMessage, Sender
from .run_states import RunInput, RunStates
from .strict_json import encoded_size

#: Coloured tracebacks of one execution, in bytes of JSON. They are beyond its cap, since they repeat what it counts.
MAX_COLOUR_BYTES = 24 * 1024
_MAX_COUNT = 2**53 - 1  # the largest integer that a number of JavaScript holds exactly
# The texts of SystemExit(), SystemExit(0), SystemExit(None) and SystemExit(False).
_SUCCESSFUL_EXITS = ("", "0", "None", "False")


def _text(value: Any) -> str:
    # Some kernels send text as a list of lines, as notebook files have it.
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return value if isinstance(value, str) else "" if value is None else str(value)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _display(content: Mapping[str, Any], *, update: bool) -> DisplayEvent:
    display_id = _mapping(content.get("transient")).get("display_id")
    return DisplayEvent(
        normalized_bundle(_mapping(content.get("data"))),
        _mapping(content.get("metadata")),
        display_id if isinstance(display_id, str) else None,
        update,
    )


def _execution_count(content: Mapping[str, Any]) -> int | None:
    """Return an execution count, if it is a number that JavaScript can have as well."""
    count = content.get("execution_count")
    return count if isinstance(count, int) and 0 <= count <= _MAX_COUNT else None


def _error(content: Mapping[str, Any]) -> ErrorEvent:
    lines = content.get("traceback")
    traceback = "\n".join(map(_text, lines)) if isinstance(lines, list) else _text(lines)
    coloured = keep_colours(traceback) if len(traceback) <= MAX_COLOUR_BYTES else ""
    name, value = (strip_ansi(_text(content.get(field))) for field in ("ename", "evalue"))
    return ErrorEvent(name, value, strip_ansi(traceback), coloured if "\x1b" in coloured else "")


def _stream(content: Mapping[str, Any]) -> StreamEvent:
    return StreamEvent("stderr" if content.get("name") == "stderr" else "stdout", _text(content.get("text")))


def _result(content: Mapping[str, Any]) -> ResultEvent:
    return ResultEvent(
        normalized_bundle(_mapping(content.get("data"))), _mapping(content.get("metadata")), _execution_count(content)
    )


def _is_success(error: ErrorEvent) -> bool:
    """Return whether an error only says that the code has exited with success, as Python counts it.

    Kernels of ours do not report that as an error (`in_kernel/unattended.py`); those of others do.
    """
    return error.name == "SystemExit" and error.value in _SUCCESSFUL_EXITS


_IOPUB_EVENTS = {
    "stream": _stream,
    "display_data": lambda content: _display(content, update=False),
    "update_display_data": lambda content: _display(content, update=True),
    "execute_result": _result,
    "clear_output": lambda content: ClearEvent(bool(content.get("wait"))),
    "error": _error,
}


def late_event(message: KernelMessage, execution_id: str) -> StreamEvent | DisplayEvent | None:
    """Return what a message of an execution that has ended adds to the execution after it; None for no output.

    The later execution did not fail with an error that comes late, nor is a late result its value. So these become
    text and something shown. And it keeps what it has shown, so that a late clear is not heeded.

    Parameters
    ----------
    execution_id : str
        The execution that has ended.
    """
    kind = message.msg_type
    if message.channel != "iopub" or kind not in _IOPUB_EVENTS or kind == "clear_output":
        return None
    event = _IOPUB_EVENTS[kind](message.content)
    if isinstance(event, ErrorEvent):
        text = event.traceback or f"{event.name}: {event.value}"
        return StreamEvent("stderr", f"{text}\n", late_from=execution_id)
    if isinstance(event, ResultEvent):
        return DisplayEvent(event.data, event.metadata, late_from=execution_id)
    assert isinstance(event, (StreamEvent, DisplayEvent))
    return replace(event, late_from=execution_id)


class RunTranslator:
    """Follow the messages of one ``execute_request``.

    A run is complete when its ``execute_reply`` and its ``idle`` status have both come: the reply alone says
    nothing about output still on its way, and the status alone nothing about how the code ended.

    Code can fork. A child that does not leave goes on as if it were the kernel, and reports the end of the code, too;
    only the process that has begun with it ends it.

    A kernel can send anything at any time. Only the first reply counts, and an ``input_request`` only if input is
    allowed and the one before it was answered.

    Parameters
    ----------
    msg_id : str
        The request's.
    allow_input : bool
        True if the code may ask for input.
    states : RunStates, optional
        States of the run, which the messages advance.

    Attributes
    ----------
    has_output_after_idle : bool
        Output came after idle: code can send that status itself, and a thread of it can print later. It is
        unknown how much more comes after the run.
    waiting_for_input : bool
        The code has asked for input that was not answered yet.
    user_expressions : dict
        The values in the reply, by name, as the kernel has sent them.
    """

    def __init__(self, msg_id: str, *, allow_input: bool = True, states: RunStates | None = None) -> None:
        self.msg_id = msg_id
        self.states = states or RunStates()
        self.states.feed(RunInput.SEND)
        self._allow_input = allow_input
        self.has_output_after_idle = False
        self.waiting_for_input = False
        self.execution_count: int | None = None
        self.error: ErrorInfo | None = None
        self.user_expressions: dict[str, Any] = {}
        self._colour_bytes_left = MAX_COLOUR_BYTES
        self._status = ""
        self._late: list[OutputEvent] = []
        self._process: Sender | None = None

    @property
    def skipped(self) -> bool:
        """True if the kernel says that it did not run the code, because an earlier request failed."""
        return self._status in ("aborted", "abort")

    @property
    def was_interrupted(self) -> bool:
        """True if the code ended with a `KeyboardInterrupt`. A second one keeps IPython from publishing the first."""
        replied = [event for event in self._late if isinstance(event, ErrorEvent)]
        return any(error.name == "KeyboardInterrupt" for error in ([self.error] if self.error else replied))

    def feed(self, message: KernelMessage) -> OutputEvent | None:
        """Take in one message with our id as its parent; return the output event it stands for, if any."""
        kind = message.msg_type
        if message.channel == "iopub":
            if kind in _IOPUB_EVENTS:
                self.has_output_after_idle = self.has_output_after_idle or self.states.is_idle
                event: OutputEvent = _IOPUB_EVENTS[kind](message.content)
                if isinstance(event, ErrorEvent):
                    if _is_success(event):
                        return None
                    self.error = ErrorInfo(event.name, event.value, event.traceback)
                    return self._with_colours_that_fit(event)
                return event
            if kind == "status":
                self._note_status(message)
            elif kind == "execute_input":
                self.states.feed(RunInput.START)
                self._count(message.content)
        elif kind == "execute_reply":
            if not self._is_of_child(message) and self.states.feed(RunInput.REPLY):
                self._reply(message.content)
        elif kind == "input_request" and self._allow_input and not self.waiting_for_input:
            self.waiting_for_input = True
            return InputRequestEvent(_text(message.content.get("prompt")), bool(message.content.get("password")))
        return None

    def _with_colours_that_fit(self, error: ErrorEvent) -> ErrorEvent:
        size_bytes = encoded_size(error.coloured_traceback)
        if size_bytes > self._colour_bytes_left:
            return replace(error, coloured_traceback="")
        self._colour_bytes_left -= size_bytes
        return error

    def _note_status(self, message: KernelMessage) -> None:
        state = message.content.get("execution_state")
        if state == "busy":
            self.states.feed(RunInput.BUSY)
            # This status comes before the code begins, so its sender cannot be a child that the code forks.
            self._process = self._process or message.sender
        elif state == "idle" and not self._is_of_child(message):
            self.states.feed(RunInput.IDLE)

    def _is_of_child(self, message: KernelMessage) -> bool:
        """Return whether the message was sent by a process that the code has forked."""
        process, sender = self._process, message.sender
        # A restarted kernel has another session id, so it is not taken for a child.
        return process is not None and sender is not None and process != sender and process[0] == sender[0]

    def _count(self, content: Mapping[str, Any]) -> None:
        count = _execution_count(content)
        if count is not None:
            self.execution_count = count

    def _reply(self, content: Mapping[str, Any]) -> None:
        self._status = _text(content.get("status"))
        self._count(content)
        if self._status == "error":
            error = _error(content)
            if _is_success(error):
                self._status = "ok"
            else:
                # Kept until `close`: iopub usually has the same error, but may be read later.
                self._late.append(error)
        self.user_expressions = _mapping(content.get("user_expressions"))
        payload = content.get("payload")
        for item in payload if isinstance(payload, list) else ():
            # The pager (`name?` in IPython) comes with the reply only; without this it would be lost.
            if _mapping(item).get("source") == "page":
                self._late.append(DisplayEvent(normalized_bundle(_mapping(item.get("data"))), {}))

    def close(self) -> list[OutputEvent]:
        """Return the events that only the reply carried, once no more messages are expected."""
        late = [event for event in self._late if not (isinstance(event, ErrorEvent) and self.error)]
        for event in late:
            if isinstance(event, ErrorEvent):
                self.error = ErrorInfo(event.name, event.value, event.traceback)
        self._late = []
        return [self._with_colours_that_fit(event) if isinstance(event, ErrorEvent) else event for event in late]

    def verdict(self) -> ExecutionState:
        """Return how the code ended, as far as the kernel's own messages tell."""
        if self.skipped:
            return ExecutionState.CANCELLED
        # Some magics (%%time, %run) show the code's traceback and reply "ok".
        return ExecutionState.ERROR if self.error or self._status == "error" else ExecutionState.OK
