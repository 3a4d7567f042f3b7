"""``jupyter exec doctor --devices``: with and without GPUs; a node that the test makes stands for one."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from jupyter_exec_ext.cli import doctor_devices
from jupyter_exec_ext.cli.doctor_devices import check_devices
from jupyter_exec_ext.cli.main import main
from jupyter_exec_ext.isolation.common.isolation_support import IsolationUnavailableError


def test_machine_without_gpu_is_a_note(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor_devices, "glob", lambda pattern: [])
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    assert main(["doctor", "--devices", "--json"]) == 0
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["mark"] == "note" and "there is no GPU" in finding["what"] and "driver" in finding["remedy"]


def test_devices_of_a_server_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--devices", "--server", "http://127.0.0.1:1/"]) == 2
    assert "leave out the server" in capsys.readouterr().err


def test_gpu_without_a_sandbox_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise IsolationUnavailableError("no_bubblewrap", "bubblewrap (bwrap) is not installed")

    monkeypatch.setattr(doctor_devices, "glob", lambda pattern: ["/dev/nvidia0"])
    monkeypatch.setattr(doctor_devices, "ready_tools", refuse)
    (finding,) = check_devices()
    assert finding.mark == "FAIL" and "no sandbox that could use them" in finding.what


@pytest.mark.needs("sandbox")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device nodes")
def test_gpu_is_tried_in_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Path("/dev/nvidia97")
    monkeypatch.setattr(doctor_devices, "glob", lambda pattern: [str(node)])
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        findings = {finding.what: finding.mark for finding in check_devices()}
        (tried,) = (what for what in findings if what.startswith("a sandbox can use the device nvidia:97"))
        assert findings[tried] == "ok" and str(node) in tried
        assert any("address space" in what for what in findings)
        monkeypatch.setattr(doctor_devices, "_seen_in_sandbox", lambda bwrap, nodes: [])
        assert any(finding.mark == "FAIL" and "cannot open" in finding.what for finding in check_devices())
    finally:
        node.unlink(missing_ok=True)
    assert any("is not on this machine" in finding.what for finding in check_devices())
