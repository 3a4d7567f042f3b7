"""Code of ``jupyter exec run``: read from the command line, standard input, a source file or a notebook."""

from __future__ import annotations

import argparse
import io
import json
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .messages import UsageError, error_text, unreadable_text
from .notebook_file import NotebookFile

_NOTEBOOK_SUFFIX = ".ipynb"
_LANGUAGES = {
    ".bash": "bash",
    ".jl": "julia",
    ".js": "javascript",
    ".mjs": "javascript",
    ".py": "python",
    ".r": "r",
    ".sh": "bash",
    ".ts": "typescript",
}


@dataclass(frozen=True, slots=True)
class CodeSource:
    """Code to run, as one piece or as a notebook's cells.

    Parameters
    ----------
    pieces : sequence of str
        The pieces, which run in order.
    stem : str
        First part of the names of saved pictures and pages.
    language : str or None
        Language of the code; None for the kernel's own.
    notebook : NotebookFile or None
        The notebook whose cells the pieces are.
    """

    pieces: Sequence[str]
    stem: str = "output"
    language: str | None = None
    notebook: NotebookFile | None = None


def read_source(args: argparse.Namespace) -> CodeSource:
    """Read the code that the arguments name.

    Raises
    ------
    UsageError
        If there is none, or if it cannot be read.
    """
    if args.code is not None:
        return CodeSource((args.code,), language=args.language)
    if args.file is None:
        raise UsageError(_no_code(args.docker))
    if args.file == "-":
        if sys.stdin is None:
            raise UsageError("there is no standard input to read the code from")
        return CodeSource((sys.stdin.read().removeprefix("\ufeff"),), language=args.language)
    path = Path(args.file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(unreadable_text(path, error)) from error
    if path.suffix.lower() == _NOTEBOOK_SUFFIX:
        return _read_notebook(path, data, args.language)
    language = args.language or _LANGUAGES.get(path.suffix.lower())
    return CodeSource((_decode(path, data, language),), path.stem, language)


def _no_code(image: str | None) -> str:
    """Return the message for missing code; ``--docker``, whose IMAGE is optional, may have taken FILE."""
    if image and Path(image).is_file():
        return f"{image} was taken for the image; put the file before --docker, or write --docker=IMAGE"
    return "there is no code to run; name a FILE, or use -c CODE"


def _read_notebook(path: Path, data: bytes, language: str | None) -> CodeSource:
    if language is not None:
        raise UsageError("--language is for a source file; a notebook names its language itself, so leave it out")
    try:
        notebook = NotebookFile(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = f"it is not JSON: {error}" if isinstance(error, json.JSONDecodeError) else error_text(error)
        raise UsageError(
            f"{path} cannot be run as a notebook: {reason}; save it again in Jupyter, or rename it if it is a script"
        ) from error
    return CodeSource(notebook.sources, path.stem, notebook.language, notebook)


def _decode(path: Path, data: bytes, language: str | None) -> str:
    """Return the text of a source file, decoded as Python decodes it unless it is in another language."""
    encoding = "utf-8-sig"  # with or without a byte order mark
    try:
        if language in (None, "python"):
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        declare = (
            ", or declare its encoding in its first line (# -*- coding: latin-1 -*-)" if language == "python" else ""
        )
        raise UsageError(f"{path} cannot be read: {reason}; save it as UTF-8{declare}") from error
