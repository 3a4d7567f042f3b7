from __future__ import annotations

import time

import pytest

from jupyter_exec_ext.auth.approval import (
    ALWAYS,
    MATCHING,
    MAX_PATTERN_SEARCHED_CHARACTERS,
    MAX_SEARCHED_CHARACTERS,
    NO_APPROVAL,
    ApprovalRule,
    why_ask,
)


def asked(code: str, *when: str, first_run: bool = False, **options: object) -> bool:
    rule = ApprovalRule(MATCHING, when, **options)  # type: ignore[arg-type]
    return why_ask(rule, code, first_run=first_run) is not None


def test_never_and_always() -> None:
    assert why_ask(NO_APPROVAL, "!rm -rf /", first_run=True) is None
    assert why_ask(ApprovalRule(ALWAYS), "1", first_run=False) == "every execution needs approval"


@pytest.mark.parametrize("code", ["%run x.py", "  %time f()", "%%time\nls", "x = %who_ls", "1\n%cd /", "\f%cd /"])
def test_magics(code: str) -> None:
    assert asked(code, "magics")
    assert not asked(code, "shell")


@pytest.mark.parametrize("code", ["!ls", "  !pip install x", "files = !ls", "1\n!ls", "\f!ls"])
def test_shell(code: str) -> None:
    assert asked(code, "shell")
    assert not asked(code, "magics")


@pytest.mark.parametrize("code", ["%%bash\nls", "%%sh\nls", "\n %%bash --out x\nls"])
def test_a_cell_in_a_shells_language_is_both(code: str) -> None:
    assert asked(code, "shell")
    assert asked(code, "magics")


@pytest.mark.parametrize("code", ["a % b", "a %b", "'%s' % 1", "a != b", "x = 1  # !", "print('!')", ""])
def test_operators_are_neither(code: str) -> None:
    assert not asked(code, "magics", "shell")


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "  import os",
        "import sys, os.path as p",
        "from os import path",
        "from os.path import join",
        "1\nimport os",
        "x = 1; import os",
        "if x: import os",
        "try:from os import path\nexcept: pass",
    ],
)
def test_imports(code: str) -> None:
    assert asked(code, "imports")
    assert asked(code, "imports", modules=("socket", "os"))
    assert not asked(code, "imports", modules=("o", "posix", "os.pathlike"))


@pytest.mark.parametrize("code", ["__import__('os')", "importlib.import_module('os')"])
def test_an_import_by_a_function_is_asked_about_whatever_it_imports(code: str) -> None:
    assert asked(code, "imports", modules=("socket",))


@pytest.mark.parametrize("code", ["important = 1", "x.import_x", "# import os", "print('import os')", "reimport os"])
def test_what_only_looks_like_an_import(code: str) -> None:
    assert not asked(code, "imports")


def test_the_first_run() -> None:
    assert asked("1", "first_run", first_run=True)
    assert not asked("1", "first_run", first_run=False)


def test_a_pattern() -> None:
    assert asked("a secret", "pattern", pattern="sec.et")
    assert not asked("a sect", "pattern", pattern="sec.et")


def test_no_plain_pattern_takes_long_to_search() -> None:
    began = time.process_time()
    for length in (MAX_PATTERN_SEARCHED_CHARACTERS, MAX_SEARCHED_CHARACTERS):
        found = asked("a" * length, "pattern", pattern="a.*b")
        assert found == (length > MAX_PATTERN_SEARCHED_CHARACTERS)
    assert time.process_time() - began < 1.0


def test_any_one_trigger_is_enough() -> None:
    for code in ("%x", "!x", "import x"):
        assert asked(code, "magics", "shell", "imports")


def test_longer_code_waits_instead_of_being_searched() -> None:
    code = "x" * MAX_SEARCHED_CHARACTERS
    assert not asked(code, "shell")
    assert asked(code + "x", "shell")
    assert not asked(code + "x", "first_run")


@pytest.mark.parametrize("unit", [" ", "\n", "=", "= ", "%", "!", "import ", "from ", "from a ", "a.", ",", ";", ": "])
def test_no_code_takes_long_to_search(unit: str) -> None:
    """What is hostile here is the code: it must not hold up the server."""
    code = (unit * MAX_SEARCHED_CHARACTERS)[:MAX_SEARCHED_CHARACTERS]
    began = time.process_time()
    asked(code, "magics", "shell", "imports", modules=tuple(f"m{n}" for n in range(100)))
    asked("import " + code[7:], "imports", modules=tuple(f"m{n}" for n in range(100)))
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("names", [["ab"] * 20_000, [f"a{n}" for n in range(9000)], [".".join("a" * 30_000)]])
def test_no_number_of_imports_takes_long_to_look_up(names: list[str]) -> None:
    """It is done for each policy of a token and of those above it."""
    modules = tuple(f"{'m' * 200}{n}" for n in range(100))
    code = "import " + ",".join(names)
    assert len(code) <= MAX_SEARCHED_CHARACTERS
    began = time.process_time()
    assert not asked(code, "imports", modules=modules)
    assert time.process_time() - began < 0.05


def test_a_module_is_asked_about_with_all_that_is_in_it() -> None:
    modules = ("a.b", "m" * 256)
    for code in ("import a.b", "import a.b.c.d", "from a.b.c import d", f"import {'m' * 256}.x"):
        assert asked(code, "imports", modules=modules)
    for code in ("import a", "import a.bc", "import b", f"import {'m' * 257}", f"import {'m' * 300}.m"):
        assert not asked(code, "imports", modules=modules)
