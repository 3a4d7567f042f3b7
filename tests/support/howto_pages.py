"""A page of instructions as a test reads it: the files and the typed lines of its recipes, and shells to type into."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_exec_ext.client import JupyterConnectionInfo
from tests.support.hosts import Host, clean_environment, stop
from tests.support.outside_parts import require_part
from tests.support.terminals import Terminal

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CURL = re.compile(r"\bcurl ")
_PROMPT = re.compile(r"(\w+)\$ (.*)")
_MARK = "--the-end-of-what-a-line-printed--"
_LINE_SECONDS = 90.0
_SCRIPTS = sysconfig.get_path("scripts")
#: Commands that start each shell without the files of the account.
SHELLS = {"bash": ("bash", "--noprofile", "--norc"), "zsh": ("zsh", "-f"), "dash": ("dash",)}
_SECONDS = 60.0


@dataclass(frozen=True)
class Step:
    """A line that somebody types, and what they should see."""

    who: str
    line: str
    shown: str

    def check(self, printed: str) -> None:
        """Compare; ``…`` stands for a part of a line or, alone on one, for any number of lines."""
        assert self._pattern().fullmatch(printed), (
            f"{self.who}$ {self.line}\n{printed}\n--- but should be\n{self.shown}"
        )

    def _pattern(self) -> re.Pattern[str]:
        lines = [
            r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
            for line in self.shown.splitlines()
        ]
        return re.compile("".join(lines))


def steps_of(texts: Iterable[str]) -> list[Step]:
    """Return all that is typed in blocks of a console, in its order."""
    steps: list[Step] = []
    for line in (line for text in texts for line in text.splitlines()):
        if match := _PROMPT.fullmatch(line):
            steps.append(Step(match[1], match[2], ""))
        else:
            last = steps.pop()
            steps.append(Step(last.who, last.line, f"{last.shown}{line}\n"))
    return steps


class Recipe:
    """A page, or one section of it, with addresses and paths replaced by a test's.

    Parameters
    ----------
    page : str
    title : str or None
        The section's; None for the whole page.
    replaced : mapping
        Texts of the page, each with the test's own.
    """

    def __init__(self, page: str, title: str | None, replaced: Mapping[str, str]) -> None:
        self._text = page
        if title is not None:
            _, found, section = page.partition(f"\n## {title}\n")
            assert found, title
            self._text = section.partition("\n## ")[0]
        for old, new in replaced.items():
            assert old in self._text, old
            self._text = self._text.replace(old, new)

    def file(self, name: str) -> str:
        """Return the content of a file, which stands in its first line."""
        return next(text for text in self._blocks() if text.startswith(f"# {name}\n"))

    def write(self, name: str, path: Path) -> None:
        """Write a file where it belongs."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.file(name))

    def steps(self) -> list[Step]:
        """Return all that is typed, in its order."""
        return steps_of(self._blocks("console"))

    def commands(self) -> list[str]:
        """Return the commands that stand in a sentence."""
        return re.findall(r"`(jupyter exec [^`]+)`", self._text)

    def _blocks(self, *languages: str) -> Iterator[str]:
        return (text for language, text in _BLOCK.findall(self._text) if not languages or language in languages)


def require_part_of(line: str) -> None:
    """Skip the test where a line names a program that is an outside part and is missing."""
    if _CURL.search(line):
        require_part("curl")


class Shell:
    """A shell: what is set in one line holds in the next.

    Parameters
    ----------
    env : mapping
        Its environment.
    directory : Path
        Its directory.
    name : str
        One of `SHELLS`.
    line_seconds : float
        Longest time for a line, in seconds.
    """

    def __init__(
        self, env: Mapping[str, str], directory: Path, name: str = "bash", *, line_seconds: float = _LINE_SECONDS
    ) -> None:
        self._line_seconds = line_seconds
        self._process = subprocess.Popen(
            SHELLS[name],
            env=dict(env),
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, line: str, on_print: Callable[[str], None] = lambda text: None) -> str:
        """Run a line and return what it printed; `on_print` gets each line of it as it comes."""
        require_part_of(line)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{{ {line}\n}} < /dev/null\necho {_MARK}\n")
        self._process.stdin.flush()
        printed: list[str] = []
        alarm = threading.Timer(self._line_seconds, self._end)
        alarm.start()
        try:
            for text in self._process.stdout:
                if text == f"{_MARK}\n":
                    return "".join(printed)
                printed.append(text)
                on_print(text)
        finally:
            alarm.cancel()
        raise AssertionError(f"{line!r} did not end:\n{''.join(printed)}")

    def close(self) -> None:
        """Leave it, and close what we spoke through."""
        self._end()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _end(self) -> None:
        """End it with all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def shells(
    env_of: Mapping[str, Mapping[str, str]], directory: Path, name: str = "bash"
) -> Iterator[Callable[[Step], None]]:
    """Yield what types a step into its person's shell, one of `SHELLS`, and checks what is shown."""
    opened = {who: Shell(env, directory, name) for who, env in env_of.items()}
    try:
        yield lambda step: step.check(opened[step.who].type(step.line))
    finally:
        for shell in opened.values():
            shell.close()


def account(home: Path, *, scripts: str | Path = _SCRIPTS, **extra: str) -> dict[str, str]:
    """Return the environment of a new account, with the commands of an installation, by default of this one."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in clean_environment(home).items() if not k.startswith(("JUPYTER", "IPYTHON"))}
    return {**kept, "PATH": f"{scripts}{os.pathsep}{kept['PATH']}", **extra}


def approve(step: Step, ask: Any, env: Mapping[str, str], home: Path, shell: str = "bash") -> None:
    """Watch, and answer as the page does, while an agent asks."""
    question, _, answer = step.shown.splitlines()[-1].partition(": ")
    failures: list[BaseException] = []

    def asking() -> None:
        try:
            ask()
        except BaseException as error:
            failures.append(error)

    agent = threading.Thread(target=asking)
    with Terminal([shell, "-c", f"exec {step.line}"], env, home) as terminal:
        seen = terminal.read_until("to leave.\n") + "to leave.\n"
        agent.start()
        seen += terminal.read_until(f"{question}: ")
        terminal.type(answer)
        agent.join(_SECONDS)
    assert failures == []
    step.check(f"{seen}{question}: {answer}\n")


@contextmanager
def serving(line: str, env: Mapping[str, str], home: Path, port: int, shell: str = "bash") -> Iterator[Host]:
    """Start a server as a page says, and stop it at the end."""
    log = home / "server.log"
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [shell, "-c", exec_last(line)],
            env=dict(env),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    host = Host("a recipe's", process, JupyterConnectionInfo("127.0.0.1", False, port), home, log)
    try:
        yield host
    finally:
        stop(process)


def exec_last(lines: str) -> str:
    """Return lines for a shell whose process the last command takes over."""
    before, _, last = lines.rpartition("\n")
    return f"{before}\nexec {last}"
