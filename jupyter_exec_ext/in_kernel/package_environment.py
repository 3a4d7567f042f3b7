"""Packages of one session: a virtual environment in the session's directory, above the kernel's own packages.

pip and uv install into it, upgrade in it and uninstall from it, as in any virtual environment. Requirements that the
kernel's own environment meets are not installed again by pip, and nothing is ever written there.

Read by ``protocol/kernel_preparation.py``. A kernel's environment need not have our package, and its Python may be
older.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import site
import subprocess
import sys
import types
import venv
from typing import Any

DIRECTORY = ".exec-packages"
#: Module by which the server's code finds `install`.
MODULE = "jupyter_exec_packages"
_KERNELS_OWN = "_kernel_environment"
# Under Landlock, directories of development installations may not be read, at which pip would fail.
_ADD_KERNELS_OWN = """\
import os, site, sys

for path in {!r}:
    site.addsitedir(path)
for path in list(sys.path):
    try:
        os.scandir(path).close()
    except PermissionError:
        sys.path.remove(path)
    except OSError:
        pass
"""


class PackagesNotInstalled(Exception):
    """pip or uv has failed; its own messages are printed before."""

    # IPython calls a method of this name for the traceback that it shows.
    def _render_traceback_(self) -> list[str]:
        return [f"PackagesNotInstalled: {self}"]


class _Builder(venv.EnvBuilder):
    def setup_scripts(self, context: Any) -> None:
        pass  # a session has no shell in which somebody would activate it


def set_up(session_directory: str, environment: dict[str, str]) -> None:
    """Make the virtual environment, and have this process and its children use it; done twice, it is the same.

    Parameters
    ----------
    session_directory : str
        The session's directory, as the server sees it. In a sandbox, it is the working directory of the start.
    environment : dict
        Variables for pip and uv, such as the index.
    """
    # A kernel from a checkpoint may have changed its directory, and a branch has moved its environment.
    if MODULE not in sys.modules:
        _use_environment(session_directory, environment)


def _use_environment(session_directory: str, environment: dict[str, str]) -> None:
    directory = session_directory if os.path.isdir(session_directory) else os.getcwd()
    home = os.path.join(directory, DIRECTORY)
    _Builder(symlinks=True).create(home)
    packages = os.path.join(home, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    own = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    for suffix, text in ((".py", _ADD_KERNELS_OWN.format(own)), (".pth", f"import {_KERNELS_OWN}\n")):
        with open(os.path.join(packages, _KERNELS_OWN + suffix), "w", encoding="utf-8") as written:
            written.write(text)
    python = os.path.join(home, "bin", "python")
    os.environ.update(
        environment,
        VIRTUAL_ENV=home,
        PATH=os.pathsep.join([os.path.join(home, "bin"), os.environ.get("PATH", os.defpath)]),
        PYTHONPATH=os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")])),
        PIP_PYTHON=python,
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_NO_INPUT="1",
        UV_PYTHON=python,  # `python -m uv` prefers the Python that runs it to the virtual environment
        UV_LINK_MODE="copy",  # its cache may be on another file system, which it would warn of
    )
    _make_importable(packages)

    def install(requirements: list[str], wheels: dict[str, str]) -> None:
        """Install packages from wheels that the server has verified, without a network."""
        # The installation may have waited for long, and the cache has changed meanwhile.
        for path, sha256 in wheels.items():
            _verify(path, sha256)
        _run_installer(python, requirements, list(wheels))
        _make_importable(packages)

    def move(now: str) -> None:
        """Use the copy of this environment in the directory of a branch of this session, instead of this one."""
        _name_new_interpreter(os.path.join(now, DIRECTORY, "bin"), python)
        for name in ("PATH", "PYTHONPATH"):
            kept = [path for path in os.environ[name].split(os.pathsep) if not path.startswith(home)]
            os.environ[name] = os.pathsep.join(kept)
        sys.path[:] = [path for path in sys.path if not path.startswith(home)]
        _use_environment(now, environment)

    module: Any = types.ModuleType(MODULE)
    module.install, module.move = install, move
    sys.modules[MODULE] = module


def _name_new_interpreter(scripts: str, before: str) -> None:
    """Have scripts that were copied from another environment run by the Python beside them."""
    old, new = os.fsencode(before), os.fsencode(os.path.join(scripts, "python"))
    for entry in list(os.scandir(scripts)):
        if entry.is_file(follow_symlinks=False):
            with open(entry.path, "r+b") as script:
                # pip puts a long path into the second line, since the system cuts the first one.
                lines = script.read().split(b"\n", 2)
                if lines[0].startswith(b"#!"):
                    script.seek(0)
                    script.write(b"\n".join([*(line.replace(old, new) for line in lines[:2]), *lines[2:]]))
                    script.truncate()


def _make_importable(packages: str) -> None:
    """Put the session's packages first on the module path, with what their ``.pth`` files add."""
    others = [path for path in sys.path if path != packages]
    sys.path[:] = others
    site.addsitedir(packages)
    added = [path for path in sys.path if path not in others]
    # An empty path stands for the working directory, whose modules come first everywhere.
    start = 1 if others[:1] == [""] else 0
    sys.path[:] = [*others[:start], *added, *others[start:]]
    importlib.invalidate_caches()


def _verify(path: str, sha256: str) -> None:
    name, digest = os.path.basename(path), hashlib.sha256()
    try:
        with open(path, "rb") as opened:
            for part in iter(lambda: opened.read(1024 * 1024), b""):
                digest.update(part)
    except FileNotFoundError:
        raise PackagesNotInstalled(
            f"{name} is no longer in the server's cache; ask for the installation again"
        ) from None
    if digest.hexdigest() != sha256:
        raise PackagesNotInstalled(f"{name} has changed since the server chose it; ask for it again")


def _run_installer(python: str, requirements: list[str], wheels: list[str]) -> None:
    uv = shutil.which("uv")
    if importlib.util.find_spec("pip") is not None:
        command = [python, "-m", "pip", "--isolated", "install", "--no-index", "--no-cache-dir", "--progress-bar=off"]
        command += ["--no-warn-conflicts"]  # the search for them in all packages takes half a second
        command += [f"--find-links={wheel}" for wheel in wheels]
        command += ["--", *requirements]
    elif uv is not None:
        command = [uv, "pip", "install", "--no-config", "--offline", "--no-deps", "--", *wheels]
    else:
        raise PackagesNotInstalled(
            f"the kernel's environment has neither pip nor uv; its administrator can run '{python} -m ensurepip'"
        )
    done = subprocess.run(
        command,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    print(done.stdout.decode("utf-8", "replace"), end="")
    if done.returncode:
        raise PackagesNotInstalled(f"{', '.join(requirements)}: the installer has ended with {done.returncode}")
