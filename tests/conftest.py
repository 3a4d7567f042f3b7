from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, settings

from jupyter_exec_ext.system.removal import remove_tree
from tests.support import canaries
from tests.support.aca_pool import HOSTS_OF_SESSIONS, running_host_of_sessions
from tests.support.bearers import UNPROTECTED
from tests.support.commit_selection import choose_left_out
from tests.support.full import IS_FULL
from tests.support.hosts import MAX_CODE_BYTES, Host, running_host
from tests.support.hubs import running_hub
from tests.support.pools import running_contract_pool

pytest_plugins = ["tests.support.outside_parts_plugin"]

# How long an example takes says more about the machine than about us.
# With a commit, examples are the same each time, so that what fails was broken by it; the full run looks for others.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not IS_FULL
)
settings.load_profile("any machine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the places that only the full run has."""
    left_out = set() if IS_FULL else set(choose_left_out(items))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape lone surrogates in a report, which pytest-xdist cannot send from a worker (execnet 2.1)."""
    return escape_surrogates((yield))


def escape_surrogates(data: Any) -> Any:
    """Return plain data in which every text can be encoded."""
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode()
    if isinstance(data, dict):
        return {escape_surrogates(key): escape_surrogates(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(map(escape_surrogates, data))
    return data


@pytest.fixture(autouse=True)
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the developer's own Jupyter."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "run"))
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in ("JUPYTER_TOKEN", "KG_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a directory whose path leaves room for a socket's name."""
    path = Path(tempfile.mkdtemp(prefix="jex"))
    yield path
    remove_tree(path, move_aside=False, seconds=60.0)  # a test may have put in what shutil cannot remove


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Hosts]:
    """Hosts that are started when first asked for and stopped at the end."""
    started = _Hosts(tmp_path_factory)
    yield started
    started.close()


@pytest.fixture(scope="session", autouse=True)
def _no_secret_in_an_answer() -> Iterator[None]:
    """Look at every answer that comes through requests, in whatever test."""
    send = requests.Session.send

    def sending(self: requests.Session, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        answer = send(self, request, **options)
        if not options.get("stream"):
            canaries.check_answer(answer)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.Session, "send", sending)
        yield


# Kernels without isolation, and code that a person has to approve. The wait is long enough for any test but its own.
POLICIES = {
    "asks": {"approval": {"when": ["shell"], "timeout_seconds": 60}},
    "asks_briefly": {"approval": {"when": ["shell"], "timeout_seconds": 1}},
}


@pytest.fixture(scope="session", params=["server", "gateway"])
def token_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that lets scoped tokens run code, with policies that want code approved; each kind in turn."""
    name = str(request.param)
    options = ["--ExecEngine.allow_unprotected_tokens=True", f"--ExecEngine.policies={json.dumps(POLICIES)}"]
    with running_host(name, tmp_path_factory.mktemp(f"{name}-tokens"), *options) as host:
        yield host


class _Hosts:
    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._tmp_path_factory = tmp_path_factory
        self._running: dict[str, tuple[Host, AbstractContextManager[Host]]] = {}

    def __getitem__(self, name: str) -> Host:
        if name not in self._running:
            context = self._start(name)(UNPROTECTED, "--Application.log_level=DEBUG")
            self._running[name] = (context.__enter__(), context)
            canaries.note(self._running[name][0].info.token or "")
        return self._running[name][0]

    def _start(self, name: str) -> Callable[..., AbstractContextManager[Host]]:
        home = self._tmp_path_factory.mktemp(name)
        if name == "hub":
            return partial(running_hub, home)
        if name == "hub-pool":
            return partial(running_contract_pool, home)
        if name in HOSTS_OF_SESSIONS:
            return partial(running_host_of_sessions, name, home, self["pool"])
        if name == "pool":  # the code that it is sent has ours around it
            return partial(running_host, "server", home, f"--ExecEngine.max_code_bytes={4 * MAX_CODE_BYTES}")
        return partial(running_host, name, home)

    def close(self) -> None:
        told = []
        for host, context in reversed(self._running.values()):  # a pool goes after those whose kernels are there
            metrics = requests.get(f"{host.info.url}metrics", headers=host.info.auth_headers, timeout=30)
            told += [(f"{host.name}/metrics", secret[:6]) for secret in canaries.found_in(metrics.text)]
            context.__exit__(None, None, None)
            told += canaries.look_through(host)
        assert told == [], "secrets were found where none may be"
