"""Places that the MCP endpoint is tested in: hosts of `tests.support.hosts`, a Hub, and nginx with a prefix."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Protocol

import trustme

from tests.support.environments import ROOT
from tests.support.hosts import Host, free_port, running_host, stop
from tests.support.nginx import start_nginx
from tests.support.outside_parts import require_part

#: Host that runs behind the proxy, below a path of its own.
HOST_BEHIND_NGINX = "server-base-url"
_START_SECONDS = 30.0
_SITE = """
server {{
    listen 127.0.0.1:{port}{tls};
    location {path} {{
        proxy_pass http://127.0.0.1:{host_port};
        proxy_http_version 1.1;
        proxy_set_header Host $http_host;
    }}
}}
"""


class Hosts(Protocol):
    """The hosts of ``tests/conftest.py``."""

    def __getitem__(self, name: str) -> Host: ...


@dataclass(frozen=True)
class Place:
    """An endpoint, and the owner's token for it."""

    url: str
    token: str = field(repr=False)


def place_of(host: Host) -> Place:
    """Return the endpoint of a host."""
    return Place(f"{host.info.url}exec/mcp", str(host.info.token))


@contextmanager
def with_extension(name: str, home: Path) -> Iterator[Place]:
    """Run a Jupyter Server with an extension of the tests, named as a module."""
    enabled = home / "config" / "jupyter_server_config.d" / "tests.json"
    enabled.parent.mkdir(parents=True)
    enabled.write_text(json.dumps({"ServerApp": {"jpserver_extensions": {name: True}}}))
    with running_host("server", home, env={"PYTHONPATH": str(ROOT)}) as host:
        yield place_of(host)


@contextmanager
def behind_nginx(host: Host, directory: Path, authority: trustme.CA | None = None) -> Iterator[Place]:
    """Run nginx before a host that is below a path, with its own buffers; with HTTPS, if there is an authority."""
    require_part("nginx")
    port, path, tls = free_port(), host.info.base_url, ""
    if authority is not None:
        certificate = directory / "certificate.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
        tls = f" ssl; ssl_certificate {certificate}; ssl_certificate_key {certificate}"
    command = start_nginx(_SITE.format(port=port, path=path, host_port=host.info.port, tls=tls), directory)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        give_up_at = time.monotonic() + _START_SECONDS
        while not _is_open(port):  # nginx reports to no parent that it listens
            assert process.poll() is None and time.monotonic() < give_up_at, (directory / "log").read_text()
            time.sleep(0.02)
        yield Place(f"{'https' if tls else 'http'}://127.0.0.1:{port}{path}exec/mcp", str(host.info.token))
    finally:
        stop(process)


def _is_open(port: int) -> bool:
    with socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
