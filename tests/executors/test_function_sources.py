"""Functions for sessions: their source, what a model is told, and what is refused. Nothing runs here but Python."""

from __future__ import annotations

import ast
import functools
import inspect
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_exec_ext.executors import (
    Alias,
    FunctionWithRequirements,
    FunctionWithRequirementsStr,
    ImportFromModule,
    with_requirements,
)
from jupyter_exec_ext.executors.function_loading import FunctionsModule
from jupyter_exec_ext.executors.function_sources import (
    build_python_functions_file,
    import_to_str,
    name_of,
    packages_of,
    to_code,
    to_stub,
)


def add_two_numbers(a: int, b: int = 2) -> int:
    """Add two numbers together."""
    return a + b  # plainly


@with_requirements(
    python_packages=["pandas>=1"],
    global_imports=["pandas", Alias("numpy", "np"), ImportFromModule("typing", ["Any", Alias("cast", "c")])],
)
def load_data() -> pandas.DataFrame:  # type: ignore[name-defined]  # noqa: F821
    """Load some sample data.

    Returns:
        A table.
    """
    return pandas.DataFrame({"name": ["John"]})  # type: ignore[name-defined]  # noqa: F821


@with_requirements(global_imports=["functools"])
@functools.cache
def cached(n: int) -> int:
    return n


@functools.cache
def cached_here(n: int) -> int:
    return n


async def waits(*args: int, name: str = "x", **more: int) -> None: ...


def test_the_source_is_as_it_was_written() -> None:
    assert to_code(add_two_numbers) == (
        "def add_two_numbers(a: int, b: int = 2) -> int:\n"
        '    """Add two numbers together."""\n'
        "    return a + b  # plainly\n"
    )
    assert to_code(load_data).startswith("def load_data() -> pandas.DataFrame:")
    assert to_code(load_data).count("\n") == 7


def test_decorators_that_the_session_cannot_know_are_left_out() -> None:
    assert to_code(cached).startswith("@functools.cache\ndef cached(")
    assert to_code(cached_here).startswith("def cached_here(")


def test_a_function_in_a_function_keeps_its_texts() -> None:
    def inner() -> str:
        return """\
        indented
    less
"""

    names: dict[str, Any] = {}
    exec(build_python_functions_file([inner]), names)
    assert names["inner"]() == inner() == "        indented\n    less\n"


@pytest.mark.parametrize("separator", ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_function_with_a_separator_in_a_string_keeps_all_its_lines(separator: str, tmp_path: Path) -> None:
    source = f'@cache\ndef f():\n    text = "a{separator}b"\n    return text\n'
    place = tmp_path / "written.py"
    place.write_text(f"from functools import cache\n\n\n{source}", encoding="utf-8")
    written: dict[str, Any] = {}
    exec(compile(place.read_text("utf-8"), str(place), "exec"), written)
    assert to_code(written["f"]) == source.removeprefix("@cache\n")


def test_functions_source_is_shown_line_by_line_in_the_session() -> None:
    source = 'def f():\n    text = "a\fb"\n    raise ValueError(text)\n'
    module = FunctionsModule([FunctionWithRequirements.from_str(source)], "functions_with_form_feed")
    try:
        names: dict[str, Any] = {}
        exec(module.loading_code, names)
        assert inspect.getsource(names["f"]) == source
        with pytest.raises(ValueError, match="a\fb") as raised:
            names["f"]()
        assert traceback.extract_tb(raised.tb)[-1].line == "raise ValueError(text)"
    finally:
        sys.modules.pop(module.name, None)


def test_the_stub_has_the_signature_and_the_documentation() -> None:
    assert to_stub(add_two_numbers) == (
        'def add_two_numbers(a: int, b: int=2) -> int:\n    """Add two numbers together."""\n    ...'
    )
    assert to_stub(load_data) == (
        "def load_data() -> pandas.DataFrame:\n"
        '    """Load some sample data.\n\n    Returns:\n        A table."""\n'
        "    ..."
    )
    assert to_stub(waits) == "async def waits(*args: int, name: str='x', **more: int) -> None:\n    ..."
    for function in (add_two_numbers, load_data, waits, cached):
        ast.parse(to_stub(function))


def test_a_function_given_as_source_is_read_and_not_run() -> None:
    function = FunctionWithRequirements.from_str(
        'print("ran")\n\ndef f(x: int) -> int:\n    "Doubles."\n    return 2 * x\n', ["a-package"], ["json"]
    )
    assert (name_of(function), packages_of(function)) == ("f", [("a-package", "a-package")])
    assert to_stub(function) == 'def f(x: int) -> int:\n    """Doubles."""\n    ...'
    with pytest.raises(NotImplementedError):
        function(1)
    with pytest.raises(ValueError, match="Could not compile function"):
        FunctionWithRequirementsStr("def f(:")
    for source in ("x = 1", "def f(): ...\ndef g(): ..."):
        with pytest.raises(ValueError, match="The string must contain exactly one function"):
            FunctionWithRequirementsStr(source)


def test_imports_come_once_and_in_order() -> None:
    assert import_to_str("json") == "import json"
    source = build_python_functions_file([load_data, load_data, cached, add_two_numbers])
    head = source.splitlines()[:5]
    assert head == [
        "import pandas",
        "import numpy as np",
        "from typing import Any, cast as c",
        "import functools",
        "",
    ]
    ast.parse(source)


def test_a_decorated_function_can_still_be_called_here() -> None:
    wrapped: FunctionWithRequirements[int, Any] = FunctionWithRequirements.from_callable(add_two_numbers, ["x"])
    assert wrapped(1, b=3) == 4
    assert cached.__name__ == "cached"  # type: ignore[attr-defined]
    assert cached(5) == 5


def test_autogen_objects_are_accepted_by_attributes() -> None:
    """Stand-ins with the documented attributes; AutoGen itself is not installed here."""
    alias = SimpleNamespace(name="numpy", alias="np")
    wanted = SimpleNamespace(module="typing", imports=("Any", SimpleNamespace(name="cast", alias="c")))
    theirs: Any = SimpleNamespace(func=add_two_numbers, python_packages=["numpy"], global_imports=[alias, wanted])
    source = build_python_functions_file([theirs])
    assert source.startswith("import numpy as np\nfrom typing import Any, cast as c\n")
    assert packages_of(theirs) == [("numpy", "numpy")]


def closure() -> Callable[[], int]:
    outer = 3

    def uses_outer() -> int:
        return outer

    return uses_outer


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: 1, "written with def"),
        (len, "written with def"),
        (functools.partial(add_two_numbers, 1), "written with def"),
        (SimpleNamespace(func=1).__repr__, "written with def"),
        (closure(), r"only the function around it knows \(outer\)"),
        (eval("lambda: 1"), "written with def"),
    ],
)
def test_function_without_source_is_rejected(function: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FunctionsModule([function], "functions")


def test_function_with_missing_source_is_rejected() -> None:
    names: dict[str, Any] = {}
    exec("def made(): ...", names)
    with pytest.raises(ValueError, match="from_str"):
        FunctionsModule([names["made"]], "functions")


@pytest.mark.parametrize("name", ["", "not a name", "a.b", "class", "json", "x;import os"])
def test_a_module_name_that_cannot_be_imported_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="Module name"):
        FunctionsModule([add_two_numbers], name)


