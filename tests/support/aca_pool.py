"""ACA session pools for tests: a Jupyter server is the pool, and the kernels of another server are its sessions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from jupyter_exec_ext.aca.protocol.addresses import DEFAULT_API_VERSION, Family
from tests.support.hosts import Host, running_host

# One version of each family; the flat one is what our clients speak unless told otherwise.
VERSIONS = {Family.FLAT: DEFAULT_API_VERSION, Family.ENVELOPE: "2024-02-02-preview"}
# Servers whose kernels are sessions, by the family that they speak with the pool.
HOSTS_OF_SESSIONS = {"aca": Family.FLAT, "aca-envelope": Family.ENVELOPE}
# Where such a server finds the token of its kernels' pool.
TOKEN_VARIABLE = "EXEC_TEST_POOL_TOKEN"
_TOKEN_SECONDS = 3600
# A run that cannot be interrupted holds its kernel for so long; of the service it is allowed ten times as much.
_MAX_RUN_SECONDS = 15


class AccessToken(NamedTuple):
    """An access token as credentials of Azure's give it."""

    token: str
    expires_on: int


@dataclass(frozen=True)
class StaticCredential:
    """A credential that has a token of a Jupyter server."""

    token: str = field(repr=False)

    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        """Return the token, whatever it is for."""
        return AccessToken(self.token, int(time.time()) + _TOKEN_SECONDS)


def endpoint_of(pool: Host) -> str:
    """Return what a client calls the pool's management endpoint."""
    return f"{pool.info.url}exec/aca"


def credential_of(pool: Host) -> StaticCredential:
    """Return what the pool's owner has."""
    assert pool.info.token is not None
    return StaticCredential(pool.info.token)


def add_kernelspec_of_sessions(
    home: Path,
    pool: Host,
    api_version: str = DEFAULT_API_VERSION,
    name: str = "python3",
    run_seconds: int = _MAX_RUN_SECONDS,
) -> dict[str, str]:
    """Install a kernelspec of sessions for the host below `home`; return the environment that the host needs.

    It goes before what is installed otherwise: under the name of Python's own kernels it is the default.
    """
    first = home / "aca"
    directory = first / "kernels" / name
    directory.mkdir(parents=True)
    config = {
        "endpoint": endpoint_of(pool),
        "api_version": api_version,
        "credential": f"env:{TOKEN_VARIABLE}",
        "timeout_seconds": run_seconds,
        "env": ["KERNEL_*"],  # what a session's caller sets, for whoever reads of it in a kernelspec
    }
    spec = {
        "argv": [],
        "display_name": name,
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"kernel_provisioner": {"provisioner_name": "aca-provisioner", "config": config}},
    }
    (directory / "kernel.json").write_text(json.dumps(spec))
    return {"JUPYTER_PATH": str(first), TOKEN_VARIABLE: credential_of(pool).token}


@contextmanager
def running_host_of_sessions(name: str, home: Path, pool: Host, *options: str) -> Iterator[Host]:
    """Start one of `HOSTS_OF_SESSIONS`."""
    env = add_kernelspec_of_sessions(home, pool, VERSIONS[HOSTS_OF_SESSIONS[name]])
    with running_host("server", home, *options, env=env) as host:
        yield replace(host, name=name)
