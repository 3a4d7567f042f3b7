"""The Hub that `tests/support/hubs.py` starts: whoever comes is let in, and users need no account on this machine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  # given by traitlets
given = json.loads(os.environ.pop("EXEC_TEST_HUB"))
home = Path(given["home"])

c.JupyterHub.bind_url = f"http://127.0.0.1:{given['port']}"
c.JupyterHub.hub_ip = given["hub_host"]
c.JupyterHub.hub_port = given["hub_port"]
c.JupyterHub.db_url = f"sqlite:///{home / 'hub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(home / "cookie_secret")
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.admin_users = {given["admin"]}
c.JupyterHub.services = [{"name": "tests", "api_token": given["token"]}]
c.JupyterHub.custom_scopes = {scope: {"description": "a test's"} for scope in given["custom_scopes"]}
c.JupyterHub.load_groups = {"runners": {"users": [given["runner"]]}}
c.JupyterHub.load_roles = [
    {"name": "tests", "scopes": given["scopes"], "services": ["tests"]},
    {
        "name": "runners",
        "scopes": [f"access:servers!user={given['user']}", *given["custom_scopes"]],
        "groups": ["runners"],
    },
]

c.ConfigurableHTTPProxy.command = given["proxy_command"]
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{given['proxy_port']}"
c.ConfigurableHTTPProxy.pid_file = str(home / "proxy.pid")

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = str(home / "users" / "{username}")
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
if given["recipe"]:
    load_subconfig(given["recipe"])  # type: ignore[name-defined]  # noqa: F821  # given by traitlets
if given["network"]:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.support.machine_spawner import MachineSpawner
    from tests.support.namespaces import Network

    MachineSpawner.machines = Network.from_json(given["network"]).machines
    c.JupyterHub.spawner_class = MachineSpawner
c.Spawner.http_timeout = 90  # a start takes long on a machine with other tests
c.Spawner.args.extend(given["options"])
c.Spawner.environment.update(given["environment"])
