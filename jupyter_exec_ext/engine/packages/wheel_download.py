"""Download of wheels by the server: a bounded run of pip, which executes nothing of what it downloads.

Only wheels are accepted, so no package is built here. pip verifies the hashes that the index gives. It resolves the
requirements for the kernel's Python.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ...errors import PackagesNotFound

#: Longest time of a download.
DOWNLOAD_SECONDS = 120.0
MAX_WHEELS = 500
_CHECK_SECONDS = 0.25
_MAX_LOG_BYTES = 64 * 1024
_SHOWN_CHARACTERS = 500
_CREDENTIALS = re.compile(r"//[^/@\s]*@")


def parse_requirements(texts: Sequence[str]) -> list[str]:
    """Return requirements in a uniform spelling.

    Raises
    ------
    PackagesNotFound
        If one is not a name with versions, extras and markers: addresses, paths and options are refused.
    """
    return [_parse_requirement(text) for text in texts]


def _parse_requirement(text: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise PackagesNotFound(
            f"'packages': {text[:100]!r} is no requirement such as 'pandas' or 'pandas==2.2'; options, files and "
            "paths are not possible"
        ) from None
    if requirement.url is not None:
        raise PackagesNotFound(f"'packages': {requirement.name!r} has an address; packages come from the index alone")
    return str(requirement)


async def download_wheels(
    python: str, requirements: Sequence[str], directory: Path, wheelhouse: str, *, max_bytes: int
) -> list[Path]:
    """Download wheels for requirements and all that they need.

    Parameters
    ----------
    python : str
        Python of the kernel's environment.
    requirements : sequence of str
        From `parse_requirements`.
    directory : Path
        Empty directory, which the caller removes afterwards.
    wheelhouse : str
        Directory of wheels to use instead of the index; empty for the index.
    max_bytes : int
        Limit on the size of all wheels together.

    Raises
    ------
    PackagesNotFound
        If pip finds no such wheels, or a bound is reached.
    """
    wheels, log = directory / "wheels", directory / "log"
    await asyncio.to_thread(wheels.mkdir)
    command = [sys.executable, "-m", "pip", *([] if python == sys.executable else ["--python", python]), "download"]
    command += ["--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet", f"--dest={wheels}"]
    command += ["--no-index", f"--find-links={wheelhouse}"] if wheelhouse else []
    # pip downloads into the temporary directory first, so that must count, too.
    environment = {**os.environ, "TMPDIR": str(directory), "PIP_NO_CACHE_DIR": "1"}
    with await asyncio.to_thread(open, log, "wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--",
            *requirements,
            env=environment,
            cwd=directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,  # a group of its own, to be killed with its children
        )
    try:
        code = await _bounded_end(process, directory, max_bytes)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if code != 0:
        raise PackagesNotFound(f"'packages': pip could not download them: {await asyncio.to_thread(_errors_in, log)}")
    return await asyncio.to_thread(_list_wheels, wheels)


async def _bounded_end(process: asyncio.subprocess.Process, directory: Path, max_bytes: int) -> int:
    """Wait for the end of pip, and return its exit code; raise `PackagesNotFound` if it reaches a bound."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + DOWNLOAD_SECONDS
    end = loop.create_task(process.wait())
    while not (await asyncio.wait({end}, timeout=_CHECK_SECONDS))[0]:
        if loop.time() > give_up_at:
            raise PackagesNotFound(f"'packages': their download took more than {DOWNLOAD_SECONDS:g} s; ask for fewer")
        if await asyncio.to_thread(_tree_bytes, directory) > max_bytes:
            raise PackagesNotFound(f"'packages': they have more than {max_bytes} bytes (package_cache_bytes)")
    return end.result()


def _tree_bytes(directory: Path) -> int:
    total = 0
    for path, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # pip has moved it meanwhile
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def _errors_in(log: Path) -> str:
    with open(log, "rb") as written:
        lines = written.read(_MAX_LOG_BYTES).decode("utf-8", "replace").splitlines()
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-3:]
    text = _CREDENTIALS.sub("//", " ".join(errors)) or "it did not say why"
    return "".join(character if character.isprintable() else " " for character in text)[:_SHOWN_CHARACTERS]


def _list_wheels(directory: Path) -> list[Path]:
    found = sorted(directory.iterdir())
    if len(found) > MAX_WHEELS:
        raise PackagesNotFound(f"'packages': they are {len(found)} wheels; the limit is {MAX_WHEELS}")
    for path in found:
        try:
            parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            raise PackagesNotFound(f"'packages': {path.name[:100]!r} is no wheel") from None
    return found
