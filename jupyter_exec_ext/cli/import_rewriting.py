"""Import rewriting for ``jupyter exec migrate``: a table of AutoGen's names, and a plain rewrite of imports. Pure.

Only import statements, and names used through an imported module, are changed. Sources that share their names, such as
the cells of a notebook, are rewritten together.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_CORE, _ADAPTER = "jupyter_exec_ext", "jupyter_exec_ext.adapters.autogen"
_JUPYTER = "autogen.coding.jupyter"
_EXECUTORS = "autogen_ext.code_executors"

#: Modules of AutoGen 0.2, ag2 and autogen-ext: the module of this package, and the names that move there.
IMPORTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "autogen.coding": (_CORE, ("CodeBlock", "CodeResult", "MarkdownCodeExtractor")),
    "autogen.coding.base": (_CORE, ("CodeBlock", "CodeResult", "IPythonCodeResult")),
    "autogen.coding.markdown_code_extractor": (_CORE, ("MarkdownCodeExtractor",)),
    _JUPYTER: (
        _CORE,
        (
            "DockerJupyterServer",
            "EmbeddedIPythonCodeExecutor",
            "JupyterCodeExecutor",
            "JupyterConnectable",
            "JupyterConnectionInfo",
            "LocalJupyterServer",
        ),
    ),
    f"{_JUPYTER}.base": (_CORE, ("JupyterConnectable", "JupyterConnectionInfo")),
    f"{_JUPYTER}.docker_jupyter_server": (_CORE, ("DockerJupyterServer",)),
    f"{_JUPYTER}.embedded_ipython_code_executor": (_CORE, ("EmbeddedIPythonCodeExecutor",)),
    f"{_JUPYTER}.jupyter_code_executor": (_CORE, ("JupyterCodeExecutor",)),
    f"{_JUPYTER}.local_jupyter_server": (_CORE, ("LocalJupyterServer",)),
    f"{_EXECUTORS}.azure": (_ADAPTER, ("ACADynamicSessionsCodeExecutor", "TokenProvider")),
    f"{_EXECUTORS}.docker_jupyter": (
        _ADAPTER,
        ("DockerJupyterCodeExecutor", "DockerJupyterCodeResult", "DockerJupyterServer"),
    ),
    f"{_EXECUTORS}.jupyter": (_ADAPTER, ("JupyterCodeExecutor", "JupyterCodeResult")),
}
_FROM_MODULE = re.compile(rb"from[\s\\]+(?P<module>[\w.]+)")


@dataclass(frozen=True)
class Note:
    """A name or module that was left unchanged.

    Parameters
    ----------
    source : int
        Index of its source.
    line : int
        Its line, from 1.
    text : str
        The reason.
    """

    source: int
    line: int
    text: str


def rewrite_imports(sources: Sequence[str], make_readable: Callable[[str], str] = str) -> tuple[list[str], list[Note]]:
    """Return the sources with their imports rewritten, and notes on names that were left unchanged.

    Parameters
    ----------
    sources : sequence of str
        Python code.
    make_readable : callable
        Replaces text that is no Python, such as IPython's magics, without moving any other text.

    Raises
    ------
    SyntaxError
        If a source cannot be parsed. The error has the index of the source as ``source``.
    """
    parsed = [_Source(text, _parse(make_readable(text), index)) for index, text in enumerate(sources)]
    uses = _Uses([source.tree for source in parsed])
    notes: list[Note] = []
    for index, source in enumerate(parsed):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom):
                notes += [Note(index, node.lineno, text) for text in _rewrite_from(source, node, uses)]
            elif isinstance(node, ast.Import):
                notes += [Note(index, node.lineno, text) for text in _rewrite_import(source, node, uses)]
            elif isinstance(node, ast.Attribute) and uses.can_move_chain(_dotted(node)):
                home, _ = IMPORTS[_dotted(node.value)]
                source.replace(*source.span(node.value), home)
    changed = [source.changed() for source in parsed]
    for index, text in enumerate(changed):
        _parse(make_readable(text), index)  # a rewrite that broke the code must not be written
    return changed, notes


def _moves(dotted: str) -> bool:
    """Return whether a dotted name is one of the table."""
    module, _, name = dotted.rpartition(".")
    return module in IMPORTS and name in IMPORTS[module][1]


class _Uses:
    """Uses of imported modules in all sources."""

    def __init__(self, trees: Sequence[ast.Module]) -> None:
        self._chains: dict[str, set[str]] = defaultdict(set)  # longest dotted names, by their first part
        self._imported: set[str] = set()  # modules imported by their whole dotted name
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, ast.Import):
                self._imported.update(alias.name for alias in node.names if alias.asname is None)
        for tree in trees:
            # Only the longest name counts: in `a.b.c`, `a` and `a.b` are not uses of their own.
            inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            for node in ast.walk(tree):
                if isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in inner and (dotted := _dotted(node)):
                    self._chains[dotted.partition(".")[0]].add(dotted)

    def can_move_alias(self, name: str, module: str) -> bool:
        """Return whether every use of a module, under the name that it was imported as, is a name of the table."""
        return all(chain != name and _moves(f"{module}.{chain.split('.')[1]}") for chain in self._chains.get(name, ()))

    def can_move_root(self, module: str) -> bool:
        """Return whether every use of a module's first part is a name of the table in an imported module."""
        chains = self._chains.get(module.partition(".")[0], set())
        # `import a.b` binds `a`. Once it is rewritten, every other use of `a` would fail.
        return all(any(map(self._is_imported_name, _prefixes(chain))) for chain in chains)

    def can_move_chain(self, dotted: str) -> bool:
        """Return whether a use of a dotted name is rewritten."""
        return self._is_imported_name(dotted) and self.can_move_root(dotted)

    def has_names_of_table(self, root: str) -> bool:
        """Return whether a name of the table is used through a module's first part."""
        return any(any(map(_moves, _prefixes(chain))) for chain in self._chains.get(root, ()))

    def _is_imported_name(self, dotted: str) -> bool:
        return _moves(dotted) and dotted.rpartition(".")[0] in self._imported