def test_two_functions_of_one_name_and_wrong_requirements_are_refused() -> None:
    with pytest.raises(ValueError, match="more than one function has the name add_two_numbers, waits; rename"):
        FunctionsModule([add_two_numbers, waits, FunctionWithRequirements(add_two_numbers), waits], "functions")
    with pytest.raises(ValueError, match="is not the name of a package"):
        FunctionsModule([FunctionWithRequirements(add_two_numbers, ["--index-url=x"])], "functions")


def test_prompt_has_module_and_functions() -> None:
    module = FunctionsModule([add_two_numbers, waits], "tools")
    assert module.prompt("$module_name:\n$functions") == f"tools:\n{to_stub(add_two_numbers)}\n\n{to_stub(waits)}"
    assert module.prompt("$functions $$").endswith("... $")


# --- the code that loads them, in a Python of its own ---


def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_loading_code_makes_module_and_names_known_and_leaves_nothing_else() -> None:
    module = FunctionsModule([add_two_numbers, cached], "tools")
    look = """
    import inspect, sys
    from tools import add_two_numbers as imported
    print(imported is add_two_numbers, imported(1), cached(4), "load_functions" in globals())
    print(inspect.getsource(imported).splitlines()[0])
    """
    done = run(module.loading_code + textwrap.dedent(look), "-I")
    assert done.stderr == ""
    assert done.stdout == "True 3 4 False\ndef add_two_numbers(a: int, b: int = 2) -> int:\n"


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        (["no-such-package>=1", "pytest", "another_one"], "no-such-package>=1; another_one"),
        (["pytest>=9999"], f"pytest>=9999 (there is {pytest.__version__})"),
        (['no-such-package; python_version < "3"', "json", "pytest[extra]>=1"], None),
    ],
)
def test_missing_packages_are_named_before_anything_runs(packages: list[str], said: str | None) -> None:
    function = FunctionWithRequirements.from_str("print('ran')\ndef f(): ...", packages)
    done = run(FunctionsModule([function], "tools").loading_code)
    if said is None:
        assert (done.stdout, done.stderr) == ("ran\n", "")
    else:
        assert done.stdout == ""
        assert done.stderr.endswith(f"PackagesUnavailable: {said}\n")


def test_a_module_that_cannot_be_loaded_leaves_the_one_before() -> None:
    good = FunctionsModule([add_two_numbers], "tools").loading_code
    bad = FunctionsModule([FunctionWithRequirements.from_str("1/0\ndef f(): ...")], "tools").loading_code
    done = run(
        f"{good}\ntry:\n    exec({bad!r})\nexcept ZeroDivisionError:\n    import tools\n    print(dir(tools)[-1])"
    )
    assert (done.stdout, done.stderr) == ("add_two_numbers\n", "")
