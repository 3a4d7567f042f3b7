"""A real JupyterHub for tests, with its proxy: a user's server there is one more host of our API."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import requests

from jupyter_exec_ext.client import JupyterConnectionInfo
from tests.support.hosts import CANARY, Host, clean_environment, common_options, free_port, stop
from tests.support.namespaces import Network
from tests.support.outside_parts import HUB_PROXY, require_part

USER = "alice"
ADMIN = "grace"
#: Another user, who may access the server and whose tokens can have these scopes.
RUNNER = "ron"
CUSTOM_SCOPES = ("custom:exec:run", "custom:exec:big")
_HERE = Path(__file__).parents[1] / "hub"
_START_SECONDS = 90.0
_DIRECTORIES = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_PLATFORM_DIRS", "IPYTHONDIR")
# What the tests may do at the Hub; to share a server holds access to it.
_SCOPES = ["admin:users", "admin:servers", "admin:server_state", "admin:groups", "tokens", "shares"]


@dataclass
class HubHost(Host):
    """A user's server at a Hub, reached through the proxy.

    `process` is the Hub's, and `log` is of all its processes: they inherit what it writes to.
    """

    hub_url: str = ""
    hub_token: str = field(default="", repr=False)

    @property
    def pid(self) -> int:
        return int(self.api("GET", f"/users/{USER}")["servers"][""]["state"]["pid"])

    def api(self, method: str, path: str, **body: Any) -> Any:
        """Ask the Hub's REST API, as its administrator."""
        headers = {"Authorization": f"token {self.hub_token}"}
        url = f"{self.hub_url}api{path}"
        answer = requests.request(method, url, headers=headers, json=body or None, timeout=60)
        assert answer.ok, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def token_of(self, user: str, *scopes: str) -> str:
        """Return a new Hub token of a user; without `scopes` it is good for whatever the user may do."""
        return str(
            self.api("POST", f"/users/{user}/tokens", note="a test's", **({"scopes": scopes} if scopes else {}))[
                "token"
            ]
        )

    def revoke_token(self, user: str, token: str) -> None:
        """Revoke a Hub token of a user."""
        answer = requests.get(f"{self.hub_url}api/user", headers={"Authorization": f"token {token}"}, timeout=60)
        self.api("DELETE", f"/users/{user}/tokens/{answer.json()['token_id']}")

    def answers(self) -> bool:
        """Return whether the Hub can be reached, through its proxy."""
        try:
            return requests.get(f"{self.hub_url}api", timeout=5).ok
        except requests.RequestException:
            return False

    def start_server(self, user: str) -> None:
        """Start a user's server and wait until it answers."""
        self.api("POST", f"/users/{user}/server")
        headers = {"Authorization": f"token {self.hub_token}"}
        url = f"{self.hub_url}api/users/{user}/server/progress"
        with requests.get(url, headers=headers, timeout=_START_SECONDS, stream=True) as progress:
            for line in progress.iter_lines():
                event = json.loads(line.removeprefix(b"data:")) if line.startswith(b"data:") else {}
                if event.get("ready"):
                    return
        raise AssertionError(f"the server of {user} did not start:\n{self.log_text()}")


class HubProxy:
    """A Hub's proxy that a test starts and stops, not the Hub.

    Parameters
    ----------
    ports
        As for `running_hub`.
    log
        Its log.
    """

    #: Lines of the Hub's configuration.
    RECIPE = 'c.ConfigurableHTTPProxy.should_start = False\nc.ConfigurableHTTPProxy.auth_token = "of-a-test"\n'

    def __init__(self, ports: Mapping[str, int], log: Path) -> None:
        self._log = log
        self._command = [
            str(HUB_PROXY),
            "--ip=127.0.0.1",
            f"--port={ports['port']}",
            "--api-ip=127.0.0.1",
            f"--api-port={ports['proxy_port']}",
            f"--default-target=http://127.0.0.1:{ports['hub_port']}",
            f"--error-target=http://127.0.0.1:{ports['hub_port']}/hub/error",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env={"CONFIGPROXY_AUTH_TOKEN": "of-a-test", "PATH": "/usr/bin:/bin"},
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def running_hub(
    home: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    recipe: Path | None = None,
    ports: Mapping[str, int] | None = None,
    keeps_servers: bool = False,
    network: Network | None = None,
) -> Iterator[HubHost]:
    """Start a Hub and the server of `USER`, and stop everything at the end.

    Parameters
    ----------
    options
        Of the users' servers.
    env
        Of the users' servers.
    recipe
        An administrator's configuration of the Hub. What it says of users' servers holds; they have Jupyter's usual
        directories, in their users' homes.
    ports
        ``port``, ``hub_port`` and ``proxy_port``, where somebody else has to know them.
    keeps_servers
        Whether the recipe lets servers and the proxy outlive the Hub, as with a pool; the caller kills them. `USER`
        has no server then.
    network
        Machines that the servers of a pool are started on, one on each.
    """
    require_part("configurable-http-proxy")
    root = home / "root"
    root.mkdir(parents=True, exist_ok=True)
    environment = clean_environment(home)
    usual: list[str] = []
    own: dict[str, str] = {}
    if recipe is None:
        usual = [f"--ServerApp.root_dir={root}", *common_options(options)]
        own = {"EXEC_TEST_CANARY": CANARY, **{name: environment[name] for name in _DIRECTORIES}}
    token = secrets.token_hex(16)
    ports = ports or {name: free_port() for name in ("port", "hub_port", "proxy_port")}
    port = ports["port"]
    given = {
        "home": str(home),
        **ports,
        "proxy_command": [str(HUB_PROXY)],
        "token": token,
        "admin": ADMIN,
        "scopes": _SCOPES,
        "custom_scopes": CUSTOM_SCOPES,
        "user": USER,
        "runner": RUNNER,
        "recipe": str(recipe or ""),
        "network": network.to_json() if network is not None else "",
        "hub_host": network.host if network is not None else "127.0.0.1",
        "options": ["--allow-root", *usual, *options],
        "environment": {**own, **(env or {})},
    }
    log = home / "hub.log"
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "jupyterhub", f"--config={_HERE / 'jupyterhub_config.py'}"],
            cwd=home,
            env={**environment, "EXEC_TEST_HUB": json.dumps(given)},
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    info = JupyterConnectionInfo(host="127.0.0.1", use_https=False, port=port, token=None, base_url=f"/user/{USER}/")
    url = f"http://127.0.0.1:{port}/hub/"
    host = HubHost("hub", process, info, home, log, list(options), hub_url=url, hub_token=token)
    try:
        _wait_until_ready(host)
        host.api("POST", f"/users/{USER}")
        if not keeps_servers:
            host.start_server(USER)
        host.info = JupyterConnectionInfo(
            host="127.0.0.1",
            use_https=False,
            port=port,
            base_url=info.base_url,
            token=host.token_of(USER, f"access:servers!user={USER}"),
        )
        yield host
    finally:
        _stop_all(process, keeps_servers=keeps_servers)


def _wait_until_ready(host: HubHost) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not host.answers():
        if host.process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"the Hub did not start:\n{host.log_text()}")
        time.sleep(0.05)


def _stop_all(process: subprocess.Popen[bytes], *, keeps_servers: bool) -> None:
    """Stop the Hub, which stops its proxy and servers; they are in sessions of their own, so none may be forgotten."""
    started = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    try:
        stop(process)
    finally:
        _, left = psutil.wait_procs(started, timeout=10)
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    assert keeps_servers or not left, f"the Hub left behind {left}"
