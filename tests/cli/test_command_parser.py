"""Suggestions for what was mistyped, and the help of every command."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys

import pytest

from jupyter_exec_ext.cli.command_examples import EXAMPLES
from jupyter_exec_ext.cli.command_parser import walk_commands
from jupyter_exec_ext.cli.main import build_parser, main

COMMANDS = {" ".join(path): parser for path, parser in walk_commands(build_parser())}


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["sesion"], "'jupyter exec' has no command 'sesion'; did you mean 'session'?"),
        (["session", "strat"], "'jupyter exec session' has no action 'strat'; did you mean 'start'?"),
        (
            ["run", "-c", "1", "--tiemout", "3"],
            "'jupyter exec run' has no option --tiemout; did you mean '--timeout'? see",
        ),
        (["run", "-c", "1", "--tiemout=3"], "has no option --tiemout; did you mean '--timeout'?"),
        (["session", "list", "--jsn"], "'jupyter exec session list' has no option --jsn; did you mean '--json'?"),
        (["--verison"], "'jupyter exec' has no option --verison; did you mean '--version'?"),
        (["file", "list", "a", "b"], "too many arguments: b"),
        (["zzz"], "'jupyter exec' has no command 'zzz'; see 'jupyter exec --help'\n"),
        (["run", "-c", "1", "--qqq"], "'jupyter exec run' has no option --qqq; see 'jupyter exec run --help'\n"),
        (["session", "stop"], "the following arguments are required: ID"),
    ],
)
def test_mistyped_word_gets_a_suggestion(capsys: pytest.CaptureFixture[str], args: list[str], words: str) -> None:
    error = said(capsys, *args)
    assert error.startswith("jupyter exec: ") and words in error
    assert error.endswith(" --help'\n") and len(error.splitlines()) == 1


@pytest.mark.parametrize("path", ["", "session", "kernelspec", "profile"])
def test_command_without_an_action_prints_its_help(capsys: pytest.CaptureFixture[str], path: str) -> None:
    assert main(path.split()) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (COMMANDS[path].format_help(), "")


def test_help_groups_all_commands() -> None:
    text = build_parser().format_help()
    groups = ["daily:", "access:", "administration:"]
    assert [line for line in text.splitlines() if line in groups] == groups
    for path in COMMANDS:
        if path and " " not in path:
            assert text.count(f"\n  {path} ") == 1, path


@pytest.mark.parametrize("path", COMMANDS)
def test_help_fits_80_columns_and_has_an_example(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns in ("80", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        text = COMMANDS[path].format_help()
        assert not [line for line in text.splitlines() if len(line) > 80]
    assert f"\n  jupyter exec {path}" in text


@pytest.mark.parametrize("line", sorted({line for lines in EXAMPLES.values() for line in lines}))
def test_every_example_is_valid(line: str) -> None:
    words = shlex.split(line)
    parsed: argparse.Namespace = build_parser().parse_args(words[: words.index(">")] if ">" in words else words)
    assert callable(parsed.action)


def test_help_without_any_command_is_that_of_all() -> None:
    """The commands' own modules are not imported for it, so that it is fast."""
    assert build_parser("").format_help() == build_parser().format_help()
    code = "import sys; from jupyter_exec_ext.cli.main import main; main([]); print('requests' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False"


def test_every_command_has_examples() -> None:
    assert set(COMMANDS) - {""} == set(EXAMPLES)
