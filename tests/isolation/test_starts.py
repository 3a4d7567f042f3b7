"""Starts of isolated kernels: Python called by a path with `..`, and the reason where a kernel ends at its start."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from jupyter_exec_ext import EmbeddedIPythonCodeExecutor
from jupyter_exec_ext.engine.kernels.kernel_host import ManagerKernelHost
from jupyter_exec_ext.errors import KernelStartFailed
from jupyter_exec_ext.isolation.common.visible_files import resolve_program
from tests.executors.conftest import python
from tests.support.full import IS_FULL

_PROVISIONERS = [
    pytest.param("sandbox-provisioner", marks=pytest.mark.needs("sandbox")),
    pytest.param("landlock-provisioner", marks=pytest.mark.needs("Landlock")),
]


def install(directory: Path, provisioner: str, *argv: str) -> None:
    place = directory / "kernels" / "under-test"
    place.mkdir(parents=True)
    stanza = {"provisioner_name": provisioner, "config": {"working_directory": "private"}}
    spec = {
        "argv": [*argv, "{connection_file}"],
        "display_name": "x",
        "language": "python",
        "metadata": {"kernel_provisioner": stanza},
    }
    (place / "kernel.json").write_text(json.dumps(spec))


@pytest.fixture
def dotted(tmp_path: Path) -> str:
    """Return this Python's path through a directory that a sandbox has not."""
    (tmp_path / "project").mkdir()
    bin_directory, name = os.path.split(sys.executable)
    return os.path.join(tmp_path, "project", os.path.relpath(bin_directory, tmp_path / "project"), name)


@pytest.mark.parametrize("provisioner", _PROVISIONERS)
def test_python_called_by_a_path_with_two_dots_starts(
    tmp_path: Path, dotted: str, monkeypatch: pytest.MonkeyPatch, provisioner: str
) -> None:
    assert ".." in dotted
    install(tmp_path / "data", provisioner, dotted, "-m", "ipykernel_launcher", "-f")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    with EmbeddedIPythonCodeExecutor(kernel_name="under-test", output_dir=tmp_path) as executor:
        said = executor.execute_code_blocks(python("import sys; print(sys.prefix)")).output.strip()
    assert said == sys.prefix


@pytest.mark.parametrize("provisioner", _PROVISIONERS)
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit('no licence')", "no licence"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("import os; os.write(2, b'half a line'); os._exit(3)", "half a line"),
        ("print('on standard output'); raise SystemExit(1)", "on standard output"),
        ("import sys; sys.stderr.write('x' * 100_000 + ' the end'); sys.exit(1)", "the end"),
        ("import sys; sys.stderr.buffer.write(b'\\x1b[31mred \\xff\\n'); sys.exit(1)", "red \N{REPLACEMENT CHARACTER}"),
    ],
)
async def test_what_an_isolated_kernel_says_before_it_ends_is_kept(
    tmp_path: Path, provisioner: str, code: str, reason: str
) -> None:
    install(tmp_path, provisioner, sys.executable, "-c", code)
    specs: Any = KernelSpecManager(kernel_dirs=[str(tmp_path / "kernels")])
    manager = AsyncMappingKernelManager(kernel_spec_manager=specs, connection_dir=str(tmp_path))
    host = ManagerKernelHost(manager, specs)
    kernel = await host.start("under-test", dict(os.environ), None)
    try:
        while await kernel.alive():
            pass
        words = kernel.last_words()
        assert reason in words
        assert len(words) < 4000
        assert words.isprintable() or "\n" in words
        assert "\x1b" not in words
    finally:
        await kernel.shutdown(now=True)


@pytest.mark.parametrize("provisioner", _PROVISIONERS[: 2 if IS_FULL else 1])
def test_why_an_embedded_kernel_ended_at_its_start_is_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provisioner: str
) -> None:
    install(tmp_path, provisioner, sys.executable, "-c", "raise SystemExit('no licence')")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    with pytest.raises(KernelStartFailed, match="no licence"):
        EmbeddedIPythonCodeExecutor(kernel_name="under-test", output_dir=tmp_path)


def test_a_program_is_resolved_only_where_its_path_leads_through_other_places(tmp_path: Path) -> None:
    real = tmp_path / "real" / "bin"
    real.mkdir(parents=True)
    program = real / "python"
    program.symlink_to(sys.executable)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "deep").symlink_to(real)
    expected = str(program)
    assert resolve_program(expected) == expected
    assert resolve_program(f"{tmp_path}/link/bin/python") == f"{tmp_path}/link/bin/python"
    assert resolve_program(f"{tmp_path}/real/../real/bin/python") == expected
    assert resolve_program(f"{tmp_path}/link/../real/bin/python") == expected
    assert resolve_program(f"{tmp_path}/deep/../bin/python") == expected  # `..` of where the link leads
    assert resolve_program(f"{tmp_path}/real/./bin//python") == expected
    assert resolve_program("no-such-program-anywhere") == "no-such-program-anywhere"
    assert resolve_program(os.path.relpath(program)) == expected
