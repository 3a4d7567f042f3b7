"""Files that an isolated kernel sees: derived from its command, and checked against directories with secrets."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jupyter_core.paths import jupyter_config_path, jupyter_data_dir, jupyter_runtime_dir

from ...system.protected_paths import protected_directories, protected_files
from .launch_request import View

# Programs and libraries of the system. A link outside (/bin -> usr/bin) is a link inside.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# Files of /etc that programs need to find libraries, time, names and certificates. Others hold secrets.
_ETC = (
    *("debian_version", "os-release"),  # pip fails if it may not read them
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "locale.alias"),
    *("nsswitch.conf", "protocols", "services", "host.conf", "mime.types", "magic", "fonts", "papersize"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust", "ca-certificates", "crypto-policies"),
    *("R", "julia", "java-17-openjdk", "java-21-openjdk", "matplotlibrc", "ImageMagick-6", "ImageMagick-7"),
)


class VisibleFilesError(ValueError):
    """A directory or device that a kernel cannot be given."""


def view_of(
    command: Sequence[str],
    work_directory: str,
    *,
    resource_directory: str,
    read_only: Iterable[str] = (),
    writable: Iterable[str] = (),
    also_hidden: Iterable[str] = (),
) -> View:
    """Return the view of a kernel that `command` starts.

    Parameters
    ----------
    command : sequence of str
        Its first item is the program; the kernel sees the program's installation.
    work_directory : str
        Working directory of the kernel.
    resource_directory : str
        Directory of the kernelspec, which may hold scripts for the command.
    read_only, writable : iterable of str
        Further directories and files, under their paths outside.
    also_hidden : iterable of str
        Further directories that the kernel must not see, beside Jupyter's own.

    Raises
    ------
    VisibleFilesError
        If a directory is too large to be seen or written, or holds secrets.
    FileNotFoundError
        If the program does not exist.
    """
    to_hide = [*hidden_directories(), *(os.path.realpath(path) for path in also_hidden)]
    installation = list(_installation(command[0]))
    for path in installation:
        if not _in_system(path):
            remedy = "install the kernel's program in a directory of its own"
            _refuse_directory_with_secrets(path, to_hide, "to be seen", remedy, hides_settings=True)
    # Real paths are compared, so that a link leads around no check.
    work = os.path.realpath(work_directory)
    to_keep = [*to_hide, *protected_files()]
    _refuse_directory_with_secrets(
        work, to_keep, "as a working directory", "start it in a directory below, or set 'working_directory'"
    )
    _refuse_part_of(work, [*_SYSTEM, *installation])
    remedy = "name the directories below that are needed"
    more, written = ([os.path.expanduser(path) for path in paths] for paths in (read_only, writable))
    for path in more:
        _refuse_directory_with_secrets(path, to_hide, "to be seen", remedy, hides_settings=True)
    for path in written:
        _refuse_directory_with_secrets(path, to_keep, "to be written", remedy)
    if resource_directory and os.path.isdir(resource_directory):
        more.append(os.path.realpath(resource_directory))
    seen = _drop_nested([*_system(), *installation, *more])
    # An installation may lie in another visible directory.
    settings = (os.path.realpath(_settings_of(path)) for path in (*installation, *more))
    hidden = list(dict.fromkeys(_hidden(seen, [*to_hide, *filter(os.path.isdir, settings)])))
    return View(
        read_only=seen,
        links=dict(_system_links()),
        hidden=hidden,
        work_directory=work,
        read_only_inside_work=list(_relative_paths(seen, work)),
        hidden_inside_work=list(_relative_paths(hidden, work)),
        writable={path: path for path in written},
    )


def _relative_paths(paths: Iterable[str], directory: str) -> Iterator[str]:
    """Yield the paths that lie in a directory, relative to it."""
    for path in map(os.path.realpath, paths):
        if is_below(path, directory):
            yield os.path.relpath(path, directory)


def _hidden(seen: Iterable[str], to_hide: Sequence[str]) -> Iterator[str]:
    """Yield the directories with secrets below the visible ones."""
    for path in seen:
        settings = _settings_of(path)
        if os.path.isdir(settings):
            yield settings
        real = os.path.realpath(path)
        for place in _relative_paths(to_hide, real):
            if (hidden := os.path.join(path, place)) != settings:
                yield hidden


def hidden_directories() -> list[str]:
    """Return the existing directories in which Jupyter and this server keep tokens, keys and passwords."""
    places = [jupyter_runtime_dir(), *jupyter_config_path(), os.path.join(jupyter_data_dir(), "jupyter_exec_ext")]
    found = [path for path in map(os.path.realpath, dict.fromkeys(places)) if os.path.isdir(path)]
    return list(dict.fromkeys([*found, *protected_directories()]))


def _refuse_directory_with_secrets(
    path: str, to_hide: Sequence[str], what: str, remedy: str, *, hides_settings: bool = False
) -> None:
    """Refuse a directory that contains a home, a system directory or secrets.

    An installation contains its Jupyter settings. It is not refused for them where they are hidden (`_hidden`).
    """
    real = os.path.realpath(path)
    homes = [os.path.realpath(os.path.expanduser("~")), os.path.realpath(jupyter_data_dir())]
    for other in [*homes, *to_hide, "/usr", "/etc", "/proc", "/dev", "/sys"]:
        if is_below(other, real) and not (hides_settings and other == _settings_of(real)):
            raise VisibleFilesError(f"{path} is too much {what} for a sandboxed kernel: it holds {other}; {remedy}")


def _settings_of(installation: str) -> str:
    """Return the directory of an installation's Jupyter settings.

    It may hold password hashes and tokens, also of servers in other installations than this one's.
    """
    return os.path.join(installation, "etc", "jupyter")


def _refuse_part_of(work: str, installations: Iterable[str]) -> None:
    for path in map(os.path.realpath, installations):
        if is_below(work, path):
            raise VisibleFilesError(
                f"{work} is part of what a sandboxed kernel must not change ({path}); start it elsewhere, or set "
                "'working_directory'"
            )


def is_below(path: str, directory: str) -> bool:
    """Return whether a real path is a directory or lies in it."""
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
    """Return a program's path without ``..``, since the directories on such a path do not exist inside.

    The program itself is not resolved: that of a virtual environment is a link, whose path names the environment.
    """
    found = shutil.which(program)
    if found is None or (os.path.normpath(found) == found and os.path.isabs(found)):
        return program
    directory, name = os.path.split(found)
    return os.path.join(os.path.realpath(directory), name)


def _installation(program: str) -> Iterator[str]:
    """Yield the directories of a program's installation."""
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"the kernel's program {program!r} is not there")
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        yield from (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    # The link lies in the virtual environment, its target in the installation that this is based on.
    for path in dict.fromkeys((os.path.abspath(found), os.path.realpath(found))):
        programs = Path(path).parent
        if not _in_system(str(programs)):  # a program in /bin has no installation in /
            yield str(programs.parent)
        yield from _base_of(programs.parent)


def _base_of(prefix: Path) -> Iterator[str]:
    """Yield the installation on which a Python virtual environment is based."""
    config = prefix / "pyvenv.cfg"
    if config.is_file():
        for line in config.read_text(errors="replace").splitlines():
            name, _, value = line.partition("=")
            programs = value.strip()
            if name.strip() == "home" and not _in_system(programs):
                yield str(Path(programs).parent)


def _in_system(path: str) -> bool:
    return any(is_below(os.path.realpath(path), os.path.realpath(system)) for system in _SYSTEM)


def _drop_nested(paths: Iterable[str]) -> list[str]:
    """Return paths without those that lie below another one."""
    kept: list[str] = []
    # The shortest first: a directory comes before everything that lies in it.
    for path in sorted(dict.fromkeys(os.path.abspath(path) for path in paths), key=len):
        if not any(is_below(path, other) for other in kept):
            kept.append(path)
    return kept
