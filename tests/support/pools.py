"""A real pool of servers for tests: a JupyterHub with the configuration of `examples/hub-pool`, and the service."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import requests

from jupyter_exec_ext.client import JupyterConnectionInfo
from tests.support.hosts import Host, clean_environment, common_options, free_port, stop
from tests.support.hubs import HubHost, HubProxy, running_hub
from tests.support.kernelspecs import add_kernelspec
from tests.support.namespaces import Network

POOL_USER = "exec-pool"
RECIPE = Path(__file__).parents[2] / "examples" / "hub-pool" / "jupyterhub_config.py"
_START_SECONDS = 120.0


@dataclass
class PoolHost(Host):
    """A pool, reached as the user alice of its Hub; `process` is the service's."""

    hub: HubHost | None = None
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    config: Path = Path()
    prefix: Sequence[str] = ()
    proxy: HubProxy | None = None

    def start(self) -> None:
        """Start the service, and wait until it is ready."""
        with self.log.open("ab") as log_file:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "jupyter_exec_ext.cli", "pool", "--config", str(self.config)],
                cwd=self.home,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the pool did not start:\n{self.log_text()}\n{self.hub and self.hub.log_text()}")
            time.sleep(0.05)

    def restart(self, seconds: float = 0.0) -> None:
        """Kill the service, and start it again after some time."""
        self.process.kill()
        self.process.wait()
        time.sleep(seconds)
        self.start()

    def kill_proxy(self, seconds: float = 0.0) -> None:
        """Kill the Hub's proxy, which the Hub starts again; wait for some time."""
        assert self.hub is not None
        for process in psutil.process_iter(["cmdline"]):
            command = process.info["cmdline"] or []
            if str(self.hub.info.port) in command and any("configurable-http-proxy" in word for word in command):
                process.kill()
                time.sleep(seconds)
                return
        raise AssertionError("the Hub has no proxy")

    def is_ready(self) -> bool:
        """Return whether a server of the pool is ready."""
        try:
            return requests.get(f"{self.info.url}exec/v1/ready", timeout=5).status_code == 200
        except requests.RequestException:
            return False

    def states(self) -> Counter[str]:
        """Return how many servers are in each state."""
        return Counter(row["state"] for row in self.figures()["servers"])

    def pid_of(self, name: str) -> int:
        """Return the process of one of the servers."""
        assert self.hub is not None
        return int(self.hub.api("GET", f"/users/{POOL_USER}")["servers"][name]["state"]["pid"])

    def figures(self) -> dict[str, Any]:
        """Return the pool's figures, as the Hub's administrator sees them."""
        headers = self.owner.auth_headers
        answer = requests.get(f"{self.info.url}exec/v1/load", headers=headers, timeout=10)
        answer.raise_for_status()
        return answer.json()  # type: ignore[no-any-return]


@contextmanager
def running_pool(
    home: Path,
    settings: Mapping[str, Any],
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    network: Network | None = None,
    recipe: Path = RECIPE,
    prefix: Sequence[str] = (),
    *,
    has_own_proxy: bool = False,
) -> Iterator[PoolHost]:
    """Start a Hub and a pool with some settings, and stop both at the end.

    Parameters
    ----------
    options, env
        Of the pool's servers.
    network
        Machines that the servers run on.
    recipe
        Of the Hub.
    prefix
        Of the commands that start the Hub and the pool.
    has_own_proxy
        Whether the Hub's proxy is `PoolHost.proxy`, which the Hub does not start.
    """
    token, port = secrets.token_hex(16), free_port()
    add_kernelspec(home, "python3", "forkserver-provisioner")
    servers = {"JUPYTER_PATH": str(home / "jupyter_data_dir"), **(env or {})}
    os.environ["EXEC_POOL_TOKEN"] = token
    ports = {name: free_port() for name in ("port", "hub_port", "proxy_port")}
    proxy = HubProxy(ports, home / "proxy.log")
    if has_own_proxy:
        (home / "hub_recipe.py").write_text(f"load_subconfig({str(recipe)!r})\n{HubProxy.RECIPE}")
        recipe = home / "hub_recipe.py"
        proxy.start()
    try:
        with running_hub(
            home,
            *options,
            env=servers,
            prefix=prefix,
            recipe=recipe,
            ports=ports,
            keeps_servers=True,
            network=network,
        ) as hub:
            hub.api("POST", "/users/bob")
            config = home / "jupyter_exec_pool_config.py"
            chosen = {"port": port, "state_directory": str(home / "pool"), **settings}
            config.write_text("".join(f"c.ExecPool.{name} = {value!r}\n" for name, value in chosen.items()))
            host = network.host if network is not None else "127.0.0.1"
            api = f"http://{host}:{ports['hub_port']}/hub/api"
            environment = clean_environment(home, JUPYTERHUB_API_TOKEN=token, JUPYTERHUB_API_URL=api)
            info = JupyterConnectionInfo("127.0.0.1", False, port, hub.token_of("alice"))
            owner = JupyterConnectionInfo("127.0.0.1", False, port, hub.token_of("grace"))
            pool = PoolHost(
                "pool",
                hub.process,
                info,
                home,
                home / "pool.log",
                owner_info=owner,
                hub=hub,
                environment=environment,
                config=config,
                prefix=prefix,
                proxy=proxy,
            )
            pool.start()
            try:
                yield pool
            finally:
                stop(pool.process)
                stop(hub.process)  # a test may have started it again
                end_all_of(home)
    finally:
        proxy.stop()
        os.environ.pop("EXEC_POOL_TOKEN", None)


def end_all_of(home: Path) -> None:
    """Kill what the Hub has left: servers and a proxy that outlive it, each started with a path below its home."""
    left = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = [*(process.info["cmdline"] or []), *(process.info["environ"] or {}).values()]
        if any(str(home) in word for word in words):
            left.append(process)
            with suppress(psutil.NoSuchProcess):
                process.kill()
    psutil.wait_procs(left, timeout=10)


@contextmanager
def running_contract_pool(home: Path, *_: str) -> Iterator[PoolHost]:
    """Start a pool for the contract suite: isolated kernels, and no limits but those of the suite's other hosts."""
    policies = {"contract": {"base": "trusted", "isolation": "sandbox"}}
    options = [*common_options([]), f"--ExecEngine.policies={json.dumps(policies)}"]
    settings = {"min_servers": 2, "max_servers": 2, "policies": {"custom:exec:run": "contract"}}
    with running_pool(home, settings, options) as pool:
        yield pool
