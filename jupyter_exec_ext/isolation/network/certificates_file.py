"""PEM file of the certificates that kernels behind the proxy trust, in the server's private directory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from ..common.leftovers import make_directory, private_directory, remove_directory
from .trusted_certificates import trusted_certificates


class CertificatesFile:
    """PEM file of the machine's trusted certificates and the proxy's own; written anew if it is missing.

    Its path stays the same, since a restarted kernel uses the path that it was started with. The next start of a server
    removes the file of a killed one.

    Parameters
    ----------
    ca_file : str
        File with certificates that are trusted beside the machine's; empty for none.
    """

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file
        self._directory: Path | None = None
        self._lock = threading.Lock()

    def ensure(self, proxy_certificate: str) -> Path:
        """Return the path of the file, and write it if it is missing. Blocks: call it in a thread.

        Parameters
        ----------
        proxy_certificate : str
            The certificate of the proxy's authority, in PEM.

        Raises
        ------
        OSError
            If a file with certificates cannot be read, or this one cannot be written.
        """
        with self._lock:
            self._directory = self._directory or private_directory()
            path = self._directory / "certificates.pem"
            if not path.is_file():
                text = trusted_certificates(self._ca_file) + "\n" + proxy_certificate
                make_directory(self._directory)
                draft = path.with_suffix(".draft")
                draft.write_text(text, encoding="utf-8")
                os.replace(draft, path)
            return path

    def remove(self) -> None:
        """Remove the file, if there is one."""
        with self._lock:
            if self._directory is not None:
                remove_directory(self._directory)
