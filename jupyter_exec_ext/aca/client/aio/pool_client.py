"""The session pools of the asynchronous client. The twin in `sync/` is generated."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ....client.access_tokens import AsyncTokenProvider, TokenProvider
from ....client.aio.credential import AioCredential
from ....client.aio.driver import AioDriver
from ....client.local_files import FileTarget, MemoryTarget, Target, Uploadable, download_path
from ....client.open_file import OpenFileTarget
from ....client.server_connection import JupyterConnectionInfo
from ...protocol.addresses import ALLOWED_HOSTS, DEFAULT_API_VERSION, SCOPE, check_endpoint, check_host, family_of
from ...protocol.file_format import ACAFile
from ...protocol.run_requests import RunRequest
from ...protocol.run_results import RunResult
from ...protocol.session_info import ACASessionInfo
from ..pool_files import ACAFilesApi
from ..pool_operations import ACAApi
from ..pool_transport import ACATimes, ACATransport

if TYPE_CHECKING:
    from typing_extensions import Self

STREAMS_MAX_LENGTH = 2**20


class AsyncACAClient:
    """Client of a pool of Azure Container Apps dynamic sessions, or of a Jupyter server that answers as one.

    Parameters
    ----------
    endpoint : str
        The pool's management endpoint.
    credential : TokenProvider or AsyncTokenProvider
        What gives access tokens, such as a credential of ``azure.identity`` or ``azure.identity.aio``. One that blocks
        is asked in a thread. It stays the caller's to close.
    api_version : str
        Which form of the protocol is spoken.
    allowed_hosts : sequence of str
        Where the access token may be sent; ``*.`` stands for one or more labels. Without TLS only to this machine.
    scope : str
        What the access token is asked for.
    max_wait_seconds : float
        For how long a call is tried again where that is safe, with growing pauses; 0 for never.
    request_timeout_seconds : float
        How long a call may take that moves no file and runs no code.
    transfer_timeout_seconds : float
        How long an upload or a download may take.
    grace_seconds : float
        How much longer than its code's timeout a run is waited for.
    verify : bool or str
        Whether to check the service's certificate, or the path of a CA bundle to check it with.

    Raises
    ------
    InvalidRequest
        If the endpoint is none, or not one that the token may be sent to, or there is no such api-version.

    Notes
    -----
    Every call ends within its own time and `max_wait_seconds`. It may raise the errors of `jupyter_exec_ext.errors`:
    the service's refusals (`InvalidRequest`, `Unauthenticated`, `Forbidden`, `NotFound`, `Conflict`, `LimitReached`,
    `Unavailable`), `ConnectionFailed` where nothing was sent and `ConnectionLost` where the answer never came. The
    access token is fetched anew before its end, and once more when the service refuses it. Concurrent calls are fine.
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
        family_of(api_version)
        self.endpoint = check_host(check_endpoint(endpoint), allowed_hosts)
        self.api_version = api_version
        parts = urlsplit(self.endpoint)
        connection = JupyterConnectionInfo(
            parts.hostname or "", parts.scheme == "https", parts.port, base_url=parts.path, verify=verify
        )
        self._driver = AioDriver(connection, AioCredential(credential, scope))
        times = ACATimes(max_wait_seconds, request_timeout_seconds, transfer_timeout_seconds, grace_seconds)
        transport = ACATransport(self.endpoint, api_version, times)
        self._api = ACAApi(transport)
        self._files = ACAFilesApi(transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint!r}, api_version={self.api_version!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Sessions go on living until their time is over; see `delete_session`."""
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
        """Run code in a session, which is allocated if there is none of this identifier.

        The code is sent once: again only where it surely did not run. Code that fails is a result, not an error.

        Parameters
        ----------
        identifier : str
            Of the session: 4 to 128 characters. Whoever knows it and may use the pool shares the session.
        timeout_seconds : float, optional
            After which the service stops the code; sent as whole seconds. None leaves it to the service.
        streams_max_length : int, optional
            How much of stdout and stderr the service keeps; None for its default (4096). Older versions have no such
            limit to set.
        jupyter_format : bool
            Get a value as the text that IPython shows, whatever its type; from 2025-10-02 on.

        Raises
        ------
        InvalidRequest
            If the identifier is not allowed.
        ConnectionLost
            If the answer was lost: the code may have run, or may still be running.
        """
        seconds = None if timeout_seconds is None else math.ceil(timeout_seconds)
        request = RunRequest(code, seconds, False, streams_max_length, jupyter_format)
        return await self._driver.perform(self._api.run(identifier, request))

    async def upload(self, identifier: str, path: str, source: bytes | Uploadable) -> ACAFile:
        """Upload a file, piece by piece.

        Parameters
        ----------
        path : str
            Where it goes, relative to ``/mnt/data``.
        source : bytes, path or binary file
            The content, a local file's path (a `str` is a path), or a file that is read from where it stands.

        Raises
        ------
        PayloadTooLarge
            If it is larger than the service takes (128 MB).
        """
        return await self._driver.perform(self._files.upload(identifier, path, source))

    async def download(
        self, identifier: str, path: str, target: str | os.PathLike[str] | IO[bytes] | None = None
    ) -> bytes | None:
        """Download a file, piece by piece.

        Parameters
        ----------
        path : str
            Relative to ``/mnt/data``.
        target : path or binary file, optional
            Where it goes: a path, at which the file is put when it is complete (in a directory, under its own name),
            or an open file. Without it, the content is returned.

        Raises
        ------
        NotFound
            If there is no such file.
        """
        if target is None:
            memory = MemoryTarget()
            await self._driver.perform(self._files.download(identifier, path, memory))
            return memory.data()
        place: Target
        if isinstance(target, (str, os.PathLike)):
            place = FileTarget(download_path(target, path))
        else:
            place = OpenFileTarget(target)
        await self._driver.perform(self._files.download(identifier, path, place))
        return None

    async def files(self, identifier: str, directory: str = "", *, recursive: bool = False) -> list[ACAFile]:
        """Return the files of a directory.

        Parameters
        ----------
        directory : str
            Relative to ``/mnt/data``; empty for that itself.
        recursive : bool
            What is below it, too; from 2025-10-02 on.
        """
        return await self._driver.perform(self._files.files(identifier, directory, recursive=recursive))

    async def delete_file(self, identifier: str, path: str) -> None:
        """Delete a file; raises `NotFound` if there is none."""
        await self._driver.perform(self._files.delete_file(identifier, path))

    async def delete_session(self, identifier: str) -> None:
        """End a session and what runs in it, and delete its files; one that is not there is no error."""
        await self._driver.perform(self._api.delete_session(identifier))

    async def session(self, identifier: str) -> ACASessionInfo:
        """Return when a session was made, used last, and will end; raises `SessionNotFound`."""
        return await self._driver.perform(self._api.session(identifier))

    async def metadata(self) -> dict[str, Any]:
        """Return what the pool says about itself: ``runtimes``, ``preInstalledPackages``, ``jupyterKernel``."""
        return await self._driver.perform(self._api.metadata())
