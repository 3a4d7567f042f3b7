"""The command line, from its parsers.

Everything comes from the parsers' data. argparse's formatted help differs between versions of Python, with the width of
the terminal and with its colours.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator

from jupyter_exec_ext.cli.command_parser import walk_commands
from jupyter_exec_ext.cli.main import build_parser

from .markdown import code, named, section, sentence, table

_PROG = "jupyter exec"
_SERVER_OPTIONS = "Also the [server options](#server-options)."


def command(name: str) -> str:
    """Return the text below a command's heading, and a section for each of its actions."""
    own, *actions = parsers(name)
    return _body(own) + "\n\n" + "".join(section(3, code(prog_of(path)), _body((path, each))) for path, each in actions)


def parsers(name: str) -> list[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Return a command's parser and those of its actions, each with the words that lead there."""
    return [(path, parser) for path, parser in walk_commands(build_parser()) if path[:1] == (name,)]


def prog_of(path: tuple[str, ...]) -> str:
    """Return the words that call a command or an action."""
    return " ".join((_PROG, *path))


def _commands() -> Iterator[str]:
    for path, _ in walk_commands(build_parser()):
        if len(path) == 1:
            yield path[0]


#: The commands, in the order of the help.
COMMANDS = tuple(_commands())


def _body(command_: tuple[tuple[str, ...], argparse.ArgumentParser]) -> str:
    path, parser = command_
    shown = list(_shown(parser))
    servers = _server_group(parser)
    options = [action for action in shown if action.option_strings and action not in servers]
    parts = [
        code(synopsis(path, parser)),
        _prose(parser.description or ""),
        _arguments("argument", [action for action in shown if not action.option_strings]),
        _arguments("option", options),
        "\n".join(_exclusions(parser, servers)),
        _SERVER_OPTIONS if servers else "",
        _prose(parser.epilog or ""),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def synopsis(path: tuple[str, ...], parser: argparse.ArgumentParser) -> str:
    """Return how a command is called, on one line; options that may be absent are one word."""
    if parser.usage:
        return " ".join((parser.usage % {"prog": prog_of(path)}).split())
    words = [prog_of(path)]
    actions = list(_shown(parser))
    words += [name_of(action) for action in actions if action.option_strings and action.required]
    if any(action.option_strings and not action.required for action in actions):
        words.append("[OPTION ...]")
    words += [name_of(action) for action in actions if not action.option_strings]
    if any(isinstance(action, argparse._SubParsersAction) for action in parser._actions):
        words.append("ACTION ...")
    return " ".join(words)


def server_options() -> str:
    """Return the table of the options that choose a server: one row for each text that commands have for it."""
    texts: dict[str, dict[str, list[str]]] = {}
    for path, parser in walk_commands(build_parser()):
        for action in _server_group(parser):
            texts.setdefault(name_of(action), {}).setdefault(_meaning(action), []).append(prog_of(path))
    rows = []
    for option, of_text in texts.items():
        most = max(of_text, key=lambda text: len(of_text[text]))
        for text, progs in of_text.items():
            of = ", ".join(map(code, progs)) if text != most or len(progs) < 3 else _rest(len(of_text))
            rows.append([code(option), of, text])
    return table(["option", "commands", "meaning"], rows)


def _rest(texts: int) -> str:
    return "all" if texts == 1 else "all others"


def _server_group(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options that `add_server_options` has added."""
    groups = [group for group in parser._action_groups if group.title == "server"]
    return [action for group in groups for action in group._group_actions]


def _exclusions(parser: argparse.ArgumentParser, servers: Iterable[argparse.Action]) -> Iterator[str]:
    for group in parser._mutually_exclusive_groups:
        actions = group._group_actions
        if len(actions) > 1 and not set(actions) & set(servers):
            *names, last = [
                code(each.option_strings[-1] if each.option_strings else _metavar(each)) for each in actions
            ]
            yield f"Of {', '.join(names)} and {last}, give {'one' if group.required else 'at most one'}."


def _prose(text: str) -> str:
    """Return sentences as they are, indented examples as code, and exit codes as a list."""
    return "\n\n".join(_paragraph(part) for part in text.strip("\n").split("\n\n"))


def _paragraph(text: str) -> str:
    if text.startswith("  "):
        return f"```text\n{text}\n```"
    head, colon, codes = text.partition("Exit code: ")
    if colon and codes.count("; ") > 2:
        return "\n".join([f"{head}Exit code:\n", *(f"- {_literal(each)}" for each in codes.rstrip(".").split("; "))])
    return sentence(_literal(text))


def _literal(text: str) -> str:
    """Return text in which quoted commands and options are code."""
    text = re.sub(r"'((?:jupyter|az) [^']+)'", r"`\1`", text)
    parts = re.split(r"(`[^`]+`)", text)
    return named("".join(p if p.startswith("`") else re.sub(r"(?<![\w'-])(--[a-z][a-z-]*)", r"`\1`", p) for p in parts))


def _shown(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    for action in parser._actions:
        if not isinstance(action, hidden) and action.help is not argparse.SUPPRESS:
            yield action


def _arguments(head: str, actions: list[argparse.Action]) -> str:
    rows = [[code(name_of(action)), _meaning(action)] for action in actions]
    return table([head, "meaning"], rows) if rows else ""


def name_of(action: argparse.Action) -> str:
    """Return an argument as it is written: ``[FILE]``, ``-v, --verbose``, ``--env NAME``."""
    return " ".join(filter(None, [", ".join(action.option_strings), _values(action)]))


def _values(action: argparse.Action) -> str:
    """Return the words for an argument's values.

    Raises
    ------
    KeyError
        For a number of values that no command has had yet.
    """
    name = _metavar(action)
    if isinstance(action.nargs, int):
        return " ".join([name] * action.nargs)
    return {None: name, "?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}[action.nargs]


def _metavar(action: argparse.Action) -> str:
    if action.metavar is not None:
        assert isinstance(action.metavar, str)
        return action.metavar
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _meaning(action: argparse.Action) -> str:
    required = "Required." if action.option_strings and action.required else ""
    return " ".join(filter(None, [sentence(_literal(_help(action))), required]))


def _help(action: argparse.Action) -> str:
    """Return the help with the values that argparse puts into it."""
    return (action.help or "") % {"default": action.default, "prog": _PROG}
