"""Runs the pages of docs/frameworks and docs/mcp as they stand there: ``python -m tests.framework_pages [NAME…]``.

Each page's install line is typed in a fresh environment and a fresh copy of the checkout, then its server and its
program are started. A scripted model answers in the place of OpenAI's. NAME is a page of docs/frameworks, or
``mcp-clients`` for those of docs/mcp.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.docs.blocks import ROOT, Block, blocks
from tests.framework_pages.pages import FRAMEWORKS, MCP_PAGES, TEXTS, install_blocks, install_lines, page_of
from tests.framework_pages.scripted_model import scripted_model
from tests.support.environments import run_named
from tests.support.hosts import free_port, wait_until_ready
from tests.support.howto_pages import Shell, Step, account, serving, steps_of

#: Environments and copies of the checkout; each is made anew by its page.
HOME = ROOT / ".bench" / "framework_pages"
MCP_CLIENTS = "mcp-clients"
_CLIENT = Path(__file__).parent / "mcp_client.py"
_MCP_ANSWER = "13 tools\n2870\n"


def copy_checkout(directory: Path) -> None:
    """Copy the files of the checkout that are or could be in git, as a clone has them."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():  # it may be removed and not committed yet
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name)
    # The bundle is as it was built here: the front end has tests of its own, and a build takes a minute.
    shutil.copytree(ROOT / "labextension" / "dist", directory / "labextension" / "dist", dirs_exist_ok=True)


def path_with(programs: Path) -> str:
    """Return a search path with these programs, and without those of the environment that runs this."""
    own = Path(sysconfig.get_path("scripts"))
    rest = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != own]
    return os.pathsep.join([str(programs), *rest])


def install(name: str, line: str) -> Path:
    """Type an install line in a fresh environment, in a copy of the checkout; return the directory of its programs."""
    home = HOME / name
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    print(f"{name}: {line}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", home / "env"], check=True)
    programs = home / "env" / "bin"
    with tempfile.TemporaryDirectory() as clone:
        copy_checkout(Path(clone))
        env = {**os.environ, "PATH": path_with(programs)}
        subprocess.run(["bash", "-ec", f"{line} --quiet"], cwd=clone, env=env, check=True)
    return programs


@contextmanager
def reader(programs: Path, **variables: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the directory and the environment of somebody who follows a page."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        env = account(home / "home", **variables)
        yield home, {**env, "PATH": path_with(programs)}


@contextmanager
def server_of(page: str, home: Path, env: Mapping[str, str], port: int) -> Iterator[None]:
    """Start the server as the page says."""
    (line,) = (block.text.strip() for block in blocks(page) if block.text.startswith("jupyter exec serve"))
    if os.geteuid() == 0:  # these tests may run as root
        line += " --allow-root"
    with serving(line.replace("8888", str(port)), env, home, port) as host:
        wait_until_ready(host)
        yield


def check_steps(shell: Shell, block: Block, port: int) -> list[str]:
    """Type what a block shows, and compare what comes; return what was printed."""
    return [check_step(shell, step) for step in steps_of([block.text.replace("8888", str(port))])]


def check_step(shell: Shell, step: Step) -> str:
    """Type a line, compare what comes, and return it."""
    printed = shell.type(step.line)
    step.check(printed)
    return printed


def run_framework(name: str) -> None:
    """Run a page of a framework with each of its install lines."""
    page = page_of(name)
    for number, line in enumerate(install_lines(page)):
        programs = install(f"{name}-{number}", line)
        port = free_port()
        variables = {"OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        with (
            scripted_model(TEXTS.get(name, [])) as model,
            reader(programs, OPENAI_BASE_URL=model.url, **variables) as (home, env),
            server_of(page, home, env, port),
        ):
            shell = Shell(env, home)
            try:
                for block in blocks(page):
                    if block.file is not None:
                        (home / block.file).write_text(block.text.replace("8888", str(port)))
                    elif block.language == "console":
                        check_steps(shell, block, port)
            finally:
                shell.close()
            assert model.problems == []


def run_mcp_clients() -> None:
    """Install once, print each client's configuration as its page says, and have a client of the protocol use it."""
    index = page_of("index", "mcp")
    (line,) = install_lines(index)
    programs = install(f"{MCP_CLIENTS}-0", line)
    port = free_port()
    with reader(programs) as (home, env), server_of(index, home, env, port):
        shell = Shell(env, home)
        try:
            skipped = [block.text for block in install_blocks(index)]
            for block in blocks(index):
                if block.language == "sh" and block.text not in skipped and "exec serve" not in block.text:
                    print(shell.type(block.text.strip()), end="", flush=True)
            token = (home / "agent.token").read_text().strip()
            for name in MCP_PAGES:
                for shown in (block for block in blocks(page_of(name, "mcp")) if block.language == "console"):
                    (printed,) = check_steps(shell, shown, port)
                    use_configuration(programs, name, printed, home, {**env, "JUPYTER_TOKEN": token})
        finally:
            shell.close()


def use_configuration(programs: Path, name: str, printed: str, home: Path, env: Mapping[str, str]) -> None:
    """Use a configuration with the protocol's own client, in another directory; list tools and run code."""
    elsewhere = home / "project"
    elsewhere.mkdir(exist_ok=True)
    command = [str(programs / "python"), str(_CLIENT), name]
    printed = printed.partition("\njupyter exec: ")[0]  # a note on the token follows
    done = subprocess.run(command, input=printed, cwd=elsewhere, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, _MCP_ANSWER), f"{name}: {done.stdout}{done.stderr}"
    print(f"{name}: its configuration was used", flush=True)


#: What runs each page or group of pages, by its name.
PAGES: dict[str, Callable[[str], None]] = {
    **dict.fromkeys(FRAMEWORKS, run_framework),
    MCP_CLIENTS: lambda name: run_mcp_clients(),
}


def test(name: str) -> None:
    """Run a page; raise `subprocess.CalledProcessError`, whose message `run_named` prints, where it does not hold."""
    try:
        PAGES[name](name)
    except AssertionError as error:
        print(error, flush=True)
        raise subprocess.CalledProcessError(1, f"the page {name}") from error
    finally:
        for directory in HOME.glob(f"{name}-[0-9]"):
            shutil.rmtree(directory)


def prepare(name: str) -> None:
    """Make a page's environment and keep it, to look into a failure."""
    lines = install_lines(page_of(name) if name in FRAMEWORKS else page_of("index", "mcp"))
    for number, line in enumerate(lines):
        install(f"{name}-{number}", line)


if __name__ == "__main__":
    sys.exit(run_named("tests.framework_pages", __doc__, PAGES, test, prepare))
