"""Content of an execution for a language model: text of limited size, pictures, and the names of files. Pure.

`mime_bundles` decides how a single value is shown, `plain_text` what text may have in it and how tracebacks
are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .mime_bundles import ImageContent, Save, not_shown, pieces_of_bundle
from .plain_text import Ansi, TextCleaner, fold_repeats, strip_ansi

if TYPE_CHECKING:
    from .execution_records import Execution

MAX_TEXT_BYTES, MAX_TRACEBACK_BYTES, MAX_IMAGES, MAX_IMAGE_BYTES = 20_000, 4_000, 8, 5_000_000
_MAX_FILES = 50
_ENDS = {
    "timeout": "Timeout: ",
    "cancelled": "Cancelled: ",
    "interrupted": "Interrupted: ",
    "server_restarted": "Lost: ",
    "server_lost": "Lost: ",
    "rejected": "Not run: ",
    "token_revoked": "Stopped: ",
}
_STATE_LOST = (
    "State lost: {reason} after the code before this had run. This ran in a fresh kernel: variables, imports and "
    "definitions from before are gone"
)
_EDITED = "Edited: a person has changed this code before it ran; the changed code is in the execution's record"
_LATE = "Late: some of this output is from earlier code, which wrote it after its end"
_INCOMPLETE = "Incomplete: some output may have been lost on its way (dropped by the server, or with a connection)"


@dataclass(frozen=True, slots=True)
class TextContent:
    """A text for a model."""

    text: str


Content = TextContent | ImageContent
PiecesOfBundle = Callable[[Mapping[str, Any], Save | None], Iterable[str | ImageContent]]


def to_text(
    execution: Execution, *, max_bytes: int = MAX_TEXT_BYTES, save: Save | None = None, ansi: Ansi = "remove"
) -> str:
    """Return all that an execution gave as text; see `Execution.to_text`."""
    cleaner = TextCleaner(ansi)
    # A list, since the note counts what was replaced in all pieces.
    pieces = [cleaner.clean(named(piece)) for piece in _all_pieces(execution, save)]
    return shortened(joined([*pieces, cleaner.note]), max_bytes) or "(no output)"


def to_content(
    execution: Execution,
    *,
    max_text_bytes: int = MAX_TEXT_BYTES,
    max_images: int = MAX_IMAGES,
    max_image_bytes: int = MAX_IMAGE_BYTES,
    save: Save | None = None,
    ansi: Ansi = "remove",
) -> list[Content]:
    """Return what an execution gave as texts and pictures, in order; see `Execution.to_content`."""
    cleaner = TextCleaner(ansi)
    runs: list[list[str] | ImageContent] = []
    shown = 0
    for piece in _all_pieces(execution, save):
        if isinstance(piece, ImageContent) and shown < max_images and len(piece.data) <= max_image_bytes:
            runs.append(piece)
            shown += 1
        elif runs and isinstance(runs[-1], list):
            runs[-1].append(cleaner.clean(named(piece)))
        else:
            runs.append([cleaner.clean(named(piece))])
    runs.append([cleaner.note])
    return _within(runs, max_text_bytes) or [TextContent("(no output)")]


def _within(runs: list[list[str] | ImageContent], max_text_bytes: int) -> list[Content]:
    """Return pictures and joined texts; of long texts each keeps its share, so that the last ones are there as well."""
    merged: list[str | ImageContent] = []
    for run in runs:
        if isinstance(run, ImageContent):
            merged.append(run)
        elif merged and isinstance(merged[-1], str):
            merged[-1] = joined([merged[-1], *run])
        else:
            merged.append(joined(run))
    sizes = [len(part.encode()) if isinstance(part, str) else 0 for part in merged]
    share = min(1.0, max_text_bytes / sum(sizes)) if any(sizes) else 1.0
    content: list[Content] = []
    for part, size in zip(merged, sizes, strict=True):
        if isinstance(part, ImageContent):
            content.append(part)
        elif part:
            content.append(TextContent(shortened(part, int(size * share))))
    return content


def _all_pieces(execution: Execution, save: Save | None) -> Iterator[str | ImageContent]:
    yield from pieces_of(execution, save)
    yield from _closing_notes(execution)


def pieces_of(
    execution: Execution, save: Save | None, of_bundle: PiecesOfBundle = pieces_of_bundle
) -> Iterator[str | ImageContent]:
    """Return an execution's outputs in order, and why it was stopped, if it was.

    Parameters
    ----------
    save : callable or None
        Saves pictures, pages and data, which are then named by their paths.
    of_bundle : callable
        Returns the pieces of a displayed value; takes its MIME bundle and `save`.
    """
    printed = ""
    if execution.session_state_lost is not None:
        yield _STATE_LOST.format(reason=execution.session_state_lost.reason)
    if execution.approval is not None and execution.approval.original_code is not None:
        yield _EDITED
    for output in execution.outputs:
        kind = output.get("output_type")
        if kind == "stream":
            printed = "".join(output["text"])  # nbformat has lines, too
            yield printed
        elif kind == "error":
            error = error_text("\n".join(output["traceback"]), output["ename"], output["evalue"])
            if not is_printed(error, printed):
                yield shortened(fold_repeats(error), MAX_TRACEBACK_BYTES)
        else:
            yield from of_bundle(output.get("data", {}), save)
    if execution.reason and execution.state.value in _ENDS:
        kept = "kept" if execution.session_state_preserved else "lost"
        yield f"{_ENDS[execution.state.value]}{execution.reason}; the session's variables were {kept}"
    if execution.truncated is not None and execution.truncated.upstream:
        yield _INCOMPLETE
    if execution.late_from:
        yield _LATE


def error_text(traceback: str, name: str, value: str) -> str:
    """Return an error's traceback, or its name and message where it has none."""
    return traceback or f"{name}: {value}"


