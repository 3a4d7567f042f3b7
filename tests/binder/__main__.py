"""Checks ``binder/`` without a container: ``python -m tests.binder [NAME…]``.

``image`` asks repo2docker, in an environment of its own below ``.bench/binder``, what image it would make. ``server``
does in a new environment what happens when the image is built and started, and looks at the server as a visitor's
browser and an executor elsewhere would. Where pip and npm find their packages is up to their configuration.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import requests

from jupyter_exec_ext import CodeBlock, ExecClient, JupyterCodeExecutor, JupyterConnectionInfo
from tests.support.environments import ROOT, environment, run_named
from tests.support.hosts import Host, clean_environment, free_port, stop, wait_until_ready

HOME = ROOT / ".bench" / "binder"
REPO2DOCKER = "jupyter-repo2docker==2026.4.0"
FRONT_END = "@jupyter-exec-ext/labextension"
_BASE_URL = "/user/jupyter_exec_ext-4f7k2m/"
# What BinderHub's servers get beside their token and base URL; once for old servers and once for new ones.
_GIVEN = ["trust_xheaders=True", "allow_origin=*", "allow_origin_pat=.*"]


class CheckError(subprocess.CalledProcessError):
    """Something is not as it should be."""

    def __str__(self) -> str:
        return str(self.cmd)


def check(good: bool, what: str) -> None:
    """Say what is wrong."""
    if not good:
        raise CheckError(1, what)


def repo2docker() -> Path:
    """Return where repo2docker is."""
    return environment(HOME / "repo2docker", [REPO2DOCKER]).with_name("jupyter-repo2docker")


def image(checkout: Path) -> None:
    """Look at the Dockerfile that repo2docker makes of a checkout."""
    command = [str(repo2docker()), "--no-build", "--debug", str(checkout)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    dockerfile = asked.stdout + asked.stderr
    check(asked.returncode == 0, f"repo2docker: {dockerfile[-4000:]}")
    for line in (
        'R2D_ENTRYPOINT="${REPO_DIR}/binder/start"',
        "RUN ./binder/postBuild",
        'pip install --no-cache-dir -r "binder/requirements.txt"',
        "Building conda environment for python=3.12",
        "bubblewrap",
    ):
        check(line in dockerfile, f"repo2docker's Dockerfile has no {line!r}:\n{dockerfile}")


def server(checkout: Path) -> None:
    """Build and start it as in a Binder, use it, and run the tour, in which nobody approves anything."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        python = home / "env" / "bin" / "python"
        environ = _in_environment(home)
        subprocess.run([sys.executable, "-m", "venv", home / "env"], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "-r", "binder/requirements.txt"]
        subprocess.run(install, cwd=checkout, env=environ, check=True)
        subprocess.run(["./binder/postBuild"], cwd=checkout, env=environ, check=True)
        check(not (checkout / "labextension" / "node_modules").exists(), "postBuild leaves node_modules in the image")
        with _started(checkout, home, environ) as host:
            _use(host)
            tour = [str(python), "-m", "jupyter", "execute", "examples/tour.ipynb"]
            toured = subprocess.run(tour, cwd=checkout, env=environ, capture_output=True, text=True, check=False)
            check(toured.returncode == 0, f"the tour: {toured.stdout}{toured.stderr}")


def _in_environment(home: Path) -> dict[str, str]:
    """Return a visitor's environment, with the tools that the base image has."""
    tools = [Path(found).parent for found in map(shutil.which, ("node", "npm")) if found is not None]
    path = [home / "env" / "bin", *tools, os.environ["PATH"]]
    own = clean_environment(home, PATH=os.pathsep.join(map(str, path)), JUPYTER_PLATFORM_DIRS="")
    # What pip and npm need to reach their packages is in the home of whoever runs this, or in variables.
    known = {"HOME": os.environ["HOME"]}
    return {name: value for name, value in own.items() if name != "PYTHONPATH"} | known


@contextmanager
def _started(checkout: Path, home: Path, environ: Mapping[str, str]) -> Iterator[Host]:
    """Start it with the command of a BinderHub."""
    port, token = free_port(), secrets.token_urlsafe(16)
    given = [f"base_url={_BASE_URL}", f"token={token}", *_GIVEN]
    apps = ("NotebookApp", "ServerApp")
    command = ["./binder/start", "python3", "-c", "import os, sys; os.execvp('jupyter-lab', sys.argv)"]
    arguments = ["--ip=127.0.0.1", f"--port={port}", *(f"--{app}.{option}" for app in apps for option in given)]
    log = home / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *arguments, *_AS_ROOT],
            cwd=checkout,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    info = JupyterConnectionInfo("127.0.0.1", False, port, token, _BASE_URL)
    host = Host("binder", process, info, home, log)
    try:
        wait_until_ready(host)
        yield host
    finally:
        stop(process)


# A Binder's user is none; a machine that tests may be.
_AS_ROOT = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def _use(host: Host) -> None:
    url, headers = host.info.url, host.info.auth_headers
    for path in ("api/contents", "exec/v1/sessions"):
        for sent, status in (({}, (401, 403)), (headers, (200,))):
            answered = requests.get(url + path, headers=sent, timeout=30).status_code
            check(answered in status, f"{path} answers {answered}, and should {status}")
    page = requests.get(f"{url}lab", headers=headers, timeout=30).text
    loaded = json.loads(
        page.partition('<script id="jupyter-config-data" type="application/json">')[2].partition("</")[0]
    )
    names = [extension["name"] for extension in loaded["federated_extensions"]]
    check(FRONT_END in names, f"JupyterLab does not load the front end, but {names}")
    with ExecClient(host.info) as client:
        policies = [policy["name"] for policy in client.tokens.policies()]
        check("tour" in policies, f"binder/config is not read: the policies are {policies}")
    with JupyterCodeExecutor(host.info) as executor:
        answer = executor.execute_code_blocks([CodeBlock("print(6 * 7)", "python")])
        check(answer.output == "42\n", f"an executor gets {answer.output!r}")


CHECKS = {"image": image, "server": server}


def run(name: str) -> None:
    """Run a check on what is in git, as it is here now."""
    with tempfile.TemporaryDirectory() as directory:
        checkout = Path(directory)
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        for path in names:
            if (ROOT / path).is_file() and not (ROOT / path).is_symlink():
                (checkout / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, checkout / path)
        CHECKS[name](checkout)


if __name__ == "__main__":
    sys.exit(run_named("tests.binder", __doc__, CHECKS, run, lambda name: name == "image" and repo2docker()))
