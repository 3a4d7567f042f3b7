"""Moving imports from one package to another: by what Python reads, and exactly where it stands. Pure.

A source is changed only where a name is imported, or used through an imported module; all else stays byte for byte.
Several sources that share their names, such as a notebook's cells, are looked at together.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from .import_statement import ImportStatement


@dataclass(frozen=True)
class Rules:
    """What moves.

    Parameters
    ----------
    is_known : callable
        Whether anything of a module moves.
    target_of : callable
        The module that a name of a module moves to; None if it stays.
    """

    is_known: Callable[[str], bool]
    target_of: Callable[[str, str], str | None]


@dataclass(frozen=True)
class Left:
    """What could have moved, and was left.

    Parameters
    ----------
    source : int
        Which of the sources.
    line : int
        From 1.
    """

    source: int
    line: int
    why: str


@dataclass
class Moved:
    """Sources after the move."""

    sources: list[str]
    left: list[Left]


def move(sources: Sequence[str], rules: Rules, readable: Callable[[str], str] = str) -> Moved:
    """Return the sources with their imports moved.

    Parameters
    ----------
    readable : callable
        Makes of a source what Python can read, line by line and without moving anything.

    Raises
    ------
    SyntaxError, ValueError
        If a source cannot be read, or would not be any more. A SyntaxError has the number of the source as ``source``.
    """
    texts = [_Text(source, _parse(readable(source), number)) for number, source in enumerate(sources)]
    uses = _Uses(texts)
    left: list[Left] = []
    for number, text in enumerate(texts):
        for node in ast.walk(text.tree):
            left.extend(Left(number, line, why) for line, why in _imported(text, node, uses, rules))
        _chains(text, uses, rules)
    changed = [text.changed() for text in texts]
    for number, source in enumerate(changed):
        _parse(readable(source), number)  # what was Python stays Python
    return Moved(changed, left)


def _imported(text: _Text, node: ast.AST, uses: _Uses, rules: Rules) -> list[tuple[int, str]]:
    """Move what a statement imports, if it does; return what was left: its line, and why."""
    if not isinstance(node, (ast.ImportFrom, ast.Import)):
        return []
    try:
        left = list(
            _from(text, node, uses, rules) if isinstance(node, ast.ImportFrom) else _plain(text, node, uses, rules)
        )
    except ValueError as error:
        left = [str(error)]
    return [(node.lineno, why) for why in left]


def _parse(source: str, number: int) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        broken = error if isinstance(error, SyntaxError) else SyntaxError(str(error))
        broken.source = number  # type: ignore[attr-defined]
        raise broken from None


@dataclass
class _Text:
    """A source, where its nodes are, and what is to change."""

    source: str
    tree: ast.Module
    edits: list[tuple[int, int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.raw = self.source.encode("utf-8", "surrogatepass")
        self._starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.stmt | ast.expr | ast.alias) -> tuple[int, int]:
        """Return where a node is, in bytes."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def replace(self, start: int, end: int, text: bytes) -> None:
        self.edits.append((start, end, text))

    def separator(self, node: ast.stmt) -> bytes:
        """Return what stands between a statement and one more in its place."""
        start, end = self.span(node)
        before = self.raw[self._starts[node.lineno - 1] : start]
        after = self.raw[end:].splitlines(keepends=True)[:1] or [b""]
        if before.strip() or after[0].strip()[:1] not in (b"", b"#", b"\\"):
            return b"; "
        return (b"\r\n" if b"\r\n" in self.raw else b"\n") + before

    def changed(self) -> str:
        raw = self.raw
        for start, end, text in sorted(self.edits, reverse=True):
            raw = raw[:start] + text + raw[end:]
        return raw.decode("utf-8", "surrogatepass")


