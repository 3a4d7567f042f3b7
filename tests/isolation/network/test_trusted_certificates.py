"""Certificates that the proxy and programs behind it trust: the system's in a file or a directory, or certifi's."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest
import trustme

from jupyter_exec_ext.isolation.network.trusted_certificates import make_trust, trusted_certificates


def _pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_certificates_of_the_system_and_one_file_are_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    system, own = trustme.CA(), trustme.CA()
    (tmp_path / "own.pem").write_text(_pem(own))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "file.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    name = {"file": "file.pem", "directory": "0123abcd.0"}[kind]
    (tmp_path / name).write_bytes(b"# caf\xe9\n" + _pem(system).encode())
    (tmp_path / "4567abcd.0").symlink_to(tmp_path / "nowhere")
    assert make_trust(str(tmp_path / "own.pem")).cert_store_stats()["x509_ca"] == 2
    assert trusted_certificates().count("BEGIN CERTIFICATE") == 1


def test_certifi_stands_in_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert trusted_certificates() == Path(certifi.where()).read_text("ascii", "ignore")


def test_file_that_is_missing_or_no_certificate_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_trust(str(tmp_path / "none.pem"))
    (tmp_path / "bad.pem").write_text("-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n")
    with pytest.raises(ssl.SSLError):
        make_trust(str(tmp_path / "bad.pem"))
