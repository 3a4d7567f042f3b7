"""An audit record as one line for people: whatever callers have put into it, it is printable ASCII, and not long."""

from __future__ import annotations

import json
import re

from ..models import AuditRecord

MAX_LINE_BYTES = 2000
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+-]+")


def line_of(record: AuditRecord) -> str:
    """Return the line. Texts that are more than plain words are written as JSON has them."""
    who = _word(record.principal) if record.principal else "-"
    words = [record.at, str(record.seq), record.kind.value, _word(record.action), who]
    if record.subject:
        words.append(_word(record.subject))
    words += [f"{_word(name)}={_word(value)}" for name, value in record.data.items() if value is not None]
    line = " ".join(words)
    return line if len(line) <= MAX_LINE_BYTES else line[: MAX_LINE_BYTES - 3] + "..."


def _word(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f")
