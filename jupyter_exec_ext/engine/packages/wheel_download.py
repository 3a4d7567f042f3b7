"""Download of wheels by the server: a bounded run of pip, which executes nothing of what it downloads.

Only wheels are accepted, so no package is built here. pip verifies the hashes that the index gives. It resolves the
requirements for the kernel's Python. `download_program` is the process in which it runs.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ...errors import Conflict, PackagesNotFound

#: Longest time of a download.
DOWNLOAD_SECONDS = 120.0
MAX_WHEELS = 500
_CHECK_SECONDS = 0.25
_MAX_LOG_BYTES = 64 * 1024
_SHOWN_CHARACTERS = 500
_CREDENTIALS = re.compile(r"//[^/@\s]*@")
_PROGRAM = Path(__file__).with_name("download_program.py")
# pip takes a name with such an end for a file.
_ARCHIVE = re.compile(r"\.(zip|whl|tar|tgz|tbz|txz|tlz|gz|bz2|xz|lz|lzma)\s*$", re.IGNORECASE)
# The server's variables that a download needs: to find Python and pip's configuration, and to reach the index.
_NEEDED = (
    *("PATH", "HOME", "USER", "LANG", "LANGUAGE", "LC_*", "TZ", "LD_LIBRARY_PATH", "XDG_CONFIG_*", "NETRC"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)


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
    if any(map(_ARCHIVE.search, (requirement.name, str(requirement.specifier)))):
        raise PackagesNotFound(f"'packages': {text[:100]!r} is the name of a file; packages come from the index alone")
    return str(requirement)


async def download_wheels(
    python: str, requirements: Sequence[str], directory: Path, wheelhouse: str, *, max_bytes: int
) -> dict[Path, int]:
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

    Returns
    -------
    dict
        The unpacked size of each wheel, in bytes.

    Raises
    ------
    PackagesNotFound
        If pip finds no such wheels, or a bound is reached.
    Conflict
        If the server has no pip.
    """
    wheels, log = directory / "wheels", directory / "log"
    await asyncio.to_thread(wheels.mkdir)
    command = [python, "-I", str(_PROGRAM), pip_directory(), str(directory), str(max_bytes)]
    command += ["--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet", f"--dest={wheels}"]
    command += ["--no-index", f"--find-links={wheelhouse}"] if wheelhouse else []
    # pip downloads into the temporary directory first, so that must count, too.
    environment = {**download_environment(os.environ, wheelhouse), "TMPDIR": str(directory), "PIP_NO_CACHE_DIR": "1"}
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
        errors = await asyncio.to_thread(_errors_in, log)
        for place in filter(None, (str(directory), wheelhouse)):  # paths of this machine are nothing for the caller
            errors = errors.replace(f"{place}/", "").replace(place, "")
        raise PackagesNotFound(f"'packages': pip could not download them: {errors}")
    return await asyncio.to_thread(_list_wheels, directory)


def pip_directory() -> str:
    """Return the directory of the package `pip` of the server's environment.

    Raises
    ------
    Conflict
        If there is none.
    """
    found = importlib.util.find_spec("pip")
    if found is None or not found.submodule_search_locations:
        raise Conflict("the server's environment has no pip; its administrator can run 'python -m ensurepip' there")
    return found.submodule_search_locations[0]


def download_environment(variables: Mapping[str, str], wheelhouse: str) -> dict[str, str]:
    """Return those of the server's variables that its pip may have, without secrets of other things.

    Parameters
    ----------
    variables : mapping of str to str
        All variables of the server.
    wheelhouse : str
        With one, pip's configuration has no effect, so that no other source is used.
    """
    needed = _NEEDED if wheelhouse else (*_NEEDED, "PIP_*")
    found = {name: value for name, value in variables.items() if any(fnmatchcase(name, each) for each in needed)}
    return {**found, "PIP_CONFIG_FILE": os.devnull} if wheelhouse else found


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
    text = _CREDENTIALS.sub("//", " ".join(errors)) or "no reason given; try fewer packages"
    return "".join(character if character.isprintable() else " " for character in text)[:_SHOWN_CHARACTERS]


def _list_wheels(directory: Path) -> dict[Path, int]:
    sizes: dict[str, int] = json.loads((directory / "report").read_text(encoding="utf-8"))
    if len(sizes) > MAX_WHEELS:
        raise PackagesNotFound(f"'packages': they are {len(sizes)} wheels; the limit is {MAX_WHEELS}")
    for name in sizes:
        try:
            parse_wheel_filename(name)
        except InvalidWheelFilename:
            raise PackagesNotFound(f"'packages': {name[:100]!r} is no wheel") from None
    return {directory / "wheels" / name: size_bytes for name, size_bytes in sizes.items()}
