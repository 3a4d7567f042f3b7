"""Digest chain of the audit trail: canonical form of records, verification, and a text form for people.

A record is one line of canonical JSON (sorted keys, no spaces, ASCII) with the digest of the previous record. Its own
digest is the SHA-256 of that line, so any program can verify a trail. A program that can write the database can write a
whole new chain, but its end then differs from a digest that was kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..models import AuditKind, AuditRecord, ChainEnds
from ..protocol.strict_json import loads_strict

GENESIS = "0" * 64  # the `previous` of the first record
MAX_TEXT_BYTES = 300  # of a text in a record, escaped: with all of its texts a record is shown in 2 kB
MAX_LINE_BYTES = 2000  # of a record as text
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+-]+")
# 16 items of 60 bytes fill less than half of a line.
_MAX_ITEM_BYTES = 60
_MAX_ITEMS = 16

_TEXTS = ("at", "action", "principal", "subject", "previous")
_FIELD_TYPES: dict[str, type] = {"seq": int, "data": dict, **dict.fromkeys(_TEXTS, str)}

# NaN is not JSON, so other programs could not verify a line with it.
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class ChainedLine:
    """A stored record: its number, canonical line and digest."""

    seq: int
    line: str
    digest: str

    def record(self) -> AuditRecord:
        """Return the record.

        Raises
        ------
        ValueError
            If the line is not a record.
        """
        try:
            fields = loads_strict(self.line)
            record = AuditRecord(**{**fields, "kind": AuditKind(fields["kind"])}, digest=self.digest)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a record: {error}") from None
        # A program that can write the database can give a field any type.
        wrong = [name for name, wanted in _FIELD_TYPES.items() if type(getattr(record, name)) is not wanted]
        if wrong:
            raise ValueError(f"not a record: {', '.join(wrong)} must have another type")
        return record


def chained(record: AuditRecord) -> ChainedLine:
    """Return the stored form of a record."""
    line = _CANONICAL.encode(
        {
            "seq": record.seq,
            "at": record.at,
            "kind": record.kind.value,
            "action": record.action,
            "principal": record.principal,
            "subject": record.subject,
            "data": record.data,
            "previous": record.previous,
        }
    )
    return ChainedLine(record.seq, line, digest_of(line))


def digest_of(line: str) -> str:
    """Return the digest of a line."""
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()


def clipped(text: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Cut text to the length allowed in a record; its end then gives its full length."""
    # A character takes at most 12 bytes: an escaped surrogate pair, such as `\ud83d\ude00`.
    if len(text) * 12 <= max_bytes or len(_CANONICAL.encode(text)) <= max_bytes:
        return text
    end = f"... ({len(text)} characters)"
    room = max_bytes - len(end)
    kept = text[:room]
    while len(_CANONICAL.encode(kept)) > room:
        # Escapes differ in length, so the size is known only after encoding.
        kept = kept[: len(kept) * 9 // 10]
    return kept + end


def clipped_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` with long texts and lists cut."""
    return {name: _clipped_value(value) for name, value in data.items()}


def _clipped_value(value: Any) -> Any:
    if isinstance(value, str):
        return clipped(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [clipped(str(item), _MAX_ITEM_BYTES) for item in items[:_MAX_ITEMS]]
    return value


# --- verification --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a chain, as noted elsewhere: ``SEQ:DIGEST``."""

    seq: int
    digest: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Parse the form that `str` returns.

        Raises
        ------
        ValueError
            If the text has another form.
        """
        seq, _, digest = text.partition(":")
        if not seq.isdecimal() or len(digest) != len(GENESIS) or set(digest) - set("0123456789abcdef"):
            raise ValueError("a head is written SEQ:DIGEST, with a number and 64 hexadecimal digits")
        return cls(int(seq), digest)


def verify(lines: Iterable[ChainedLine], ends: ChainEnds, known: Head | None = None) -> Iterator[str]:
    """Yield a sentence for each fault of a trail; none for an intact trail.

    Parameters
    ----------
    lines : iterable of ChainedLine
        All records, in the order of their numbers.
    ends : ChainEnds
        The stored beginning and end of the trail.
    known : Head, optional
        A head that was noted earlier, elsewhere.
    """
    expected, previous, first = ends.first_seq, ends.first_previous, True
    for stored in lines:
        if stored.seq < expected:
            yield f"{_records(stored.seq, stored.seq)} comes before the trail's beginning, record {ends.first_seq}"
            continue
        if stored.seq > expected:
            yield _missing(expected, stored.seq - 1, "at the beginning" if first else "")
        fault = _fault_of(stored, previous if stored.seq == expected else None)
        if fault:
            yield fault
        if known is not None and stored.seq == known.seq and stored.digest != known.digest:
            yield _not_the_known(known)
        expected, previous, first = stored.seq + 1, stored.digest, False
    yield from _end_faults(expected - 1, previous, ends, known)


def _fault_of(stored: ChainedLine, previous: str | None) -> str | None:
    """Return the fault of one record, if it has one; `previous` is None if the previous record is missing."""
    if digest_of(stored.line) != stored.digest:
        return f"record {stored.seq} was changed: it does not have its digest"
    try:
        record = stored.record()
    except ValueError:
        return f"record {stored.seq} was changed: it is no record"
    if record.seq != stored.seq:
        return f"records were reordered: record {record.seq} stands where record {stored.seq} belongs"
    if previous is not None and record.previous != previous:
        return f"record {stored.seq} does not follow from the one before it: one of the two was replaced"
    return None


def _end_faults(last_seq: int, last_digest: str, ends: ChainEnds, known: Head | None) -> Iterator[str]:
    if last_seq < ends.last_seq:
        yield _missing(last_seq + 1, ends.last_seq, "cut off at the end")
    elif last_seq > ends.last_seq:
        yield f"{_records(ends.last_seq + 1, last_seq)} stand after the trail's end, record {ends.last_seq}"
    elif last_digest != ends.last_digest:
        yield f"the last record, {last_seq}, is not the one that the trail's end names: it was replaced"
    if known is None:
        return
    if known.seq > last_seq:
        yield _missing(last_seq + 1, known.seq, "cut off at the end, as the head that was kept shows")
    elif known.seq < ends.first_seq - 1:
        yield f"record {known.seq}, whose head was kept, was removed at the beginning: nothing follows from that head"
    # The record itself was removed, but the trail keeps its digest as `first_previous`.
    elif known.seq == ends.first_seq - 1 and known.digest != ends.first_previous:
        yield _not_the_known(known)


def _not_the_known(known: Head) -> str:
    return f"record {known.seq} is not the one whose head was kept: the trail was rewritten up to there"


def _missing(first: int, last: int, where: str) -> str:
    verb = "is" if first == last else "are"
    return f"{_records(first, last)} {verb} missing" + (f" ({where})" if where else "")


def _records(first: int, last: int) -> str:
    return f"record {first}" if first == last else f"records {first} to {last}"


# --- text for people -----------------------------------------------------------------------------------------------


def format_record(record: AuditRecord) -> str:
    """Return a record as one line of printable ASCII, at most `MAX_LINE_BYTES` long.

    Callers choose some of a record's texts, so every text that is more than plain words is written as JSON.
    """
    principal = _format_value(record.principal) if record.principal else "-"
    words = [_format_value(record.at), str(record.seq), record.kind.value, _format_value(record.action), principal]
    if record.subject:
        words.append(_format_value(record.subject))
    words += [
        f"{_format_value(name)}={_format_value(value)}" for name, value in record.data.items() if value is not None
    ]
    line = " ".join(words)
    return line if len(line) <= MAX_LINE_BYTES else line[: MAX_LINE_BYTES - 3] + "..."


def _format_value(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f")
