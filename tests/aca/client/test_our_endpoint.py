"""The clients of session pools against our own endpoint: a real server, real kernels, both families."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import AccessToken
from jupyter_exec_ext.aca.protocol.addresses import API_VERSIONS
from jupyter_exec_ext.errors import InvalidRequest, NotFound, SessionNotFound, Unauthenticated
from tests.support.full import only_in_full
from tests.support.hosts import Host


class Static:
    """A credential that has one token."""

    def __init__(self, token: str | None) -> None:
        self.token = token or ""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self.token, 9e9)


@pytest.fixture
def host(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


@pytest.mark.parametrize("api_version", API_VERSIONS)
@only_in_full
def test_code_and_files_on_our_own_endpoint(aca: Any, host: Host, api_version: str, tmp_path: Path) -> None:
    client = aca(f"{host.info.url}exec/aca", Static(host.info.token), api_version=api_version)
    identifier = f"pool{uuid.uuid4()}|{{}}[]&=+#%/?"
    content = bytes(range(256)) * 5000
    try:
        assert client.run(identifier, "x = 20; print('printed')").stdout == "printed\n"
        assert client.run(identifier, "x + 1").value == 21
        failed = client.run(identifier, "1 / 0")
        assert not failed.ok
        assert "ZeroDivisionError" in failed.stderr
        assert client.upload(identifier, "a b#.bin", content).size_bytes == len(content)
        assert client.run(identifier, "len(open('a b#.bin', 'rb').read())").value == len(content)
        assert client.download(identifier, "a b#.bin", tmp_path / "back") is None
        assert (tmp_path / "back").read_bytes() == content
        assert [(file.path, file.size_bytes) for file in client.files(identifier)] == [("a b#.bin", len(content))]
        client.delete_file(identifier, "a b#.bin")
        with pytest.raises(NotFound):
            client.download(identifier, "a b#.bin")
        assert client.session(identifier).identifier == identifier
        assert client.run(identifier, "import time; time.sleep(30)", timeout_seconds=1).ok is False
        assert client.metadata()["runtimes"]
    finally:
        client.delete_session(identifier)
    client.delete_session(identifier)
    with pytest.raises(SessionNotFound):
        client.session(identifier)


def test_our_own_endpoint_refuses_in_terms_that_are_understood(aca: Any, host: Host) -> None:
    with pytest.raises(Unauthenticated, match="HTTP 401"):
        aca(f"{host.info.url}exec/aca", Static("wr0ng")).run("pool-1", "1")
    with pytest.raises(InvalidRequest):
        aca(f"{host.info.url}exec/aca", Static(host.info.token)).upload("pool-1", "../x", b"")
