"""What the lines of a log say: an event each and, at the end, the finished record.

Of an execution with much output the record has none: it is the fold of the lines before.
"""

from __future__ import annotations

from ..models import EndEvent, Execution, OutputEvent
from ..protocol.large_json import encode_in_pieces, event_is_large, is_large
from ..protocol.output_joining import OutputFold, with_outputs
from ..protocol.records_json import (
    bare_to_json,
    event_from_json,
    event_to_json,
    event_to_text,
    execution_from_json,
    is_bare,
)
from ..protocol.strict_json import dump_bytes, loads_strict, to_bytes
from .log_file import LogLines

# In JSON, a character may take six bytes. The log has all of them a second time.
_SHORT_CHARACTERS = 2 * 1024


def is_long(execution: Execution) -> bool:
    """Return whether the log has the finished record without its outputs."""
    return is_large(execution, _SHORT_CHARACTERS)


def line_of(event: OutputEvent, seq: int, at: str) -> bytes:
    """Return the line of an event."""
    if isinstance(event, EndEvent) and is_long(event.execution):
        return dump_bytes({"seq": seq, "type": event.type, "at": at, "execution": bare_to_json(event.execution)})
    if event_is_large(event):
        return b"".join(encode_in_pieces(event_to_json(event, seq, at)))
    return to_bytes(event_to_text(event, seq, at))


def record_in(log: LogLines, end_offset: int) -> Execution:
    """Return the finished record in a log whose last line begins at `end_offset`.

    Raises
    ------
    OSError, ValueError, UnexpectedAnswer
        If its file is gone or damaged.
    """
    end = loads_strict(log.read_at(end_offset))["execution"]
    execution = execution_from_json(end)
    return with_outputs(execution, _folded(log)) if is_bare(end) else execution


def _folded(log: LogLines) -> OutputFold:
    """Return the fold of all lines but the last."""
    fold = OutputFold()
    for number, line in enumerate(log.read(0, log.last_seq - 1, log.size_bytes), 1):
        event = event_from_json(loads_strict(line))
        if event is None or event.seq != number:
            raise ValueError("a log has something else than its events")
        fold.add(event)
    return fold
