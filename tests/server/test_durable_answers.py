"""Nobody is told of an execution before it would survive a power failure, on a server whose disk can be stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyter_exec_ext import ExecClient

from ..support.hosts import Host, running_host

# Loaded by Python as it starts: syncs wait as long as there is a file.
_DISK = """
import os, time

def sync(descriptor, sync=os.fdatasync):
    while os.path.exists(os.environ["STOPPED_DISK"]):
        time.sleep(0.01)
    sync(descriptor)

os.fdatasync = sync
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that stops the server's disk while it is there."""
    return tmp_path_factory.mktemp("disk") / "stopped"


@pytest.fixture(scope="module")
def host(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    (disk.parent / "sitecustomize.py").write_text(_DISK)
    env = {"PYTHONPATH": str(disk.parent), "STOPPED_DISK": str(disk)}
    with running_host("gateway", tmp_path_factory.mktemp("host"), env=env) as running:
        yield running


@pytest.mark.parametrize("how", ["202", "stream", "aca"])
def test_an_answer_waits_for_the_disk_and_the_code_does_not(host: Host, disk: Path, tmp_path: Path, how: str) -> None:
    began = tmp_path / "began"
    os.mkfifo(began)
    code = f"open({str(began)!r}, 'w').close(); import time; time.sleep(120)"
    headers: dict[str, str] = {"Authorization": f"token {host.info.token}"}
    answers: list[requests.Response] = []
    with ExecClient(host.info) as client, client.session() as session:
        session.run("1")
        path, body, status = f"exec/v1/sessions/{session.id}/executions", {"code": code}, 202
        if how == "stream":
            headers["Accept"], status = "text/event-stream", 200
        elif how == "202":
            headers["Prefer"] = "respond-async"
        else:
            path, body["executionType"] = (
                f"exec/aca/executions?identifier={tmp_path.name}&api-version=2024-02-02-preview",
                "Asynchronous",
            )
            first: dict[str, Any] = {"code": "1"}
            requests.post(f"{host.info.url}{path}", json=first, headers=headers, timeout=60).raise_for_status()

        def ask() -> None:
            answers.append(requests.post(f"{host.info.url}{path}", json=body, headers=headers, stream=True, timeout=60))

        asking = threading.Thread(target=ask)
        disk.touch()
        try:
            asking.start()
            began.read_text()  # returns when the code has run so far
            asking.join(0.3)
            assert answers == []
        finally:
            disk.unlink()
        asking.join(30)
        (answer,) = answers
        assert answer.status_code == status
        answer.close()
