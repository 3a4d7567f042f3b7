from __future__ import annotations

import random
import re
import time
from collections.abc import Collection

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from jupyter_exec_ext.auth.approval_patterns import (
    ALWAYS,
    MATCHING,
    MAX_FINDINGS,
    MAX_PATTERN_SEARCHED_CHARACTERS,
    MAX_SEARCHED_CHARACTERS,
    NO_APPROVAL,
    ApprovalRule,
    find_reasons,
)


def asked(code: str, *when: str, first_run: bool = False, **options: object) -> bool:
    rule = ApprovalRule(MATCHING, when, **options)  # type: ignore[arg-type]
    return find_reasons(rule, code, first_run=first_run) != ()


def found(code: str, *when: str, approved: Collection[str] = (), **options: object) -> list[tuple[str, int | None]]:
    """Return the kinds and lines of what is found."""
    rule = ApprovalRule(MATCHING, when, **options)  # type: ignore[arg-type]
    return [(each.kind, each.line) for each in find_reasons(rule, code, first_run=False, approved=approved)]


def test_never_and_always() -> None:
    assert find_reasons(NO_APPROVAL, "!rm -rf /", first_run=True) == ()
    (only,) = find_reasons(ApprovalRule(ALWAYS), "1", first_run=False)
    assert (only.kind, only.why, only.line) == (ALWAYS, "every execution needs approval", None)
    assert find_reasons(ApprovalRule(ALWAYS), "1", first_run=False, approved=[ALWAYS]) == ()


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


# Where `str.splitlines` ends a line.
LINE_ENDS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("before", ["", "#", "1", "'''", "x = \\", " \t"])
def test_every_line_end_begins_a_line(before: str, end: str) -> None:
    assert asked(f"{before}{end}!id", "shell")
    assert asked(f"{before}{end} %cd /", "magics")
    assert asked(f"{before}{end}%%bash{end}id", "shell")
    assert asked(f"{before}{end}import os", "imports", modules=("os",))


@pytest.mark.parametrize("end", ["\r", "\r\n", "\f", "\u2028"])
def test_a_pattern_is_searched_with_every_line_end_as_well(end: str) -> None:
    assert asked(f"#{end}danger", "pattern", pattern="(?m)^danger")
    assert asked(f"#{end}danger", "pattern", pattern=f"#{end}")


@pytest.mark.parametrize(
    "code",
    [
        "!!id",
        ">>> !id",
        "In [1]: !id",
        "[ins] In [12]: !id",
        "x\n   ...: !id",
        ">>> 1\n... !id",
        "x =\xa0!id",
        "x = \\\n  !id",
        ";!id",
        ",;/!id",
        ";\t!:id",
        "%sx id",
        "%system id",
        "x = %sx id",
        "%%script bash\nid",
        "%%sx\nid",
    ],
)
def test_other_ways_to_a_shell(code: str) -> None:
    assert asked(code, "shell")


FRAGMENTS = [
    "!",
    "!!",
    "%",
    "%%",
    "id",
    "bash",
    "x",
    "= ",
    "x = ",
    " ",
    "\t",
    "\xa0",
    "#",
    "\\",
    "\\\n",
    ">>> ",
    "... ",
]
FRAGMENTS += ["In [1]: ", "   ...: ", ";", ",", ":", "'", '"""', "(", "if 1:", "\n ", "?", "f(", "sx ", *LINE_ENDS]
RUNS_A_SHELL = re.compile(r"get_ipython\(\)\.(system|getoutput)\(|run_(cell|line)_magic\('(bash|sh|script|sx|system)'")
RUNS_A_MAGIC = re.compile(r"run_(cell|line)_magic\('(?!pinfo|psearch)\w")


@pytest.mark.filterwarnings("ignore:`make_tokens_by_line` received:UserWarning")  # as of 9.18, of most line ends
def test_whatever_ipython_makes_a_command_of_is_asked_about() -> None:
    """IPython itself says what it makes of code."""
    chance = random.Random(28)
    transform = TransformerManager().transform_cell
    found = 0
    for _ in range(10_000):
        code = "".join(chance.choices(FRAGMENTS, k=chance.randint(1, 8)))
        try:
            made = transform(code)
        except (SyntaxError, ValueError, RuntimeError):
            continue
        for trigger, command in (("shell", RUNS_A_SHELL), ("magics", RUNS_A_MAGIC)):
            if command.search(made):
                found += 1
                assert asked(code, trigger), (trigger, code, made)
    assert found > 500


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
        "#\rimport os",
        "\fimport os",
        "import\fos",
        "import os . path",
        "from os . path import join",
        "import \uff4fs",
        ">>> import os",
        "from os import(path)",
    ],
)
def test_imports(code: str) -> None:
    assert asked(code, "imports")
    assert asked(code, "imports", modules=("socket", "os"))
    assert not asked(code, "imports", modules=("o", "posix", "os.pathlike"))


