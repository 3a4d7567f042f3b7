"""AutoGen 0.2's `DockerJupyterServer`: a Kernel Gateway in a container of its own.

An image of this package gets its token through its standard input, which this process holds open: neither the
container's environment nor its command line nor the engine's records show it, and the gateway stops when the input
ends. Any other image gets it in ``TOKEN``. For both a watchdog process ends the container when this process is gone.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..client.fork_safety import atexit_in_this_process
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.client import ExecClient
from .containers.container_address import Reach, engine_host, way_to
from .containers.container_engine import connect, engine_errors, networks_of, own_container
from .containers.container_image import (
    DOCKERFILE,
    SETTINGS_LABEL,
    WORK_DIRECTORY,
    Progress,
    custom_image,
    default_image,
)
from .containers.container_options import hardened, limits, mounted, working_in
from .containers.readiness import wait_until_ready
from .containers.running_container import PORT, RunningContainer

if TYPE_CHECKING:
    from typing_extensions import Self


def _tell(line: str) -> None:
    """Show progress to somebody who looks, else log it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(line, file=sys.stderr)
    else:
        logging.getLogger(__name__).info("%s", line)


class DockerJupyterServer:
    """Runs a Kernel Gateway in a container, of Docker or of what speaks its API. Also a context manager.

    Parameters
    ----------
    custom_image_name : str, optional
        The image to run, pulled if it is not there. It must run a Kernel Gateway on `expose_port` with the token of the
        environment variable ``TOKEN``, and with ``JupyterWebsocketPersonality.list_kernels``; or be built FROM the
        default one. By default that is an image of this package, which is built when it is first needed.
    container_name : str, optional
        By default a new one.
    auto_remove : bool
        Whether the container is removed when it has stopped.
    stop_container : bool
        Whether the container is stopped when the context is left and when this process ends, however it ends. If not,
        only `stop` does it.
    docker_env : mapping, optional
        Environment variables for the container and its kernels.
    token : str or GenerateToken
        The token to demand; by default a new one. An empty one, for no token, is accepted for other images than ours.
    bind_dir : path, optional
        A directory of this machine, in which the code then works: it reads and writes it as `work_dir`. It is
        not changed; an image of this package runs as its owner.
    expose_port : int
        The port on which the gateway listens in the container. It is published on another, which is free.
    work_dir : path
        The directory of the container in which code works. In an image of this package, another one than the default
        is empty and in the container's memory, unless it is that of `bind_dir`.
    memory : str or int, optional
        How much memory the container may use, in bytes or as ``"512m"``; it gets no swap space beyond. By default what
        the engine allows.
    cpus : float, optional
        How many processors' time it may use.
    max_processes : int, optional
        How many processes and threads it may have.
    internet : bool
        Whether code may reach other machines. If not, the container is on a network of its own, from which there is no
        way but to this machine.
    network : str, optional
        A network of the engine to join in place of its usual one.
    build_network : str, optional
        The network that a build of the default image uses, such as ``"host"``.
    startup_timeout_seconds : float
        How long the gateway may take until it answers; neither a build nor a pull counts.
    progress : callable, optional
        Called with a line of text as an image is built or pulled. By default lines go to standard error if that is a
        terminal, and else to the log.

    Raises
    ------
    ImportError
        If Docker's library is not installed.
    ConnectionError
        If no engine answers.
    ValueError
        If the engine refuses, or the gateway does not get ready, with its last lines of output.
    """

    DEFAULT_DOCKERFILE = DOCKERFILE

    class GenerateToken:
        """Stands for a new random token."""

    def __init__(
        self,
        *,
        custom_image_name: str | None = None,
        container_name: str | None = None,
        auto_remove: bool = True,
        stop_container: bool = True,
        docker_env: Mapping[str, str] | None = None,
        token: str | GenerateToken = GenerateToken(),  # noqa: B008  # AutoGen's signature
        bind_dir: str | Path | None = None,
        expose_port: int = PORT,
        work_dir: str | Path = WORK_DIRECTORY,
        memory: str | int | None = None,
        cpus: float | None = None,
        max_processes: int | None = 1024,
        internet: bool = True,
        network: str | None = None,
        build_network: str | None = None,
        startup_timeout_seconds: float = 60.0,
        progress: Progress | None = None,
    ) -> None:
        self._token = secrets.token_hex(32) if isinstance(token, DockerJupyterServer.GenerateToken) else token
        self._stop_container = stop_container
        env = dict(docker_env or {})
        if "TOKEN" in env:
            raise ValueError("docker_env may not set TOKEN, which is the server's token; pass token=… instead")
        if not internet and network is not None:
            raise ValueError("internet=False makes a network of its own; leave network out")
        directory = None if bind_dir is None else _directory(bind_dir)
        client = connect()
        try:
            image = _image(client, custom_image_name, progress or _tell, build_network)
            ours = (image.labels or {}).get(SETTINGS_LABEL) == "stdin"
            if ours and not self._token:
                raise ValueError(
                    "without a token the gateway does not listen, since others could reach it and run code"
                )
            own = own_container(client)
            reach = _reach(client, own, network, internet)
            options = {
                **limits(memory, cpus, max_processes),
                **(hardened(env) if ours else {"environment": {**env, "TOKEN": self._token}}),
            }
            work_dir = str(work_dir)
            if directory is not None:
                options |= mounted(client, directory, own, work_dir, as_owner=ours)
            elif work_dir != WORK_DIRECTORY:
                options |= working_in(work_dir, empty=ours)
            self._container = RunningContainer(
                client,
                image,
                options,
                name=container_name,
                settings=self._settings(expose_port, reach, list(env)) if ours else None,
                port=expose_port,
                reach=reach,
                internet=internet,
                stop=stop_container,
                remove=auto_remove,
            )
        except BaseException:
            client.close()
            raise
        try:
            wait_until_ready(self.connection_info, self._container.output, startup_timeout_seconds)
        except BaseException:
            self._container.end()
            raise
        if stop_container:
            atexit_in_this_process(self.stop)

    def _settings(self, port: int, reach: Reach, env_names: list[str]) -> dict[str, Any]:
        """Return what `managed_gateway` reads."""
        return {
            "ip": "0.0.0.0",  # noqa: S104  # of the container; what is published, and where, is said to the engine
            "port": port,
            "token": self._token,
            "log_level": "INFO",
            "allowed_hosts": [reach.host] if reach.host else [],
            "inherited_env": env_names,
            "outlives_input": not self._stop_container,
        }

    def stop(self) -> None:
        """Stop the container, which ends its kernels; calling it again does nothing."""
        atexit.unregister(self.stop)
        self._container.end()

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Where the gateway is."""
        return JupyterConnectionInfo(
            host=self._container.host, use_https=False, port=self._container.port, token=self._token
        )

    def get_client(self) -> ExecClient:
        """Return a client of the gateway."""
        return ExecClient(self.connection_info)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection_info!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._stop_container:
            self.stop()
        else:
            self._container.let_go()


def _image(client: Any, custom_name: str | None, progress: Progress, build_network: str | None) -> Any:
    if custom_name is None:
        return default_image(client, progress, build_network)
    return custom_image(client, custom_name, progress)


def _reach(client: Any, own: Any | None, network: str | None, internet: bool) -> Reach:
    named = network not in (None, "host", "none")
    with engine_errors(f"the network {network!r} cannot be used"):
        internal = not internet or (named and bool(client.networks.get(network).attrs.get("Internal")))
    return way_to(
        engine_host(os.environ.get("DOCKER_HOST", "")),
        network=network,
        internal=internal,
        own_network=not internet,
        own_networks=None if own is None else networks_of(own),
    )


def _directory(path: str | Path) -> Path:
    directory = Path(path).resolve()
    if not directory.is_dir():
        raise ValueError(f"bind_dir is no directory here: {directory}")
    if engine_host(os.environ.get("DOCKER_HOST", "")) is not None:
        raise ValueError("bind_dir is a directory of this machine, and the engine of DOCKER_HOST is on another")
    return directory
