"""Peers, each in an environment of its own, so that their pins and ours do not meet."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".bench"
_COMMON = ("ipykernel", "jupyter_client", "jupyter_server", "pyzmq", "tornado")
_LAST_BYTES = 4000
_END_SECONDS = 30


class PeerError(Exception):
    """A peer cannot be installed, or its worker has ended."""


def environment(name: str) -> Path:
    """Return the Python of a peer's environment, made from ``<name>.txt`` when it is first asked for.

    Raises
    ------
    PeerError
        If it cannot be installed.
    """
    requirements = HERE / f"{name}.txt"
    root = ENVIRONMENTS / name
    stamp = root / "requirements.txt"
    python = root / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        print(f"making the environment of {name} in {root} ...", file=sys.stderr, flush=True)
        venv.create(root, with_pip=True, clear=True)
        try:
            subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True, cwd=ROOT)
        except subprocess.CalledProcessError:  # pip has said why
            command = f"{python} -m pip install -r {requirements}"
            raise PeerError(f"{name} is not installed: run `{command}` in {ROOT} and see what is missing") from None
        stamp.write_text(requirements.read_text())
    return python


def versions(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the versions in environments that are made: of what their files name, and of what all stand on."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        places = [str(place) for place in (ENVIRONMENTS / name).glob("[lL]ib/**/site-packages")]
        named = re.findall(r"^[A-Za-z][\w.-]*", (HERE / f"{name}.txt").read_text(), re.MULTILINE)
        wanted = {_plain(package) for package in [*named, *_COMMON]}
        installed = {_plain(one.name): one.version for one in distributions(path=places)}
        if kept := {package: version for package, version in sorted(installed.items()) if package in wanted}:
            found[name] = kept
    return found


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


class Worker:
    """A process in a peer's environment that answers lines of JSON.

    Parameters
    ----------
    python : Path
        Of the peer's environment.
    *arguments : str
        What it is to run.
    """

    def __init__(self, python: Path, *arguments: str) -> None:
        self._what = arguments[-1]
        with contextlib.ExitStack() as stack:
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            home = stack.enter_context(tempfile.TemporaryDirectory())
            self._process = subprocess.Popen(
                [python, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                cwd=home,  # peers leave files behind
                # `jupyter <command>` takes the first one on PATH, which must be the peer's own.
                env={
                    **os.environ,
                    "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
                    "PYTHONPATH": str(ROOT),
                },
            )
            self._resources = stack.pop_all()

    def ask(self, question: object) -> Any:
        """Send a line and return the answer to it.

        Raises
        ------
        PeerError
            If the worker ends instead, with the end of what it wrote.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            print(json.dumps(question), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(_END_SECONDS)
            self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _LAST_BYTES))
            said = self._errors.read().decode(errors="replace")
            raise PeerError(f"{self._what} has ended:\n{said}")
        return json.loads(line)

    def close(self) -> None:
        """End the worker."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._resources, self._process.stdout:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
