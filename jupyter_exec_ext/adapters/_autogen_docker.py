"""Asynchronous `DockerJupyterServer` with AutoGen's signature."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict

from ..client.server_connection import JupyterConnectionInfo
from ..executors.containers.container_image import Progress
from ..executors.docker import DockerJupyterServer as _DockerJupyterServer

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class FurtherOptions(TypedDict, total=False):
    """Options of `jupyter_exec_ext.DockerJupyterServer`, where they are explained, that AutoGen's class lacks."""

    memory: str | int | None
    cpus: float | None
    max_processes: int | None
    internet: bool
    network: str | None
    build_network: str | None
    startup_timeout_seconds: float
    progress: Progress | None


class DockerJupyterServer:
    """A Kernel Gateway in a container, for asynchronous programs. Also an asynchronous context manager.

    The constructor starts it and waits for it, as AutoGen's does. In a busy event loop, construct it with
    ``await asyncio.to_thread(DockerJupyterServer, …)``.

    Parameters
    ----------
    custom_image_name, container_name, auto_remove, stop_container, docker_env, expose_port, work_dir
        As for `jupyter_exec_ext.DockerJupyterServer`, and with AutoGen's defaults.
    token : str, GenerateToken or None
        Token of the gateway; None for a new one, as in AutoGen.
    bind_dir : path, optional
        Directory of this machine that the container has as `work_dir`. It is created if needed. Its permissions do
        not change: an image of this package runs as its owner.
    **options
        ``memory``, ``cpus``, ``max_processes``, ``internet``, ``network``, ``build_network``,
        ``startup_timeout_seconds`` and ``progress``, as for `jupyter_exec_ext.DockerJupyterServer`.

    Raises
    ------
    ImportError
        If Docker's library is not installed.
    ConnectionError
        If no container engine answers.
    ValueError
        If the engine refuses, or the gateway does not become ready; the message has its last lines of output.
    """

    DEFAULT_DOCKERFILE = _DockerJupyterServer.DEFAULT_DOCKERFILE
    GenerateToken = _DockerJupyterServer.GenerateToken

    def __init__(
        self,
        *,
        custom_image_name: str | None = None,
        container_name: str | None = None,
        auto_remove: bool = True,
        stop_container: bool = True,
        docker_env: Mapping[str, str] | None = None,
        expose_port: int = 8888,
        token: str | _DockerJupyterServer.GenerateToken | None = None,
        work_dir: Path | str = "/workspace",
        bind_dir: Path | str | None = None,
        **options: Unpack[FurtherOptions],
    ) -> None:
        if bind_dir is not None:
            Path(bind_dir).mkdir(parents=True, exist_ok=True)
        self._server = _DockerJupyterServer(
            custom_image_name=custom_image_name,
            container_name=container_name,
            auto_remove=auto_remove,
            stop_container=stop_container,
            docker_env=docker_env,
            expose_port=expose_port,
            # The wrapped class reads None as "no token"; AutoGen means a new one.
            token=self.GenerateToken() if token is None else token,
            work_dir=work_dir,
            bind_dir=bind_dir,
            **options,
        )

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Address and token of the gateway."""
        return self._server.connection_info

    async def stop(self) -> None:
        """Stop the container, which ends its kernels; calling it again does nothing."""
        await asyncio.to_thread(self._server.stop)

    async def close(self) -> None:
        """Call `stop`; all adapters have this name."""
        await self.stop()

    def __repr__(self) -> str:
        return repr(self._server)

    async def __aenter__(self) -> Self:
        self._server.__enter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._server.__exit__, exc_type, exc, tb)
