"""Images that tests build, and the containers that there are."""

from __future__ import annotations

import io
from typing import Any


def build(client: Any, name: str, dockerfile: str) -> str:
    """Build an image from a Dockerfile alone, with what this machine's network leads to, and return its name."""
    client.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=name, rm=True, network_mode="host")
    return name


def containers_of(client: Any) -> set[str]:
    """Return the ids of all containers, asking for nothing more of one that may be going."""
    return {container["Id"] for container in client.api.containers(all=True)}
