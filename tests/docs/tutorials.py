"""Tutorials, from their first command to their last, in a given shell and installation; only the port is the test's."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jupyter_exec_ext.client import ExecClient
from tests.docs.blocks import ROOT, Block, blocks_of
from tests.support.hosts import Host, free_port, wait_until_ready
from tests.support.howto_pages import Step, account, approve, serving, shells, steps_of

RUN_CODE, AGENT_TOKEN = "docs/tutorials/run-code.md", "docs/tutorials/agent-token.md"
_STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Newcomer:
    """A person who follows a tutorial.

    Parameters
    ----------
    shell : str
        One of `tests.support.howto_pages.SHELLS`.
    scripts : Path
        The commands of the installation.
    root : Path
        The repository that has the pages.
    """

    shell: str = "bash"
    scripts: Path = Path(sysconfig.get_path("scripts"))
    root: Path = ROOT

    def blocks(self, page: str) -> list[Block]:
        """Return the blocks of a page."""
        return list(blocks_of(page, (self.root / page).read_text(encoding="utf-8")))

    def account(self, home: Path) -> dict[str, str]:
        """Return the environment of a new account; root may serve in it."""
        env = account(home, scripts=self.scripts)
        if os.geteuid() == 0:
            (home / ".jupyter").mkdir()
            (home / ".jupyter" / "jupyter_server_config.py").write_text("c.ServerApp.allow_root = True\n")
        return env


def follow_tutorial(page: str, home: Path, newcomer: Newcomer) -> None:
    """Type all lines of a tutorial, and compare all that is shown."""
    # The agent's program has the token's file and nothing else of yours.
    you, agent = newcomer.account(home / "you"), newcomer.account(home / "agent")
    desk, port = home / "desk", free_port()
    desk.mkdir()
    steps = _steps_with_files([block for block in newcomer.blocks(page) if block.is_run], desk, port)
    with shells({"you": you, "agent": agent}, desk, newcomer.shell) as type_in:
        while not (step := next(steps)).line.startswith("jupyter exec serve "):
            type_in(step)
        with serving(step.line, you, desk, port, newcomer.shell) as host:
            wait_until_ready(host)
            waiting: list[Step] = []
            for step in steps:
                if "from the shell" in step.line:
                    waiting.append(step)
                elif step.line.endswith("approve watch"):
                    asked = waiting.pop()
                    approve(step, partial(type_in, asked), you, desk, newcomer.shell)
                else:
                    if page == AGENT_TOKEN and step.line.startswith("jupyter server stop "):
                        _assert_nothing_runs(host)
                    type_in(step)
            assert waiting == []
            host.process.wait(_STOP_SECONDS)  # the last line of each stops the server


def _steps_with_files(shown: list[Block], desk: Path, port: int) -> Iterator[Step]:
    """Yield what is typed, and write the files at their places between."""
    for block in shown:
        text = block.text.replace("8888", str(port))
        if block.language == "console":
            yield from steps_of([text])
        else:
            assert block.language == "python" and block.file is not None, block
            (desk / block.file).write_text(text)


def _assert_nothing_runs(host: Host) -> None:
    """Check that nothing is left of an agent whose tokens are revoked."""
    host.info.token = (host.home / "owner.token").read_text().strip()
    with ExecClient(host.info) as owner:
        assert owner.list_sessions() == []
