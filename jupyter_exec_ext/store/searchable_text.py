"""Searchable text of an execution: code, error, the beginning of its output, and the names of its session and token.

It is read from the row and from bounded parts of the log, so that megabytes of output cost no more than a few lines.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..errors import UnexpectedAnswer
from ..models import FoundExecution
from ..protocol.records_json import SUMMARY_CODE_CHARS, execution_from_json, session_from_json, token_from_json
from ..protocol.strict_json import loads_strict
from .execution_rows import read_summaries
from .log_file import LogFile, LogLines, LogText, log_path

#: Joins an execution's row with the records that have its names.
WITH_NAMES = """
FROM executions
LEFT JOIN sessions ON sessions.id = executions.session_id
LEFT JOIN tokens ON tokens.owner = executions.owner
WHERE executions.id IN (SELECT value FROM json_each(?))
"""
NAMES = "sessions.record AS session_record, tokens.record AS token_record"
_MAX_CODE_CHARS = 64 * 1024
_OUTPUT_CHARS = 4096
_OUTPUT_PARTS = 256
# In JSON a character may take six bytes.
_READ_BYTES = 6 * _MAX_CODE_CHARS
# The value of a field in a line of JSON, up to where the line was cut. Quotes inside of a value have a backslash before
# them, so that no value looks like a field.
_FIELD = rb'"(?:%s)":"((?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)'
_CODE = re.compile(_FIELD % b"code")
_OUTPUT = re.compile(_FIELD % b"text|text/plain")
_END = b'"type":"end"'
# Errors of rows and logs that were damaged from outside.
_DAMAGE = (OSError, ValueError, TypeError, LookupError, AttributeError, UnexpectedAnswer)


def folded(text: str) -> str:
    """Return text as the index has it: without case, and valid in SQLite."""
    # SQLite's tokenizer ends at a NUL, which would hide what follows.
    return text.casefold().replace("\0", " ").encode("utf-8", "replace").decode()


def searchable_text(row: sqlite3.Row, logs: Path) -> str:
    """Return the text by which an execution is found; of a damaged one what can be read."""
    texts: list[str] = list(names_of(row))
    try:
        execution = execution_from_json(loads_strict(row["record"]))
        error = execution.error
        texts += [str(execution.code), *((str(error.name), str(error.value)) if error else ())]
        if row["finished"]:
            texts += _texts_in_log(row, logs, is_long=len(execution.code) >= SUMMARY_CODE_CHARS)
    except _DAMAGE:
        pass  # the row is in the index without it, or it would be read again and again
    return folded("\n".join(texts))


def names_of(row: sqlite3.Row) -> tuple[str, str]:
    """Return the names of an execution's session and token; empty where there is none."""
    session = token = ""
    try:
        if row["session_record"] is not None:
            session = session_from_json(loads_strict(row["session_record"])).name
        if row["token_record"] is not None:
            token = token_from_json(loads_strict(row["token_record"])["token"]).name
    except _DAMAGE:
        pass  # it is a name for people, and the execution is found without it
    return str(session), str(token)


def found_in(row: sqlite3.Row) -> FoundExecution:
    """Return a row's execution, without its outputs, with the names of where it ran."""
    (execution,) = read_summaries([row["record"]])
    session_name, token_name = names_of(row)
    return FoundExecution(execution, row["owner"], session_name, token_name)


def _texts_in_log(row: sqlite3.Row, logs: Path, *, is_long: bool) -> Iterator[str]:
    """Yield the beginning of the output, and long code, of which the row has the beginning only."""
    if row["log"] is not None:
        log: LogLines = LogText(row["log"], row["last_seq"])
    else:
        log = LogFile(log_path(logs, row["session_id"], row["id"]), row["log_bytes"], row["last_seq"])
    with log.open() as file:
        output = file.read(_READ_BYTES).partition(_END)[0]
        yield "".join(islice(_values_in(_OUTPUT, output), _OUTPUT_PARTS))[:_OUTPUT_CHARS]
        if is_long:
            file.seek(row["end_offset"])
            yield from islice(_values_in(_CODE, file.read(_READ_BYTES)), 1)


def _values_in(pattern: re.Pattern[bytes], data: bytes) -> Iterator[str]:
    for match in pattern.finditer(data):
        # A character that was cut off at the end of the data is left out.
        yield json.loads(f'"{match[1].decode("utf-8", "ignore")}"', strict=False)[:_MAX_CODE_CHARS]
