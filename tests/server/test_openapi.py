"""The API's description: valid, complete, the one that is served, and true of what the server really sends."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
import requests
import yaml
from openapi_spec_validator import validate

from jupyter_exec_ext.errors import ClientError, ExecError
from jupyter_exec_ext.models import ExecutionState, SessionState
from jupyter_exec_ext.protocol.records_json import EVENT_TYPES
from jupyter_exec_ext.server.routes import OPEN_ROUTES, ROUTES
from tests.support.hosts import Host

TEXT = files("jupyter_exec_ext.server").joinpath("openapi.yaml").read_text()
DOCUMENT: dict[str, Any] = yaml.safe_load(TEXT)
SCHEMAS = DOCUMENT["components"]["schemas"]


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


def test_it_has_the_routes_of_the_table_with_their_scopes_and_no_others() -> None:
    described = {
        (path, method.upper(), operation.get("x-scope"), operation.get("x-owner-only", False), "security" in operation)
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }
    assert described == {
        (route.path, method, access.scopes or None, access.owner_only, route in OPEN_ROUTES)
        for route in (*OPEN_ROUTES, *ROUTES)
        for method, access in route.methods.items()
    }


def test_it_has_every_code_state_and_event_type() -> None:
    sent = {code for code, error in ExecError.codes().items() if not issubclass(error, ClientError)}
    assert set(SCHEMAS["Error"]["properties"]["code"]["enum"]) == sent
    assert set(SCHEMAS["ExecutionState"]["enum"]) == {state.value for state in ExecutionState}
    assert set(SCHEMAS["Session"]["properties"]["state"]["enum"]) == {state.value for state in SessionState}
    assert set(SCHEMAS["Event"]["properties"]["type"]["enum"]) == set(EVENT_TYPES)


def check(value: Any, schema: str) -> None:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]}
    jsonschema.validate(value, whole, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_what_the_server_sends_is_what_the_document_says(hosts: Any, name: str) -> None:
    host: Host = hosts[name]
    url, headers = f"{host.info.url}exec/v1", host.info.auth_headers

    def call(method: str, path: str, **options: Any) -> requests.Response:
        own = {**headers, **options.pop("headers", {})}
        return requests.request(method, url + path, headers=own, timeout=60, **options)

    assert call("GET", "/openapi.yaml").text == TEXT
    check(call("GET", "/").json(), "Info")
    check(call("GET", "/nope").json(), "Error")
    check(call("GET", "/ready").json(), "Readiness")
    check(call("GET", "/load").json(), "ServerLoad")
    session = call("POST", "/sessions", json={"name": "x", "metadata": {"a": 1}}).json()
    path = f"/sessions/{session['id']}"
    for one in [session, call("GET", path).json(), *call("GET", "/sessions").json()["sessions"]]:
        check(one, "Session")
    code = "print(1); display({'text/plain': 'x'}, raw=True); import sys; print('e', file=sys.stderr); 1/0"
    check(call("POST", f"{path}/executions", json={"code": code}).json(), "Execution")
    check(call("POST", f"{path}/executions", json={"code": "5", "timeout_seconds": 9}).json(), "Execution")
    stream = call("POST", f"{path}/executions", json={"code": code}, headers={"Accept": "application/x-ndjson"})
    kinds = set()
    for line in stream.text.splitlines():
        check(json.loads(line), "Event")
        kinds.add(json.loads(line)["type"])
    assert kinds >= {"state", "stream", "display", "error", "end"}
    for execution in call("GET", f"{path}/executions").json()["executions"]:
        check(execution, "ExecutionSummary")
    check(call("GET", f"{path}/usage").json(), "SessionUsage")
    check(call("GET", f"{path}/network").json(), "SessionNetwork")
    call("POST", f"{path}/executions", json={"code": "open('x.txt', 'w').write('x')"})
    check(call("GET", f"{path}/changes/x.txt").json(), "FileChange")
    found = call("GET", "/executions?query=display(").json()
    assert found["found"]
    for one in found["found"]:
        check(one, "FoundExecution")
    assert call("DELETE", path).status_code == 204
    check(call("GET", path).json(), "Session")
    check(call("POST", f"{path}/executions", json={"code": "1"}).json(), "Error")
