"""Certificate authorities that this machine trusts, for the proxy, and for programs whose TLS it ends."""

from __future__ import annotations

import ssl
from pathlib import Path

#: Variables that name other certificates than the system's; OpenSSL reads them.
TRUST_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_BEGIN = "-----BEGIN CERTIFICATE-----"


def trusted_certificates(ca_file: str = "") -> str:
    """Return certificates in PEM: those of the system, or certifi's where it has none, and of one more file.

    Parameters
    ----------
    ca_file : str, optional
        The file.

    Raises
    ------
    OSError
        If a file cannot be read.
    """
    paths = ssl.get_default_verify_paths()
    files = [Path(paths.cafile)] if paths.cafile else []
    if paths.capath:
        files += sorted(path for path in Path(paths.capath).glob("*.[0-9]") if path.is_file())
    texts = dict.fromkeys(map(_read, files))  # one may be there under several names
    if not any(_BEGIN in text for text in texts):
        import certifi

        texts[_read(Path(certifi.where()))] = None
    if ca_file:
        texts[_read(Path(ca_file))] = None
    return "\n".join(text for text in texts if _BEGIN in text)


def make_trust(ca_file: str = "") -> ssl.SSLContext:
    """Return the client's side of TLS, which trusts these certificates; raises `OSError` and `ssl.SSLError`."""
    context = ssl.create_default_context(cadata=trusted_certificates(ca_file))
    context.set_alpn_protocols(["http/1.1"])
    return context


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii", errors="ignore")  # comments may be in any encoding
