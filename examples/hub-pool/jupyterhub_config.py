"""A JupyterHub with a pool of servers for agents: what the pool needs is marked."""

from __future__ import annotations

import os
import sys
from typing import Any

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  # given by traitlets

# For one machine, and for trying it out: any name with one password. A real Hub has its own lines here.
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = os.environ.pop("EXEC_POOL_PASSWORD", "")
c.Authenticator.allow_all = True
# They are there from the start.
c.Authenticator.allowed_users = {"ada"}
c.Authenticator.admin_users.add("admin")
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]

# --- what the pool needs ---

# The pool's servers are named servers of this user, which nobody logs in as.
c.JupyterHub.allow_named_servers = True
c.Authenticator.allowed_users.add("exec-pool")

# Users' tokens have this scope, and may run code in the pool. Remove it from the role to let in only some.
c.JupyterHub.custom_scopes.update({"custom:exec:run": {"description": "Run code in the pool of servers for agents"}})
c.JupyterHub.load_roles.extend(
    [
        {"name": "user", "scopes": ["self", "custom:exec:run"]},
        {
            "name": "exec-pool",
            "services": ["exec-pool"],
            "scopes": [
                "proxy",  # the addresses of servers
                "read:users:name!user=exec-pool",
                "read:servers!user=exec-pool",
                "servers!user=exec-pool",  # to start and stop them
                "tokens!user=exec-pool",  # for a token of that user, with which the pool uses its servers
                "access:servers!user=exec-pool",
            ],
        },
    ]
)
# An external service: it outlives the Hub, and the Hub it. Whatever starts it has the same token in its environment.
c.JupyterHub.services.append({"name": "exec-pool", "api_token": os.environ["EXEC_POOL_TOKEN"]})

# Servers and routes stay when the Hub is restarted, and routes come back soon when the proxy was.
c.JupyterHub.cleanup_servers = False
c.JupyterHub.cleanup_proxy = False
c.JupyterHub.last_activity_interval = 10
# The Hub learns within this time that a server's process has ended; 30 seconds otherwise.
c.Spawner.poll_interval = 5
