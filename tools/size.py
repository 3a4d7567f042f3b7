"""Size of the package: lines of code, modules and their lengths, complexity, comments, exceptions to the rules.

python -m tools.size            one line for each folder, and the totals
python -m tools.size --json     the same, for programs

Lines of code are counted without blank lines, docstrings and comments. Generated modules count like all others.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "jupyter_exec_ext"
MAX_MODULE_LINES = 350
MAX_COMPLEXITY = 10
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class ModuleSize:
    """Figures of one module.

    Parameters
    ----------
    path : Path
        Its file.
    code_lines, all_lines, comment_lines : int
        Lines with code; all lines of the file; lines that have a comment which is no directive for a tool.
    functions : int
        Functions and methods.
    exemptions, broad_excepts, inner_imports : int
        ``noqa`` and ``type: ignore`` comments; handlers of `Exception` or of everything; imports in functions.
    """

    path: Path
    code_lines: int
    all_lines: int
    comment_lines: int
    functions: int
    exemptions: int
    broad_excepts: int
    inner_imports: int


def measure_module(path: Path) -> ModuleSize:
    """Count what is in one file."""
    source = path.read_text()
    tree = ast.parse(source)
    code: set[int] = set()
    comments = exemptions = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            directives = len(re.findall(r"noqa|type: ignore", token.string))
            exemptions += directives
            comments += not directives or token.string.count("#") > 1
        elif token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    for docstring in _docstrings(tree):
        code.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inner = {
        id(node) for each in functions for node in ast.walk(each) if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    broad = sum(isinstance(node, ast.ExceptHandler) and _is_broad(node.type) for node in nodes)
    return ModuleSize(
        path, len(code), source.count("\n"), comments, len(functions), exemptions, broad, inner_imports=len(inner)
    )


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and node.body and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            yield first


def _is_broad(caught: ast.expr | None) -> bool:
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        name is None or (isinstance(name, ast.Name) and name.id in {"Exception", "BaseException"}) for name in names
    )


def count_complex_functions() -> int:
    """Count the functions whose cyclomatic complexity exceeds `MAX_COMPLEXITY`, as ruff has it."""
    options = [
        "--select",
        "C901",
        "--config",
        f"lint.mccabe.max-complexity = {MAX_COMPLEXITY}",
        "--output-format",
        "json",
    ]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", *options, str(PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return len(json.loads(done.stdout))


def folder_of(path: Path) -> str:
    """Return the folder of a module, with one level below those that have inner floors."""
    parts = path.relative_to(PACKAGE).parent.parts
    return "/".join(parts[:2]) if parts else "."


def summarize(modules: Iterable[ModuleSize]) -> dict[str, dict[str, int]]:
    """Return the number of modules and the lines of code of each folder, in order of names."""
    folders: dict[str, dict[str, int]] = {}
    for module in sorted(modules, key=lambda each: str(each.path)):
        folder = folders.setdefault(folder_of(module.path), {"modules": 0, "code_lines": 0, "longest_module": 0})
        folder["modules"] += 1
        folder["code_lines"] += module.code_lines
        folder["longest_module"] = max(folder["longest_module"], module.all_lines)
    return folders


def report() -> dict[str, object]:
    """Measure the whole package."""
    modules = [measure_module(path) for path in sorted(PACKAGE.rglob("*.py"))]
    all_lines = [module.all_lines for module in modules]
    functions = sum(module.functions for module in modules)
    return {
        "folders": summarize(modules),
        "code_lines": sum(module.code_lines for module in modules),
        "modules": len(modules),
        "median_module_lines": statistics.median(all_lines),
        "longest_module_lines": max(all_lines),
        "modules_over_limit": [
            str(module.path.relative_to(PACKAGE)) for module in modules if module.all_lines > MAX_MODULE_LINES
        ],
        "complex_functions_percent": round(100 * count_complex_functions() / functions, 2),
        "comment_percent": round(100 * sum(module.comment_lines for module in modules) / sum(all_lines), 1),
        "exemptions": sum(module.exemptions for module in modules),
        "broad_excepts": sum(module.broad_excepts for module in modules),
        "inner_imports": sum(module.inner_imports for module in modules),
    }


def main() -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = report()
    if parser.parse_args().json:
        print(json.dumps(found, indent=2))
        return 0
    folders = found.pop("folders")
    assert isinstance(folders, dict)
    for name, figures in folders.items():
        modules, lines, longest = figures["modules"], figures["code_lines"], figures["longest_module"]
        print(f"{name:24}{modules:4} modules{lines:7} lines, longest {longest}")
    for name, value in found.items():
        print(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
