"""One container from its start to its end, with all that belongs to it."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

from . import container_watchdog
from .container_address import Reach
from .container_engine import engine_errors
from .container_streams import Attached

PORT = 8888
_PREFIX = "jupyter-exec-"


class RunningContainer:
    """A container, with its watchdog, its streams and, where it has one, its own network.

    Parameters
    ----------
    client : docker.DockerClient
        Closed at the end.
    image : docker.models.images.Image
    options : dict
        As the library's ``containers.create`` takes them.
    name : str or None
        The container's name; None for a new one.
    settings : dict or None
        What the container is to read from its standard input.
    port : int
        The port on which it listens.
    reach : Reach
        How it is reached.
    internet : bool
        If not, it gets an internal network of its own.
    stop : bool
        Whether it shall end with this process.
    remove : bool
        Whether it is removed when it has stopped.

    Attributes
    ----------
    id : str
    host : str
    port : int
        Where its server is.
    output : Attached

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
        unique = f"{_PREFIX}{uuid.uuid4()}"
        # From the last to the first when it ends: the network is free when the container is gone, for example.
        with contextlib.ExitStack() as undo, engine_errors("the container cannot be started"):
            network = reach.network
            if not internet:
                own_network = client.networks.create(unique, driver="bridge", internal=True)
                undo.callback(own_network.remove)
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
            # In case that there will be no watchdog; a second time it does nothing.
            undo.callback(container_watchdog.end, client, self.id, remove=remove)
            if stop:
                dog = container_watchdog.start(self.id, remove=remove, network=None if internet else unique)
                undo.callback(container_watchdog.dismiss, dog)
                undo.callback(
                    container_watchdog.end, client, self.id, remove=remove
                )  # as long as the watchdog is there
            self.output = Attached(container, stdin=settings is not None)
            undo.callback(self.output.close)
            container.start()
            if settings is not None:
                self.output.send(settings)
            container.reload()
            self.host, self.port = _address(container.attrs["NetworkSettings"], port, reach, network)
            self._undo = undo.pop_all()

    def end(self) -> None:
        """Stop it, and remove what is not to be kept; calling it again does nothing."""
        try:
            with engine_errors("the container cannot be stopped"):
                self._undo.close()
        finally:
            self._client.close()

    def let_go(self) -> None:
        """Leave it running, and close what we hold of it; `end` can still be called."""
        self.output.close()
        self._client.close()


def _address(networking: dict[str, Any], port: int, reach: Reach, network: str | None) -> tuple[str, int]:
    """Return where the server is: at a published port, or at the container's own address."""
    if reach.publish_at is not None:
        return str(reach.host), int(networking["Ports"][f"{port}/tcp"][0]["HostPort"])
    return str(networking["Networks"][network]["IPAddress"]), port
