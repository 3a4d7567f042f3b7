"""The image that a server in a container runs: ours, built when it is first needed, or one that somebody names.

The image of this package is named by its content: the Dockerfile, what the package needs, and the package's own files.
So it is built once, and again when one of them changes.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from .container_engine import engine_errors
from .package_wheel import own_wheel

Progress = Callable[[str], None]

_KEPT_LINES = 20
REPOSITORY = "jupyter-exec-ext"
# An image with this label reads its settings, the token among them, from its standard input, and ends with it. Images
# built FROM ours have it, too. Any other image gets its token in the environment variable TOKEN.
SETTINGS_LABEL = "jupyter-exec.settings"
WORK_DIRECTORY = "/workspace"

DOCKERFILE = f"""\
FROM docker.io/library/python:3.11-slim-bookworm

LABEL {SETTINGS_LABEL}="stdin"

# Whoever the container runs as has a home and a place to work in.
RUN useradd --uid 1000 --home-dir /var/lib/jupyter-exec agent && \\
    install -d -m 0777 /var/lib/jupyter-exec {WORK_DIRECTORY}
ENV HOME=/var/lib/jupyter-exec

# What changes seldom comes first: a new version of the package alone is built in seconds.
COPY requirements.txt /tmp/
RUN python -m pip install --no-cache-dir --root-user-action=ignore --progress-bar=off -r /tmp/requirements.txt
COPY *.whl /tmp/
RUN python -m pip install --no-cache-dir --root-user-action=ignore --progress-bar=off --no-deps /tmp/*.whl

USER 1000:1000
WORKDIR {WORK_DIRECTORY}
EXPOSE 8888

# The settings come through standard input. -P: modules in the working directory are the user's, not the server's.
CMD ["python", "-P", "-m", "jupyter_exec_ext.cli.managed_gateway"]
"""


def default_image(client: Any, progress: Progress, build_network: str | None) -> Any:
    """Return the image of this package, built if it is not there.

    Parameters
    ----------
    build_network : str or None
        The network that the build uses; None for the engine's usual one.

    Raises
    ------
    ValueError
        If it cannot be built, with the last lines of the build.
    """
    from docker.errors import ImageNotFound

    wheel = own_wheel()
    content = {
        "Dockerfile": DOCKERFILE.encode(),
        "requirements.txt": wheel.requirements.encode(),
        wheel.file_name: wheel.content,
    }
    version = wheel.version.replace("+", "_")
    name = f"{REPOSITORY}:{version}-{_digest(content)}"
    doing = f"the image {name} cannot be built"
    with engine_errors(doing):
        try:
            image = client.images.get(name)
        except ImageNotFound:
            progress(f"building the image {name}, once for this version; this takes a minute or two")
            building = client.api.build(
                fileobj=_tar(content),
                custom_context=True,
                tag=name,
                rm=True,
                decode=True,
                network_mode=build_network,
                use_config_proxy=True,
            )
            _follow(building, progress, doing)
            image = client.images.get(name)
        image.tag(REPOSITORY, version)  # a name to build FROM
        return image


def custom_image(client: Any, name: str, progress: Progress) -> Any:
    """Return an image by its name, pulled if it is not there.

    Raises
    ------
    ValueError
        If there is none of this name.
    """
    from docker.errors import ImageNotFound
    from docker.utils import parse_repository_tag

    doing = f"Custom image {name} does not exist here, and cannot be pulled"
    with engine_errors(doing):
        try:
            return client.images.get(name)
        except ImageNotFound:
            progress(f"pulling the image {name}")
        repository, tag = parse_repository_tag(name)
        _follow(client.api.pull(repository, tag=tag or "latest", stream=True, decode=True), progress, doing)
        return client.images.get(name)


def _digest(content: dict[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, data in content.items():
        whole.update(f"{name}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()[:12]


def _tar(content: dict[str, bytes]) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(data))
    out.seek(0)
    return out


def _follow(messages: Iterable[dict[str, Any]], progress: Progress, doing: str) -> None:
    """Pass the engine's messages on, to their end; one of them may say that it failed."""
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    failure: str | None = None
    for message in messages:
        if "error" in message:
            failure = str(message["error"])
        # What a layer's download has reached is too much to tell.
        line = str(message.get("stream") or ("" if "id" in message else message.get("status", ""))).strip()
        if line:
            last.append(line)
            progress(line)
    if failure is not None:
        raise ValueError("\n".join([f"{doing}:", *last, failure]))
