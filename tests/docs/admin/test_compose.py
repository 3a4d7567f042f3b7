"""The page on Docker Compose: its files with a commit; in full, the page with Debian's docker-compose and an engine."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from traitlets.config import Config

from jupyter_exec_ext.auth.policy_parsing import read_policies
from tests.docs.admin import SECONDS, page
from tests.docs.blocks import ROOT
from tests.support.container_engines import running_engine
from tests.support.full import only_in_full
from tests.support.hosts import free_port
from tests.support.howto_pages import Recipe, account, shells
from tests.support.outside_parts import require_part

CONTAINERS = ROOT / "containers"
PAGE = page("compose")
IMAGE = "jupyter-exec-test-compose"

pytestmark = pytest.mark.timeout(1200)


def test_every_line_that_the_page_explains_is_in_the_file() -> None:
    table = PAGE.partition("| line of `compose.yml` |")[2].partition("\n\n")[0]
    text = (CONTAINERS / "compose.yml").read_text()
    named = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall("`(.*?)`", row)]
    assert len(named) > 10
    assert [name for name in named if name.rstrip("…") not in text] == []


def test_service_builds_the_image_of_this_repository() -> None:
    service = yaml.safe_load((CONTAINERS / "compose.yml").read_text())["services"]["gateway"]
    assert (CONTAINERS / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == (
        CONTAINERS / "gateway.Dockerfile"
    )
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    files = [volume.split(":")[0] for volume in service["volumes"] if volume.startswith("./")]
    assert files == ["./gateway_config.py"]


def test_settings_have_the_policy_of_the_page() -> None:
    config = Config()
    runpy.run_path(str(CONTAINERS / "gateway_config.py"), {"get_config": lambda: config})
    policies = read_policies(config.ExecEngine.policies)
    assert f"--policy {next(iter(config.ExecEngine.policies))} " in PAGE
    assert policies["researcher"].max_execution_seconds == 300


@only_in_full
def test_page_is_run_as_written(tmp_path: Path) -> None:
    require_part("docker-compose")
    port = free_port()
    places = {"docker compose": "docker-compose", "127.0.0.1:8888": f"127.0.0.1:{port}"}
    with running_engine() as engine, clone(engine, tmp_path, port) as directory:
        home = account(tmp_path / "home", COMPOSE_PROJECT_NAME=f"jexcompose{port}")
        try:
            with shells({"admin": home, "agent": home}, directory) as type_in:
                for step in Recipe(PAGE, None, places).steps():
                    if " exec -T " in step.line:
                        wait_until_answering(port)
                    type_in(step)
        finally:
            command = ["docker-compose", "down", "--volumes"]
            subprocess.run(command, cwd=directory, env=home, capture_output=True, check=True)
        assert not [one for one in engine.containers.list(all=True) if f"jexcompose{port}" in one.name]


@only_in_full
def test_mistake_in_the_file_is_refused(tmp_path: Path) -> None:
    require_part("docker-compose")
    copy = copy_files(tmp_path)
    (copy / "token").touch()
    file = copy / "compose.yml"
    command = ["docker-compose", "config", "--quiet"]
    for right, rc, words in (("pids_limit", 0, ""), ("pid_limits", 1, "pid_limits")):
        file.write_text(file.read_text().replace("pids_limit", right))
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == rc and words in done.stderr


def copy_files(directory: Path) -> Path:
    """Return a copy of `containers/`, beside an empty directory for the wheel."""
    (directory / "dist").mkdir()
    shutil.copytree(CONTAINERS, directory / "containers")
    return directory / "containers"


@contextmanager
def clone(engine: Any, directory: Path, port: int) -> Iterator[Path]:
    """Yield a copy of `containers/`, with the image made by the tests' engine, which has the machine's network."""
    copy, dist = copy_files(directory), directory / "dist"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(dist), str(ROOT)]
    subprocess.run(command, check=True)
    shutil.copy(CONTAINERS / "gateway.Dockerfile", dist / "Dockerfile")
    engine.images.build(path=str(dist), tag=IMAGE, rm=True, network_mode="host")
    file = copy / "compose.yml"
    text = file.read_text().replace("127.0.0.1:8888:8888", f"127.0.0.1:{port}:8888")
    file.write_text(text.replace("image: jupyter-exec-gateway", f"image: {IMAGE}"))
    yield copy


def wait_until_answering(port: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            requests.get(f"http://127.0.0.1:{port}/api", timeout=SECONDS)
            return
        except requests.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.1)  # a container announces nothing
