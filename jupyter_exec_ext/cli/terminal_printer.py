"""Printer of a run's output events: text as it comes, and notes about the execution on standard error."""

from __future__ import annotations

import sys

from ..executors.code_results import OutputDirectory
from ..models import (
    Decision,
    DisplayEvent,
    EndEvent,
    ErrorEvent,
    Execution,
    ExecutionState,
    OutputEvent,
    ResponsiveEvent,
    ResultEvent,
    StreamEvent,
    TruncatedEvent,
    UnresponsiveEvent,
)
from ..models.model_content import error_text, is_printed
from ..models.plain_text import fold_repeats
from ..protocol.output_joining import truncation_marker
from .messages import print_message
from .terminal_text import EscapeFilter, printable

_KEPT_CHARACTERS = 4000  # of the printed text, in which a traceback may already be


class TerminalPrinter:
    """Printer of output events; on a `lasting` server, it also prints where output beyond the cap is kept."""

    def __init__(self, saver: OutputDirectory, *, lasting: bool) -> None:
        self._saver = saver
        self._lasting = lasting
        self._filters = {"stdout": EscapeFilter(), "stderr": EscapeFilter()}
        self._printed = ""  # the end of the printed text
        self.finished: Execution | None = None

    def show(self, event: OutputEvent) -> None:
        """Print an event; colours of the code's output are reset before any other text."""
        if isinstance(event, StreamEvent):
            name = "stderr" if event.name == "stderr" else "stdout"
            file = getattr(sys, name)
            is_terminal = file is not None and file.isatty()
            print(self._filters[name].feed(event.text) if is_terminal else event.text, end="", file=file, flush=True)
            self._printed = (self._printed + event.text[-_KEPT_CHARACTERS:])[-_KEPT_CHARACTERS:]
            return
        self.close()
        if isinstance(event, (DisplayEvent, ResultEvent)):
            for piece in self._saver.text(event.data):
                print(piece, flush=True)
        elif isinstance(event, ErrorEvent):
            error = error_text(event.traceback, event.name, event.value)
            if event.name != "SystemExit" and not is_printed(error, self._printed):
                print(fold_repeats(error), file=sys.stderr)
        elif isinstance(event, TruncatedEvent):
            print(truncation_marker(event.truncated.dropped_bytes, "output").strip(), file=sys.stderr)
        elif isinstance(event, UnresponsiveEvent):
            print_message(f"the kernel is unresponsive: {event.reason}")
        elif isinstance(event, ResponsiveEvent):
            print_message("the kernel answers again")
        elif isinstance(event, EndEvent):
            self.finished = event.execution
            _print_editing(event.execution)
            if event.execution.reason:
                print_message(event.execution.reason)
            advice = _spool_hint(event.execution)
            if self._lasting and advice is not None:
                print_message(advice)

    def close(self) -> None:
        """Reset colours that the code's output has left on."""
        for name, escapes in self._filters.items():
            if reset := escapes.close():
                print(reset, end="", file=getattr(sys, name), flush=True)


def _spool_hint(execution: Execution) -> str | None:
    """Return the command that downloads output beyond the cap; None if none is kept."""
    if not execution.spooled:
        return None
    names = ", ".join(output.name for output in execution.spooled[:10])
    return f"the output left out is kept: jupyter exec output download {execution.id} NAME (of {names})"


def print_approval(execution: Execution) -> None:
    """Print that the code waits for approval, if it does, and how to approve it."""
    approval = execution.approval
    if approval is not None and execution.state is ExecutionState.AWAITING_APPROVAL:
        print_message(
            f"the code waits until {approval.expires_at} for the approval of the server's owner, since "
            f"{printable(approval.why)}; to approve it: jupyter exec approve accept {execution.id}"
        )


def _print_editing(execution: Execution) -> None:
    approval = execution.approval
    if approval is not None and approval.decision is Decision.EDITED:
        because = f": {printable(approval.reason)}" if approval.reason else ""
        by = printable(approval.decided_by)
        print_message(f"{by} edited the code before it ran{because}")
