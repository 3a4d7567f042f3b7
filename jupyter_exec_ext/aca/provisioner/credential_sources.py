"""Named sources of access tokens for a session pool.

A kernelspec is a file that many can read, so it names a source and never holds a secret. Sources belong to this
process; the session on Azure gets none of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InvalidRequest, Unauthenticated

AZURE = "azure"
_FILE = "token-file:"
_VARIABLE = "env:"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REREAD_SECONDS = 60  # another program renews the token in a file or a variable, without notice


class Token(NamedTuple):
    """An access token, and when to read it again, in seconds since the epoch."""

    token: str
    expires_on: float

    def __repr__(self) -> str:
        return f"Token(expires_on={self.expires_on!r})"


def check_source(source: str) -> str:
    """Return the name of a source, unchanged.

    Raises
    ------
    InvalidRequest
        If there is no such source. The message does not repeat the name, which may be a token by mistake.
    """
    file, variable = file_of(source), variable_of(source)
    # A relative path would depend on the directory in which the application was started.
    if source == AZURE or (file and file.is_absolute()) or (variable and _NAME.fullmatch(variable)):
        return source
    raise InvalidRequest(
        "the credential must be the name of a source: 'azure' (azure-identity's DefaultAzureCredential), "
        "'token-file:PATH' with a path from the root, or 'env:NAME'"
    )


def credential_from(source: str) -> AzureCredential | StoredCredential:
    """Return the credential that a source names; see `check_source`."""
    check_source(source)
    file, variable = file_of(source), variable_of(source)
    if file is not None:
        return StoredCredential(partial(_read_file, file))
    return AzureCredential() if variable is None else StoredCredential(partial(_read_variable, variable))


def file_of(source: str) -> Path | None:
    """Return the file that a source names, None for other sources."""
    return Path(source.removeprefix(_FILE)).expanduser() if source.startswith(_FILE) else None


def variable_of(source: str) -> str | None:
    """Return the variable that a source names, None for other sources."""
    return source.removeprefix(_VARIABLE) if source.startswith(_VARIABLE) else None


class AzureCredential:
    """The process's identity on Azure: azure-identity's chain of a managed identity, a developer's login and others."""

    def __init__(self) -> None:
        self._chain: Any = None

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return a token from the first credential of the chain that has one."""
        if self._chain is None:
            try:
                from azure.identity.aio import DefaultAzureCredential  # an extra, which may be missing
            except ImportError:
                raise Unauthenticated(
                    "the credential 'azure' needs azure-identity: pip install 'jupyter_exec_ext[azure]'"
                ) from None
            self._chain = DefaultAzureCredential()
        return await self._chain.get_token(*scopes, **options)

    async def aclose(self) -> None:
        """Close the chain's connections."""
        if self._chain is not None:
            await self._chain.close()


class StoredCredential:
    """A token in a file or a variable, which another program renews.

    Parameters
    ----------
    read : callable
        Returns the present token; may block.
    """

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    async def get_token(self, *_: str, **__: Any) -> Token:
        """Return the present token."""
        return Token(await asyncio.to_thread(self._read), time.time() + _REREAD_SECONDS)

    async def aclose(self) -> None:
        """Do nothing, since no resources are held."""


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise Unauthenticated(f"there is no token to be read in {path}: {type(error).__name__}") from None


def _read_variable(name: str) -> str:
    text = os.environ.get(name, "").strip()
    if not text:
        raise Unauthenticated(f"the environment variable {name} with the access token is not set")
    return text
