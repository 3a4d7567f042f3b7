"""The container engine, through Docker's own library, which is loaded when it is used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Engines mount these into every container, from where they keep what belongs to it. (The other mounts that name a
# container may be those of the containers of a machine, as it sees them itself.)
_OWN_FILES = re.compile(r" \S*/(?:overlay-)?containers/([0-9a-f]{64})/\S* /etc/(?:hostname|hosts|resolv\.conf) ")


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Say what could not be done, and in the engine's words why.

    Raises
    ------
    ValueError
        If the engine refuses.
    ConnectionError
        If it does not answer.
    """
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except APIError as error:
        raise ValueError(f"{doing}: {error.explanation or error}") from error
    except (DockerException, RequestException) as error:
        raise ConnectionError(f"{doing}: {error}") from error


def connect() -> Any:
    """Return a client of the engine that ``DOCKER_HOST`` names, else of this machine's.

    Raises
    ------
    ImportError
        If Docker's library is not installed.
    ConnectionError
        If no engine answers.
    """
    try:
        import docker
    except ImportError as error:
        raise ImportError(
            "a server in a container takes Docker's library: pip install 'jupyter-exec-ext[docker]'"
        ) from error
    where = os.environ.get("DOCKER_HOST") or "this machine's default socket"
    with engine_errors(
        f"no container engine answers at {where}; start Docker (or Podman's Docker API), or set DOCKER_HOST"
    ):
        client = docker.from_env()
        try:
            client.ping()
        except BaseException:
            client.close()
            raise
    return client


def own_container(client: Any) -> Any | None:
    """Return the container that this process runs in, if it is one of this engine's."""
    from docker.errors import NotFound

    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:  # not Linux, so not in a container
        return None
    for found in dict.fromkeys(_OWN_FILES.findall(mounts)):
        try:
            return client.containers.get(found)
        except NotFound:  # another engine's, around that one
            continue
    return None


def networks_of(container: Any) -> list[str]:
    """Return the networks of a container, none if it uses its host's."""
    if container.attrs["HostConfig"].get("NetworkMode") == "host":
        return []
    return list(container.attrs["NetworkSettings"]["Networks"] or {})


def is_gone(client: Any, container_id: str) -> bool:
    """Return whether the engine has removed a container; what it cannot say now, it may say later."""
    from docker.errors import APIError, NotFound

    try:
        client.containers.get(container_id)
    except NotFound:
        return True
    except APIError:
        return False
    return False
