"""The images of ``containers/``, built and used as the image of an executor's server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import CodeBlock, DockerJupyterServer, ExecClient, JupyterCodeExecutor
from tests.executors.images import containers_of
from tests.support import canaries
from tests.support.environments import ROOT
from tests.support.full import only_in_full
from tests.test_container_files import instructions

# The images may have to be made, from a front end that has to be built.
pytestmark = [only_in_full, pytest.mark.timeout(1200), pytest.mark.usefixtures("engine")]
PAGE = ROOT / "docs" / "howto" / "container.md"
# In this order, a commit runs the gateway: its image is made in less time.
HOSTS = {"lab": "jupyter_server", "gateway": "kernel_gateway"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a wheel of this checkout, front end included."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), str(ROOT)]
    subprocess.run(command, check=True, env={**os.environ, "REQUIRE_LABEXTENSION": "1"})
    return directory


@pytest.fixture(scope="module", params=HOSTS)
def image(request: pytest.FixtureRequest, engine: Any, wheel: Path) -> str:
    """One of the images, by its name."""
    name = f"jupyter-exec-test-{request.param}"
    shutil.copy(ROOT / "containers" / f"{request.param}.Dockerfile", wheel / "Dockerfile")
    engine.images.build(path=str(wheel), tag=name, rm=True, network_mode="host")
    return name


def test_an_executor_runs_code_in_it(image: str, engine: Any) -> None:
    with DockerJupyterServer(custom_image_name=image) as server:
        canaries.note(str(server.connection_info.token))
        with JupyterCodeExecutor(server) as executor:
            code = "import os; print(os.getuid(), os.environ.get('TOKEN'), os.environ.get('JUPYTER_TOKEN'))"
            assert executor.execute_code_blocks([CodeBlock(code, "python")]).output == "1000 None None\n"
        with ExecClient(server) as client:
            assert client.info()["host"] == HOSTS[image.rpartition("-")[2]]
            chart = "import pandas as pd\npd.DataFrame({'n': [1, 2]}).plot.bar()"
            assert len(client.run(chart).images) == 1
        (container,) = containers_of(engine, image)
        # The check of the Dockerfile: not every engine keeps it in the image.
        (check,) = instructions(image.rpartition("-")[2], "HEALTHCHECK")
        command = json.loads(check.partition(" CMD ")[2])
        assert engine.containers.get(container).exec_run(command).exit_code == 0


@pytest.mark.needs("user namespaces")
def test_kernels_are_sandboxed_with_the_options_of_the_page(image: str, engine: Any) -> None:
    names = [component["Name"] for component in engine.version()["Components"]]
    program = "podman" if "Podman Engine" in names else "docker"
    command = re.search(rf"^{program} run --rm ((?s:.*?)) jupyter exec doctor$", PAGE.read_text(), re.MULTILINE)
    assert command is not None
    options = re.findall(r"--security-opt '?([^\s']+)", command[1])
    arguments = {"command": ["jupyter", "exec", "doctor"], "remove": True, "security_opt": options}
    assert b"scoped tokens get the isolation 'sandbox'" in engine.containers.run(image, **arguments)
