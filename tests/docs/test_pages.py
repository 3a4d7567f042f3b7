"""What the pages show is run as it stands there; addresses, paths and how much of what is endless are the test's.

All pages have one server, whose configuration is what pages show as such.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyter_exec_ext.client import ExecClient
from tests.docs.blocks import Block, blocks
from tests.docs.reader import URL, Desk, Page
from tests.docs.setups import PAGES
from tests.support.bearers import UNPROTECTED
from tests.support.hosts import Host, clean_environment, free_port, running_host, wait_until_ready
from tests.support.howto_pages import Shell, exec_last, require_part_of, serving, steps_of
from tests.support.outside_parts import require_part

pytestmark = pytest.mark.timeout(420)
_SECONDS = 60.0
_RUN_PYTHON = Path(__file__).parent / "run_python.py"
_SERVES = re.compile(r"jupyter exec serve\b")
# What goes on until Ctrl-C.
_FOLLOWS = re.compile(r"--follow\b|curl -N\b")
_EXIT = "the exit code: "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server that is configured as the pages say."""
    home = tmp_path_factory.mktemp("reader")
    (home / "config").mkdir()
    shown = [block for page in PAGES for block in blocks(page)]
    texts = [block.text for block in shown if block.is_configuration]
    assert len(texts) == 2, "a page has configuration that nobody looks at"
    policies = [block for block in shown if block.language == "toml"]
    assert [block.file for block in policies] == ["policies.toml"]
    (home / "policies.toml").write_text(policies[0].text)
    texts += [f"c.ExecEngine.policy_file = {str(home / 'policies.toml')!r}", "c.ServerApp.allow_root = True"]
    (home / "config" / "jupyter_server_config.py").write_text("\n".join(texts))
    env = {"TRAITLETS_APPLICATION_RAISE_CONFIG_FILE_ERROR": "1"}
    with running_host("server", home, UNPROTECTED, env=env) as host:
        with ExecClient(host.info) as client:
            info = client.info()
            assert info["limits"]["max_sessions"] == 20
            assert "students" in {policy["name"] for policy in client.tokens.policies()}
        assert (home / "root" / "audit.log").is_file()
        yield host


@pytest.fixture
def desk(server: Host, tmp_path: Path) -> Iterator[Desk]:
    scripts = sysconfig.get_path("scripts")
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    desk = Desk(server, tmp_path, clean_environment(server.home, PATH=path))
    yield desk
    with ExecClient(server.info) as client:
        for session in client.list_sessions():
            client.get_session(session.id).close()
    shutil.rmtree(desk.kernelspecs, ignore_errors=True)  # two pages may make the same


@pytest.mark.parametrize("name", PAGES)
def test_a_page(name: str, desk: Desk) -> None:
    run_page(desk, PAGES[name], [block for block in blocks(name) if block.is_run])


def run_page(desk: Desk, page: Page, shown: list[Block]) -> None:
    """Run the blocks one after the other."""
    require_part(*page.parts)
    desk.env |= page.before(desk)
    port = free_port()
    printed: list[str] = []
    with ExitStack() as stack:
        shell = Shell(desk.env, desk.directory)
        stack.callback(shell.close)
        for block in shown:
            text = written(block.text, page.replaced, desk, port)
            if block.is_configuration:
                continue  # the server has it
            if block.language == "python":
                is_alone = page.is_preamble_shown and not printed
                preamble = "" if is_alone else written(page.preamble, page.replaced, desk, port)
                printed.append(run_python(f"{preamble}\n{text}", desk))
            elif block.language == "console":
                for step in steps_of([text]):
                    step.check(shell.type(step.line))
            else:
                for line in commands(text):
                    run_command(line, shell, desk, port, stack)
    for words in page.prints:
        assert words in "".join(printed), printed


def written(text: str, replaced: Mapping[str, str], desk: Desk, port: int) -> str:
    """Return a text with the test's addresses; a page's own server has the port."""
    for old, new in replaced.items():
        text = text.replace(old, new)
    return re.sub(r"\b8888\b", str(port), text.replace(URL, desk.url))


def commands(text: str) -> list[str]:
    """Return a block's commands, each on one line or on several that a backslash joins."""
    return [line for line in re.sub(r"\\\n *", " ", text).splitlines() if line.strip() and not line.startswith("#")]


def run_command(line: str, shell: Shell, desk: Desk, port: int, stack: ExitStack) -> None:
    """Run a command to its end, or a server until the page is over; nothing may fail."""
    if _SERVES.match(line):
        # These tests may run as root. For a Jupyter Server, the configuration file of the desk allows it.
        line = line.replace("serve --gateway", "serve --gateway --allow-root")
        host = stack.enter_context(serving(line, desk.env, desk.directory, port))
        token = desk.directory / "token"
        host.info.token = token.read_text().strip() if token.exists() else None
        wait_until_ready(host)
    elif _FOLLOWS.search(line):
        assert_shows_something(line, desk)
    else:
        shown, _, code = shell.type(f"{line}\necho '{_EXIT}'$?").rpartition(_EXIT)
        assert code == "0\n", f"{line}\n{shown}{code}"


def assert_shows_something(line: str, desk: Desk) -> None:
    """Run a command that ends with Ctrl-C alone."""
    require_part_of(line)
    command = ["bash", "-c", exec_last(line)]
    with subprocess.Popen(command, env=desk.env, cwd=desk.directory, stdout=subprocess.PIPE) as process:
        alarm = threading.Timer(_SECONDS, process.kill)
        alarm.start()
        assert process.stdout is not None
        first = process.stdout.readline()
        alarm.cancel()
        process.send_signal(signal.SIGINT)
    assert first.strip(), line


def run_python(code: str, desk: Desk) -> str:
    """Run a program, and return what it printed."""
    done = subprocess.run(
        [sys.executable, _RUN_PYTHON],
        input=code,
        env=desk.env,
        cwd=desk.directory,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
    return done.stdout
