"""What the files in ``containers/`` start, without a container; the images are for `tests/executors`."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from jupyter_exec_ext import ExecClient, JupyterConnectionInfo
from jupyter_exec_ext.executors.containers.container_image import DOCKERFILE
from tests.support import canaries
from tests.support.full import only_in_full
from tests.support.hosts import Host, clean_environment, free_port, stop, wait_until_ready

CONTAINERS = Path(__file__).parent.parent / "containers"
KINDS = ("gateway", "lab")
_START_SECONDS = 90.0


def instructions(kind: str, name: str) -> list[str]:
    """Return the arguments of all instructions of a name in a Dockerfile."""
    lines = (CONTAINERS / f"{kind}.Dockerfile").read_text().replace("\\\n", " ").splitlines()
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


def test_there_is_a_file_for_each() -> None:
    assert {path.name for path in CONTAINERS.glob("*.Dockerfile")} == {f"{kind}.Dockerfile" for kind in KINDS}
    page = (CONTAINERS.parent / "docs" / "howto" / "container.md").read_text()
    assert all(f"`containers/{kind}.Dockerfile`" in page for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_they_build_on_what_the_default_image_builds_on_and_run_as_nobody_special(kind: str) -> None:
    assert f"FROM {instructions(kind, 'FROM')[0]}" == DOCKERFILE.splitlines()[0]
    assert instructions(kind, "USER") == ["1000:1000"]
    assert not [line for name in ("ENV", "ARG") for line in instructions(kind, name) if "TOKEN" in line]


@pytest.mark.parametrize("kind", KINDS)
def test_images_have_bubblewrap_and_the_libraries_of_a_binder(kind: str) -> None:
    lines = " ".join(instructions(kind, "RUN"))
    binder = CONTAINERS.parent / "binder"
    libraries = [
        line for line in (binder / "requirements.txt").read_text().split() if re.match("matplotlib|pandas", line)
    ]
    assert len(libraries) == 2
    assert [name for name in [*(binder / "apt.txt").read_text().split(), *libraries] if name not in lines] == []


def check_health(kind: str, host: Host) -> int:
    """Run the health check of an image on a host of this machine; return its exit code."""
    (line,) = instructions(kind, "HEALTHCHECK")
    python, *arguments = json.loads(line.partition(" CMD ")[2].replace("8888", str(host.info.port)))
    assert python == "python"
    command = [sys.executable, *arguments]
    # A proxy of the environment must not be asked.
    env = {**os.environ, "http_proxy": "http://127.0.0.1:9"}
    return subprocess.run(command, env=env, stderr=subprocess.DEVNULL, timeout=30, check=False).returncode


@contextmanager
def started(kind: str, home: Path, token: str | None, **env: str) -> Iterator[Host]:
    """Run what the container would."""
    (command,) = instructions(kind, "CMD")
    shell, option, line = json.loads(command)
    port = free_port()
    line = line.replace("8888", str(port)).replace("0.0.0.0", "127.0.0.1")
    if os.geteuid() == 0:  # which nobody is in the container
        line += " --allow-root"
    environ = clean_environment(home, **env)
    environ["PATH"] = sysconfig.get_path("scripts") + os.pathsep + environ["PATH"]
    log = home / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [shell, option, line],
            cwd=home,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    host = Host(kind, process, JupyterConnectionInfo("127.0.0.1", False, port, token), home, log)
    try:
        yield host
    finally:
        stop(process)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", ["TOKEN", "JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE"])
@only_in_full
def test_what_they_start_takes_the_token_in_three_ways(kind: str, given: str, tmp_path: Path) -> None:
    token = canaries.note(secrets.token_hex(16))
    (tmp_path / "secret").write_text(token + "\n")
    value = str(tmp_path / "secret") if given.endswith("FILE") else token
    with started(kind, tmp_path, token, **{given: value}) as host:
        wait_until_ready(host)
        assert check_health(kind, host) == 0
        assert requests.get(f"{host.info.url}exec/v1/", timeout=30).status_code == 401
        with ExecClient(host.info) as client, client.session() as session:
            if kind == "lab":
                page = requests.get(host.info.url, headers=host.info.auth_headers, timeout=30)
                assert page.url.endswith("/lab") and "JupyterLab" in page.text
            assert client.info()["host"] == ("kernel_gateway" if kind == "gateway" else "jupyter_server")
            assert session.run("import os; print(os.environ.get('TOKEN'), os.environ.get('JUPYTER_TOKEN'))").stdout == (
                "None None\n"
            )
        assert token not in host.log_text()
    assert check_health(kind, host) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_token_nobody_comes_in(kind: str, tmp_path: Path) -> None:
    with started(kind, tmp_path, None) as host:
        deadline = time.monotonic() + _START_SECONDS
        while check_health(kind, host):  # a gateway refuses everything else
            assert time.monotonic() < deadline and host.process.poll() is None, host.log_text()
        assert requests.get(f"{host.info.url}exec/v1/", timeout=30).status_code == 401
        (token,) = set(re.findall(r"\b[0-9a-f]{48,64}\b", host.log_text()))
        with ExecClient(host.info.url, canaries.note(token)) as client:
            assert client.info()["name"] == "jupyter_exec_ext"
