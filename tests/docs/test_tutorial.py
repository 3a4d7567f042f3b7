"""``docs/tutorial.md``, from its first command to its last; only the port is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from jupyter_exec_ext.client import ExecClient
from tests.docs.blocks import Block, blocks
from tests.support.hosts import Host, free_port, wait_until_ready
from tests.support.howto_pages import Step, account, approve, serving, shells, steps_of

_SHOWN = [block for block in blocks("docs/tutorial.md") if block.is_run]


@pytest.mark.timeout(300)
@pytest.mark.needs("sandbox")
def test_the_tutorial(tmp_path: Path) -> None:
    you = account(tmp_path / "you")
    config = tmp_path / "you" / ".jupyter"
    config.mkdir()
    (config / "jupyter_server_config.py").write_text("c.ServerApp.allow_root = True\n")
    # The agent's program has the token's file and nothing else of yours.
    desk, port = tmp_path / "desk", free_port()
    desk.mkdir()
    steps = steps_with_files(desk, port)
    with shells({"you": you, "agent": account(tmp_path / "agent")}, desk) as type_in:
        while not (step := next(steps)).line.startswith("jupyter exec serve "):
            type_in(step)
        with serving(step.line, you, desk, port) as host:
            wait_until_ready(host)
            waiting: list[Step] = []
            for step in steps:
                if "from the shell" in step.line:
                    waiting.append(step)
                elif step.line.endswith("approve watch"):
                    asked = waiting.pop()
                    approve(step, partial(type_in, asked), you, desk)
                else:
                    type_in(step)
            assert waiting == []
            assert_nothing_runs(host)


def steps_with_files(desk: Path, port: int) -> Iterator[Step]:
    """Yield what is typed, and write the files at their places between."""
    for block in _SHOWN:
        text = block.text.replace("8888", str(port))
        if block.language == "console":
            yield from steps_of([text])
        else:
            (desk / named(block)).write_text(text)


def named(block: Block) -> str:
    assert block.language == "python" and block.file is not None, block
    return block.file


def assert_nothing_runs(host: Host) -> None:
    """Of the agent nothing is left when its token is revoked."""
    host.info.token = (host.home / "owner.token").read_text().strip()
    with ExecClient(host.info) as owner:
        assert owner.list_sessions() == []
