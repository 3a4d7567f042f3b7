"""File of certificates for kernels behind the proxy: one for a server, made again if it is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jupyter_exec_ext.isolation.common.leftovers import own_name, sweep
from jupyter_exec_ext.isolation.network import certificates_file
from jupyter_exec_ext.isolation.network.certificates_file import CertificatesFile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the proxy needs Linux")


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parent of the servers' directories."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(certificates_file, "trusted_certificates", lambda ca_file: f"machine {ca_file}")
    return tmp_path / "jupyter_exec_ext" / "private"


def test_concurrent_first_starts_write_one_file_that_shutdown_removes(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    second = threading.Event()

    def read(ca_file: str) -> str:
        calls.append(ca_file)
        if len(calls) > 1:
            second.set()
        second.wait(0.1)  # as long as a second thread would need to come here
        return f"machine {ca_file}"

    monkeypatch.setattr(certificates_file, "trusted_certificates", read)
    file = CertificatesFile("more.pem")
    with ThreadPoolExecutor(4) as threads:
        (path,) = set(threads.map(file.ensure, ["own"] * 20))
    assert (path.read_text(), calls) == ("machine more.pem\nown", ["more.pem"])
    assert list(private.rglob("*.*")) == [path] and path.is_relative_to(private / own_name())
    assert path.parent.stat().st_mode & 0o077 == 0
    file.remove()
    assert list(private.rglob("*")) == []


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_file_that_was_removed_is_made_again_in_its_place(levels: int) -> None:
    file = CertificatesFile("")
    path = file.ensure("own")
    if levels:
        shutil.rmtree(path.parents[levels - 1])
    else:
        path.unlink()
    assert file.ensure("own") == path
    assert path.read_text() == "machine \nown"


def test_file_of_a_killed_server_is_removed_by_the_next_one(private: Path) -> None:
    program = (
        "from jupyter_exec_ext.isolation.network.certificates_file import CertificatesFile; "
        "print(CertificatesFile('').ensure('own'))"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    path = Path(done.stdout.strip())
    assert path.is_file()
    sweep()
    assert not path.exists() and list(private.iterdir()) == []
