"""``jupyter exec migrate``: rewrites imports of AutoGen's executors in Python files and notebooks."""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import re
import stat
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..client.local_files import write_whole_file
from ..protocol.languages import normalize_language
from .common_options import add_command
from .import_rewriting import IMPORTS, rewrite_imports
from .messages import UsageError
from .terminal_text import printable

# A file with none of these words imports nothing that moves, and is not parsed.
_ROOTS = {module.partition(".")[0].encode() for module in IMPORTS}
_SUFFIXES = (".py", ".pyi", ".ipynb")
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def add_migrate_command(commands: Any) -> None:
    """Add ``jupyter exec migrate``."""
    parser = add_command(
        commands,
        "migrate",
        "move a project's imports from AutoGen's executors to this package",
        migrate,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="Python files, notebooks, or directories with them")
    parser.add_argument("--write", action="store_true", help="make the changes (default: print them)")
    parser.epilog = (
        "Names that this package does not have stay where they are, and what could not be moved is said. Exit code: 0, "
        "or 1 if a file could not be read or written and was left alone."
    )


def migrate(args: argparse.Namespace) -> int:
    """Print or make the changes; return 1 if a file was left alone."""
    changed = failed = 0
    for path in _files(args.paths):
        try:
            before, after, notes = _rewrite(path)
            if args.write and after != before:
                _replace(path, after)
        except (OSError, SyntaxError, ValueError) as error:
            print(f"{printable(str(path))}: left alone: {_describe(path, error)}", file=sys.stderr)
            failed += 1
            continue
        for note in notes:
            print(f"{printable(str(path))}:{note}", file=sys.stderr)
        if after != before:
            changed += 1
            print(printable(str(path)) if args.write else _diff(path, before, after), end="\n" if args.write else "")
    files = f"{changed} file{'' if changed == 1 else 's'}"
    print(f"{files} changed" if args.write else f"{files} to change; --write changes them", file=sys.stderr)
    return 1 if failed else 0


def _files(paths: list[str]) -> Iterator[Path]:
    """Yield the named files and those below the named directories, each once."""
    seen = set()
    for path in map(Path, paths):
        if not path.exists():
            raise UsageError(f"there is no file or directory {path}; name your project's")
        if path.is_file() and path.suffix not in _SUFFIXES:
            raise UsageError(f"{path} is neither Python nor a notebook")
        for found in [path] if path.is_file() else _below(path):
            if (real := found.resolve()) not in seen:
                seen.add(real)
                yield found


def _below(directory: Path) -> Iterator[Path]:
    for root, names, files in os.walk(directory):
        # In place, so that `os.walk` does not enter the others; pyvenv.cfg marks a virtual environment.
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".") and name not in _SKIPPED and not Path(root, name, "pyvenv.cfg").exists()
        )
        yield from (Path(root, name) for name in sorted(files) if Path(name).suffix in _SUFFIXES)


def _rewrite(path: Path) -> tuple[str, str, list[str]]:
    """Return a file's text before and after, and notes with their places."""
    raw = path.read_bytes()
    if not any(root in raw for root in _ROOTS):
        return "", "", []
    text = _decoded(raw)[0]
    if path.suffix != ".ipynb":
        (after,), notes = rewrite_imports([text])
        return text, after, [f"{note.line}: {note.text}" for note in notes]
    notebook = Notebook(text)
    sources = notebook.sources
    changed, notes = rewrite_imports(sources, mask_magics)
    after = text if changed == sources else notebook.with_sources(changed)
    return text, after, [f" code cell {note.source + 1}, line {note.line}: {note.text}" for note in notes]


def _decoded(raw: bytes) -> tuple[str, str]:
    """Return a file's text, with its own line ends, and its encoding."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    return raw.decode(encoding), encoding


def _replace(path: Path, text: str) -> None:
    """Replace a file's text in one step, in its own encoding and with its own permissions."""
    path = path.resolve()  # a symbolic link stays one, and its target is replaced
    # The encoding is that of the file's declaration or byte order mark, which must stay true.
    raw = text.encode(_decoded(path.read_bytes())[1])
    write_whole_file(path, raw, stat.S_IMODE(path.stat().st_mode))


def _describe(path: Path, error: Exception) -> str:
    if not isinstance(error, SyntaxError):
        return str(error)
    cell = f"code cell {error.source + 1}, " if path.suffix == ".ipynb" and hasattr(error, "source") else ""
    return f"{cell}line {error.lineno}: {error.msg}" if error.lineno else f"{cell}{error.msg}"


def _diff(path: Path, before: str, after: str) -> str:
    # Lines end at \n only: `splitlines` would split at form feeds, and universal newlines would hide \r.
    old, new = (io.StringIO(text, newline="\n").readlines() for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    # The marker is that of diff(1), so that patch(1) restores a file without a final line end.
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


# Lines that only IPython understands.
_MAGIC = re.compile(r"\s*[!%?]|\s*[\w, \t]+=\s*[!%]|.*\?\s*$")
# The rest of a cell with one of these magics is Python.
_PYTHON_CELL = re.compile(r"\s*%%(?:time|timeit|capture|prun)\b")


class Notebook:
    """A notebook file.

    Raises
    ------
    ValueError
        If the text is no notebook of format 4.
    """

    def __init__(self, text: str) -> None:
        self._data = json.loads(text)
        cells = self._data.get("cells") if isinstance(self._data, dict) else None
        if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
            raise ValueError("it is no notebook of format 4")
        self._style = _style_of(text, self._data)
        self._cells = [cell for cell in cells if cell.get("cell_type") == "code" and self._is_python]

    @property
    def _is_python(self) -> bool:
        metadata = self._data.get("metadata", {})
        named = [
            metadata.get(key, {}).get(name) for key, name in (("kernelspec", "language"), ("language_info", "name"))
        ]
        return all(normalize_language(str(language)) == "python" for language in named if language)

    @property
    def sources(self) -> list[str]:
        """The code of its cells."""
        return [
            source if isinstance(source := cell.get("source", ""), str) else "".join(source) for cell in self._cells
        ]

    def with_sources(self, sources: Sequence[str]) -> str:
        """Return the notebook's text with other code in its cells."""
        for cell, before, source in zip(self._cells, self.sources, sources, strict=True):
            if source != before:
                # nbformat allows a string or a list of lines; the notebook keeps its form.
                as_text = isinstance(cell["source"], str)
                cell["source"] = source if as_text else source.splitlines(keepends=True)
        indent, ascii_only, end = self._style
        return json.dumps(self._data, indent=indent, ensure_ascii=ascii_only) + end


def mask_magics(source: str) -> str:
    """Return a cell's code with ``pass`` in place of each line that only IPython understands."""
    lines = source.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("%%") and not _PYTHON_CELL.match(first):
        return ""
    # One line for each, so that the positions found in the masked code hold for the original.
    return "\n".join(map(_masked, lines))


def _masked(line: str) -> str:
    # A statement at the same indentation: an `if` whose only line is a magic must still parse.
    return f"{line[: len(line) - len(line.lstrip())]}pass" if _MAGIC.match(line) else line


def _style_of(text: str, data: Any) -> tuple[int | None, bool, str]:
    """Return indent, escaping and end of a notebook's JSON, by trial; Jupyter's own if none fits."""
    end = text[len(text.rstrip()) :]
    for indent in (1, 2, 4, None):
        for ascii_only in (False, True):
            if json.dumps(data, indent=indent, ensure_ascii=ascii_only) + end == text:
                return indent, ascii_only, end
    return 1, False, "\n"
