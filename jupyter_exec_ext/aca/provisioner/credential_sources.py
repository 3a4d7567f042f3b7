"""Where the access tokens for a session pool come from.

A kernelspec is a file that many can read, so it names a source and never holds a secret. The sources are this process's
own: the session on Azure gets nothing of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ...errors import InvalidRequest, Unauthenticated

AZURE = "azure"
_FILE = "token-file:"
_VARIABLE = "env:"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READ_AGAIN_SECONDS = 60  # whoever renews a token in a file or a variable does not tell us


class Token(NamedTuple):
    """An access token, and when to ask for another, in seconds since 1970."""

    token: str
    expires_on: float

    def __repr__(self) -> str:
        return f"Token(expires_on={self.expires_on!r})"


class Credential(Protocol):
    """What gives access tokens."""

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return a token that is good now."""

    async def aclose(self) -> None:
        """Let go of connections."""


def check_source(source: str) -> str:
    """Return the name of a source, unchanged.

    Raises
    ------
    InvalidRequest
        If there is no such source. What was given is not repeated: it may be a token.
    """
    file, variable = file_of(source), variable_of(source)
    if source == AZURE or (file and file.is_absolute()) or (variable and _NAME.fullmatch(variable)):
        return source
    raise InvalidRequest(
        "the credential must be the name of a source: 'azure' (azure-identity's DefaultAzureCredential), "
        "'token-file:PATH' with a path from the root, or 'env:NAME'"
    )


def credential_from(source: str) -> Credential:
    """Return what gives tokens from a source; see `check_source`."""
    check_source(source)
    file, variable = file_of(source), variable_of(source)
    if file is not None:
        return FileCredential(file)
    return AzureCredential() if variable is None else VariableCredential(variable)


def file_of(source: str) -> Path | None:
    """Return the file that a source names, if it names one."""
    return Path(source.removeprefix(_FILE)).expanduser() if source.startswith(_FILE) else None


def variable_of(source: str) -> str | None:
    """Return the variable that a source names, if it names one."""
    return source.removeprefix(_VARIABLE) if source.startswith(_VARIABLE) else None


class AzureCredential:
    """What this process is on Azure: azure-identity's chain of a managed identity, a developer's login and others."""

    def __init__(self) -> None:
        self._chain: Any = None

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return a token from the first of the chain that has one."""
        if self._chain is None:
            try:
                from azure.identity.aio import DefaultAzureCredential
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


class FileCredential:
    """A token in a file, which somebody else renews."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def get_token(self, *_: str, **__: Any) -> Token:
        """Return what is in the file now."""
        try:
            text = await asyncio.to_thread(self._path.read_text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise Unauthenticated(f"there is no token to be read in {self._path}: {type(error).__name__}") from None
        return Token(text.strip(), time.time() + _READ_AGAIN_SECONDS)

    async def aclose(self) -> None:
        """Hold nothing."""


class VariableCredential:
    """A token in a variable of this process's environment."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def get_token(self, *_: str, **__: Any) -> Token:
        """Return what is in the variable now."""
        text = os.environ.get(self._name, "").strip()
        if not text:
            raise Unauthenticated(f"the environment variable {self._name} with the access token is not set")
        return Token(text, time.time() + _READ_AGAIN_SECONDS)

    async def aclose(self) -> None:
        """Hold nothing."""
