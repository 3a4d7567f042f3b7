"""Access to the container engine through Docker's Python library, which is loaded when it is first used."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from requests.exceptions import RequestException

# Engines mount these files into every container, from the directory where they keep the container's own files. Other
# mounts that name a container may belong to the containers of a machine, as the machine itself sees them.
_OWN_FILES = re.compile(r" \S*/(?:overlay-)?containers/([0-9a-f]{64})/\S* /etc/(?:hostname|hosts|resolv\.conf) ")


def docker_library() -> Any:
    """Return Docker's library.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    try:
        return importlib.import_module("docker")  # optional, and slow to import
    except ImportError as error:
        raise ImportError(
            "a server in a container takes Docker's library: pip install 'jupyter-exec-ext[docker]'"
        ) from error


@contextmanager
def engine_errors(failure: str) -> Iterator[None]:
    """Turn the library's errors into `failure`, followed by the engine's own words.

    Raises
    ------
    ValueError
        If the engine refuses.
    ConnectionError
        If it does not answer.
    """
    errors = docker_library().errors
    try:
        yield
    except errors.APIError as error:
        raise ValueError(f"{failure}: {error.explanation or error}") from error
    except (errors.DockerException, RequestException) as error:
        raise ConnectionError(f"{failure} ({_cause(error)})") from error


def _cause(error: BaseException) -> str:
    """Return the operating system's words for an error of the library, which wraps them; else the library's own."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)


def connect_to_engine() -> Any:
    """Return a client of the engine that ``DOCKER_HOST`` names, else of this machine's.

    Raises
    ------
    ImportError
        If Docker's library is not installed.
    ConnectionError
        If no engine answers.
    """
    where = os.environ.get("DOCKER_HOST") or "this machine's default socket"
    with (
        engine_errors(
            f"no container engine answers at {where}; start Docker (or Podman's Docker API), or set DOCKER_HOST"
        ),
        ExitStack() as undo,
    ):
        client = docker_library().from_env()
        undo.callback(client.close)
        client.ping()
        undo.pop_all()
    return client


def find_own_container(client: Any) -> Any | None:
    """Return the container that this process runs in, if this engine runs it."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:  # not Linux, so not in a container
        return None
    for container_id in dict.fromkeys(_OWN_FILES.findall(mounts)):
        # Containers may be nested; the outer one can belong to another engine.
        if not is_gone(client, container_id):
            return client.containers.get(container_id)
    return None


def networks_of(container: Any) -> list[str]:
    """Return the networks of a container, none if it uses its host's."""
    if container.attrs["HostConfig"].get("NetworkMode") == "host":
        return []
    return list(container.attrs["NetworkSettings"]["Networks"] or {})


def is_gone(client: Any, container_id: str) -> bool:
    """Return whether the engine has removed a container; an engine that refuses to answer still has it."""
    errors = docker_library().errors
    try:
        client.containers.get(container_id)
    except errors.NotFound:
        return True
    except errors.APIError:
        return False
    return False
