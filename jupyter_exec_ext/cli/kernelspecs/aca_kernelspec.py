"""Kernelspecs whose kernels are Azure Container Apps sessions: what is checked of them, and how they are written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager

from ...aca.protocol.addresses import check_endpoint, check_host, family_of
from ...aca.provisioner.credential_sources import AZURE, check_source, file_of, variable_of
from ...errors import InvalidRequest
from ..server_choice import UsageError
from .kernelspec_place import Place, Written, checked_name
from .local_kernels import installed, provisioner_class

PROVISIONER = "aca-provisioner"
_NAME, _DISPLAY_NAME = "aca", "Python (Azure Container Apps)"


@dataclass(frozen=True, slots=True)
class WantedSessions:
    """A kernelspec to be written.

    Parameters
    ----------
    name, display_name : str
        Empty for the usual ones.
    env : sequence of str
        Names of variables that sessions get from the server's environment.
    prefix, replace
        As in `isolated_kernelspec.Wanted`.
    """

    endpoint: str
    api_version: str
    credential: str
    name: str = ""
    display_name: str = ""
    env: Sequence[str] = ()
    prefix: str | None = None
    replace: bool = False


def write(wanted: WantedSessions) -> Written:
    """Write a kernelspec, after everything about it was checked that can be without asking Azure.

    Raises
    ------
    UsageError
        Before anything was written; or where it cannot be written.
    """
    if provisioner_class(PROVISIONER) is None:
        raise UsageError(
            f"the provisioner {PROVISIONER!r} is not installed here, so Jupyter could not start such kernels; install "
            "jupyter_exec_ext again"
        )
    try:
        endpoint = check_endpoint(wanted.endpoint)
        family_of(wanted.api_version)
        check_source(wanted.credential)
    except InvalidRequest as error:
        raise UsageError(str(error)) from error
    name = checked_name(wanted.name or _NAME)
    manager = KernelSpecManager()
    place = Place(manager, name, wanted.prefix)
    if not wanted.replace:
        place.require_free(installed(manager))
    config = {"endpoint": endpoint, "api_version": wanted.api_version, "credential": wanted.credential}
    stanza = {"provisioner_name": PROVISIONER, "config": config | ({"env": list(wanted.env)} if wanted.env else {})}
    document = {
        "argv": [],  # there is no process
        "display_name": wanted.display_name or _DISPLAY_NAME,
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"kernel_provisioner": stanza, "supported_encryption": "curve"},
    }
    with tempfile.TemporaryDirectory() as directory:
        draft = Path(directory, name)
        draft.mkdir()
        (draft / "kernel.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        place.install(draft)
    doubts = [*_about_tokens(endpoint, wanted.credential), *place.doubts()]
    return Written(name, str(document["display_name"]), str(place.destination), doubts)


def _about_tokens(endpoint: str, credential: str) -> Iterator[str]:
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
    except ModuleNotFoundError:
        return False
