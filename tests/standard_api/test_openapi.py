"""OpenAPI document of the standard API: valid, complete, served, and equal to the real responses."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import jsonschema
import pytest
import requests
import yaml
from openapi_spec_validator import validate

from jupyter_exec_ext.models import SessionState
from jupyter_exec_ext.standard_api.routes import STANDARD_ROUTES
from tests.standard_api.test_rest import UNKNOWN, call
from tests.support.bearers import mint, owner_of
from tests.support.hosts import Host

TEXT = files("jupyter_exec_ext.standard_api").joinpath("openapi_jupyter.yaml").read_text()
DOCUMENT: dict[str, Any] = yaml.safe_load(TEXT)
SCHEMAS = DOCUMENT["components"]["schemas"]


def test_document_is_valid() -> None:
    validate(DOCUMENT)


def test_document_has_exactly_the_routes_and_scopes_of_the_table() -> None:
    described = {
        (path, method.upper(), operation.get("x-scope"))
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }
    assert described == {
        (path, method, access.scopes or None)
        for path, _, methods in STANDARD_ROUTES
        for method, access in methods.items()
    }


def test_document_has_every_state() -> None:
    states = {state.value for state in SessionState} - {"ended"} | {"dead"}
    assert set(SCHEMAS["Kernel"]["properties"]["execution_state"]["enum"]) == states


def check(value: Any, schema: str) -> None:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.validate(value, whole, cls=jsonschema.Draft202012Validator, format_checker=checker)


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_responses_match_schemas_of_document(hosts: Any, name: str) -> None:
    host: Host = hosts[name]
    bearer = mint(host, policy="trusted", max_sessions=2)

    def send(method: str, path: str, status: int, schema: str, **options: Any) -> requests.Response:
        answer = call(host, method, path, bearer.token, **options)
        assert answer.status_code == status, answer.text
        for one in answer.json() if isinstance(answer.json(), list) else [answer.json()]:
            check(one, schema)
        return answer

    assert call(host, "GET", "/spec.yaml", bearer.token).text == TEXT
    for path, schema in (("", "Version"), ("/status", "Status"), ("/me", "Me"), ("/kernelspecs", "KernelSpecs")):
        send("GET", path, 200, schema)
    send("GET", "/kernelspecs/python3", 200, "KernelSpec")
    kernel = send("POST", "/kernels", 201, "Kernel", json={"name": "python3", "path": "a/b.ipynb"}).json()["id"]
    body = {"path": "c.ipynb", "name": "c", "type": "notebook", "kernel": {"name": "python3"}}
    session = send("POST", "/sessions", 201, "Session", json=body).json()["id"]
    assert len(send("GET", "/kernels", 200, "Kernel").json()) == len(send("GET", "/sessions", 200, "Session").json())
    send("GET", f"/kernels/{kernel}", 200, "Kernel")
    send("GET", f"/sessions/{session}", 200, "Session")
    send("PATCH", f"/sessions/{session}", 200, "Session", json={"path": "d.ipynb"})
    send("POST", f"/kernels/{kernel}/restart", 200, "Kernel")
    assert call(host, "POST", f"/kernels/{kernel}/interrupt", bearer.token).status_code == 204
    for method, path, status, options in (
        ("GET", f"/kernels/{UNKNOWN}", 404, {}),
        ("GET", "/nothing", 404, {}),
        ("PUT", "/kernels", 405, {}),
        ("POST", "/kernels", 400, {"json": []}),
        ("POST", "/kernels", 429, {"json": {}}),
        ("PATCH", f"/sessions/{session}", 409, {"json": {"kernel": {"id": kernel}}}),
        ("GET", f"/kernels/{kernel}/channels", 400, {}),
    ):
        send(method, path, status, "Error", **options)
    check(call(host, "GET", "/kernels", None).json(), "Error")
    for path in (f"/kernels/{kernel}", f"/sessions/{session}"):
        assert call(host, "DELETE", path, bearer.token).status_code == 204


def test_features_list_jupyter_api_without_token_in_url(hosts: Any) -> None:
    features = owner_of(hosts["server"]).call("GET", "/").json()["features"]
    assert "jupyter" in features and "jupyter.token-in-url" not in features
