"""Tests of the administrators' pages: each recipe is run as written, with the test's addresses, ports and paths."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.docs.blocks import DOCS
from tests.support.howto_pages import Step, shells

#: Seconds for a request or a program's end.
SECONDS = 60.0


def page(name: str) -> str:
    """Return the text of an administrators' page."""
    return (DOCS / "admin" / f"{name}.md").read_text(encoding="utf-8")


@contextmanager
def two_machines(
    people: Mapping[str, Mapping[str, str]], server: Path, agent: Mapping[str, str], elsewhere: Path
) -> Iterator[Callable[[Step], None]]:
    """Yield what types a step; the agent has a machine of its own.

    Parameters
    ----------
    people : mapping
        Environments of those who work on the server's machine.
    server : Path
        Their directory. New token files there are copied to the agent, as the pages say.
    agent : mapping
        Environment of the agent.
    elsewhere : Path
        The agent's directory.
    """
    with shells(people, server) as type_there, shells({"agent": agent}, elsewhere) as type_elsewhere:

        def type_in(step: Step) -> None:
            if step.who == "agent":
                type_elsewhere(step)
                return
            type_there(step)
            for name in re.findall(r"--output (\S+)", step.line):
                shutil.copy(server / name, elsewhere / name)

        yield type_in
