"""Hosts with a wheelhouse, and policies under which sessions install packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bearers import UNPROTECTED, Bearer, mint
from tests.support.hosts import Host, running_host
from tests.support.kernelspecs import add_kernelspec
from tests.support.wheels import make_wheel

POLICIES = {
    "boxed": {"base": "trusted", "isolation": "sandbox", "packages": "install"},
    "open": {"base": "trusted", "packages": "install"},
    "small": {"isolation": "sandbox", "packages": "install", "max_session_bytes": 100_000},
}


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of `small`, `other`, which needs it, and a `large` one."""
    directory = tmp_path_factory.mktemp("wheelhouse")
    for version in ("1.0", "2.0"):
        make_wheel(directory, "small", version)
    make_wheel(directory, "other", requires=["small"])
    make_wheel(directory, "large", size_bytes=200_000)
    return directory


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    options = [
        f"--ExecEngine.policies={json.dumps(POLICIES)}",
        f"--ExecEngine.package_wheelhouse={wheelhouse}",
        "--ExecEngine.default_isolation=none",
        "--ExecEngine.pool_size=1",
        UNPROTECTED,
    ]
    home = tmp_path_factory.mktemp("packages")
    for level in ("sandbox", "landlock"):
        add_kernelspec(home, level, f"{level}-provisioner")
    with running_host(request.param, home, *options) as host:
        yield host


@pytest.fixture(scope="module")
def agent(host: Host) -> Bearer:
    return mint(host, policy="boxed")
