"""Tab completion scripts for bash, zsh and fish, generated from the parser of the commands.

`completion_script` returns one. A script has all commands and options as data, so that a shell completes them without
starting Python. It serves ``jupyter-exec``, and ``jupyter`` where its first argument is ``exec``. Other subcommands of
``jupyter`` keep the completion that they have.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..client.local_servers import AUTO, NONE
from .command_parser import walk_commands

_FILES = "<files>"
_FILE_METAVARS = frozenset({"FILE", "DIR", "PATH", "FILE|DIR"})
_MAX_HELP_CHARS = 60


@dataclass(frozen=True, slots=True)
class _Option:
    names: tuple[str, ...]
    help: str
    has_value: bool
    values: tuple[str, ...]  # `_FILES` stands for files


@dataclass(frozen=True, slots=True)
class _Place:
    """A command or action, by the words that lead to it, and what can follow them."""

    path: str
    actions: dict[str, str] = field(default_factory=dict)
    options: list[_Option] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script for a shell.

    Parameters
    ----------
    parser : ArgumentParser
        The parser of all commands.
    shell : {"bash", "zsh", "fish"}
        The shell.

    Raises
    ------
    KeyError
        For another shell.
    """
    places = [_place(" ".join(path), command) for path, command in walk_commands(parser)]
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](places)


def _place(path: str, parser: argparse.ArgumentParser) -> _Place:
    place = _Place(path)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            place.actions.update({command.dest: command.help or "" for command in action._choices_actions})
        elif action.option_strings:
            has_value = action.nargs != 0
            option = _Option(tuple(action.option_strings), _help(action), has_value, _values(action))
            place.options.append(option)
        else:
            place.arguments.extend(_values(action))
    return place


def _values(action: argparse.Action) -> tuple[str, ...]:
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if action.dest == "server" and action.metavar != "URL":
        return (AUTO, NONE) if action.default is None else (AUTO,)
    return (_FILES,) if action.metavar in _FILE_METAVARS else ()


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {"default": action.default, "prog": "jupyter exec"}
    return text if len(text) <= _MAX_HELP_CHARS else f"{text[: _MAX_HELP_CHARS - 1].rstrip()}…"


def _cases(places: Iterable[_Place], name: str, after: bool) -> str:
    """Return the cases of a shell function that sets the values after an option, or without one, by place."""
    lines = []
    for place in places:
        if not after:
            lines.append(f"        {shlex.quote(place.path)}) {name}=({_quoted(place.arguments)}) ;;")
            continue
        for option in (one for one in place.options if one.has_value):
            patterns = "|".join(shlex.quote(f"{place.path} {word}") for word in option.names)
            lines.append(f"        {patterns}) {name}=({_quoted(option.values)}) ;;")
    return "\n".join(lines)


def _quoted(words: Iterable[str]) -> str:
    return " ".join(map(shlex.quote, words))


# Both shells set `place` from the words before the cursor, and `values` for the word at it.
_WALK = """\
    for word in "${before[@]}"; do
        [[ -z $place ]] && next=$word || next="$place $word"
        case "$next" in
            %(paths)s) place=$next ;;
        esac
    done
    case "$place $previous" in
%(after)s
        *) is_value= ;;
    esac"""


def _walk(places: list[_Place]) -> str:
    paths = "|".join(shlex.quote(place.path) for place in places if place.path)
    return _WALK % {"paths": paths, "after": _cases(places, "values", after=True)}


def _bash(places: list[_Place]) -> str:
    words = "\n".join(
        f"        {shlex.quote(place.path)}) actions={shlex.quote(' '.join(place.actions))} "
        f"options={shlex.quote(' '.join(name for option in place.options for name in option.names))} ;;"
        for place in places
    )
    return f"""\
# Tab completion of 'jupyter exec' for bash; made by 'jupyter exec completion bash'.
_jupyter_exec() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} first=1
    local place= next word actions options is_value=yes
    local -a values=() before
    [[ $current == = ]] && current=
    [[ $previous == = ]] && previous=${{COMP_WORDS[COMP_CWORD - 2]}}
    [[ ${{COMP_WORDS[COMP_CWORD]}} == = ]] && previous=${{COMP_WORDS[COMP_CWORD - 1]}}
    [[ ${{COMP_WORDS[0]##*/}} == jupyter ]] && first=2
    before=("${{COMP_WORDS[@]:first:COMP_CWORD - first}}")
{_walk(places)}
    if [[ -z $is_value ]]; then
        case "$place" in
{words}
        esac
        case "$place" in
{_cases(places, "values", after=False)}
        esac
        [[ $current == -* ]] && values=($options) || values+=($actions)
    fi
    COMPREPLY=($(compgen -W "${{values[*]//{_FILES}/}}" -- "$current"))
    if [[ " ${{values[*]}} " == *" {_FILES} "* ]]; then
        compopt -o filenames 2>/dev/null
        local IFS=$'\\n'
        COMPREPLY+=($(compgen -f -- "$current"))
    fi
}}
_jupyter_exec_or_other() {{
    if ((COMP_CWORD > 1)) && [[ ${{COMP_WORDS[1]}} == exec ]]; then
        _jupyter_exec
        return
    fi
    [[ -n $_jupyter_other ]] && "$_jupyter_other" "$@"
    ((COMP_CWORD == 1)) && COMPREPLY+=($(compgen -W exec -- "${{COMP_WORDS[1]}}"))
}}
_jupyter_current=$(complete -p jupyter 2>/dev/null | sed -n 's/.* -F \\([^ ]*\\) .*/\\1/p')
[[ $_jupyter_current == _jupyter_exec_or_other ]] || _jupyter_other=$_jupyter_current
complete -o default -F _jupyter_exec_or_other jupyter
complete -F _jupyter_exec jupyter-exec
"""


