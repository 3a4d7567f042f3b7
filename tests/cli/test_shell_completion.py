"""Tab completion in real shells under tmux, and the data of its scripts."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_exec_ext.cli.command_parser import walk_commands
from jupyter_exec_ext.cli.main import build_parser, main
from jupyter_exec_ext.cli.shell_completion import completion_script
from tests.support.full import only_in_full

SHELLS = {
    "bash": "bash --norc --noprofile",
    "zsh": "zsh -f",
    "fish": "fish --no-config",
}
_SETUP = {
    "bash": "PS1='> '; bind 'set show-all-if-ambiguous on'; bind 'set bell-style none'; source ./script",
    "zsh": "PS1='> '; unsetopt beep; autoload -Uz compinit && compinit -u -D; source ./script",
    "fish": "function fish_prompt; echo -n '> '; end; source ./script",
}
_SECONDS = 20.0


class Shell:
    """A shell in a tmux session of its own, with the completion script."""

    def __init__(self, name: str, home: Path) -> None:
        self._socket = str(home / "tmux")
        (home / "script").write_text(completion_script(build_parser(), name))
        (home / "data.csv").touch()
        environment = [f"HOME={home}", "TERM=screen", "LC_ALL=C.UTF-8"]
        self._tmux(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "180",
            "-y",
            "50",
            "-c",
            str(home),
            *self._run(name, environment),
        )
        self.run(f"{_SETUP[name]}; echo re''ady", "ready")

    @staticmethod
    def _run(name: str, environment: list[str]) -> list[str]:
        return [shlex.join(["env", *environment, *SHELLS[name].split()])]

    def _tmux(self, *args: str) -> str:
        done = subprocess.run(["tmux", "-S", self._socket, *args], capture_output=True, text=True, check=True)
        return done.stdout

    def run(self, line: str, words: str) -> str:
        """Type a line, and return the screen once it has some words."""
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")
        return self._wait_for(words)

    def complete(self, line: str, words: str) -> str:
        """Type a line and press Tab, and return the screen once it has some words."""
        self._tmux("send-keys", "C-u", "C-l")
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Tab")
        return self._wait_for(words)

    def _wait_for(self, words: str) -> str:
        deadline = time.monotonic() + _SECONDS
        while words not in (screen := self._tmux("capture-pane", "-p")):
            assert time.monotonic() < deadline, screen
            time.sleep(0.02)  # tmux has no event for what is shown
        return screen

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture(
    params=[
        pytest.param("bash", marks=pytest.mark.needs("tmux")),
        pytest.param("zsh", marks=[only_in_full, pytest.mark.needs("zsh")]),
        pytest.param("fish", marks=[only_in_full, pytest.mark.needs("fish")]),
    ]
)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(request.param, tmp_path)
    yield opened
    opened.close()


def test_shell_completes_commands_options_values_and_files(shell: Shell) -> None:
    for command in ("jupyter exec", "jupyter-exec"):
        screen = shell.complete(f"{command} ", "completion")
        for name in ("run", "session", "kernelspec", "doctor"):
            assert name in screen
        shell.complete(f"{command} sess", f"{command} session")
        screen = shell.complete(f"{command} session ", "interrupt")
        assert "upload" not in screen
        shell.complete(f"{command} session list --js", f"{command} session list --json")
        screen = shell.complete(f"{command} run --isolation ", "landlock")
        assert "sandbox" in screen
        shell.complete(f"{command} doctor --server no", f"{command} doctor --server none")
        shell.complete(f"{command} run --output-dir . da", f"{command} run --output-dir . data.csv")
        shell.complete(f"{command} token create x --token-file da", "--token-file data.csv")
        shell.complete(f"{command} completion z", f"{command} completion zsh")
    shell.complete("jupyter ex", "jupyter exec")


@pytest.mark.needs("tmux")
def test_other_subcommands_of_jupyter_keep_their_completion(tmp_path: Path) -> None:
    shell = Shell("bash", tmp_path)
    try:
        shell.run(
            "_other() { COMPREPLY=(of-another); }; complete -F _other jupyter; . ./script; . ./script; echo se''t",
            "set",
        )
        shell.complete("jupyter lab ", "jupyter lab of-another")
        shell.complete("jupyter exec doc", "jupyter exec doctor")
    finally:
        shell.close()


@pytest.mark.parametrize("name", SHELLS)
def test_script_has_every_command_and_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", name]) == 0
    script = capsys.readouterr().out
    for path, parser in walk_commands(build_parser()):
        assert not path or " ".join(path) in script
        for action in parser._actions:
            for option in action.option_strings:
                assert option in script or f" {option.replace('--', '-l ')} " in script, (path, option)
    if program := shutil.which(name):
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=30)