def is_printed(error: str, printed: str) -> bool:
    """Return whether a kernel has printed an error itself, as IPython does with its `UsageError`.

    Parameters
    ----------
    printed : str
        The stream output before the error, or its end.
    """
    # Only the end is searched, since the output can be long. The slice has room for escape sequences.
    error, last = strip_ansi(error).strip(), strip_ansi(printed[-2 * len(error) - 1000 :]).rstrip()
    return last.endswith(error) and last[: -len(error)][-1:] in ("", "\n")  # it must begin a line


def _closing_notes(execution: Execution) -> Iterator[str]:
    truncated = execution.truncated
    if truncated is not None and truncated.dropped_bytes:
        yield f"Left out: {truncated.dropped_bytes:,} bytes beyond the output limit of {truncated.max_output_bytes:,}"
    if execution.files:
        named = [f"{file.path} ({file.size_bytes:,} bytes)" for file in execution.files[:_MAX_FILES]]
        more = len(execution.files) - len(named) + execution.files_omitted
        yield f"Files written: {', '.join(named)}{f' and {more} more' if more else ''}"


def named(piece: str | ImageContent) -> str:
    """Return a text, or what kind of picture is in its place."""
    return piece if isinstance(piece, str) else not_shown(piece.mime_type, len(piece.data))


def joined(pieces: Iterable[str]) -> str:
    """Return all text; what does not end a line is followed by a line break, and nothing else is put in."""
    whole: list[str] = []
    for piece in filter(None, pieces):
        if whole and not whole[-1].endswith("\n"):
            whole.append("\n")
        whole.append(piece)
    return "".join(whole)


def shortened(text: str, max_bytes: int) -> str:
    """Return a text's head and tail, with a marker between them that says how much was left out.

    Parameters
    ----------
    max_bytes : int
        In UTF-8, without the marker.
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= max_bytes:
        return text
    # A cut within a character drops its bytes, which then count as left out.
    head = encoded[: max_bytes // 2].decode("utf-8", "ignore")
    tail = encoded[len(encoded) - (max_bytes - max_bytes // 2) :].decode("utf-8", "ignore")
    left_out = len(encoded) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... {left_out:,} bytes left out ...]\n{tail}"


def shortened_to_chars(text: str, max_chars: int) -> str:
    """Return a text's head and tail as `shortened` does, by characters.

    Parameters
    ----------
    max_chars : int
        Without the marker.
    """
    if len(text) <= max_chars:
        return text
    tail = max_chars - max_chars // 2
    return (
        f"{text[: max_chars // 2]}\n[... {len(text) - max_chars:,} characters left out ...]\n{text[len(text) - tail :]}"
    )
