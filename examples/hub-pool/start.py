"""Start a JupyterHub, its proxy, and a pool of two servers on this machine, to try the pool out.

python examples/hub-pool/start.py [DIRECTORY]

DIRECTORY gets all that they write; it is ``hub-pool`` in the current directory by default. Ctrl-C ends everything. The
proxy is a program of its own: npm install -g configurable-http-proxy
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import requests

PORT, HUB_PORT, PROXY_PORT, POOL_PORT = 8000, 8081, 8001, 8801
HERE = Path(__file__).resolve().parent
HUB_API = f"http://127.0.0.1:{HUB_PORT}/hub/api"
POOL_URL = f"http://127.0.0.1:{POOL_PORT}/"
START_SECONDS = 120.0
RESTART_SECONDS = 1.0


def main() -> None:
    """Start everything, and start the pool again whenever it ends, until Ctrl-C."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "hub-pool").resolve()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    print(f"Starting; the log is {directory / 'log'}", flush=True)
    if shutil.which("configurable-http-proxy") is None:
        sys.exit("the Hub's proxy is missing: npm install -g configurable-http-proxy")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    pool_token, password = secrets.token_hex(32), secrets.token_urlsafe(9)
    environment = {**os.environ, "EXEC_POOL_TOKEN": pool_token, "EXEC_POOL_PASSWORD": password}
    hub = start(hub_command(directory), directory, environment)
    pool = None
    try:
        wait_for(f"{HUB_API}/", hub)
        save_token(directory, "ada", password, "custom:exec:run")
        save_token(directory, "admin", password, "access:servers!user=exec-pool")  # to see figures, and to drain
        environment = {**os.environ, "JUPYTERHUB_API_TOKEN": pool_token, "JUPYTERHUB_API_URL": HUB_API}
        pool = start(pool_command(directory), directory, environment)
        wait_for(f"{POOL_URL}exec/v1/ready", pool)
        print(f"The pool answers at {POOL_URL}; tokens of the users ada and admin are in {directory}.")
        print(f"Tokens of others: http://127.0.0.1:{PORT}/hub/token, with any name and the password {password}")
        print("Ctrl-C ends everything.", flush=True)
        while hub.poll() is None:
            if pool.poll() is not None:  # what systemd does in its place elsewhere
                time.sleep(RESTART_SECONDS)
                pool = start(pool_command(directory), directory, environment)
            time.sleep(0.2)
        sys.exit("the Hub has ended; see the log")
    except KeyboardInterrupt:
        print("Ending …", flush=True)
    finally:
        for process in (pool, hub):  # the Hub ends its servers and its proxy
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait()


def hub_command(directory: Path) -> list[str]:
    """Return the command for the Hub. What it starts ends with it here, other than in its configuration."""
    options = {
        "JupyterHub.bind_url": f"http://127.0.0.1:{PORT}",
        "JupyterHub.hub_bind_url": f"http://127.0.0.1:{HUB_PORT}",
        "ConfigurableHTTPProxy.api_url": f"http://127.0.0.1:{PROXY_PORT}",
        "SimpleLocalProcessSpawner.home_dir_template": str(directory / "users" / "{username}"),
        "Spawner.args": repr(["--allow-root"] if os.geteuid() == 0 else []),  # root, as in a container
        "JupyterHub.cleanup_servers": "True",
        "JupyterHub.cleanup_proxy": "True",
    }
    config = f"--config={HERE / 'jupyterhub_config.py'}"
    return [sys.executable, "-m", "jupyterhub", config, *(f"--{name}={value}" for name, value in options.items())]


def pool_command(directory: Path) -> list[str]:
    """Return the command for the pool."""
    options = [f"--ExecPool.port={POOL_PORT}", f"--ExecPool.state_directory={directory / 'pool'}"]
    config = HERE / "jupyter_exec_pool_config.py"
    return [sys.executable, "-m", "jupyter_exec_ext.cli", "pool", f"--config={config}", "--", *options]


def start(command: list[str], directory: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a command that writes to the log, and that Ctrl-C does not reach."""
    with (directory / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def save_token(directory: Path, user: str, password: str, scope: str) -> None:
    """Ask the Hub for a token with one scope, as users do on the Hub's page for tokens, and write it to a file."""
    wanted = {"auth": {"username": user, "password": password}, "scopes": [scope], "note": "to try the pool out"}
    answer = requests.post(f"{HUB_API}/users/{user}/tokens", json=wanted, timeout=START_SECONDS)
    answer.raise_for_status()
    path = directory / f"{user}.token"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(answer.json()["token"])


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process answers at a URL."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            requests.get(url, timeout=5).raise_for_status()
            return
        except requests.RequestException as error:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{url} does not answer: {error}; see the log")
            time.sleep(0.2)


if __name__ == "__main__":
    main()