class _Uses:
    """How names that may stand for modules are used, in all sources."""

    def __init__(self, texts: Sequence[_Text]) -> None:
        self.attributes: dict[str, set[str]] = defaultdict(set)
        self.chains: dict[str, set[str]] = defaultdict(set)
        self.otherwise: set[str] = set()
        #: The modules that are imported by their whole names, by the names that are then known.
        self.plain: dict[str, set[str]] = defaultdict(set)
        for text in texts:
            within = {id(node.value) for node in ast.walk(text.tree) if isinstance(node, ast.Attribute)}
            for node in ast.walk(text.tree):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    self.attributes[node.value.id].add(node.attr)
                elif isinstance(node, ast.Name) and id(node) not in within:
                    self.otherwise.add(node.id)
                elif isinstance(node, ast.Import):
                    for alias in node.names:
                        if alias.asname is None:
                            self.plain[alias.name.partition(".")[0]].add(alias.name)
                if isinstance(node, ast.Attribute) and id(node) not in within:
                    dotted = _dotted(node)
                    self.chains[dotted.partition(".")[0]].add(dotted)

    def home(self, name: str, module: str, rules: Rules) -> str:
        """Return the one module that all has to move to that is used of a module known under a name.

        Raises
        ------
        ValueError
            Where there is none, with why.
        """
        used = self.attributes[name]
        homes = {rules.target_of(module, attribute) for attribute in used}
        if name in self.otherwise or len(homes) != 1 or None in homes:
            staying = sorted(attribute for attribute in used if rules.target_of(module, attribute) is None)
            reason = f"its {', '.join(staying)} stays" if staying else "of how it is used"
            raise ValueError(f"the module {module} was left as it is, since {reason}")
        return str(homes.pop())


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def _from(text: _Text, node: ast.ImportFrom, uses: _Uses, rules: Rules) -> Iterator[str]:
    """Move what ``from … import …`` imports; yield what was left."""
    module = node.module or ""
    known = rules.is_known(module)
    inner = [rules.is_known(f"{module}.{alias.name}") for alias in node.names]
    if node.level or not (known or any(inner)):
        return
    groups: dict[str | None, list[int]] = {None: []}
    modules: list[bytes] = []
    for number, alias in enumerate(node.names):
        target = rules.target_of(module, alias.name)
        if inner[number]:
            bound = alias.asname or alias.name
            try:
                home = uses.home(bound, f"{module}.{alias.name}", rules)
                modules.append(f"import {home} as {bound}".encode())
                continue
            except ValueError as error:
                yield str(error)
        elif alias.name == "*":
            yield f"everything is imported from {module}; name what is used, and run this again"
        elif target is None:
            yield f"{alias.name} stays with {module}"
        groups.setdefault(target, []).append(number)
    start, end = text.span(node)
    items = [(a - start, b - start) for a, b in map(text.span, node.names)]
    groups = {target: names for target, names in groups.items() if names}
    if not modules and list(groups) == [None]:
        return
    statement = ImportStatement(node, text.raw[start:end], items)
    if not modules and len(groups) == 1:
        text.replace(start, end, statement.with_module(str(next(iter(groups)))))
        return
    parts = [statement.of(names, target, first=n == 0) for n, (target, names) in enumerate(groups.items())]
    text.replace(start, end, text.separator(node).join([*parts, *modules]))


def _plain(text: _Text, node: ast.Import, uses: _Uses, rules: Rules) -> Iterator[str]:
    """Move ``import … as …``, and what is used of ``import …``; yield what was left."""
    needed: list[str] = []
    for alias in node.names:
        start, _ = text.span(alias)
        if alias.asname is not None:
            if rules.is_known(alias.name):
                try:
                    home = uses.home(alias.asname, alias.name, rules)
                except ValueError as error:
                    yield str(error)
                else:
                    text.replace(start, start + len(alias.name.encode()), home.encode())
            continue
        root = alias.name.partition(".")[0]
        moving = {dotted: moved for dotted in uses.chains[root] if (moved := _moved(dotted, rules)) is not None}
        homes = sorted({home for _, home in moving.values()})
        others = root in uses.otherwise or uses.chains[root] - set(moving)
        if not rules.is_known(alias.name) and any(map(rules.is_known, uses.plain[root])):
            continue  # what is needed comes where that module is imported
        if len(homes) == 1 and not others and rules.is_known(alias.name):
            text.replace(start, start + len(alias.name.encode()), homes[0].encode())
        else:
            needed.extend(homes)
    if needed:
        _, end = text.span(node)
        separator = text.separator(node)
        text.replace(end, end, b"".join(separator + f"import {home}".encode() for home in dict.fromkeys(needed)))


def _moved(dotted: str, rules: Rules) -> tuple[str, str] | None:
    """Return what of a dotted name moves, and where to."""
    parts = dotted.split(".")
    for length in range(1, len(parts)):
        home = rules.target_of(".".join(parts[:length]), parts[length])
        if home is not None:
            return ".".join(parts[: length + 1]), home
    return None


def _chains(text: _Text, uses: _Uses, rules: Rules) -> None:
    """Move what is used by its whole dotted name, where this name is imported."""
    for node in ast.walk(text.tree):
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            moved = _moved(dotted, rules) if uses.plain.get(dotted.partition(".")[0]) else None
            if moved is not None and moved[0] == dotted:
                text.replace(*text.span(node), f"{moved[1]}.{node.attr}".encode())
