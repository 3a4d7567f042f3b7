"""Emulation of an ACA session in a Python kernel: ``/mnt/data`` and ``pkg_resources``. Runs in the kernel.

Programs for session pools expect their files in ``/mnt/data``, and the list of packages in ``pkg_resources``. In a
sandbox the directory exists. In other kernels Python's own file functions translate such paths to the session's
directory. Programs that the code starts, and libraries that open files by themselves, do not translate them.
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
    """Return whether a path is the data directory or below it."""
    return isinstance(path, str) and (path == DATA or path.startswith(f"{DATA}/"))


def wrap_path_function(function: Callable[..., Any], directory: str, paths: int) -> Callable[..., Any]:
    """Return a function that translates paths below the data directory in its first arguments."""

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
    """Translate paths below the data directory to `directory` in Python's file functions."""
    replaced = {}
    for count, names in ((1, ONE_PATH), (2, TWO_PATHS)):
        for name in names:
            if hasattr(os, name):  # macOS has no `getxattr`, for one
                replaced[getattr(os, name)] = wrap_path_function(getattr(os, name), directory, count)
                setattr(os, name, replaced[getattr(os, name)])
    # `builtins.open` and `io.open` are one function, and `pathlib` uses the second name.
    replaced[io.open] = builtins.open = io.open = wrap_path_function(io.open, directory, 1)
    for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        # `shutil` looks for the functions themselves in these sets.
        supported.update(replaced[function] for function in list(supported) if function in replaced)
    # Two modules hold references to the functions: IPython, and pathlib before Python 3.11.
    shell = sys.modules.get("IPython.core.interactiveshell")
    for holder in (shell, getattr(pathlib, "_NormalAccessor", None)):
        for name, value in list(vars(holder).items()) if holder is not None else []:
            plain = value.__func__ if isinstance(value, staticmethod) else value
            if callable(plain) and plain in replaced:
                new = replaced[plain]
                # In a class, a Python function becomes a method. The built-in one before it did not.
                setattr(holder, name, staticmethod(new) if isinstance(holder, type) else new)


class Distribution:
    """Name and version of an installed package."""

    def __init__(self, found: importlib.metadata.Distribution) -> None:
        self.project_name = found.metadata["Name"]
        self.key = self.project_name.lower()
        self.version = found.version

    def __repr__(self) -> str:
        return f"{self.project_name} {self.version}"


class WorkingSet:
    """The packages that are installed at the time of iteration."""

    def __iter__(self) -> Iterator[Distribution]:
        """Yield each package once, in the version that an import would find."""
        # A broken installation can have metadata without a name.
        found = [Distribution(one) for one in importlib.metadata.distributions() if one.metadata["Name"]]
        return iter({one.key: one for one in reversed(found)}.values())


class PackageResources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of a replacement for ``pkg_resources``, which setuptools has only up to version 81."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the specification of this one module."""
        if fullname != "pkg_resources":
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module."""
        vars(module)["working_set"] = WorkingSet()


def set_up() -> None:
    """Set up this process."""
    directory = os.getcwd()
    if not (os.path.isdir(DATA) and os.path.samefile(DATA, directory)):
        translate_paths(directory)
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    sys.meta_path.append(PackageResources())  # last, so that a real pkg_resources is found first
