"""Images that tests build, and the containers that there are."""

from __future__ import annotations

import io
from typing import Any

from docker.errors import DockerException

from tests.executors.seed_examples import CUSTOM_DOCKERFILE, FOUNDATION
from tests.support.container_engines import BASE

# What the document's Dockerfile takes from the image that it builds on, where no registry can be reached: the same
# names, for a user of the same kind, with pip in the place of mamba.
_STAND_IN = f"""\
FROM {BASE}
ENV NB_USER=jovyan NB_UID=1000 CONDA_DIR=/opt/conda HOME=/var/lib/jovyan PATH=/opt/conda/bin:$PATH
RUN useradd -m -u 1000 -d /var/lib/jovyan jovyan && python -m venv /opt/conda && chown -R jovyan /opt/conda
RUN printf '#!/bin/sh\\ntest "$1" != install || {{ shift 2; exec pip install --no-cache-dir "$@"; }}\\n' \\
        > /usr/local/bin/mamba && printf '#!/bin/sh\\n' > /usr/local/bin/fix-permissions && \\
    chmod +x /usr/local/bin/mamba /usr/local/bin/fix-permissions
USER 1000
"""


def build(client: Any, name: str, dockerfile: str) -> str:
    """Build an image from a Dockerfile alone, with what this machine's network leads to, and return its name."""
    client.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=name, rm=True, network_mode="host")
    return name


def containers_of(client: Any, image: str) -> list[str]:
    """Return the ids of the containers that were made from an image, also of those that have stopped.

    Other tests may start and end containers meanwhile: an image of a test's own tells its containers from theirs.
    """
    id_ = client.images.get(image).id
    return [container["Id"] for container in client.api.containers(all=True) if container["ImageID"] == id_]


def build_the_documents(client: Any, name: str) -> str:
    """Build the document's Dockerfile; only if what it builds on cannot be pulled, on what stands in for that."""
    dockerfile = CUSTOM_DOCKERFILE
    try:
        client.images.pull(FOUNDATION, tag="latest")
    except DockerException:
        base = build(client, "jupyter-exec-test-foundation", _STAND_IN)
        dockerfile = dockerfile.replace(f"FROM {FOUNDATION}\n", f"FROM {base}\n")
    return build(client, name, dockerfile)
