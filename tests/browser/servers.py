"""The server of these tests: JupyterLab and Notebook 7 with the wheel, below a base URL as behind a hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.bearers import UNPROTECTED
from tests.support.hosts import Host, running_host
from tests.support.kernelspecs import add_kernelspec

BASE_URL = "/user/probe/"
# Everything that a test prints stays in the record, so that all of it comes to the page.
MAX_OUTPUT_BYTES = 64 * 1024 * 1024
# Whose requests have this header may not see kernels.
STRANGER = "X-Test-Stranger"
POLICIES = {
    "asks": {"approval": {"when": ["shell"], "timeout_seconds": 120}},
    "ruled": {"isolation": "sandbox", "network": ["a.example"], "max_upload_bytes": 64_000_000},
}
# Names of this machine, which sessions with rules may reach if a rule allows it.
NETWORK_HOSTS = {"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]}
# Kernels of a shared process's forks: many cost little.
FORKED = "forked"

_CONFIG = f"""
from jupyter_server.auth.authorizer import AllowAllAuthorizer

class Authorizer(AllowAllAuthorizer):
    def is_authorized(self, handler, user, action, resource):
        return resource != "kernels" or "{STRANGER}" not in handler.request.headers

c.ServerApp.authorizer_class = Authorizer
"""
# What would appear in the corner of every page.
_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": False,
    }
}


def write_configuration(home: Path) -> None:
    """Write what the server reads at its start."""
    config = home / "config"
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(_SETTINGS))
    (config / "jupyter_server_config.py").write_text(_CONFIG)
    add_kernelspec(home, FORKED, "forkserver-provisioner")


@contextmanager
def running_lab(
    home: Path, port: int | None = None, token: str | None = None, options: Sequence[str] = ()
) -> Iterator[Host]:
    """Run the server; a second time in the same `home` is a restart."""
    if not (home / "config").exists():
        write_configuration(home)
    options = [
        UNPROTECTED,
        f"--ExecEngine.policies={json.dumps(POLICIES)}",
        f"--ExecEngine.network_hosts={json.dumps(NETWORK_HOSTS)}",
        "--ExecEngine.max_sessions=400",
        "--LabApp.expose_app_in_browser=True",
        "--JupyterNotebookApp.expose_app_in_browser=True",
        *options,
    ]
    with running_host(
        "lab",
        home,
        *options,
        base_url=BASE_URL,
        port=port,
        token=token,
        max_output_bytes=MAX_OUTPUT_BYTES,
    ) as host:
        yield host
