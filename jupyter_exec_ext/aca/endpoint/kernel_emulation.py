"""What makes a Python kernel look like one of an ACA session pool. Runs in the kernel, in a namespace of its own.

Programs written for such pools count on two things: that ``/mnt/data`` is where their files are, and that
``pkg_resources`` tells what is installed. In a sandbox the directory is really there. In other kernels it cannot be,
and so what Python offers for files takes such paths for those of the session's directory. Other programs that code
starts, and libraries that open files themselves, do not know of it.
"""

from __future__ import annotations

import builtins
import functools
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

DATA = "/mnt/data"
ONE_PATH = (
    *("access", "chdir", "chmod", "chown", "getxattr", "lchown", "listdir", "listxattr", "lstat", "mkdir", "mkfifo"),
    *("mknod", "open", "pathconf", "readlink", "remove", "removexattr", "rmdir", "scandir", "setxattr", "stat"),
    *("statvfs", "truncate", "unlink", "utime"),
)
TWO_PATHS = ("link", "rename", "replace", "symlink")
NAMES_OF_PATHS = ("path", "src", "dst")


def is_data(path: Any) -> bool:
    """Whether a path leads to the data directory or below it."""
    return isinstance(path, str) and (path == DATA or path.startswith(f"{DATA}/"))


def translating(function: Callable[..., Any], directory: str, paths: int) -> Callable[..., Any]:
    """Return a function whose first arguments may be paths below the data directory."""

    def real(path: Any) -> Any:
        named = path.__fspath__() if isinstance(path, os.PathLike) else path
        text = os.fsdecode(named) if isinstance(named, bytes) else named
        if not is_data(text):
            return path
        found = directory + text[len(DATA) :]
        return os.fsencode(found) if isinstance(named, bytes) else found

    @functools.wraps(function)
    def translated(*args: Any, **kwargs: Any) -> Any:
        for name in NAMES_OF_PATHS:
            if name in kwargs:
                kwargs[name] = real(kwargs[name])
        return function(*map(real, args[:paths]), *args[paths:], **kwargs)

    return translated


def translate_paths(directory: str) -> None:
    """Make Python take paths below the data directory for those of `directory`."""
    replaced = {}
    for count, names in ((1, ONE_PATH), (2, TWO_PATHS)):
        for name in names:
            if hasattr(os, name):
                replaced[getattr(os, name)] = translating(getattr(os, name), directory, count)
                setattr(os, name, replaced[getattr(os, name)])
    replaced[io.open] = builtins.open = io.open = translating(io.open, directory, 1)
    for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        supported.update(replaced[function] for function in list(supported) if function in replaced)
    # These have the functions themselves: IPython's own `open`, and pathlib's before Python 3.11.
    shell = sys.modules.get("IPython.core.interactiveshell")
    for holder in (shell, getattr(pathlib, "_NormalAccessor", None)):
        for name, value in list(vars(holder).items()) if holder is not None else []:
            plain = value.__func__ if isinstance(value, staticmethod) else value
            if callable(plain) and plain in replaced:
                new = replaced[plain]
                setattr(holder, name, staticmethod(new) if isinstance(holder, type) else new)


class Distribution:
    """What is told of an installed package."""

    def __init__(self, found: importlib.metadata.Distribution) -> None:
        self.project_name = found.metadata["Name"]
        self.key = self.project_name.lower()
        self.version = found.version

    def __repr__(self) -> str:
        return f"{self.project_name} {self.version}"


class WorkingSet:
    """The installed packages, as they are when they are asked for."""

    def __iter__(self) -> Iterator[Distribution]:
        """Yield each package once: the one that an import would find."""
        found = [Distribution(one) for one in importlib.metadata.distributions() if one.metadata["Name"]]
        return iter({one.key: one for one in reversed(found)}.values())


class PackageResources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Offers ``pkg_resources`` where setuptools, which had it up to version 81, does not."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the specification of this one module."""
        if fullname != "pkg_resources":
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module."""
        module.working_set = WorkingSet()  # type: ignore[attr-defined]  # what makes it the module


def set_up() -> None:
    """Set up this process; what goes wrong must not keep the kernel from running code."""
    directory = os.getcwd()
    if not (os.path.isdir(DATA) and os.path.samefile(DATA, directory)):
        translate_paths(directory)
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    sys.meta_path.append(PackageResources())  # the last to be asked
