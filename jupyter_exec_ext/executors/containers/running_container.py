"""Lifecycle of one container: its network, streams and watchdog, created together and removed together."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

from .container_address import Reach
from .container_engine import engine_errors
from .container_streams import ContainerStreams
from .container_watchdog import dismiss_watchdog, start_watchdog, stop_container

DEFAULT_PORT = 8888
# With this prefix a user recognises our containers and networks in the engine's lists.
_NAME_PREFIX = "jupyter-exec-"


class RunningContainer:
    """A container that was started here.

    Parameters
    ----------
    client : docker.DockerClient
        The engine; `end` and `detach` close it.
    image : docker.models.images.Image
        The image to run.
    options : dict
        As the library's ``containers.create`` takes them.
    name : str or None
        The container's name; None for a new one.
    settings : dict or None
        Settings to write to the container's standard input.
    port : int
        The port on which its server listens.
    reach : Reach
        The way to its server.
    internet : bool
        Whether it may reach other machines. If not, it gets an internal network to itself.
    stop : bool
        Whether a watchdog stops it when this process ends.
    remove : bool
        Whether it is removed when it has stopped.

    Attributes
    ----------
    id : str
        Its id at the engine.
    host : str
        The host of its server.
    port : int
        The port of its server, as seen from here.
    streams : ContainerStreams
        Its standard streams.

    Raises
    ------
    ValueError
        If the engine refuses.
    """

    def __init__(
        self,
        client: Any,
        image: Any,
        options: dict[str, Any],
        *,
        name: str | None,
        settings: dict[str, Any] | None,
        port: int,
        reach: Reach,
        internet: bool,
        stop: bool,
        remove: bool,
    ) -> None:
        self._client = client
        unique = f"{_NAME_PREFIX}{uuid.uuid4()}"
        # The stack ends in reverse order: a network, for example, can be removed once its container is gone.
        with contextlib.ExitStack() as undo, engine_errors("the container cannot be started"):
            network = reach.network
            if not internet:
                undo.callback(client.networks.create(unique, driver="bridge", internal=True).remove)
                network = unique
            container = client.containers.create(
                image.id,
                name=name or unique,
                auto_remove=remove,
                network=network,
                ports={} if reach.publish_at is None else {f"{port}/tcp": (reach.publish_at, None)},
                stdin_open=settings is not None,
                **options,
            )
            self.id: str = container.id
            undo.callback(stop_container, client, self.id, remove=remove)
            if stop:
                watchdog = start_watchdog(self.id, remove=remove, network=None if internet else unique)
                undo.callback(dismiss_watchdog, watchdog)
                # The container has to stop before the watchdog is dismissed. The call above is for a watchdog that
                # does not start; on a container that is gone it does nothing.
                undo.callback(stop_container, client, self.id, remove=remove)
            self.streams = ContainerStreams(container, stdin=settings is not None)
            undo.callback(self.streams.close)
            container.start()
            if settings is not None:
                self.streams.send(settings)
            container.reload()
            networking = container.attrs["NetworkSettings"]
            if reach.publish_at is not None:
                self.host, self.port = str(reach.host), int(networking["Ports"][f"{port}/tcp"][0]["HostPort"])
            else:
                self.host, self.port = str(networking["Networks"][network]["IPAddress"]), port
            self._undo = undo.pop_all()

    def end(self) -> None:
        """Stop the container, and remove it unless it is to be kept; calling it again does nothing."""
        try:
            with engine_errors("the container cannot be stopped"):
                self._undo.close()
        finally:
            self._client.close()

    def detach(self) -> None:
        """Close the streams and leave the container running; `end` can still be called."""
        self.streams.close()
        self._client.close()
