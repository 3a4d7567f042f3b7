"""``jupyter exec migrate``: the imports of a project that used AutoGen's executors."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import shutil
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path

from .. import notebook_cells
from ..printable_text import printable
from ..server_choice import UsageError
from .import_map import IMPORTS, is_known, target_of
from .import_rewriting import Rules, move

_RULES = Rules(is_known, target_of)
# What a file must have in it to be worth reading.
_ROOTS = {module.partition(".")[0].encode() for module in IMPORTS}
_SUFFIXES = (".py", ".pyi", ".ipynb")
_NOT_OURS = {"__pycache__", "node_modules", "site-packages"}


def migrate(args: argparse.Namespace) -> int:
    """Print or make the changes; 1 if a file had to be left alone."""
    changed = failed = 0
    for path in _files(args.paths):
        try:
            before, after, left = _moved(path)
            if args.write and after != before:
                _replace(path, after)
        except (OSError, SyntaxError, ValueError) as error:
            print(f"{printable(str(path))}: left alone: {_why(path, error)}", file=sys.stderr)
            failed += 1
            continue
        for note in left:
            print(f"{printable(str(path))}:{note}", file=sys.stderr)
        if after != before:
            changed += 1
            print(printable(str(path)) if args.write else _diff(path, before, after), end="\n" if args.write else "")
    files = f"{changed} file{'' if changed == 1 else 's'}"
    print(f"{files} changed" if args.write else f"{files} to change; --write changes them", file=sys.stderr)
    return 1 if failed else 0


def _files(paths: list[str]) -> Iterator[Path]:
    """Return the files to look at: those named, and those below the directories named."""
    seen = set()
    for path in map(Path, paths):
        if not path.exists():
            raise UsageError(f"there is no {path}")
        if path.is_file() and path.suffix not in _SUFFIXES:
            raise UsageError(f"{path} is neither Python nor a notebook")
        for found in [path] if path.is_file() else _below(path):
            if (real := found.resolve()) not in seen:
                seen.add(real)
                yield found


def _below(directory: Path) -> Iterator[Path]:
    for root, names, files in os.walk(directory):
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".") and name not in _NOT_OURS and not Path(root, name, "pyvenv.cfg").exists()
        )
        yield from (Path(root, name) for name in sorted(files) if Path(name).suffix in _SUFFIXES)


def _moved(path: Path) -> tuple[str, str, list[str]]:
    """Return a file's text before and after, and what was left: each with its place."""
    raw = path.read_bytes()
    if not any(root in raw for root in _ROOTS):
        return "", "", []
    text = _decoded(raw)[0]
    if path.suffix != ".ipynb":
        moved = move([text], _RULES)
        return text, moved.sources[0], [f"{left.line}: {left.why}" for left in moved.left]
    notebook = notebook_cells.Notebook(text)
    sources = notebook.sources
    moved = move(sources, _RULES, notebook_cells.readable)
    after = text if moved.sources == sources else notebook.with_sources(moved.sources)
    return text, after, [f" code cell {left.source + 1}, line {left.line}: {left.why}" for left in moved.left]


def _decoded(raw: bytes) -> tuple[str, str]:
    """Return a file's text, with its line ends as they are, and its encoding."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    return raw.decode(encoding), encoding


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all, in the encoding that it has."""
    path = path.resolve()
    raw = text.encode(_decoded(path.read_bytes())[1])
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _why(path: Path, error: Exception) -> str:
    if not isinstance(error, SyntaxError):
        return str(error)
    cell = f"code cell {error.source + 1}, " if path.suffix == ".ipynb" and hasattr(error, "source") else ""
    return f"{cell}line {error.lineno}: {error.msg}" if error.lineno else f"{cell}{error.msg}"


def _diff(path: Path, before: str, after: str) -> str:
    old, new = (io.StringIO(text, newline="\n").readlines() for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
