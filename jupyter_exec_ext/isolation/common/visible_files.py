"""What a kernel has to see in order to run, worked out from its command; and what must never be seen."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jupyter_core.paths import jupyter_config_path, jupyter_data_dir, jupyter_runtime_dir

from .launch_request import View

# Programs and libraries of the system. What is a link outside (/bin -> usr/bin) is one inside.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# Of /etc only what programs need to find libraries, time, names and certificates: other files there hold secrets.
_ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "locale.alias"),
    *("nsswitch.conf", "protocols", "services", "host.conf", "mime.types", "magic", "fonts", "papersize"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust", "ca-certificates", "crypto-policies"),
    *("R", "julia", "java-17-openjdk", "java-21-openjdk", "matplotlibrc", "ImageMagick-6", "ImageMagick-7"),
)


class TooMuchToSeeError(ValueError):
    """A kernel would see, or be able to write, what it must not."""


def view_of(
    command: Sequence[str],
    work_directory: str,
    *,
    resource_directory: str,
    read_only: Iterable[str] = (),
    writable: Iterable[str] = (),
    secret: Iterable[str] = (),
) -> View:
    """Return what a kernel sees that is started by `command`.

    Parameters
    ----------
    command : sequence of str
        The first is the program; the installation that it belongs to is seen.
    resource_directory : str
        The kernelspec's; it may hold scripts that the command names.
    read_only, writable : iterable of str
        Further directories and files, under the paths that they have outside.
    secret : iterable of str
        Directories that must not be seen, beside Jupyter's own.

    Raises
    ------
    TooMuchToSeeError
    FileNotFoundError
        If there is no such program.
    """
    secrets = [*secret_directories(), *(os.path.realpath(path) for path in secret)]
    installation = list(_installation(command[0]))
    for path in installation:
        if not _in_system(path):
            _refuse_too_much(path, secrets, "to be seen", "install the kernel's program in a directory of its own")
    work = os.path.realpath(work_directory)
    _refuse_too_much(
        work, secrets, "as a working directory", "start it in a directory below, or set 'working_directory'"
    )
    _refuse_part_of(work, [*_SYSTEM, *installation])
    remedy = "name the directories below that are needed"
    more, written = ([os.path.expanduser(path) for path in paths] for paths in (read_only, writable))
    for path in more:
        _refuse_too_much(path, secrets, "to be seen", remedy)
    for path in written:
        _refuse_too_much(path, secrets, "to be written", remedy)
    if resource_directory and os.path.isdir(resource_directory):
        more.append(os.path.realpath(resource_directory))
    seen = _without_doubles([*_system(), *installation, *more])
    return View(
        read_only=seen,
        links=dict(_system_links()),
        hidden=list(_hidden(seen, secrets)),
        work_directory=work,
        read_only_inside_work=list(_places(seen, work)),
        writable={path: path for path in written},
    )


def _places(paths: Iterable[str], directory: str) -> Iterator[str]:
    """Yield where in a directory those paths are that lie in it, relative to it."""
    for path in map(os.path.realpath, paths):
        if _is_below(path, directory):
            yield os.path.relpath(path, directory)


def _hidden(seen: Iterable[str], secrets: Sequence[str]) -> Iterator[str]:
    """Yield the places of directories with secrets below those that are seen."""
    for path in seen:
        settings = os.path.join(path, "etc", "jupyter")
        if os.path.isdir(settings):
            yield settings
        real = os.path.realpath(path)
        for place in _places(secrets, real):
            if (hidden := os.path.join(path, place)) != settings:
                yield hidden


def secret_directories() -> list[str]:
    """Return the directories that exist in which Jupyter keeps tokens, keys and passwords."""
    places = [jupyter_runtime_dir(), *jupyter_config_path(), os.path.join(jupyter_data_dir(), "jupyter_exec_ext")]
    return [path for path in map(os.path.realpath, dict.fromkeys(places)) if os.path.isdir(path)]


def _refuse_too_much(path: str, secrets: Sequence[str], what: str, remedy: str) -> None:
    """Refuse a directory that has more in it than anybody can have meant."""
    real = os.path.realpath(path)
    homes = [os.path.realpath(os.path.expanduser("~")), os.path.realpath(jupyter_data_dir())]
    for other in [*homes, *secrets, "/usr", "/etc", "/proc", "/dev", "/sys"]:
        if _is_below(other, real) and not _is_settings_of(other, real):
            raise TooMuchToSeeError(f"{path} is too much {what} for a sandboxed kernel: it holds {other}; {remedy}")


def _is_settings_of(path: str, installation: str) -> bool:
    """Whether a directory holds the Jupyter settings of an installation: those are hidden, the rest may be seen."""
    return path == os.path.join(installation, "etc", "jupyter")


def _refuse_part_of(work: str, installations: Iterable[str]) -> None:
    for path in map(os.path.realpath, installations):
        if _is_below(work, path):
            raise TooMuchToSeeError(
                f"{work} is part of what a sandboxed kernel must not change ({path}); start it elsewhere, or set "
                "'working_directory'"
            )


def _is_below(path: str, directory: str) -> bool:
    """Whether a real path lies in a directory, or is it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _system() -> Iterator[str]:
    for path in _SYSTEM:
        if os.path.isdir(path) and not os.path.islink(path):
            yield path
    for name in _ETC:
        if os.path.exists(f"/etc/{name}"):
            yield f"/etc/{name}"


def _system_links() -> Iterator[tuple[str, str]]:
    for path in _SYSTEM:
        if os.path.islink(path):
            yield path, os.readlink(path)


def resolve_program(program: str) -> str:
    """Return a program's path without ``..``: inside, the directories that such a path leads through are not there.

    The program itself is not resolved. A virtual environment's is a link, and its place says which environment it is.
    """
    found = shutil.which(program)
    if found is None or (os.path.normpath(found) == found and os.path.isabs(found)):
        return program
    directory, name = os.path.split(found)
    return os.path.join(os.path.realpath(directory), name)


def _installation(program: str) -> Iterator[str]:
    """Yield the directories of the installation that a program belongs to."""
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"the kernel's program {program!r} is not there")
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        yield from (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    for path in dict.fromkeys((os.path.abspath(found), os.path.realpath(found))):
        programs = Path(path).parent
        if not _in_system(str(programs)):  # what is in /bin belongs to no installation in /
            yield str(programs.parent)
        yield from _base_of(programs.parent)


def _base_of(prefix: Path) -> Iterator[str]:
    """Yield what a virtual environment of Python is built upon."""
    config = prefix / "pyvenv.cfg"
    if config.is_file():
        for line in config.read_text(errors="replace").splitlines():
            name, _, value = line.partition("=")
            programs = value.strip()
            if name.strip() == "home" and not _in_system(programs):
                yield str(Path(programs).parent)


def _in_system(path: str) -> bool:
    return any(_is_below(os.path.realpath(path), os.path.realpath(system)) for system in _SYSTEM)


def _without_doubles(paths: Iterable[str]) -> list[str]:
    """Return paths without those that lie in another one of them."""
    kept: list[str] = []
    for path in sorted(dict.fromkeys(os.path.abspath(path) for path in paths), key=len):
        if not any(_is_below(path, other) for other in kept):
            kept.append(path)
    return kept
