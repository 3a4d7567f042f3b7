"""ACA session pools of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ....client.access_tokens import AsyncTokenProvider, TokenProvider
from ....client.aio.driver import AioDriver
from ....client.aio.http_client import AioCredential
from ....client.local_files import FileTarget, MemoryTarget, OpenFileTarget, Target, Uploadable, download_path
from ....client.server_connection import JupyterConnectionInfo
from ...protocol.addresses import ALLOWED_HOSTS, DEFAULT_API_VERSION, SCOPE, check_endpoint, check_host, family_of
from ...protocol.file_format import ACAFile
from ...protocol.run_format import RunRequest, RunResult
from ...protocol.session_format import ACASessionInfo
from ..pool_operations import PoolOperations
from ..pool_transport import PoolTimes, PoolTransport

if TYPE_CHECKING:
    from typing_extensions import Self

# The service's own default, 4096, is too short for the output of much code.
STREAMS_MAX_LENGTH = 2**20


class AsyncACAClient:
    """Client of a pool of Azure Container Apps dynamic sessions, or of a Jupyter server that answers as one.

    Parameters
    ----------
    endpoint : str
        The pool's management endpoint.
    credential : TokenProvider or AsyncTokenProvider
        Source of access tokens, such as a credential of ``azure.identity`` or ``azure.identity.aio``. One that blocks
        is asked in a thread. It stays open when the client is closed.
    api_version : str
        Version of the protocol.
    allowed_hosts : sequence of str
        Hosts that may get the access token; ``*.`` stands for one or more labels. Without TLS only this machine may.
    scope : str
        Scope of the access token.
    max_wait_seconds : float
        Time in which a call is repeated where that is safe, with growing pauses; 0 for never.
    request_timeout_seconds : float
        Limit of a call that moves no file and runs no code.
    transfer_timeout_seconds : float
        Limit of an upload or a download.
    grace_seconds : float
        Time to wait for a run beyond its code's timeout.
    verify : bool or str
        Whether to check the service's certificate, or the path of a CA bundle to check it with.

    Raises
    ------
    InvalidRequest
        If the endpoint is not valid or may not get the token, or the api-version is unknown.

    Examples
    --------
    >>> async with AsyncACAClient(endpoint, DefaultAzureCredential()) as pool:
    ...     result = await pool.run("user-1", "6 * 7")
    >>> result.value
    42

    Notes
    -----
    Every call ends within its own limit and `max_wait_seconds`. It may raise the errors of `jupyter_exec_ext.errors`:
    the service's refusals (`InvalidRequest`, `Unauthenticated`, `Forbidden`, `NotFound`, `Conflict`, `LimitReached`,
    `Unavailable`), `ConnectionFailed` if nothing was sent, and `ConnectionLost` if the answer never came. The access
    token is renewed before it expires, and once more when the service refuses it. Calls can be concurrent.
    """

    def __init__(
        self,
        endpoint: str,
        credential: TokenProvider | AsyncTokenProvider,
        *,
        api_version: str = DEFAULT_API_VERSION,
        allowed_hosts: Sequence[str] = ALLOWED_HOSTS,
        scope: str = SCOPE,
        max_wait_seconds: float = 30.0,
        request_timeout_seconds: float = 60.0,
        transfer_timeout_seconds: float = 600.0,
        grace_seconds: float = 30.0,
        verify: bool | str = True,
    ) -> None:
        family_of(api_version)  # raises an error for an unknown version
        self.endpoint = check_host(check_endpoint(endpoint), allowed_hosts)
        self.api_version = api_version
        parts = urlsplit(self.endpoint)
        connection = JupyterConnectionInfo(
            parts.hostname or "", parts.scheme == "https", parts.port, base_url=parts.path, verify=verify
        )
        self._driver = AioDriver(connection, AioCredential(credential, scope))
        times = PoolTimes(max_wait_seconds, request_timeout_seconds, transfer_timeout_seconds, grace_seconds)
        self._operations = PoolOperations(PoolTransport(self.endpoint, api_version, times))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint!r}, api_version={self.api_version!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Sessions live on until they expire; see `delete_session`."""
        await self._driver.close()

    async def run(
        self,
        identifier: str,
        code: str,
        *,
        timeout_seconds: float | None = 60,
        streams_max_length: int | None = STREAMS_MAX_LENGTH,
        jupyter_format: bool = False,
    ) -> RunResult:
        """Run code in a session, which is allocated if the pool has none with this identifier.

        The code runs at most once: the request is repeated only if it certainly did not run. Code that fails is a
        result, not an error.

        Parameters
        ----------
        identifier : str
            Of the session: 4 to 128 characters. All users of the pool who know it share the session.
        code : str
            Python source.
        timeout_seconds : float, optional
            Time limit of the code, sent as whole seconds. None leaves it to the service.
        streams_max_length : int, optional
            Characters of stdout and of stderr that the service keeps; None for its default (4096). Versions before
            2025-10-02 have no such option.
        jupyter_format : bool
            Get a value as the text that IPython shows, whatever its type; from 2025-10-02 on.

        Returns
        -------
        RunResult
            Output, value and state of the run.

        Raises
        ------
        InvalidRequest
            If the identifier is not allowed.
        ConnectionLost
            If the answer was lost: the code may have run, or may still be running.
        """
        # The service takes whole seconds. A lower number would stop the code too early.
        seconds = None if timeout_seconds is None else math.ceil(timeout_seconds)
        request = RunRequest(code, seconds, False, streams_max_length, jupyter_format)
        return await self._driver.perform(self._operations.run(identifier, request))

    async def upload(self, identifier: str, path: str, source: bytes | Uploadable) -> ACAFile:
        """Upload a file, piece by piece.

        Parameters
        ----------
        identifier : str
            Of the session.
        path : str
            Path of the file in the session, relative to ``/mnt/data``.
        source : bytes, path or binary file
            The content, a local file's path (a `str` is a path), or a file that is read from its current position.

        Returns
        -------
        ACAFile
            The file as the service describes it.

        Raises
        ------
        PayloadTooLarge
            If the file is larger than the service allows (128 MB).
        """
        return await self._driver.perform(self._operations.upload(identifier, path, source))

    async def download(
        self, identifier: str, path: str, target: str | os.PathLike[str] | IO[bytes] | None = None
    ) -> bytes | None:
        """Download a file, piece by piece.

        Parameters
        ----------
        identifier : str
            Of the session.
        path : str
            Relative to ``/mnt/data``.
        target : path or binary file, optional
            A path, which gets the file when it is complete (in a directory, under its own name), or an open file.
            Without it, the content is returned.

        Returns
        -------
        bytes or None
            The content, if there is no `target`.

        Raises
        ------
        NotFound
            If there is no such file.
        """
        if target is None:
            memory = MemoryTarget()
            await self._driver.perform(self._operations.download(identifier, path, memory))
            return memory.data()
        place: Target
        if isinstance(target, (str, os.PathLike)):
            place = FileTarget(download_path(target, path))
        else:
            place = OpenFileTarget(target)
        await self._driver.perform(self._operations.download(identifier, path, place))
        return None

    async def files(self, identifier: str, directory: str = "", *, recursive: bool = False) -> list[ACAFile]:
        """Return the files of a directory.

        Parameters
        ----------
        identifier : str
            Of the session.
        directory : str
            Relative to ``/mnt/data``; empty for ``/mnt/data`` itself.
        recursive : bool
            Include the files of all directories below it; from 2025-10-02 on.

        Returns
        -------
        list of ACAFile
            Files and directories; with `recursive`, as the service lists them.
        """
        return await self._driver.perform(self._operations.files(identifier, directory, recursive=recursive))

    async def delete_file(self, identifier: str, path: str) -> None:
        """Delete a file; raises `NotFound` if it does not exist."""
        await self._driver.perform(self._operations.delete_file(identifier, path))

    async def delete_session(self, identifier: str) -> None:
        """End a session and the code in it, and delete its files. An unknown session is not an error."""
        await self._driver.perform(self._operations.delete_session(identifier))

    async def session(self, identifier: str) -> ACASessionInfo:
        """Return the times of a session's creation, last use and end; raises `SessionNotFound`."""
        return await self._driver.perform(self._operations.session(identifier))

    async def metadata(self) -> dict[str, Any]:
        """Return the pool's metadata: ``runtimes``, ``preInstalledPackages``, ``jupyterKernel``."""
        return await self._driver.perform(self._operations.metadata())
