"""Runs other projects' clients of ACA sessions against our endpoint: ``python -m tests.aca_clients [NAME…]``.

Each client is the package that its project has published, unmodified, in an environment of its own below
``.bench/aca_clients``; it gets our endpoint, on a host that is started for it, and one of our tokens in the place of
Azure's. AutoGen's client has to pass AutoGen's own tests as well, out of the same release.

In two of the environments this package is there, too: in papermill's, whose kernels are the endpoint's sessions, and in
that of azure-identity, whose own credentials our clients get their tokens from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.support import canaries
from tests.support.bearers import UNPROTECTED, mint
from tests.support.environments import ROOT, TOOLS, environment, run_named
from tests.support.hosts import Host, running_host
from tests.support.kernelspecs import add_kernelspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HOME = ROOT / ".bench" / "aca_clients"
POOL = "exec/aca/subscriptions/s/resourceGroups/g/sessionPools/p"
KERNEL = "with_the_clients_packages"
_SETTINGS = "pyproject.toml"


@dataclass(frozen=True)
class Client:
    """A client: what its environment holds, and what host it is run against."""

    requirements: tuple[str, ...]
    # Installed without its own requirements, where most of them have nothing to do with sessions.
    alone: str | None = None
    # Installed with this package, for which it is not a client but what works with ours; no credential is replaced.
    ours: bool = False
    host: str = "server"
    tls: bool = False
    # The oldest that it can be installed with.
    python: tuple[int, int] = (3, 10)
    # Files of its source distribution that are its own tests; they want kernels with what the environment holds.
    own_tests: tuple[str, ...] = ()


CLIENTS = {
    "autogen": Client(
        # What the executor and its tests import, here and in kernels. Its first question to a kernel is for
        # `pkg_resources`, which setuptools has no more.
        (
            "autogen-ext==0.7.5",
            "aiohttp",
            "anyio",
            "azure-identity",
            "ipykernel",
            "matplotlib",
            "polars",
            "setuptools>=82",
        ),
        own_tests=(
            "tests/code_executors/test_aca_dynamic_sessions.py",
            "tests/code_executors/test_aca_user_defined_functions.py",
        ),
    ),
    # The asynchronous credentials need aiohttp, which this package has brought.
    "azure_identity": Client(("azure-identity==1.27.0",), ours=True),
    "langchain": Client(("langchain-azure-dynamic-sessions==1.0.4",), host="gateway", python=(3, 11)),
    "llama_index": Client(("llama-index-tools-azure-code-interpreter==0.7.0",)),
    "papermill": Client(("papermill==2.7.0",), ours=True),
    "semantic_kernel": Client(
        # What the package imports for the sessions tool; it requires a third of a gigabyte more for other tools.
        (
            *(
                "aiohttp",
                "azure-identity",
                "defusedxml",
                "httpx",
                "jinja2",
                "nest-asyncio",
                "numpy>=1.25",
                "openai>=2",
                "pyyaml",
            ),
            *("opentelemetry-sdk~=1.24", "pybars4~=0.9", "pydantic>=2.10.4,<2.14", "pydantic-settings~=2.0"),
        ),
        alone="semantic-kernel==1.45.0",
        tls=True,
    ),
}


def prepare(name: str) -> Path | None:
    """Return the Python of a client's environment; None where this one is too old for it."""
    client = CLIENTS[name]
    if sys.version_info < client.python:
        return None
    requirements = [*client.requirements, *TOOLS]
    if not client.ours:
        return environment(HOME / name, requirements, alone=client.alone)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return environment(HOME / name, ["-e", ".", *requirements], project["dependencies"])


def test(name: str) -> None:
    """Run the tests of one client, ours and its own."""
    client = CLIENTS[name]
    python = prepare(name)
    if python is None:
        print(f"{name}: not run, as it needs Python {client.python[0]}.{client.python[1]}", flush=True)
        return
    with tempfile.TemporaryDirectory() as directory, _host(client, python, Path(directory)) as host:
        environ = _environ(host, str(host.info.verify) if client.tls else "")
        plugin = [] if client.ours else ["-p", "tests.aca_clients.credential"]
        pytest = [str(python), "-m", "pytest", *plugin, "--timeout=120"]
        here = Path(__file__).parent
        # Warnings of theirs are no errors of ours.
        ours = ["-Wdefault", f"--confcutdir={here}", str(here / f"test_{name}.py")]
        subprocess.run([*pytest, *ours], cwd=ROOT, env=environ, check=True)
        if client.own_tests:
            source = _own_tests(client, python)
            theirs = [f"--config-file={source / _SETTINGS}", *(str(source / path) for path in client.own_tests)]
            subprocess.run([*pytest, *theirs], cwd=directory, env=environ, check=True)


@contextmanager
def _host(client: Client, python: Path, home: Path) -> Iterator[Host]:
    """Run a host of ours for one client."""
    options, connect = [UNPROTECTED], {}
    if client.own_tests:
        add_kernelspec(home, KERNEL, "local-provisioner", python)
        options.append(f"--MappingKernelManager.default_kernel_name={KERNEL}")
    if client.tls:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(home / "ca.pem")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(home / "host.pem")
        options += [f"--ServerApp.{name}={home / 'host.pem'}" for name in ("certfile", "keyfile")]
        connect = {"use_https": True, "verify": str(home / "ca.pem")}
    with running_host(client.host, home, *options, connect=connect) as host:
        canaries.note(host.info.token or "")
        yield host
    assert canaries.look_through(host) == [], "secrets were found where none may be"


def _environ(host: Host, authority: str) -> dict[str, str]:
    """Return what a client's tests are told: the endpoint and the tokens of two users."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    endpoint = f"{host.info.url}{POOL}"
    # Most clients never end a session, and leave it to the pool to see that nobody needs it any more.
    tokens = [mint(host, policy="trusted", max_sessions=40).token for _ in range(2)]
    return kept | {
        "PYTHONPATH": str(ROOT),
        "EXEC_TEST_ACA_ENDPOINT": endpoint,
        "EXEC_TEST_ACA_TOKEN": tokens[0],
        "EXEC_TEST_ACA_OTHER_TOKEN": tokens[1],
        "EXEC_TEST_ACA_AUTHORITY": authority,
        "AZURE_POOL_ENDPOINT": endpoint,  # which AutoGen's own tests read
    }


def _own_tests(client: Client, python: Path) -> Path:
    """Return where the client's own tests are, out of the source distribution of its release."""
    name, _, version = client.requirements[0].partition("==")
    stem = f"{name.replace('-', '_')}-{version}"
    home = HOME / stem
    if not home.is_dir():
        with tempfile.TemporaryDirectory() as directory:
            only = ["--no-deps", f"--no-binary={name}", f"--dest={directory}", client.requirements[0]]
            subprocess.run([python, "-m", "pip", "download", "--quiet", *only], check=True)
            with tarfile.open(Path(directory) / f"{stem}.tar.gz") as archive:
                # These alone: its package `tests` would stand in the way of ours.
                members = [archive.getmember(f"{stem}/{path}") for path in (_SETTINGS, *client.own_tests)]
                archive.extractall(directory, members, filter="data")
            shutil.move(Path(directory) / stem, home)
    return home


if __name__ == "__main__":
    sys.exit(run_named("tests.aca_clients", __doc__, CLIENTS, test, prepare))
