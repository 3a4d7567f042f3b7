"""Peers, each in an environment of its own, so that their pins and ours do not meet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent.parent / ".bench"


def environment(name: str) -> Path:
    """Return the Python of a peer's environment, made from ``<name>.txt`` when it is first asked for."""
    requirements = HERE / f"{name}.txt"
    root = ENVIRONMENTS / name
    stamp = root / "requirements.txt"
    python = root / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        print(f"making the environment of {name} ...", file=sys.stderr)
        venv.create(root, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
        stamp.write_text(requirements.read_text())
    return python


class Peer:
    """A peer's worker process: gets code, runs it its own way, and says how long that took.

    Parameters
    ----------
    name : str
        Of its ``<name>.txt`` and ``<name>.py`` beside this file.
    """

    def __init__(self, name: str) -> None:
        python = environment(name)
        self._process = subprocess.Popen(
            [python, HERE / f"{name}.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # `jupyter <command>` takes the first one on PATH, which must be the peer's own.
            env={**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"},
        )
        self.run("0")

    def run(self, code: str) -> float:
        """Run code and return the seconds it took inside the worker."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(code), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the peer's worker has ended")
        return float(json.loads(line))

    def close(self) -> None:
        """End the worker."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
