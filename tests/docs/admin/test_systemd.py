"""The gateway's systemd unit: systemd accepts it, and its command starts the recipe's gateway."""

from __future__ import annotations

import configparser
import secrets
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import requests

from tests.docs.admin import SECONDS, page
from tests.support.hosts import free_port, wait_until_ready
from tests.support.howto_pages import Recipe, Step, account, serving

_SCRIPTS = sysconfig.get_path("scripts")

pytestmark = pytest.mark.timeout(420)


def test_unit_is_accepted_and_starts_the_gateway(tmp_path: Path) -> None:
    """The unit is one that systemd understands, and what it starts, as it says, is the recipe's gateway."""
    srv, port = tmp_path / "srv", free_port()
    recipe = Recipe(page("gateway"), None, {"/srv/agents": str(srv), "port = 8888": f"port = {port}"})
    for name in ("jupyter_kernel_gateway_config.py", "policies.toml"):
        recipe.write(f"{srv}/{name}", srv / name)
    (srv / "owner.token").write_text(secrets.token_hex(32))
    unit_path = tmp_path / "agents-gateway.service"
    replaced = {"/srv/agents": str(srv), "/opt/agents/bin": _SCRIPTS, "/etc/systemd/system": str(tmp_path)}
    recipe = Recipe(page("systemd"), None, replaced)
    unit = recipe.file(str(unit_path))
    verify(unit, unit_path, recipe.steps()[0])
    settings = configparser.ConfigParser(interpolation=None, strict=True)
    settings.optionxform = str  # type: ignore[assignment,method-assign]
    settings.read_string(unit)
    service = settings["Service"]
    name, _, value = service["Environment"].partition("=")
    env = {**account(tmp_path / "agents"), "PATH": "/usr/bin:/bin", name: value}
    with serving(service["ExecStart"], env, Path(service["WorkingDirectory"]), port) as host:
        host.info.token = (srv / "owner.token").read_text().strip()
        wait_until_ready(host)
        assert (
            requests.get(f"{host.info.url}exec/v1/", headers=host.info.auth_headers, timeout=SECONDS).status_code == 200
        )
    (srv / "owner.token").unlink()
    done = subprocess.run(
        shlex.split(service["ExecStart"]), env=env, cwd=srv, capture_output=True, timeout=SECONDS, check=False
    )
    assert done.returncode != 0, "without a token it lets everybody in"


def verify(unit: str, path: Path, step: Step) -> None:
    """Have systemd look at a unit, where there is one."""
    path.write_text(unit)
    if shutil.which("systemd-analyze") is None:
        return
    command = [*shlex.split(step.line), "--man=no"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    printed = "".join(line for line in (done.stdout + done.stderr).splitlines(keepends=True) if path.name in line)
    assert done.returncode == 0, done.stdout + done.stderr
    step.check(printed)  # other units of this machine are not ours