def _zsh(places: list[_Place]) -> str:
    words = "\n".join(
        f"        {shlex.quote(place.path)}) actions=({_described(place.actions.items())}) "
        f"options=({_described((name, option.help) for option in place.options for name in option.names)}) ;;"
        for place in places
    )
    return f"""\
# Tab completion of 'jupyter exec' for zsh; made by 'jupyter exec completion zsh'.
_jupyter_exec() {{
    local place= next word is_value=yes previous=${{words[CURRENT - 1]}}
    local -a values before actions options
    integer first=2
    [[ ${{words[1]:t}} == jupyter ]] && first=3
    before=("${{(@)words[first,CURRENT - 1]}}")
{_walk(places)}
    if [[ -z $is_value ]]; then
        case "$place" in
{words}
        esac
        case "$place" in
{_cases(places, "values", after=False)}
        esac
        if [[ $PREFIX == -* ]]; then
            _describe -o option options
            return
        fi
        (( ${{#actions}} )) && _describe command actions
    fi
    (( ${{values[(I){_FILES}]}} )) && _files
    values=("${{(@)values:#{_FILES}}}")
    (( ${{#values}} )) && compadd -a values
}}
_jupyter_exec_or_other() {{
    if (( CURRENT > 2 )) && [[ ${{words[2]}} == exec ]]; then
        _jupyter_exec
        return
    fi
    (( CURRENT == 2 )) && compadd exec
    if [[ -n $_jupyter_other ]]; then
        $_jupyter_other "$@"
    elif (( CURRENT > 2 )); then
        _files
    fi
}}
[[ ${{_comps[jupyter]-}} == _jupyter_exec_or_other ]] || _jupyter_other=${{_comps[jupyter]-}}
compdef _jupyter_exec_or_other jupyter
compdef _jupyter_exec jupyter-exec
"""


def _described(words: Iterable[tuple[str, str]]) -> str:
    return " ".join(shlex.quote(f"{word}:{help_}") for word, help_ in words)


def _fish(places: list[_Place]) -> str:
    paths = " ".join(_fish_quoted(place.path) for place in places if place.path)
    lines = [line for place in places for line in _fish_lines(place)]
    rules = "\n".join(f"    complete -c $command {line}" for line in lines)
    return f"""\
# Tab completion of 'jupyter exec' for fish; made by 'jupyter exec completion fish'.
function __jupyter_exec_place
    set -l words (commandline -opc)
    set -l first 2
    if string match -qr '(^|/)jupyter$' -- $words[1]
        test "$words[2]" = exec; or return 1
        set first 3
    end
    set -l place ''
    for word in $words[$first..-1]
        set -l next (string trim -- "$place $word")
        contains -- $next {paths}; and set place $next
    end
    echo $place
end
function __jupyter_exec_at
    set -l place (__jupyter_exec_place); and test "$place" = "$argv[1]"
end
complete -c jupyter -n 'test (count (commandline -opc)) = 1' -a exec -d 'code in kernels'
for command in jupyter jupyter-exec
    complete -c $command -n __jupyter_exec_place -f
{rules}
end
"""


def _fish_lines(place: _Place) -> Iterable[str]:
    at = f"-n {_fish_quoted(f'__jupyter_exec_at {_fish_quoted(place.path)}')}"
    for name, help_ in place.actions.items():
        yield f"{at} -a {name} -d {_fish_quoted(help_)}"
    for value in place.arguments:
        yield f"{at} -F" if value == _FILES else f"{at} -a {_fish_quoted(value)}"
    for option in place.options:
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
        values = [value for value in option.values if value != _FILES]
        given = f" -a {_fish_quoted(' '.join(values))}" if values else ""
        files = " -F" if _FILES in option.values else ""
        value = f" -r{files or ' -f'}{given}" if option.has_value else ""
        yield f"{at} {names}{value} -d {_fish_quoted(option.help)}"


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
