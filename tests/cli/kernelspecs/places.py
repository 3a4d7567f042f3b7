"""The commands about kernelspecs, with Jupyter's directories of a test's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.cli.main import main

INSTALL = ("kernelspec", "install", "--sandbox")
needs_sandbox = pytest.mark.needs("sandbox")


class Jupyter:
    """The commands, with Jupyter's directories below one directory."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.kernels = home / "jupyter_data_dir" / "kernels"
        self._capsys = capsys

    def __call__(self, *args: str) -> tuple[int, str, str]:
        code = main(args)
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    def install(self, *args: str) -> dict[str, Any]:
        """Install a kernelspec and return what is written of it."""
        code, out, err = self(*INSTALL, *args)
        assert code == 0, err
        return dict(json.loads(Path(out.strip(), "kernel.json").read_text()))

    def refusal(self, *args: str) -> str:
        """Return why a kernelspec was not installed, of which nothing is left."""
        before = sorted(self.kernels.rglob("*"))
        code, out, err = self(*INSTALL, *args)
        assert (code, out, len(err.splitlines())) == (2, "", 1), err
        assert sorted(self.kernels.rglob("*")) == before
        return err

    def add(self, name: str, **fields: Any) -> Path:
        """Install a kernelspec of a language of its own, started by a script beside it."""
        directory = self.kernels / name
        directory.mkdir(parents=True)
        (directory / "start.sh").write_text("#!/bin/sh\nexec sleep 60\n")
        (directory / "start.sh").chmod(0o755)
        (directory / "logo-64x64.png").write_bytes(b"a logo")
        document = {
            "argv": ["/bin/sh", f"{directory}/start.sh", "{connection_file}"],
            "display_name": "Shell",
            "language": "bash",
        }
        (directory / "kernel.json").write_text(json.dumps(document | fields))
        return directory