@pytest.mark.parametrize(
    "code", ["import \\\n os", "from os.\\\npath import x", "# \\\nimport sys, \\\n os", "from\\\nos import x"]
)
def test_an_import_over_several_lines_is_asked_about_whatever_it_imports(code: str) -> None:
    assert asked(code, "imports", modules=("socket",))


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


UNITS = [" ", "\n", "=", "= ", "%", "!", "import ", "from ", "from a ", "a.", ",", ";", ": ", "import a . ", ";,/ "]
UNITS += ["\r", "\f", "\u2028", "\r\n", "\xa0", "\\\n", ">>> ", "... ", ".", "In [1]: ", ":from ", "from\\\n", "\ufdfa"]


@pytest.mark.parametrize("unit", UNITS)
def test_no_code_takes_long_to_search(unit: str) -> None:
    """What is hostile here is the code: it must not hold up the server."""
    code = (unit * MAX_SEARCHED_CHARACTERS)[:MAX_SEARCHED_CHARACTERS]
    began = time.process_time()
    asked(code, "magics", "shell", "imports", modules=tuple(f"m{n}" for n in range(100)))
    for begin in ("import ", "import a", "from a"):
        asked(begin + code[len(begin) :], "imports", modules=tuple(f"m{n}" for n in range(100)))
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


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_finding_names_the_line_as_an_editor_counts_it(end: str) -> None:
    code = end.join(["x = 1", "!ls", "", "import os", "y = 'a secret'"])
    assert found(code, "shell", "imports", "pattern", pattern="sec.et") == [
        ("shell", 2),
        ("import os", 4),
        ("pattern", 5),
    ]


@pytest.mark.parametrize("end", ["\f", "\v", "\u2028", "\x85", "\x1c"])
def test_line_ends_that_no_editor_has_do_not_move_the_line(end: str) -> None:
    assert found(f"x{end}y\n!ls", "shell") == [("shell", 2)]
    assert found(f"x\r\r\n{end}!ls", "shell") == [("shell", 3)]


def test_number_of_findings_is_bounded() -> None:
    code = "".join(f"import m{n}\n!ls\n" for n in range(100))
    assert found(code, "imports", "shell") == [(f"import m{n}", 2 * n + 1) for n in range(MAX_FINDINGS)]


def test_approved_kinds_are_not_found_again() -> None:
    code = "!ls\n%cd /\nimport a.b\nimport c"
    when = ("shell", "magics", "imports")
    assert found(code, *when, approved=["shell"]) == [("magics", 2), ("import a.b", 3), ("import c", 4)]
    assert found(code, *when, approved=["shell", "magics", "import a"]) == [("import c", 4)]
    assert found("import ab", "imports", approved=["import a"]) == [("import ab", 1)]
    # Only a name can be approved, so that these wait each time.
    for hidden in ("__import__('a')", "import \\\n a", "x" * (MAX_SEARCHED_CHARACTERS + 1)):
        assert [kind for kind, _ in found(hidden, "imports", approved=["import a", ""])] == [""]


def test_new_import_is_one_that_was_not_approved_in_either_way() -> None:
    assert found("import a, b", "new_imports") == [("new import a", 1), ("new import b", 1)]
    assert found("import a, b", "new_imports", approved=["new import a", "import b"]) == []
    assert found("import a", "imports", approved=["new import a"]) == [("import a", 1)]
    assert found("import a.x, b", "new_imports", modules=("a",)) == [("new import a.x", 1)]


def test_thousands_of_approved_imports_do_not_hide_a_command() -> None:
    code = "import a\n" * 7000 + "!id"
    began = time.process_time()
    assert found(code, "imports", "shell", approved=["import a"]) == [("shell", 7001)]
    assert time.process_time() - began < 1.0
