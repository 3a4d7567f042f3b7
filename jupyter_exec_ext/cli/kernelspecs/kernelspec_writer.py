"""Writer of kernelspecs for isolated kernels, forked kernels, and sessions on Azure."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager

from ...aca.protocol.addresses import check_endpoint, check_host, family_of
from ...aca.provisioner.credential_sources import AZURE, check_source, file_of, variable_of
from ...errors import InvalidRequest
from ...forkserver.forkable_command import NotForkableError, parsed
from ...isolation.common.isolation_support import IsolationUnavailableError
from ...isolation.common.launch_request import View
from ...isolation.common.leftovers import base_directory
from ...isolation.common.visible_files import VisibleFilesError, view_of
from ..messages import UsageError, error_text
from .local_kernels import PLAIN, PROVISIONERS, LocalKernel, installed, join_names, provisioner_class

# Choices of a working directory beside a path.
_WORKING_DIRECTORIES = ("launched", "private")

_PROVISIONER_NAMES = {**PROVISIONERS, "fork": "forkserver-provisioner", "aca": "aca-provisioner"}
_ADJECTIVES = {"sandbox": "sandboxed", "landlock": "Landlock", "fork": "forked"}
_ACA_DOCUMENT: dict[str, Any] = {
    "argv": [],  # a session on Azure has no process here
    "display_name": "Python (Azure Container Apps)",
    "language": "python",
    # There is no process here that a signal could reach.
    "interrupt_mode": "message",
    # jupyter_client encrypts the channels of a kernel only if its kernelspec says so.
    "metadata": {"supported_encryption": "curve"},
}
_NAME = re.compile(r"[a-z0-9_][a-z0-9._-]*")  # Jupyter's own rule, without ".." and names that look like an option
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_PLACEHOLDER = re.compile(r"\{(resource_dir|prefix)\}")
# Jupyter replaces a bare one of these by the Python that it runs in.
_THIS_PYTHON = ("python", f"python{sys.version_info[0]}", "python{}.{}".format(*sys.version_info))


@dataclass(frozen=True, slots=True)
class WantedKernelspec:
    """A kernelspec to be written.

    Parameters
    ----------
    level : str
        ``sandbox``, ``landlock``, ``fork`` or ``aca``.
    config : mapping
        Configuration of the provisioner; its own defaults hold for the rest.
    origin : str
        The installed kernelspec to make it like; not for ``aca``.
    name, display_name : str
        Empty for the default names.
    prefix : str or None
        The installation that it becomes a part of; None for the user's own kernelspecs.
    is_replacing : bool
        Whether a kernelspec of the same name may be overwritten.
    """

    level: str
    config: Mapping[str, Any]
    origin: str
    name: str
    display_name: str
    prefix: str | None
    is_replacing: bool


@dataclass(frozen=True, slots=True)
class WrittenKernelspec:
    """A kernelspec that was written, with a sentence for each reason why it may not work as it is."""

    name: str
    display_name: str
    directory: str
    warnings: Sequence[str]


def write_kernelspec(wanted: WantedKernelspec) -> WrittenKernelspec:
    """Write a kernelspec, after all that can be checked without starting a kernel.

    Raises
    ------
    UsageError
        If a check fails, before anything is written, or if the kernelspec cannot be written.
    """
    provisioner_name = _PROVISIONER_NAMES[wanted.level]
    provisioner = provisioner_class(provisioner_name)
    if provisioner is None:
        raise UsageError(
            f"the provisioner {provisioner_name!r} is not installed here, so Jupyter could not start such kernels; "
            "install jupyter_exec_ext again"
        )
    manager = KernelSpecManager()
    kernels = installed(manager)
    kernel = None if wanted.level == "aca" else _find_origin(wanted, kernels)
    name = _checked_name(wanted.name or (f"{kernel.name}-{wanted.level}" if kernel is not None else "aca"))
    place = _Place(manager, name, wanted.prefix)
    # `install_kernel_spec` replaces an existing kernelspec without asking.
    if not wanted.is_replacing:
        place.require_free(kernels)
    config = dict(wanted.config)
    if kernel is None:
        config["endpoint"] = _check_pool(config)
        warnings = list(_find_token_doubts(config))
        document, display_name = dict(_ACA_DOCUMENT), _ACA_DOCUMENT["display_name"]
    else:
        warnings = list(_check_fork(kernel, wanted.config) if wanted.level == "fork" else _check_view(kernel, wanted))
        document = _document_like(kernel)
        display_name = f"{document.get('display_name') or kernel.name} ({_ADJECTIVES[wanted.level]})"
    stanza = {"provisioner_name": provisioner_name, "config": config}
    document["display_name"] = wanted.display_name or display_name
    document["metadata"] = {**(document.get("metadata") or {}), "kernel_provisioner": stanza}
    _install(place, kernel, document)
    # After the installation, since Jupyter is asked which kernelspec of this name it finds.
    warnings += place.find_doubts()
    problem = None if kernel is None else provisioner.unavailable()
    if problem is not None:
        outcome = "be started as usual" if wanted.level == "fork" else "not start"
        warnings.append(f"as this machine is, the kernel will {outcome}: {problem}")
    return WrittenKernelspec(name, document["display_name"], str(place.destination), warnings)


def _checked_name(name: str) -> str:
    """Return a kernelspec's name in lower case, as Jupyter reads it; raise `UsageError` for an invalid one."""
    name = name.lower()
    if not _NAME.fullmatch(name):
        raise UsageError(f"--name {name!r} cannot be used: use letters, digits, . _ -, and begin with none of . -")
    return name


