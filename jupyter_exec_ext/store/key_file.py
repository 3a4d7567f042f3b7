"""Key file: the keys that encrypt secrets at rest, readable for the server's user alone.

It has one key a line. The first one encrypts and all of them decrypt, so that a key can be replaced. `secret_store`
has the secrets.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Conflict

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_MAX_BYTES = 4096


class KeyFile:
    """File with the keys of a store's secrets; made with the first secret.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def cipher(self) -> MultiFernet:
        """Return a cipher with the file's keys.

        Raises
        ------
        Conflict
            If other users can read the file, it cannot be read or written, or it has no keys.
        """
        from cryptography.fernet import Fernet, MultiFernet  # of the extra `network`

        try:
            return MultiFernet([Fernet(key) for key in self._read()])
        except ValueError:
            raise Conflict(
                f"the key file {self.path} has no valid keys; restore it, or remove it and set all secrets again"
            ) from None

    def add_key(self) -> None:
        """Put a new key before the others; raises `Conflict` as `cipher`."""
        self._write([_new_key(), *self._read()], replace=True)

    def drop_unused_keys(self, sealed: Sequence[bytes]) -> None:
        """Remove the keys that no encrypted value needs, but keep the first one; raises `Conflict` as `cipher`."""
        first, *others = self._read()
        self._write([first, *(key for key in others if any(_decrypts(key, each) for each in sealed))], replace=True)

    def _read(self) -> list[bytes]:
        with self._usable():
            is_there = self.path.exists()
        if not is_there:
            self._write([_new_key()], replace=False)
        with self._usable(), self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Conflict(f"the key file {self.path} is no regular file; replace it by one")
            if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
                raise Conflict(
                    f"the key file {self.path} belongs to another user; run the server as that user, or change it"
                )
            if stat.S_IMODE(status.st_mode) & 0o077:
                raise Conflict(
                    f"the key file {self.path} can be read by other users, so secrets cannot be used; run 'chmod 600' "
                    "on it as its owner, and replace the secrets if others had access"
                )
            return file.read(_MAX_BYTES).split()

    def _write(self, keys: list[bytes], *, replace: bool) -> None:
        """Write the file in one step, so that no server reads a part of it; `replace` one that exists."""
        with self._usable():
            descriptor, draft = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")  # of mode 0600
            try:
                with open(descriptor, "wb") as file:
                    file.write(b"\n".join(keys) + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                if replace or not hasattr(os, "link"):
                    os.replace(draft, self.path)
                else:
                    with suppress(FileExistsError):  # another server of this store was first, and its key holds
                        os.link(draft, self.path)
            finally:
                Path(draft).unlink(missing_ok=True)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Report a failure of the file system as `Conflict`, with the remedy."""
        try:
            yield
        except OSError as error:
            raise Conflict(
                f"the key file {self.path} cannot be read or written ({error.strerror or error}); make it and its "
                "directory accessible to the server's user ('chmod 600' on the file), on a disk with room"
            ) from error


def _decrypts(key: bytes, sealed: bytes) -> bool:
    from cryptography.fernet import Fernet, InvalidToken

    try:
        Fernet(key).decrypt(sealed)
    except InvalidToken:
        return False
    return True


def _new_key() -> bytes:
    from cryptography.fernet import Fernet

    return Fernet.generate_key()
