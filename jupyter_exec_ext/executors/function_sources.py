"""Functions that an agent's code can call: requirements, source, and stubs for a model's prompt. No I/O.

Names and arguments are those of AutoGen. Its own objects are accepted, too, since they have the same attributes.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

# The name of a package, as PEP 508 defines it.
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Alias:
    """``name as alias``, in an import."""

    name: str
    alias: str


@dataclass(frozen=True, init=False)
class ImportFromModule:
    """``from module import …``.

    Parameters
    ----------
    module : str
        The module.
    imports : sequence of str or Alias
        The names to import.
    """

    module: str
    imports: tuple[str | Alias, ...]

    def __init__(self, module: str, imports: Iterable[str | Alias]) -> None:
        object.__setattr__(self, "module", module)
        object.__setattr__(self, "imports", tuple(imports))


Import = str | ImportFromModule | Alias


@dataclass
class FunctionWithRequirements(Generic[T, P]):
    """A function with its requirements. Calling it calls the function in this process.

    Parameters
    ----------
    func : callable
        A function written with ``def``.
    python_packages : sequence of str
        Packages that it needs, as pip names them, such as ``"pandas>=2"``.
    global_imports : sequence of str, ImportFromModule or Alias
        Imports before its definition.
    """

    func: Callable[P, T]
    python_packages: Sequence[str] = ()
    global_imports: Sequence[Import] = ()

    @classmethod
    def from_callable(
        cls, func: Callable[P, T], python_packages: Sequence[str] = (), global_imports: Sequence[Import] = ()
    ) -> FunctionWithRequirements[T, P]:
        """Return a function with its requirements."""
        return cls(func, python_packages, global_imports)

    @staticmethod
    def from_str(
        func: str, python_packages: Sequence[str] = (), global_imports: Sequence[Import] = ()
    ) -> FunctionWithRequirementsStr:
        """Return the source of a function with its requirements."""
        return FunctionWithRequirementsStr(func, python_packages, global_imports)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function in this process."""
        return self.func(*args, **kwargs)


@dataclass
class FunctionWithRequirementsStr:
    """The source of one function with its requirements. It is parsed in this process, and never run.

    Parameters
    ----------
    func : str
        The source.
    python_packages, global_imports
        As for `FunctionWithRequirements`.

    Raises
    ------
    ValueError
        If this is not the source of exactly one function.
    """

    func: str
    python_packages: Sequence[str] = ()
    global_imports: Sequence[Import] = ()

    def __post_init__(self) -> None:
        _only_definition(self.func)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Raise `NotImplementedError`: only a session can run the function."""
        raise NotImplementedError("a function given as source runs in a session alone; it cannot be called here")


def with_requirements(
    python_packages: Sequence[str] = (), global_imports: Sequence[Import] = ()
) -> Callable[[Callable[P, T]], FunctionWithRequirements[T, P]]:
    """Return a decorator that adds a function's requirements.

    Parameters
    ----------
    python_packages, global_imports
        As for `FunctionWithRequirements`.
    """

    def wrap(func: Callable[P, T]) -> FunctionWithRequirements[T, P]:
        wrapped = FunctionWithRequirements(func, python_packages, global_imports)
        functools.update_wrapper(wrapped, func)
        return wrapped

    return wrap


#: The kinds of function that an executor accepts.
AnyFunction = FunctionWithRequirements[Any, Any] | FunctionWithRequirementsStr | Callable[..., Any]


def name_of(function: AnyFunction) -> str:
    """Return a function's name."""
    return _parsed(function)[1].name


def packages_of(function: AnyFunction) -> list[tuple[str, str]]:
    """Return the packages that a function needs, each as the requirement and the package's name.

    Raises
    ------
    ValueError
        If one is not in the form of pip's requirements.
    """
    packages = []
    for requirement in getattr(function, "python_packages", ()):
        match = _REQUIREMENT.match(requirement)
        if match is None:
            raise ValueError(f"{requirement!r} is not the name of a package, with a version or without")
        packages.append((requirement, match[1]))
    return packages


