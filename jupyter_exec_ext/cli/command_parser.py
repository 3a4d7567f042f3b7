"""Argument parser of the commands: suggestions for what was mistyped, and help that fits 80 columns."""

from __future__ import annotations

import argparse
import difflib
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from .messages import print_error

_MAX_HELP_COLUMNS = 80


class CommandHelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs to at most 80 columns, and keeps those that are indented, such as examples, as they are."""

    def __init__(self, prog: str, **options: Any) -> None:
        columns = min(shutil.get_terminal_size().columns, _MAX_HELP_COLUMNS)
        super().__init__(prog, **{"width": columns - 2, "max_help_position": 24} | options)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip("\n").split("\n\n")
        fill = super()._fill_text
        return "\n\n".join(part if part.startswith("  ") else fill(part, width, indent) for part in parts)


class CommandParser(argparse.ArgumentParser):
    """Parser that suggests commands, actions and options for unknown ones, and prints errors as the commands do.

    Attributes
    ----------
    command_groups : dict
        Names of commands by the heading that they have in the help; without any, argparse lists them.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": CommandHelpFormatter} | options)
        self.command_groups: dict[str, list[str]] = {}

    def error(self, message: str) -> NoReturn:
        """Print an error and how to get help, in one line; exit with 2."""
        print_error(f"{message}{'' if message.endswith('?') else ';'} see '{self.prog} --help'")
        self.exit(2)

    # The signature is argparse's own, which has overloads.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse arguments; unknown ones are an error of the command that they were given to."""
        words = sys.argv[1:] if args is None else list(args)
        # Before argparse takes the value of an unknown option for a file.
        if (option := self._find_unknown_option(words)) is not None:
            self._reject_option(option)
        found, unknown = super().parse_known_args(words, namespace)
        if unknown:
            if unknown[0].startswith("-"):
                self._reject_option(unknown[0])
            self.error(f"too many arguments: {' '.join(unknown)}")
        return found, unknown

    def _option_names(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]

    def _reject_option(self, word: str) -> NoReturn:
        option = word.partition("=")[0]
        self.error(f"'{self.prog}' has no option {option}{suggestion(option, self._option_names())}")

    def _find_unknown_option(self, words: Sequence[str]) -> str | None:
        """Return the first long option that this command does not have, in full or abbreviated."""
        names = self._option_names()
        has_actions = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        for word in words:
            # After a command's name the options are that command's.
            if word == "--" or (has_actions and not word.startswith("-")):
                return None
            option = word.partition("=")[0]
            # argparse takes a word with a space for a value.
            if word.startswith("--") and " " not in word and not any(name.startswith(option) for name in names):
                return word
        return None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            kind = "command" if action.metavar == "COMMAND" else "action"
            words = f"'{self.prog}' has no {kind} {value!r}{suggestion(value, action.choices)}"
            raise argparse.ArgumentError(None, words)
        super()._check_value(action, value)

    def format_help(self) -> str:
        """Return the help, with the commands under the headings of `command_groups`."""
        actions = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        if not (self.command_groups and actions):
            return super().format_help()
        commands = {command.dest: command for command in actions[0]._choices_actions}
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for heading, names in self.command_groups.items():
            formatter.start_section(heading)
            formatter.add_arguments([commands[name] for name in names])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([action for action in self._actions if action.option_strings])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def set_help_action(parser: argparse.ArgumentParser) -> None:
    """Make a command that is given no action print its help and succeed."""

    def print_help(_: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    parser.set_defaults(action=print_help)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the question whether a similar word was meant; an empty text if none is similar."""
    # The hyphens that all options begin with would make any two of them alike.
    by_letters = {name.lstrip("-"): name for name in known}
    close = difflib.get_close_matches(word.lstrip("-"), by_letters, n=1)
    return f"; did you mean {by_letters[close[0]]!r}?" if close else ""


def walk_commands(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield a parser and those of all commands and actions below it, each with the words that lead there."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from walk_commands(below, (*path, name))