def _find_origin(wanted: WantedKernelspec, kernels: Sequence[LocalKernel]) -> LocalKernel:
    """Return the kernelspec that a new one is made like; raise `UsageError` if it cannot be used."""
    usable = join_names([kernel for kernel in kernels if kernel.spec is not None and kernel.provisioner == PLAIN])
    kernel = next((kernel for kernel in kernels if kernel.name == wanted.origin.lower()), None)
    if kernel is None:
        raise UsageError(f"no kernelspec {wanted.origin!r} is installed here; --from can be: {usable}")
    if kernel.spec is None:
        raise UsageError(f"the kernelspec in {kernel.directory} cannot be read: {kernel.problem}")
    if kernel.provisioner in PROVISIONERS.values():
        raise UsageError(
            f"the kernelspec {kernel.name!r} is one with isolation already ({kernel.provisioner}); --from can be: "
            f"{usable}"
        )
    if kernel.provisioner != PLAIN:
        raise UsageError(
            f"the kernels of {kernel.name!r} are started by {kernel.provisioner!r}, and only those that this machine "
            f"starts itself can be {'forked' if wanted.level == 'fork' else 'isolated'} here; --from can be: {usable}"
        )
    if not kernel.spec.argv:
        raise UsageError(f"the kernelspec in {kernel.directory} names no command ('argv'); correct it")
    return kernel


def _check_fork(kernel: LocalKernel, config: Mapping[str, Any]) -> Sequence[str]:
    """Raise `UsageError` if kernels cannot be forked like this; there are no warnings."""
    for module in config.get("preload", ()):
        if not _MODULE.fullmatch(module):
            raise UsageError(f"--preload {module!r} cannot be used: it takes names of modules, such as numpy")
    try:
        parsed([part.replace("{connection_file}", "kernel.json") for part in _command_of(kernel)])
    except NotForkableError as error:
        raise UsageError(f"the kernels of {kernel.name!r} cannot be forked: {error}") from error
    return ()


def _check_view(kernel: LocalKernel, wanted: WantedKernelspec) -> Iterator[str]:
    """Yield warnings about files that an isolated kernel would not see; raise `UsageError` if it would see too much."""
    config, command = wanted.config, _command_of(kernel)
    chosen = config.get("working_directory", _WORKING_DIRECTORIES[0])
    try:
        # The directory that a kernel is launched in is not known yet, so an empty one stands for it.
        with tempfile.TemporaryDirectory() as empty:
            view = view_of(
                command,
                empty if chosen in _WORKING_DIRECTORIES else chosen,
                resource_directory=kernel.directory,
                read_only=config.get("read_only", ()),
                writable=config.get("writable", ()),
                also_hidden=[str(base_directory())] if sys.platform.startswith("linux") else [],
            )
    except (IsolationUnavailableError, VisibleFilesError) as error:
        raise UsageError(str(error)) from error
    except FileNotFoundError as error:
        raise UsageError(f"{error_text(error)}; install it, or correct the kernelspec in {kernel.directory}") from error
    for argument in _find_unseen(command[1:], view):
        yield (
            f"the kernel will not see {argument}, which its command names; if it needs that, repeat this with "
            f"--replace --read-only {argument}, or the directory that it is in"
        )
    if config.get("network") == "host":
        yield (
            "with --network host it starts only where the configuration of the Jupyter application sets "
            "SandboxProvisioner.allow_host_network, and it counts as a kernel without isolation: it reaches the server "
            "itself"
        )


def _find_unseen(arguments: Sequence[str], view: View) -> Iterator[str]:
    """Yield the existing files that arguments name and that a view does not contain."""
    # Resolved on both sides, since either path may lead through symbolic links.
    seen = [os.path.realpath(path) for path in (*view.read_only, *view.writable.values())]
    for argument in arguments:
        if os.path.isabs(argument) and os.path.exists(argument):
            real = Path(os.path.realpath(argument))
            if not any(real.is_relative_to(path) for path in seen):
                yield argument


