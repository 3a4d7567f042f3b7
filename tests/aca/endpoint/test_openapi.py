"""The description of the endpoint for ACA clients: valid, complete, served, documented, and true of what is sent."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from openapi_spec_validator import validate

from jupyter_exec_ext.aca.protocol.addresses import API_VERSIONS
from jupyter_exec_ext.aca.protocol.error_format import error_to_json
from jupyter_exec_ext.errors import ClientError, ExecError
from jupyter_exec_ext.server.routes import ACA_ROUTES
from tests.support.pool_clients import ENVELOPE, FLAT, pool_of

TEXT = files("jupyter_exec_ext.aca.endpoint").joinpath("openapi_aca.yaml").read_text()
DOCUMENT: dict[str, Any] = yaml.safe_load(TEXT)
SCHEMAS = DOCUMENT["components"]["schemas"]
PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "aca.md").read_text()
CODES = SCHEMAS["Error"]["properties"]["error"]["properties"]["code"]["enum"]


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


def test_it_has_the_routes_of_the_table_with_their_scopes_and_no_others() -> None:
    described = {
        (path, method.upper(), operation.get("x-scope"))
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
    }
    table = {(route.path, method, access.scope) for route in ACA_ROUTES for method, access in route.methods.items()}
    assert described == table


def test_the_documentation_has_every_route_with_its_scope() -> None:
    rows = {line.split("|")[1].strip(): line.split("|")[3].strip() for line in PAGE.splitlines() if "| `" in line}
    for route in ACA_ROUTES:
        for method, access in route.methods.items():
            assert rows[f"`{method} {route.path}`"] == (f"`{access.scope}`" if access.scope else "any")


def test_it_has_every_version_and_every_code_that_an_error_can_have() -> None:
    assert SCHEMAS["ApiVersion"]["enum"] == list(API_VERSIONS)
    sent = {kind for kind in ExecError.codes().values() if not issubclass(kind, ClientError)}
    told = {error_to_json(kind("x"))[1] for kind in sent}
    assert set(CODES) == told
    for code in CODES:
        assert f"`{code}`" in PAGE


def check(value: Any, schema: dict[str, Any]) -> None:
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema.validate(value, whole, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_what_the_server_sends_is_what_the_document_says(hosts: Any, name: str) -> None:
    pool = pool_of(hosts[name])

    def call(method: str, path: str, version: str = FLAT, status: int = 200, **options: Any) -> Any:
        operation = DOCUMENT["paths"][path][method.lower()]
        answer = pool.call(method, path.lstrip("/").format(**options.pop("fill", {})), version, **options)
        assert answer.status_code == status, answer.text
        response = operation["responses"].get(str(status), operation["responses"]["default"])
        response = DOCUMENT["components"]["responses"]["Error"] if "$ref" in response else response
        assert set(response.get("headers", {})) >= {
            header for header in ("operation-id", "Operation-Location", "x-ms-error-code") if header in answer.headers
        }
        if answer.content:
            [(kind, content)] = response["content"].items()
            assert answer.headers["Content-Type"].startswith(kind)
            if kind == "application/json":
                check(answer.json(), content["schema"])
        return answer

    assert call("GET", "/openapi.yaml").text == TEXT
    code = "print(1); open('a.txt', 'w').write('x')"
    call("POST", "/code/execute", ENVELOPE, json={"properties": {"code": code}})
    call("POST", "/code/execute", ENVELOPE, json={"properties": {"code": "1/0"}})
    call("POST", "/code/execute", ENVELOPE, 400, json={"code": "1"})
    call("POST", "/python/execute", ENVELOPE, json={"properties": {"pythonCode": "1"}})
    run = call("POST", "/executions", json={"code": "1/0"}, headers={"operation-id": "x"}).json()
    call("POST", "/executions", status=202, json={"code": "1", "executionType": "asynchronous"})
    call("GET", "/executions/{execution_id}", fill={"execution_id": run["id"]})
    call("GET", "/executions/{execution_id}", status=404, fill={"execution_id": "exe_x"})
    form = {"file": ("b.txt", b"x")}
    call("POST", "/files/upload", ENVELOPE, files=form)
    call("POST", "/files", files=form, query={"path": "d"})
    for version in API_VERSIONS:
        call("GET", "/files", version)
        call("GET", "/files/{path}", version, fill={"path": "a.txt"})
    call("DELETE", "/files/{path}", status=204, fill={"path": "a.txt"})
    call("GET", "/session")
    call("GET", "/listSessions")
    call("GET", "/metadata")
    call("POST", "/.management/getSession")
    call("POST", "/.management/listSessions")
    call("POST", "/.management/stopSession")
    call("DELETE", "/session", status=400)
