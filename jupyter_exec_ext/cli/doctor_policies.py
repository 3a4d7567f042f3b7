"""Doctor's checks of policies: in the configuration files on this machine, and what those of a server need."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from jupyter_core.application import JupyterApp
from traitlets import TraitError
from traitlets.config import Config

from ..auth.configured_policies import configured_policies
from ..client.sync.client import ExecClient
from ..engine.settings import EngineSettings
from ..errors import OwnerOnly, PoliciesInvalid
from ..isolation.network.libraries import INSTALL_COMMAND, missing_libraries
from .doctor_command import Finding

# The configuration files of each application by their names without endings, beside jupyter_config; the last one takes
# precedence. The server's extension and the gateway of `jupyter exec` are named by Jupyter's rule for their own names.
_CONFIGURATIONS: Mapping[str, Sequence[str]] = {
    "Jupyter Server": ("jupyter_jupyter_exec_ext_config", "jupyter_server_config"),
    "Kernel Gateway": ("jupyter_kernel_gateway_config",),
    "the gateway of jupyter exec": ("jupyter_exec_gateway_config",),
}
_REMEDY = "correct it; until then, exec/v1 runs no code with this configuration and answers 503"


def mistake_at(place: str, error: PoliciesInvalid) -> Finding:
    """Return the finding for a server or gateway that runs no code, since its policies have a mistake."""
    return Finding(f"{place} runs no code, since its policies have a mistake", error.message)


def check_policies_here() -> Iterator[Finding]:
    """Report a mistake in the policies of the configuration files that a Jupyter Server or Kernel Gateway reads."""
    reported: list[Config] = []
    for application, names in _CONFIGURATIONS.items():
        config, files = _read(names)
        section = config.ExecEngine
        # All applications read jupyter_config, whose policies are reported once.
        if section and section not in reported:
            reported.append(section)
            yield from _check(section, f"the policies of {application}", f" (read: {', '.join(files)})")


def _read(names: Sequence[str]) -> tuple[Config, list[str]]:
    """Return the configuration of the files with these names, and the paths of the files that were read."""
    config = Config()
    files: dict[str, None] = {}
    for name in names:
        app = JupyterApp(config_file_name=name)
        app.load_config_file()
        config.merge(app.config)
        files.update(dict.fromkeys(app.loaded_config_files))
    return config, list(files)


def _check(section: Config, policies: str, read: str) -> Iterator[Finding]:
    try:
        settings = EngineSettings(config=Config(EngineSettings=section))
    except TraitError as error:
        yield Finding(f"Jupyter's configuration has a mistake: {error}{read}", "correct the file")
        return
    file = settings.policy_file
    if file and not os.path.isabs(file):
        yield Finding(
            f"ExecEngine.policy_file is {file}, relative to the directory in which the server is started; here it was "
            f"looked up in {os.getcwd()}{read}",
            "write the whole path",
            fails=False,
        )
        if not os.path.exists(file):  # the server's directory may have it
            return
    try:
        configured = configured_policies(settings.policies, file, settings.offered_policies, settings.named_rule_sets)
    except PoliciesInvalid as error:
        yield Finding(f"{policies} have a mistake: {error.message}{read}", _REMEDY)
        return
    yield Finding(f"{policies} are valid{read}")
    ruled = [name for name, policy in configured.items() if isinstance(policy.network, tuple)]
    if ruled and (missing := missing_libraries()):
        without = f"policy {ruled[0]!r} has network rules, which need {' and '.join(missing)}"
        yield Finding(f"{without}; no session can have it", INSTALL_COMMAND)
    for name, policy in configured.items():
        if policy.packages is not None:
            yield from _check_packages(name, settings)
            break


def _check_packages(policy: str, settings: EngineSettings) -> Iterator[Finding]:
    """Report where sessions get their packages from, or why they get none."""
    allows, wheelhouse = f"policy {policy!r} lets sessions install packages", settings.wheelhouse
    if not settings.session_directories:
        remedy = "set ExecEngine.session_directories, or take the field 'packages' from the policy"
        yield Finding(f"{allows}, but sessions have no directories for them", remedy)
    elif find_spec("pip") is None:
        remedy = f"install it ({sys.executable} -m ensurepip)"
        yield Finding(f"{allows}, but the server's environment has no pip to download them with", remedy)
    elif wheelhouse and not os.path.isdir(wheelhouse):
        remedy = f"make it, and fill it (pip download --dest {wheelhouse} PACKAGE)"
        yield Finding(f"{allows}, but the directory {wheelhouse} of their wheels is not there", remedy)
    else:
        yield Finding(f"{allows}, from {settings.package_source}")


def check_secrets(client: ExecClient, policies: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Report secrets that policies of a server name and that are not set there; the owner alone may ask."""
    needed = {name: policy["name"] for policy in policies for name in policy.get("secrets") or ()}
    if not needed:
        return
    try:
        there = {secret.name for secret in client.secrets.list()}
    except OwnerOnly:
        return
    for name in sorted(needed.keys() - there):
        yield Finding(
            f"policy {needed[name]!r} names the secret {name}, which is not set, so its sessions do not start",
            f"jupyter exec secret set {name} --host HOST --header 'Authorization: Bearer {{}}'",
        )
    if needed.keys() <= there:
        yield Finding(f"the secrets of policies are set: {', '.join(sorted(needed))}")
