"""The recipe of a shared lab server, run as written."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from jupyter_exec_ext.client import ExecClient
from tests.docs.admin import SECONDS, page, two_machines
from tests.support.hosts import Host, free_port, wait_until_ready
from tests.support.howto_pages import Recipe, Step, account, approve, serving, shells
from tests.support.terminals import Terminal

PAGE = page("shared-lab-server")

pytestmark = pytest.mark.timeout(420)


def test_a_shared_lab_server(tmp_path: Path) -> None:
    home, port = tmp_path / "lab", free_port()
    lab = account(home)
    recipe = Recipe(
        PAGE,
        None,
        {'"0.0.0.0"': '"127.0.0.1"', "lab.example.org:8888": f"127.0.0.1:{port}", "port = 8888": f"port = {port}"},
    )
    recipe.write("~/.jupyter/jupyter_server_config.py", home / ".jupyter" / "jupyter_server_config.py")
    steps = iter(recipe.steps())
    with shells({"lab": lab}, home) as type_in:
        type_in(next(steps))
    password = next(steps)
    with Terminal(["bash", "-c", f"exec {password.line}"], lab, home) as terminal:
        for question in password.shown.splitlines()[:2]:
            terminal.read_until(question)
            terminal.type("what they all know")
        assert terminal.process.wait(SECONDS) == 0
    start = f"{next(steps).line}\n{next(steps).line}"
    assert start.endswith("\njupyter lab --no-browser")
    with serving(f"{start} --allow-root", lab, home, port) as host:
        host.info.token = (home / ".jupyter" / "token").read_text().strip()
        wait_until_ready(host)
        assert_the_password_opens_it(host)
        with ExecClient(host.info) as person, person.standard_session() as notebook:
            printed = notebook.run(recipe.file("in Bea's notebook")).stdout.strip()
            assert printed.endswith(f"/kernel-{notebook.id}.json")
            agent = tmp_path / "agent"
            with two_machines({"lab": lab, "bea": lab}, home, account(agent), agent) as type_in:
                waiting: list[Step] = []
                for step in steps:
                    if step.line == "KERNEL_ID=…":
                        type_in(Step(step.who, f"KERNEL_ID={notebook.id}", ""))
                    elif "from the shell" in step.line:
                        waiting.append(step)
                    elif step.line.endswith("approve watch"):
                        approve(step, lambda: type_in(waiting[0]), lab, home)
                    else:
                        type_in(step)
            assert notebook.run("print(measurements)").stdout == "[3, 1, 4, 1]\n"


def assert_the_password_opens_it(host: Host) -> None:
    browser = requests.Session()
    browser.get(f"{host.info.url}login", timeout=SECONDS)
    form = {"password": "what they all know", "_xsrf": str(browser.cookies["_xsrf"])}
    browser.post(f"{host.info.url}login", data=form, timeout=SECONDS).raise_for_status()
    assert browser.get(f"{host.info.url}exec/v1/", timeout=SECONDS).status_code == 200
    assert requests.get(f"{host.info.url}exec/v1/", timeout=SECONDS).status_code == 401
