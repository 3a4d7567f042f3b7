"""The page on a pool of servers: the example starts one, and the page's commands are run there."""

from __future__ import annotations

import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import requests

from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from tests.docs.admin import SECONDS, page
from tests.docs.blocks import ROOT
from tests.support.full import only_in_full
from tests.support.hosts import Host, free_port
from tests.support.howto_pages import Recipe, Step, account, serving, shells
from tests.support.outside_parts import HUB_PROXY
from tests.support.waiting import wait_until

EXAMPLE = "examples/hub-pool"

pytestmark = pytest.mark.timeout(420)


def copy_example(directory: Path) -> list[str]:
    """Copy the example, with ports of the test's; return them."""
    shutil.copytree(ROOT / EXAMPLE, directory / EXAMPLE)
    start = directory / EXAMPLE / "start.py"
    line = "PORT, HUB_PORT, PROXY_PORT, POOL_PORT = 8000, 8081, 8001, 8801\n"
    assert line in start.read_text()
    ports = [str(free_port()) for _ in range(4)]
    start.write_text(start.read_text().replace(line, f"{line.partition('=')[0]}= {', '.join(ports)}\n"))
    return ports


def server_names(directory: Path, host: Host) -> list[str]:
    """Return the names of the pool's servers."""
    headers = {"Authorization": f"token {(directory / 'hub-pool' / 'admin.token').read_text()}"}
    load = requests.get(f"{host.info.url}exec/v1/load", headers=headers, timeout=SECONDS).json()
    return [server["name"] for server in load["servers"]]


@only_in_full
@pytest.mark.needs("sandbox", "configurable-http-proxy", "curl")
def test_page_is_run_as_written(tmp_path: Path) -> None:
    ports = copy_example(tmp_path)
    people = {name: account(tmp_path / name) for name in ("admin", "ada")}
    people["admin"]["PATH"] = f"{HUB_PROXY.parent}:{people['admin']['PATH']}"
    replaced = {"127.0.0.1:8000": f"127.0.0.1:{ports[0]}", "127.0.0.1:8801": f"127.0.0.1:{ports[3]}"}
    start, *steps = Recipe(page("pool-of-servers"), None, replaced).steps()
    with serving(start.line, people["admin"], tmp_path, int(ports[3])) as host:
        wait_until(lambda: "Ctrl-C" in host.log_text() or host.process.poll() is not None, 120)
        start.check(host.log_text())
        with shells(people, tmp_path) as type_in:
            for step in steps:
                type_in(replace(step, line=step.line.replace("SERVER", server_names(tmp_path, host)[0])))
            old = server_names(tmp_path, host)[0]
            stop = f"jupyter exec session stop analysis --server {host.info.url} --token-file hub-pool/ada.token"
            type_in(Step("ada", stop, "…\n"))
            wait_until(lambda: old not in server_names(tmp_path, host), SECONDS)
        started = psutil.Process(host.process.pid).children(recursive=True)
        host.process.send_signal(signal.SIGINT)
        host.process.wait(SECONDS)
        assert psutil.wait_procs(started, timeout=SECONDS)[1] == []


def test_settings_and_limits_on_the_page_exist() -> None:
    text = page("pool-of-servers")
    for status, code in re.findall(r"^\| (\d+) `(\w+)` \|", text, re.MULTILINE):
        assert str(ExecError.codes()[code].status) == status
    names = set(re.findall(r"`(\w+_(?:servers|seconds|per_\w+))`", text))
    names -= {"outage_seconds"}  # of clients
    assert len(names) == 5 and names <= set(ExecPool.class_trait_names(config=True))
