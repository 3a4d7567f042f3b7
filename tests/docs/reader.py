"""A reader of a page: their directory, their environment, and what a page needs before its blocks can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.hosts import Host

#: Stands for the test's server where a page has an address of its own.
URL = "<the URL of the server>"
#: Replaces the address that most pages have.
HERE = {"http://127.0.0.1:8888/": URL}
#: What most programs on pages have from the text before them.
CLIENT = """\
from pathlib import Path
from jupyter_exec_ext import ExecClient
token = Path("token").read_text().strip()
client = ExecClient("http://127.0.0.1:8888/", token)
session = client.session()
"""


@dataclass
class Desk:
    """The directory and the environment of somebody who reads a page, and a server of theirs."""

    host: Host
    directory: Path
    env: dict[str, str]

    @property
    def url(self) -> str:
        return self.host.info.url

    @property
    def token(self) -> str:
        return str(self.host.info.token)

    @property
    def kernelspecs(self) -> Path:
        return Path(self.env["JUPYTER_DATA_DIR"]) / "kernels"

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@dataclass
class Page:
    """How a page is run: what is there before, what stands for its addresses, what its programs print."""

    before: Callable[[Desk], Mapping[str, str]] = lambda desk: {}
    replaced: Mapping[str, str] = field(default_factory=dict)
    # What a page's programs find in their variables, from the text before them.
    preamble: str = ""
    prints: tuple[str, ...] = ()
    # The outside parts that its commands take for granted.
    parts: tuple[str, ...] = ()
    # Whether the page's first program has what is in the preamble, so that it runs alone.
    is_preamble_shown: bool = False


def the_servers_token(desk: Desk) -> dict[str, str]:
    desk.write("token", f"{desk.token}\n")
    for name in ("data.csv", "coding/data.csv"):
        desk.write(name, "a,b\n1,2\n")
    return {"TOKEN": desk.token, "SERVER": desk.url.rstrip("/")}
