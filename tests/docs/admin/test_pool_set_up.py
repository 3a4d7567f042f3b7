"""The page on setting up a pool: its configuration is read, its unit verified, its values checked by the schema."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from jupyter_exec_ext.fleet.pool_settings import ExecPool
from tests.docs.admin import SECONDS, page
from tests.docs.admin.test_systemd import verify
from tests.docs.blocks import ROOT
from tests.support.howto_pages import Recipe, account

PAGE = page("pool-set-up")
EXAMPLE = (ROOT / "examples" / "hub-pool" / "jupyterhub_config.py").read_text()
VALUES: dict[str, Any] = yaml.safe_load(Recipe(PAGE, None, {}).file("pool-values.yaml"))
DEPLOYMENT: dict[str, Any] = yaml.safe_load(Recipe(PAGE, None, {}).file("pool-deployment.yaml"))
SCHEMA = json.loads((Path(__file__).parent / "z2jh_values.schema.json").read_text())
POD = DEPLOYMENT["spec"]["template"]


def test_unit_is_accepted_and_starts_a_pool_that_names_what_it_lacks(tmp_path: Path) -> None:
    replaced = {
        "/etc/exec-pool": str(tmp_path),
        "/etc/systemd/system": str(tmp_path),
        "/var/lib/exec-pool": str(tmp_path / "state"),
        "/opt/jupyterhub/bin": sysconfig.get_path("scripts"),
    }
    recipe = Recipe(PAGE, None, replaced)
    for name in ("jupyter_exec_pool_config.py", "token.env"):
        recipe.write(f"{tmp_path}/{name}", tmp_path / name)
    path = tmp_path / "exec-pool.service"
    verify(recipe.file(str(path)), path, recipe.steps()[0])
    settings = configparser.ConfigParser(interpolation=None, strict=True)
    settings.optionxform = str  # type: ignore[assignment,method-assign]
    settings.read(path)
    done = subprocess.run(
        shlex.split(settings["Service"]["ExecStart"]),
        env=account(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "JUPYTERHUB_API_TOKEN and JUPYTERHUB_API_URL must be in the environment" in done.stderr


def test_settings_on_the_page_exist() -> None:
    names = re.findall(r"^c\.ExecPool\.(\w+) = ", PAGE, re.MULTILINE)
    assert len(names) == 6 and set(names) <= set(ExecPool.class_trait_names(config=True))


def test_lines_that_the_page_explains_are_in_the_example() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE)
    names = [name for row in rows for name in re.findall("`(.*?)`", row)]
    assert len(names) == 10
    for name in names:
        assert f'"{name}"' in EXAMPLE or f".{name}\n" in EXAMPLE, name


def test_page_says_what_was_not_run() -> None:
    assert "**This section was not run on a cluster.**" in PAGE


def test_values_have_keys_that_the_chart_documents_and_the_examples_scopes() -> None:
    jsonschema.validate(VALUES, SCHEMA)
    for role in VALUES["hub"]["loadRoles"].values():
        for scope in role["scopes"]:
            assert f'"{scope}"' in EXAMPLE, scope
    assert VALUES["hub"]["config"]["JupyterHub"]["custom_scopes"].keys() == {"custom:exec:run"}


@pytest.mark.parametrize("wrong", [{"hub": {"service": {}}}, {"hub": {"loadRoles": {"user": {"scope": []}}}}])
def test_values_with_a_mistake_are_found(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)


def test_deployment_runs_one_pool_that_the_network_policies_let_through() -> None:
    assert DEPLOYMENT["spec"]["replicas"] == 1  # two would both start and stop servers
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"].items() <= POD["metadata"]["labels"].items()
    (container,) = POD["spec"]["containers"]
    traits = set(ExecPool.class_trait_names(config=True))
    options = re.findall(r"--ExecPool\.(\w+)=", " ".join(container["command"]))
    assert len(options) == 2 and set(options) <= traits
    assert [volume["name"] for volume in POD["spec"]["volumes"]] == [container["volumeMounts"][0]["name"]]
    assert {each["name"] for each in container["env"]} == {"JUPYTERHUB_API_URL", "JUPYTERHUB_API_TOKEN"}
