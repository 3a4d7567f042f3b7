"""Container images for servers: the default image, built when it is first needed, and custom images.

The tag of the default image is a digest of its content: the Dockerfile, the requirements, and a wheel made from the
installed files of this package. The image is built once, and again when one of them changes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from .container_engine import docker_library, engine_errors

Progress = Callable[[str], None]

_PACKAGE = "jupyter_exec_ext"
_WHEEL = "Wheel-Version: 1.0\nGenerator: jupyter_exec_ext\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
# The earliest date of the zip format: a fixed date makes the same content the same file.
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
# The reason of a failed build is in its last lines.
_KEPT_LINES = 20
REPOSITORY = "jupyter-exec-ext"
# An image with this label reads its settings and token from its standard input and stops when the input ends. Images
# built FROM the default image inherit the label. Any other image gets its token in the environment variable TOKEN.
SETTINGS_LABEL = "jupyter-exec.settings"
WORK_DIRECTORY = "/workspace"

DOCKERFILE = f"""\
FROM docker.io/library/python:3.11-slim-bookworm

LABEL {SETTINGS_LABEL}="stdin"

# Any user that the container runs as has a home and a working directory.
RUN useradd --uid 1000 --home-dir /var/lib/jupyter-exec agent && \\
    install -d -m 0777 /var/lib/jupyter-exec {WORK_DIRECTORY}
ENV HOME=/var/lib/jupyter-exec

# Layers that seldom change come first: a new version of the package alone is built in seconds.
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


def find_or_build_default_image(client: Any, progress: Progress, build_network: str | None) -> Any:
    """Return the image of this package; build it if the engine does not have it.

    Parameters
    ----------
    client : docker.DockerClient
        The engine.
    progress : callable
        Called with each line of the build.
    build_network : str or None
        The network that the build uses; None for the engine's usual one.

    Raises
    ------
    ValueError
        If it cannot be built, with the last lines of the build.
    """
    wheel = build_own_wheel()
    content = {
        "Dockerfile": DOCKERFILE.encode(),
        "requirements.txt": wheel.requirements.encode(),
        wheel.file_name: wheel.content,
    }
    version = wheel.version.replace("+", "_")  # a local version has a plus sign, which a tag may not have
    name = f"{REPOSITORY}:{version}-{_digest(content)}"
    failure = f"the image {name} cannot be built"
    with engine_errors(failure):
        if (image := _find_image(client, name)) is None:
            progress(f"building the image {name}, once for this version; this takes a minute or two")
            messages = client.api.build(
                fileobj=_tar(content),
                custom_context=True,
                tag=name,
                rm=True,
                decode=True,
                network_mode=build_network,
                use_config_proxy=True,  # behind a proxy, pip needs the one of Docker's configuration
            )
            _follow(messages, progress, failure)
            image = client.images.get(name)
        image.tag(REPOSITORY, version)  # a stable name, for images built FROM this one
        return image


def find_or_pull_image(client: Any, name: str, progress: Progress) -> Any:
    """Return an image by its name; pull it if the engine does not have it.

    Raises
    ------
    ValueError
        If it is not there and cannot be pulled.
    """
    failure = f"Custom image {name} does not exist here, and cannot be pulled"
    with engine_errors(failure):
        if (image := _find_image(client, name)) is not None:
            return image
        progress(f"pulling the image {name}")
        repository, tag = docker_library().utils.parse_repository_tag(name)
        # Without a tag, the engine would pull all tags of the repository.
        _follow(client.api.pull(repository, tag=tag or "latest", stream=True, decode=True), progress, failure)
        return client.images.get(name)


def _find_image(client: Any, name: str) -> Any | None:
    try:
        return client.images.get(name)
    except docker_library().errors.ImageNotFound:
        return None


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


def _follow(messages: Iterable[dict[str, Any]], progress: Progress, failure: str) -> None:
    """Pass the engine's messages on to their end; raise `ValueError` if one of them reports an error."""
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    error: str | None = None
    for message in messages:
        if "error" in message:
            error = str(message["error"])
        # A message with an id is the state of one layer's download, of which there are many a second.
        line = str(message.get("stream") or ("" if "id" in message else message.get("status", ""))).strip()
        if line:
            last.append(line)
            progress(line)
    if error is not None:
        raise ValueError("\n".join([f"{failure}:", *last, error]))


@dataclass(frozen=True)
class Wheel:
    """A wheel and its requirements, one a line as in pip's requirements files."""

    version: str
    file_name: str
    content: bytes
    requirements: str


def build_own_wheel() -> Wheel:
    """Return this package as a wheel. The same files give the same bytes.

    Raises
    ------
    ValueError
        If the package is not installed, so that its requirements are unknown.
    """
    try:
        installed = distribution("jupyter-exec-ext")
    except PackageNotFoundError as error:
        raise ValueError("the image gets the installed package, and none is; run: pip install .") from error
    requirements = [text for text in installed.requires or () if "extra" not in str(Requirement(text).marker)]
    name = f"{_PACKAGE}-{installed.version}"
    files = dict(_package_files(Path(__file__).parents[2]))
    files[f"{name}.dist-info/METADATA"] = (installed.read_text("METADATA") or "").encode()
    files[f"{name}.dist-info/entry_points.txt"] = (installed.read_text("entry_points.txt") or "").encode()
    files[f"{name}.dist-info/WHEEL"] = _WHEEL.encode()
    files[f"{name}.dist-info/RECORD"] = _record(files, f"{name}.dist-info/RECORD")
    return Wheel(installed.version, f"{name}-py3-none-any.whl", _zipped(files), "".join(f"{r}\n" for r in requirements))


def _package_files(package: Path) -> list[tuple[str, bytes]]:
    paths = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return [(path.relative_to(package.parent).as_posix(), path.read_bytes()) for path in sorted(paths)]


def _record(files: dict[str, bytes], own_name: str) -> bytes:
    lines = [f"{name},sha256={_record_digest(content)},{len(content)}\n" for name, content in files.items()]
    return "".join([*lines, f"{own_name},,\n"]).encode()


def _record_digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _FIXED_DATE)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_STORED)  # zlib's output differs between its versions
    return out.getvalue()
