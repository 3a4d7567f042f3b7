from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import Host, running_host


@pytest.fixture(autouse=True)
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the developer's own Jupyter."""
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in ("JUPYTER_TOKEN", "KG_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Hosts]:
    """Hosts that are started when first asked for and stopped at the end."""
    started = _Hosts(tmp_path_factory)
    yield started
    started.close()


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
        self._running: dict[str, tuple[Host, object]] = {}

    def __getitem__(self, name: str) -> Host:
        if name not in self._running:
            context = running_host(name, self._tmp_path_factory.mktemp(name))
            self._running[name] = (context.__enter__(), context)
        return self._running[name][0]

    def close(self) -> None:
        for _, context in self._running.values():
            context.__exit__(None, None, None)  # type: ignore[attr-defined]
