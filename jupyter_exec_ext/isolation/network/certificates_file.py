"""File with the certificates that kernels behind the proxy trust, in the directory of this server."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from ..common.leftovers import make_directory, private_directory, remove_directory
from .trusted_certificates import trusted_certificates


class CertificatesFile:
    """File with the machine's trusted certificates and the proxy's own; it is made again if it is missing.

    Its path stays the same, since kernels are restarted with the path that they were started with. The next start of a
    server removes what a killed one has left.

    Parameters
    ----------
    ca_file : str
        File with certificates that are trusted beside the machine's; empty for none.
    """

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file
        self._directory: Path | None = None
        self._turn = threading.Lock()

    def ensure(self, own: str) -> Path:
        """Return the path of the file, and write it if it is missing. Blocks: call it in a thread.

        Parameters
        ----------
        own : str
            The certificate of the proxy's authority, in PEM.

        Raises
        ------
        OSError
            If a file with certificates cannot be read, or this one cannot be written.
        """
        with self._turn:
            self._directory = self._directory or private_directory()
            path = self._directory / "certificates.pem"
            if not path.is_file():
                text = trusted_certificates(self._ca_file) + "\n" + own
                make_directory(self._directory)
                draft = path.with_suffix(".draft")
                draft.write_text(text, encoding="utf-8")
                os.replace(draft, path)
            return path

    def remove(self) -> None:
        """Remove the file, if there is one."""
        with self._turn:
            if self._directory is not None:
                remove_directory(self._directory)
