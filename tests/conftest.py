from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import Host, running_host
from tests.hubs import running_hub
from tests.tokens import UNPROTECTED


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


class _Hosts:
    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._tmp_path_factory = tmp_path_factory
        self._running: dict[str, tuple[Host, object]] = {}

    def __getitem__(self, name: str) -> Host:
        if name not in self._running:
            home = self._tmp_path_factory.mktemp(name)
            context = running_hub(home, UNPROTECTED) if name == "hub" else running_host(name, home, UNPROTECTED)
            self._running[name] = (context.__enter__(), context)
        return self._running[name][0]

    def close(self) -> None:
        for _, context in self._running.values():
            context.__exit__(None, None, None)  # type: ignore[attr-defined]
