"""The command line, from its parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from jupyter_exec_ext.cli.main import build_parser

from .markdown import code, prose, section, sentence, table


def commands() -> str:
    """Return a section for each command, and below it one for each command of its own."""
    return "".join(_command(parser) for parser in parsers(build_parser()) if parser.prog != "jupyter exec")


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and all below it, in their order."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def _command(parser: argparse.ArgumentParser) -> str:
    level = len(parser.prog.split())
    return section(
        level - 1,
        code(parser.prog),
        _prose(parser.description or ""),
        f"```text\n{usage(parser)}\n```",
        _arguments("argument", [action for action in _shown(parser) if not action.option_strings]),
        _arguments("option", [action for action in _shown(parser) if action.option_strings]),
        _prose(parser.epilog or ""),
    )


def usage(parser: argparse.ArgumentParser) -> str:
    """Return how a command is called, on one line."""
    return " ".join(parser.format_usage().removeprefix("usage: ").split())


def _prose(text: str) -> str:
    """Return sentences as they are, and indented examples as code."""
    parts = [
        f"```text\n{part}\n```" if part.startswith("  ") else sentence(_literal(part))
        for part in text.strip("\n").split("\n\n")
    ]
    return "\n\n".join(parts)


def _literal(text: str) -> str:
    """Return text in which quoted commands and options are code."""
    text = re.sub(r"'((?:jupyter|az) [^']+)'", r"`\1`", text)
    parts = re.split(r"(`[^`]+`)", text)
    return prose("".join(p if p.startswith("`") else re.sub(r"(?<![\w'-])(--[a-z][a-z-]*)", r"`\1`", p) for p in parts))


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    return [
        action for action in parser._actions if not isinstance(action, hidden) and action.help is not argparse.SUPPRESS
    ]


def _arguments(head: str, actions: list[argparse.Action]) -> str:
    rows = [[code(_name(action)), sentence(_literal(_help(action)))] for action in actions]
    return table([head, "meaning"], rows) if rows else ""


def _name(action: argparse.Action) -> str:
    name = ", ".join(action.option_strings)
    value = "" if action.nargs == 0 else argparse.HelpFormatter("")._format_args(action, _metavar(action))
    return f"{name} {value}".strip()


def _metavar(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _help(action: argparse.Action) -> str:
    """Return the help with what argparse puts into it."""
    return (action.help or "") % {"default": action.default, "prog": "jupyter exec"}
