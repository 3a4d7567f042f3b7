"""`DockerJupyterServer` of AutoGen 0.2: a Kernel Gateway in a container of its own.

A default image gets its token through its standard input, which this process holds open. Neither the container's
environment nor its command line nor the engine's records show the token, and the gateway stops when the input ends. Any
other image gets it in ``TOKEN``. In both cases a watchdog process stops the container when this process has ended.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..client.fork_safety import OwnerProcess, atexit_in_this_process
from ..client.server_connection import JupyterConnectionInfo
from ..client.sync.client import ExecClient
from .containers.container_engine import connect_to_engine, engine_errors, find_own_container, networks_of
from .containers.container_image import (
    DOCKERFILE,
    SETTINGS_LABEL,
    WORK_DIRECTORY,
    Progress,
    find_or_build_default_image,
    find_or_pull_image,
)
from .containers.container_options import (
    Reach,
    find_reach,
    hardened_options,
    limit_options,
    mount_options,
    remote_engine_host,
    work_dir_options,
)
from .containers.running_container import DEFAULT_PORT, RunningContainer, wait_until_ready
from .managed_server import ManagedServer


class DockerJupyterServer(ManagedServer):
    """Runs a Kernel Gateway in a container of Docker or of an engine with Docker's API. Also a context manager.

    Parameters
    ----------
    custom_image_name : str, optional
        The image to run, pulled if it is not there. It must run a Kernel Gateway on `expose_port` with the token of the
        environment variable ``TOKEN``, and with ``JupyterWebsocketPersonality.list_kernels``; or be built FROM the
        default one. By default that is an image of this package, which is built when it is first needed.
    container_name : str, optional
        The container's name; by default a new one.
    auto_remove : bool
        Whether the container is removed when it has stopped.
    stop_container : bool
        Whether the container is stopped when the context is left and when this process ends, also by a crash. If not,
        only `stop` stops it.
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
        How much memory the container may use, in bytes or as ``"512m"``; it gets no swap space beyond. By default
        the engine's limit.
    cpus : float, optional
        How many processors' time it may use. By default the engine's limit.
    max_processes : int, optional
        How many processes and threads it may have; None for the engine's limit.
    internet : bool
        Whether code may reach other machines. If not, the container is on an internal network to itself, from which
        it can reach this machine only.
    network : str, optional
        A network of the engine to join in place of its usual one.
    build_network : str, optional
        The network that a build of the default image uses, such as ``"host"``.
    startup_timeout_seconds : float
        Timeout of the gateway's start in seconds; neither a build nor a pull counts.
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

    Examples
    --------
    ::

        with DockerJupyterServer(memory="512m") as server, JupyterCodeExecutor(server) as executor:
            print(executor.execute_code_blocks([CodeBlock("1 + 1", "python")]).output)
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
        expose_port: int = DEFAULT_PORT,
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
        self._owner = OwnerProcess()
        env = dict(docker_env or {})
        # It would have no effect: other images get the server's token in TOKEN, and ours get it at standard input.
        if "TOKEN" in env:
            raise ValueError("docker_env may not set TOKEN, which is the server's token; pass token=… instead")
        if custom_image_name is None:
            _require_token(self._token)  # before the image is built, which takes minutes
        if not internet and network is not None:
            raise ValueError("internet=False makes a network of its own; leave network out")
        directory = None if bind_dir is None else _check_bind_dir(bind_dir)
        progress = progress or _show_progress
        with contextlib.ExitStack() as undo:
            client = connect_to_engine()
            undo.callback(client.close)
            if custom_image_name is None:
                image = find_or_build_default_image(client, progress, build_network)
            else:
                image = find_or_pull_image(client, custom_image_name, progress)
            is_own_image = (image.labels or {}).get(SETTINGS_LABEL) == "stdin"
            if is_own_image:
                _require_token(self._token)
            own = find_own_container(client)
            reach = _find_reach_on_engine(client, own, network, internet)
            options = limit_options(memory, cpus, max_processes)
            options |= hardened_options(env) if is_own_image else {"environment": {**env, "TOKEN": self._token}}
            work_dir = str(work_dir)
            if directory is not None:
                options |= mount_options(client, directory, own, work_dir, as_owner=is_own_image)
            elif work_dir != WORK_DIRECTORY:
                options |= work_dir_options(work_dir, empty=is_own_image)
            self._container = RunningContainer(
                client,
                image,
                options,
                name=container_name,
                settings=self._settings(expose_port, reach, list(env)) if is_own_image else None,
                port=expose_port,
                reach=reach,
                internet=internet,
                stop=stop_container,
                remove=auto_remove,
            )
            undo.pop_all()  # from here on, the container closes the client
            undo.callback(self._container.end)
            wait_until_ready(self.connection_info, self._container.streams, startup_timeout_seconds)
            undo.pop_all()
        if stop_container:
            atexit_in_this_process(self.stop)

    def _settings(self, port: int, reach: Reach, env_names: list[str]) -> dict[str, Any]:
        """Return the settings that `managed_gateway` reads from its standard input."""
        return {
            "ip": "0.0.0.0",  # noqa: S104  # inside of the container; `reach` decides where its port is published
            "port": port,
            "token": self._token,
            "log_level": "INFO",
            "allowed_hosts": [reach.host] if reach.host else [],  # the gateway checks the Host header
            "inherited_env": env_names,
            "outlives_input": not self._stop_container,
        }

    def stop(self) -> None:
        """Stop the container, which ends its kernels; calling it again, or in a forked child, does nothing."""
        atexit.unregister(self.stop)
        if self._owner.is_current():
            self._container.end()

    @property
    def connection_info(self) -> JupyterConnectionInfo:
        """Address and token of the gateway."""
        return JupyterConnectionInfo(
            host=self._container.host, use_https=False, port=self._container.port, token=self._token
        )

    def get_client(self) -> ExecClient:
        """Return a client of the gateway."""
        return ExecClient(self.connection_info)

    def _end_context(self) -> None:
        if self._stop_container:
            self.stop()
        else:
            self._container.detach()


def _show_progress(line: str) -> None:
    """Print a line on standard error if that is a terminal, else log it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(line, file=sys.stderr)
    else:
        logging.getLogger(__name__).info("%s", line)


def _require_token(token: str) -> None:
    if not token:
        raise ValueError(
            "token='' is not allowed with this image: the gateway would be open to others. Pass a token, or leave "
            "token out for a random one."
        )


def _find_reach_on_engine(client: Any, own: Any | None, network: str | None, internet: bool) -> Reach:
    """Ask the engine about its networks, and return how the server can be reached; see `find_reach`."""
    is_named = network not in (None, "host", "none")
    with engine_errors(f"the network {network!r} cannot be used"):
        internal = not internet or (is_named and bool(client.networks.get(network).attrs.get("Internal")))
    return find_reach(
        remote_engine_host(os.environ.get("DOCKER_HOST", "")),
        network=network,
        internal=internal,
        own_network=not internet,
        own_networks=None if own is None else networks_of(own),
    )


def _check_bind_dir(path: str | Path) -> Path:
    directory = Path(path).resolve()
    if not directory.is_dir():
        raise ValueError(f"bind_dir is no directory here: {directory}")
    if remote_engine_host(os.environ.get("DOCKER_HOST", "")) is not None:
        raise ValueError("bind_dir is a directory of this machine, and the engine of DOCKER_HOST is on another")
    return directory
