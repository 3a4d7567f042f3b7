"""Follow the README and both tutorials as a newcomer: ``python -m tests.newcomer [SHELL …]``; by default in all shells.

Each shell gets a fresh clone of this repository's last commit and a fresh virtual environment. All that the pages show
must appear, and the first result within a minute of the end of the installation. pip's and npm's settings are the
account's own, and only the port differs from the pages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.blocks import ROOT, Block
from tests.docs.setups.readme import PAGES
from tests.docs.tutorials import AGENT_TOKEN, RUN_CODE, Newcomer, follow_tutorial
from tests.support.hosts import free_port, wait_until_ready
from tests.support.howto_pages import SHELLS, Shell, serving
from tests.support.outside_parts import find_missing

FIRST_RESULT_SECONDS = 60.0
_README = "README.md"
_FIRST_RESULT = ["hello\n", "42\n"]
_INSTALLED = "Successfully installed "
# With npm, the front end is built, too.
_LINE_SECONDS = 1800.0


class NewcomerError(AssertionError):
    """A line has not shown what its page shows, or has come too late."""


@dataclass
class _Stopwatch:
    """Time from the end of an installation to the first result."""

    installed_at: float | None = None
    result_at: float | None = None
    lines: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        """Note a line that was printed."""
        self.lines.append(line)
        if line.startswith(_INSTALLED):
            self.installed_at = time.monotonic()
        elif line == _FIRST_RESULT[0] and self.result_at is None:
            self.result_at = time.monotonic()

    def seconds(self) -> float:
        """Return the time; raise `NewcomerError` if one of the two did not happen."""
        if self.installed_at is None or self.result_at is None or self.lines[-2:] != _FIRST_RESULT:
            raise NewcomerError(f"the README's first line ended otherwise:\n{''.join(self.lines[-40:])}")
        return self.result_at - self.installed_at


def _own_settings() -> dict[str, str]:
    """Return variables by which pip and npm find the settings of this account, since the newcomer has another home."""
    files = {"PIP_CONFIG_FILE": ".config/pip/pip.conf", "NPM_CONFIG_USERCONFIG": ".npmrc"}
    found = {name: Path.home() / file for name, file in files.items()}
    return {name: str(path) for name, path in found.items() if path.is_file() and name not in os.environ}


def _check(good: bool, line: str, printed: str) -> None:
    if not good:
        raise NewcomerError(f"{line}\n{printed}")


def follow_readme(newcomer: Newcomer, home: Path) -> float:
    """Type the README's lines, run its programs, and return the seconds from the installation to the first result."""
    env = newcomer.account(home) | _own_settings()
    shown = newcomer.blocks(_README)
    install, *others = [block for block in shown if block.language == "sh"]
    watch = _Stopwatch()
    shell = Shell(env, newcomer.root, newcomer.shell, line_seconds=_LINE_SECONDS)
    try:
        shell.type(install.text.strip(), watch.note)
        seconds = watch.seconds()
    finally:
        shell.close()
    serve = next(block for block in others if "jupyter exec serve" in block.text)
    desk, port = home / "desk", free_port()
    desk.mkdir()
    with serving(serve.text.strip().replace("8888", str(port)), env, desk, port, newcomer.shell) as host:
        wait_until_ready(host)
        _run_programs([block for block in shown if block.language == "python"], newcomer, env, desk)
    return seconds


def _run_programs(programs: Sequence[Block], newcomer: Newcomer, env: dict[str, str], desk: Path) -> None:
    shell = Shell(env, desk, newcomer.shell)
    try:
        printed = ""
        for number, block in enumerate(programs):
            (desk / f"program{number}.py").write_text(block.text)
            printed += shell.type(f"python program{number}.py")
        for words in PAGES[_README].prints:
            _check(words in printed, words, printed)
    finally:
        shell.close()


def _install_for(page: str, newcomer: Newcomer, home: Path) -> None:
    """Type the install lines of a tutorial."""
    shell = Shell(newcomer.account(home) | _own_settings(), newcomer.root, newcomer.shell, line_seconds=_LINE_SECONDS)
    try:
        for block in newcomer.blocks(page):
            if block.language == "sh":
                printed = shell.type(block.text.strip())
                _check(_INSTALLED in printed or "already satisfied" in printed, block.text, printed)
    finally:
        shell.close()


def be_newcomer(shell: str) -> None:
    """Clone, make an environment, and follow all pages in a shell; raise an `AssertionError` if something differs."""
    with tempfile.TemporaryDirectory(prefix="jex") as directory:
        home = Path(directory)
        clone, scripts = home / "clone", home / "env" / "bin"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        subprocess.run([sys.executable, "-m", "venv", str(home / "env")], check=True)
        newcomer = Newcomer(shell, scripts, clone)
        steps: dict[str, Callable[[Path], object]] = {
            _README: lambda place: follow_readme(newcomer, place),
            RUN_CODE: lambda place: _follow(RUN_CODE, newcomer, place),
            AGENT_TOKEN: lambda place: _follow(AGENT_TOKEN, newcomer, place),
        }
        for number, (page, step) in enumerate(steps.items()):
            if page == AGENT_TOKEN and (missing := find_missing("sandbox")):
                raise NewcomerError(f"{page} was not followed: {missing}")
            place = home / str(number)
            place.mkdir()
            began = time.monotonic()
            result = step(place)
            print(f"{shell}: {page} as written, in {time.monotonic() - began:.0f} s", flush=True)
            if isinstance(result, float):
                print(f"{shell}: first result {result:.1f} s after the installation", flush=True)
                if result > FIRST_RESULT_SECONDS:
                    raise NewcomerError(f"the first result took {result:.0f} s; at most {FIRST_RESULT_SECONDS:.0f} s")


def _follow(page: str, newcomer: Newcomer, place: Path) -> None:
    _install_for(page, newcomer, place / "installing")
    follow_tutorial(page, place, newcomer)


def main() -> int:
    """Follow the pages in the shells of the command line; return 1 if one is missing or something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.newcomer", description=__doc__)
    parser.add_argument("shells", nargs="*", metavar="SHELL", help=f"{', '.join(SHELLS)}; all of them by default")
    given = parser.parse_args().shells
    if unknown := [name for name in given if name not in SHELLS]:
        parser.error(f"there is no shell {unknown[0]!r}; choose from {', '.join(SHELLS)}")
    failed = []
    for name in given or SHELLS:
        if shutil.which(name) is None:
            print(f"{name}: not installed, so nothing was followed in it; apt install {name}", flush=True)
            failed.append(name)
            continue
        try:
            be_newcomer(name)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}", flush=True)
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all pages as written, in all shells")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