def _prefixes(dotted: str) -> list[str]:
    parts = dotted.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _dotted(node: ast.expr) -> str:
    """Return a dotted name as text; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def _rewrite_from(source: _Source, node: ast.ImportFrom, uses: _Uses) -> Iterator[str]:
    """Rewrite ``from … import …``; yield notes."""
    module = node.module or ""
    home, moving = IMPORTS.get(module, ("", ()))
    if node.level:  # relative, so it is a module of the project itself
        return
    kept, moved, modules = [], [], []
    for alias in node.names:
        submodule, bound = f"{module}.{alias.name}", alias.asname or alias.name
        if submodule in IMPORTS and uses.can_move_alias(bound, submodule):
            modules.append(f"import {IMPORTS[submodule][0]} as {bound}")
        elif alias.name in moving:
            moved.append(ast.unparse(alias))
        else:
            kept.append(ast.unparse(alias))
            if submodule in IMPORTS:
                yield _left_unchanged(submodule)
            elif alias.name == "*" and home:
                yield f"everything is imported from {module}; name what is used, and run this again"
            elif home:
                yield f"{alias.name} stays with {module}"
    start, end = source.span(node)
    statement = source.raw[start:end]
    if moved and not kept and not modules and (match := _FROM_MODULE.match(statement)):
        source.replace(start + match.start("module"), start + match.end("module"), home)
    elif moved or modules:
        parts = [f"from {module} import {', '.join(kept)}"] if kept else []
        parts += [f"from {home} import {', '.join(moved)}"] if moved else []
        separator = source.separator_after(node)
        # An import statement holds no text, so every # in it begins a comment.
        comments = [comment.decode() for comment in re.findall(rb"#[^\r\n]*", statement)]
        # A comment ends its line, and would swallow the statements after it.
        if comments and ";" in separator:
            yield f"the import from {module} has comments and shares its line; give it a line, and run this again"
        else:
            source.replace(start, end, separator.join([*comments, *parts, *modules]))


def _rewrite_import(source: _Source, node: ast.Import, uses: _Uses) -> Iterator[str]:
    """Rewrite ``import …``; yield notes."""
    for alias in node.names:
        if alias.name not in IMPORTS:
            root = alias.name.partition(".")[0]
            if alias.asname is None and uses.has_names_of_table(root) and not uses.can_move_root(root):
                yield _left_unchanged(alias.name)
        elif uses.can_move_alias(alias.asname, alias.name) if alias.asname else uses.can_move_root(alias.name):
            start, _ = source.span(alias)
            source.replace(start, start + len(alias.name.encode()), IMPORTS[alias.name][0])
        else:
            yield _left_unchanged(alias.name)


def _left_unchanged(module: str) -> str:
    return f"left {module} unchanged: it is used as a module, so its names cannot be mapped"


def _parse(text: str, index: int) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        broken: Any = error if isinstance(error, SyntaxError) else SyntaxError(str(error))
        broken.source = index  # the caller names the cell of a notebook by it
        raise broken from None


class _Source:
    """A source as UTF-8, since `ast` counts columns in bytes, and its edits."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        self.tree = tree
        # JSON can hold half a surrogate pair, which a masked line of a notebook may contain.
        self.raw = text.encode("utf-8", "surrogatepass")
        self._edits: list[tuple[int, int, bytes]] = []
        self._line_starts = [0]
        # Bytes are split at \n, \r and \r\n, as Python's parser does; text would be split at form feeds, too.
        for line in self.raw.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def span(self, node: ast.stmt | ast.expr | ast.alias) -> tuple[int, int]:
        """Return the first byte of a node and the one after its last."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._line_starts[node.lineno - 1] + node.col_offset
        return start, self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def replace(self, start: int, end: int, text: str) -> None:
        """Note an edit."""
        self._edits.append((start, end, text.encode()))

    def separator_after(self, node: ast.stmt) -> str:
        """Return the text between a statement and another one in its place."""
        start, end = self.span(node)
        before = self.raw[self._line_starts[node.lineno - 1] : start]
        after = self.raw[end:].splitlines()[:1] or [b""]
        if before.strip() or after[0].strip()[:1] not in (b"", b"#", b"\\"):
            return "; "
        return ("\r\n" if b"\r\n" in self.raw else "\n") + before.decode()

    def changed(self) -> str:
        """Return the text with all edits."""
        raw = self.raw
        # From the end, so that the places of the other edits stay valid.
        for start, end, text in sorted(self._edits, reverse=True):
            raw = raw[:start] + text + raw[end:]
        return raw.decode("utf-8", "surrogatepass")