def to_code(function: AnyFunction) -> str:
    """Return the source of a function, unchanged but for decorators that a session does not know.

    Decorators below `with_requirements` stay: the session can import them by ``global_imports``. A function without
    `with_requirements` loses all of its decorators.
    """
    source, definition = _parsed(function)
    if isinstance(_inner(function), str):
        return source
    # Lines as Python counts them: `str.splitlines` also splits at form feeds and Unicode separators in strings.
    lines = list(io.StringIO(source, newline=""))
    first = _first_line(definition, has_requirements=hasattr(function, "python_packages"))
    indented = lines[definition.lineno - 1][:1].isspace()
    # Removing the indentation would change multi-line strings.
    return ("if True:\n" if indented else "") + "".join(lines[first - 1 : definition.end_lineno])


def to_stub(function: AnyFunction) -> str:
    """Return a function's signature and docstring for a model."""
    definition = _parsed(function)[1]
    documentation = ast.get_docstring(definition)
    bare = copy.copy(definition)
    bare.body, bare.decorator_list = [ast.Pass()], []
    header = ast.unparse(bare).rpartition("\n")[0]
    text = "" if documentation is None else textwrap.indent(f'"""{documentation}"""', "    ") + "\n"
    return f"{header}\n{text}    ..."


def build_python_functions_file(functions: Iterable[AnyFunction]) -> str:
    """Return the source of a module: the imports of all functions, each once and in order, and the functions."""
    functions = list(functions)
    imports = [one for function in functions for one in getattr(function, "global_imports", ())]
    lines = dict.fromkeys(map(import_to_str, imports))
    return (
        "".join(f"{line}\n" for line in lines) + "\n\n" + "".join(f"{to_code(one).rstrip()}\n\n\n" for one in functions)
    )


def import_to_str(wanted: Any) -> str:
    """Return an import as a statement."""
    if isinstance(wanted, str):
        return f"import {wanted}"
    if hasattr(wanted, "alias"):
        return f"import {_item(wanted)}"
    return f"from {wanted.module} import {', '.join(map(_item, wanted.imports))}"


def _item(wanted: Any) -> str:
    return wanted if isinstance(wanted, str) else f"{wanted.name} as {wanted.alias}"


# --- reading ---


def _inner(function: AnyFunction) -> Any:
    return getattr(function, "func", None) if hasattr(function, "python_packages") else function


def _parsed(function: AnyFunction) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the source of a function, and its definition in the syntax tree."""
    inner = _inner(function)
    if isinstance(inner, str):
        return inner, _only_definition(inner)
    inner = inspect.unwrap(inner)  # the function below decorators that use `functools.wraps`
    name = getattr(inner, "__name__", repr(inner))
    if not inspect.isfunction(inner) or name == "<lambda>":
        raise ValueError(f"{name} is not a function written with def, which alone can be given to a session")
    if inner.__code__.co_freevars:
        needed = ", ".join(inner.__code__.co_freevars)
        raise ValueError(f"{name} uses what only the function around it knows ({needed}); pass it as an argument")
    try:
        source = inspect.getsource(inner)
    except OSError:
        raise ValueError(f"the source of {name} cannot be found; use FunctionWithRequirements.from_str") from None
    indented = source[:1].isspace()
    # The source of a function inside another one is indented, which is no module by itself.
    tree = ast.parse(f"if True:\n{source}" if indented else source)
    # `ast.walk` is breadth-first, so the first one is the outermost.
    definition = next((node for node in ast.walk(tree) if isinstance(node, _DEFINITION)), None)
    if definition is None:
        raise ValueError(f"the source of {name} cannot be found; use FunctionWithRequirements.from_str")
    return source, ast.increment_lineno(definition, -1) if indented else definition


def _first_line(definition: ast.FunctionDef | ast.AsyncFunctionDef, *, has_requirements: bool) -> int:
    decorators = definition.decorator_list
    ours = [n for n, decorator in enumerate(decorators) if "with_requirements" in ast.unparse(decorator)]
    kept = decorators[ours[-1] + 1 :] if ours and has_requirements else []
    return kept[0].lineno if kept else definition.lineno


def _only_definition(source: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL, in some versions of Python
        raise ValueError(f"Could not compile function: {error}") from None
    definitions = [node for node in body if isinstance(node, _DEFINITION)]
    if len(definitions) != 1:
        raise ValueError("The string must contain exactly one function")
    return definitions[0]