def _check_pool(config: Mapping[str, Any]) -> str:
    """Return a pool's endpoint in its usual form; raise `UsageError` for a pool that can never work."""
    try:
        family_of(config["api_version"])
        check_source(config["credential"])
        return check_endpoint(config["endpoint"])
    except InvalidRequest as error:
        raise UsageError(str(error)) from error


def _find_token_doubts(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield reasons why a pool may get no access token."""
    endpoint, credential = config["endpoint"], config["credential"]
    try:
        check_host(endpoint)
    except InvalidRequest as error:
        yield f"{error}; the Jupyter application must allow it: ACAProvisioner.allowed_hosts"
    if credential == AZURE and not _has_azure_identity():
        yield "the credential 'azure' needs azure-identity where Jupyter runs: pip install 'jupyter_exec_ext[azure]'"
    file, variable = file_of(credential), variable_of(credential)
    if file is not None and not os.access(file, os.R_OK):
        yield f"there is no file {file} to be read here; the Jupyter application must find its token there"
    if variable is not None and not os.environ.get(variable):
        yield f"the variable {variable} is not set here; the Jupyter application must have it in its environment"


def _has_azure_identity() -> bool:
    try:
        return find_spec("azure.identity") is not None
    except ModuleNotFoundError:  # not even the package `azure` is there
        return False


def _command_of(kernel: LocalKernel) -> list[str]:
    """Return the command of a kernel as Jupyter would run it, but for the connection file."""
    assert kernel.spec is not None
    places = {"resource_dir": kernel.directory, "prefix": sys.prefix}
    command = [_PLACEHOLDER.sub(lambda match: places[match[1]], argument) for argument in kernel.spec.argv]
    return [sys.executable if command[0] in _THIS_PYTHON else command[0], *command[1:]]


def _document_like(kernel: LocalKernel) -> dict[str, Any]:
    """Return the ``kernel.json`` of a kernelspec, for a copy of its directory."""
    assert kernel.spec is not None
    # Files of the original's directory are copied, and an isolated kernel sees only the copy.
    argv = [argument.replace(f"{kernel.directory}{os.sep}", "{resource_dir}/") for argument in kernel.spec.argv]
    return kernel.as_json() | {"argv": argv}


def _install(place: _Place, kernel: LocalKernel | None, document: Mapping[str, Any]) -> None:
    """Write a kernelspec, with the logos and scripts of the one that it is like; raise `UsageError` if that fails."""
    with tempfile.TemporaryDirectory() as directory:
        draft = Path(directory, place.destination.name)
        if kernel is None:
            draft.mkdir()
        else:  # copied before the installation, which may replace the original
            shutil.copytree(kernel.directory, draft, ignore_dangling_symlinks=True)
        file = draft / "kernel.json"
        file.unlink(missing_ok=True)  # the copy may be read-only
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        place.install(draft)


class _Place:
    """The directory of one new kernelspec: in an installation's prefix, or with the user's own if it is None."""

    def __init__(self, manager: KernelSpecManager, name: str, prefix: str | None) -> None:
        self._manager = manager
        self._prefix = prefix
        self._name = name
        self._directory = (
            Path(manager.user_kernel_dir) if prefix is None else Path(os.path.abspath(prefix), "share/jupyter/kernels")
        )
        self.destination = self._directory / name

    def require_free(self, kernels: Sequence[LocalKernel]) -> None:
        """Raise `UsageError` if there is a kernelspec of that name."""
        there = next((other.directory for other in kernels if other.name == self._name), None)
        # Jupyter does not list a directory without kernel.json, or a dangling link, but both are in the way.
        if there or os.path.lexists(self.destination):
            raise UsageError(
                f"there is a kernelspec {self._name!r} already ({there or self.destination}); --replace replaces it, "
                "and --name gives the new one another name"
            )

    def install(self, draft: Path) -> None:
        """Copy a directory to this place; raise `UsageError` if that fails."""
        try:
            self._manager.install_kernel_spec(str(draft), self._name, user=self._prefix is None, prefix=self._prefix)
        except OSError as error:
            raise UsageError(
                f"{self.destination} cannot be written: {error_text(error)}; choose another place with --user, "
                "--sys-prefix or --prefix DIR"
            ) from error

    def find_doubts(self) -> Iterator[str]:
        """Yield reasons why Jupyter may not find the new kernelspec."""
        found = self._manager.find_kernel_specs().get(self._name)
        if str(self._directory) not in self._manager.kernel_dirs:
            yield (
                f"Jupyter does not look for kernelspecs in {self._directory}; a server finds this one if its "
                f"JUPYTER_PATH has {self._directory.parent}"
            )
        elif found is not None and not os.path.samefile(found, self.destination):
            yield f"another kernelspec of this name comes before it ({found}); remove that one, or choose a --name"
