"""The page's values for Zero to JupyterHub: by a schema with a commit, and their configuration in a server in full."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from jupyter_exec_ext.auth.policy_parsing import read_policies
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import ExecError
from tests.docs.admin import page
from tests.support.full import only_in_full
from tests.support.hosts import running_host
from tests.support.howto_pages import Recipe

PAGE = page("kubernetes")
VALUES: dict[str, Any] = yaml.safe_load(Recipe(PAGE, None, {}).file("values.yaml"))
SCHEMA = json.loads((Path(__file__).parent / "z2jh_values.schema.json").read_text())
CONFIGURATION: dict[str, Any] = VALUES["singleuser"]["extraFiles"]["exec-config"]["data"]


def test_page_says_that_it_was_not_run() -> None:
    assert "**This page was not run on a cluster.**" in PAGE


def test_values_have_keys_that_the_chart_documents() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"singleuser": {"extraFile": {}}},
        {"singleuser": {"cpu": {"limit": "two"}}},
        {"singleuser": {"extraFiles": {"one": {"mountPath": "/etc/a.json"}}}},
        {"proxy": {"https": {"host": "hub.example.org"}}},
    ],
)
def test_values_with_a_mistake_are_found(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)


def test_settings_and_policies_in_the_values_exist() -> None:
    assert set(CONFIGURATION) == {"ExecEngine"}
    assert set(CONFIGURATION["ExecEngine"]) <= set(ExecEngine.class_trait_names(config=True))
    assert read_policies(CONFIGURATION["ExecEngine"]["policies"])["class"].max_execution_seconds == 60


def test_every_line_that_the_page_explains_is_in_the_values() -> None:
    values = PAGE.partition("```yaml\n")[2].partition("```")[0]
    names = [name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall("`(.*?)`", row)]
    assert len(names) == 9
    for name in names:
        last = re.split(r"[ .]", name.rstrip("…"))[-1]
        assert last in values, name


@only_in_full
def test_server_with_the_configuration_of_the_values_has_its_limits(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / Path(VALUES["singleuser"]["extraFiles"]["exec-config"]["mountPath"]).name).write_text(
        json.dumps(CONFIGURATION)
    )
    env = {"JUPYTER_CONFIG_PATH": str(etc), **VALUES["singleuser"]["extraEnv"]}
    with running_host("server", tmp_path / "host", env=env) as host, ExecClient(host.info) as client:
        assert [policy["name"] for policy in client.tokens.policies()] == ["class"]
        with pytest.raises(ExecError, match="604800"):
            client.tokens.create("agent", ["executions:read"], expires_in_seconds=30 * 24 * 3600)
