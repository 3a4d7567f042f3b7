"""Package index of this machine, as its pip is configured: for the server's downloads and for pip in sessions."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from ...errors import Conflict
from .wheel_download import download_environment, pip_directory

#: Named set of network rules for the hosts of package indexes.
PACKAGES_SET = "packages"
_TIMEOUT_SECONDS = 30.0
_RETRY_SECONDS = 60.0
# The directory of pip is the last one, since it may have other packages: -I leaves the user's out.
_PROGRAM = """\
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """Index in pip's configuration; empty where pip uses its own default.

    Parameters
    ----------
    url : str
        Address of the index, without user and password.
    extra_urls : tuple of str
        Addresses of further ones.
    trusted_hosts : str
        Hosts whose certificates pip does not check, separated by spaces.
    """

    url: str = ""
    extra_urls: tuple[str, ...] = ()
    trusted_hosts: str = ""

    def variables(self) -> dict[str, str]:
        """Return the variables by which pip and uv find the index."""
        extra = " ".join(self.extra_urls)
        found = {
            "PIP_INDEX_URL": self.url,
            "UV_DEFAULT_INDEX": self.url,
            "PIP_EXTRA_INDEX_URL": extra,
            "UV_INDEX": extra,
            "PIP_TRUSTED_HOST": self.trusted_hosts,
            "UV_INSECURE_HOST": self.trusted_hosts,
        }
        return {name: value for name, value in found.items() if value}

    def rules(self) -> list[str]:
        """Return network rules for the hosts of the index."""
        rules = []
        for address in map(urlsplit, filter(None, (self.url, *self.extra_urls))):
            host = f"[{address.hostname}]" if ":" in (address.hostname or "") else str(address.hostname)
            rules.append(f"{host}:{address.port}" if address.port else host)
        return list(dict.fromkeys(rules))


class IndexReader:
    """Reader of the index in pip's configuration: asks pip once, and after a failure once a minute at most."""

    def __init__(self) -> None:
        self._turn = threading.Lock()  # many sessions can begin at once, and one pip serves them all
        self._found: PackageIndex | None = None
        self._retry_at = 0.0

    def read(self) -> PackageIndex:
        """Return the index, or an empty one if pip fails; blocks while pip runs."""
        with self._turn:
            if self._found is None and time.monotonic() >= self._retry_at:
                try:
                    self._found = _run_pip_config()
                except (OSError, subprocess.SubprocessError, Conflict):
                    self._retry_at = time.monotonic() + _RETRY_SECONDS
            return self._found or PackageIndex()


_reader = IndexReader()


def machine_index() -> PackageIndex:
    """Return the index that pip of this process's environment is configured for; empty if pip fails.

    The first call blocks for some 300 ms, and for 30 s at most: call it in a thread.
    """
    return _reader.read()


def _run_pip_config() -> PackageIndex:
    # Neither -m nor the server's directory: a kernel may write there, and a pip.py of its own would run here.
    command = [sys.executable, "-I", "-c", _PROGRAM, os.path.dirname(pip_directory()), "config", "list"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=True,
        cwd="/",
        env=download_environment(os.environ, ""),
    )
    return parse_pip_config(done.stdout.splitlines())


def parse_pip_config(lines: Iterable[str]) -> PackageIndex:
    """Return the index in the lines of ``pip config list``.

    Parameters
    ----------
    lines : iterable of str
        Such as ``global.index-url='https://index.example/simple'``.
    """
    found: dict[str, str] = {}
    # pip's own order of precedence. `sorted` is stable.
    ranks = {"global": 0, "install": 1, "download": 1, ":env:": 2}
    split = [line.partition("=") for line in lines]
    for key, _, value in sorted(split, key=lambda item: ranks.get(item[0].rpartition(".")[0], 0)):
        try:
            found[key.rpartition(".")[2]] = str(ast.literal_eval(value))
        except (SyntaxError, ValueError):  # a line that is no setting, such as a warning
            continue
    urls = _public_urls(found.get("index-url", ""))
    return PackageIndex(
        urls[0] if urls else "",
        _public_urls(found.get("extra-index-url", "")),
        " ".join(found.get("trusted-host", "").split()),
    )


def _public_urls(text: str) -> tuple[str, ...]:
    """Return the addresses in a text that sessions may know: of HTTP, and without user and password."""
    urls = map(urlsplit, text.split())
    return tuple(_without_credentials(url).geturl() for url in urls if url.scheme in ("http", "https") and url.hostname)


def _without_credentials(url: SplitResult) -> SplitResult:
    return url._replace(netloc=url.netloc.rpartition("@")[2])


class NamedSets(dict[str, list[str]]):
    """Named sets of network rules; without a set ``packages``, it is made of the machine's index when it is used."""

    def __missing__(self, name: str) -> list[str]:
        rules = machine_index().rules() if name == PACKAGES_SET else []
        if not rules:
            raise KeyError(name)
        return rules
