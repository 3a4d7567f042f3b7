"""The HTTP API, from the OpenAPI document and the route table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import yaml

from jupyter_exec_ext.server.routes import OPEN_ROUTES, ROUTES, Route
from jupyter_exec_ext.standard_api.incoming_messages import RULES
from jupyter_exec_ext.standard_api.routes import STANDARD_ROUTES

from .markdown import code, section, sentence, table
from .schemas import Schema, bounds, extended, fields, link, type_of

_METHODS = ("get", "head", "put", "post", "patch", "delete")
#: The subjects of the requests, as the document has them.
TAGS = ("info", "sessions", "executions", "files", "checkpoints", "ports", "tokens", "secrets", "approvals", "events")


def document() -> Mapping[str, Any]:
    """Return the description that a server serves at ``openapi.yaml``."""
    text = (files("jupyter_exec_ext.server") / "openapi.yaml").read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = yaml.safe_load(text)
    return loaded


def request_table() -> str:
    """Return the table of all requests, in the order of the route table, with who may send each."""
    api = document()
    rows = []
    for route, method in _all_requests():
        summary = _operation(api, route, method)["summary"]
        rows.append([_link_to_request(route, method), sentence(summary), _who(route, method)])
    return table(["request", "does", "scope"], rows)


def standard_request_table() -> str:
    """Return the table of the requests of Jupyter's kernels API, with the scope of each."""
    text = (files("jupyter_exec_ext.standard_api") / "openapi_jupyter.yaml").read_text(encoding="utf-8")
    paths = yaml.safe_load(text)["paths"]
    rows = [
        [
            code(f"{method} /api{path}"),
            sentence(paths[path][method.lower()]["summary"]),
            _linked(access.scopes) or "any",
        ]
        for path, _, methods in STANDARD_ROUTES
        for method, access in methods.items()
    ]
    return table(["request", "does", "scope"], rows)


def standard_message_table() -> str:
    """Return the table of the messages that clients may send on a kernel's WebSocket, with the scope of each."""
    rows = [[code(kind), channel, _linked(access.scopes)] for (channel, kind), access in RULES.items()]
    return table(["message", "channel", "scope"], rows)


def requests(tag: str) -> str:
    """Return a section for each request with a tag, in the order of the route table."""
    api = document()
    chosen = [(route, method) for route, method in _all_requests() if tag in _operation(api, route, method)["tags"]]
    # Records have a page of their own.
    return "".join(_request(api, route, method) for route, method in chosen).replace("](#", "](records.md#")


def records() -> str:
    """Return a section for each record."""
    return "".join(_record(name, schema) for name, schema in document()["components"]["schemas"].items())


def _all_requests() -> Iterator[tuple[Route, str]]:
    for route in (*OPEN_ROUTES, *ROUTES):
        for method in route.methods:
            yield route, method


def _operation(api: Mapping[str, Any], route: Route, method: str) -> Mapping[str, Any]:
    operation: Mapping[str, Any] = api["paths"][route.path][method.lower()]
    return operation


def _link_to_request(route: Route, method: str) -> str:
    heading = f"{method} {route.path}"
    return f"[{code(heading)}](#{anchor(heading)})"


def anchor(heading: str) -> str:
    """Return the anchor that a heading gets, on code hosts and on the site."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _who(route: Route, method: str) -> str:
    access = route.methods[method]
    if route in OPEN_ROUTES:
        return "no token"
    return "owner" if access.owner_only else _linked(access.scopes) or "any"


def _linked(scopes: str) -> str:
    return re.sub(r"\w+:\w+", lambda name: f"[`{name[0]}`](scopes.md#{anchor(name[0])})", scopes)


def needs(route: Route, method: str) -> str:
    """Return who may send a request, in words."""
    access = route.methods[method]
    if route in OPEN_ROUTES:
        return "For everyone, without a token."
    if access.owner_only:
        return "For the server's owner alone."
    return f"Scope: {_linked(access.scopes)}." if access.scopes else "For every caller."


def _request(api: Mapping[str, Any], route: Route, method: str) -> str:
    path = api["paths"][route.path]
    operation = _operation(api, route, method)
    parameters = [*path.get("parameters", []), *operation.get("parameters", [])]
    return section(
        3,
        code(f"{method} {route.path}"),
        sentence(operation["summary"]),
        operation.get("description", ""),
        needs(route, method),
        _parameters(api, parameters),
        _body(operation.get("requestBody")),
        table(["answer", "meaning", "content"], _answers(api, operation["responses"])),
    )


def _parameters(api: Mapping[str, Any], given: list[Schema]) -> str:
    rows = []
    for one in (resolved(api, parameter) for parameter in given):
        text = " ".join(filter(None, [sentence(one.get("description", "")), bounds(one["schema"])]))
        rows.append([code(one["name"]), one["in"], type_of(one["schema"]), text])
    return table(["parameter", "in", "type", "meaning"], rows) if rows else ""


def _body(body: Schema | None) -> str:
    if body is None:
        return ""
    ((kind, content),) = body["content"].items()
    schema = content.get("schema")
    may = "" if body.get("required") else ", which may be absent"
    if schema is None:
        return f"Body: the bytes themselves, as {code(kind)}{may}."
    if "$ref" in schema:
        return f"Body: {link(schema['$ref'])}{may}."
    return f"Body{may}:\n\n{fields(schema)}"


def _answers(api: Mapping[str, Any], responses: Mapping[str, Schema]) -> Iterator[list[str]]:
    for status, response in responses.items():
        one = resolved(api, response)
        content = [
            f"{type_of(each['schema'])} ({code(kind)})" if "schema" in each else code(kind)
            for kind, each in one.get("content", {}).items()
        ]
        yield ["error" if status == "default" else status, one["description"], "; ".join(content)]


def _record(name: str, schema: Schema) -> str:
    also = [f"All of {link(reference)}, and:" for reference in extended(schema)]
    what = "" if fields(schema) else f"{sentence(f'One of {type_of(schema)}' if 'enum' in schema else type_of(schema))}"
    return section(3, code(name), sentence(schema.get("description", "")), what, *also, fields(schema))


def resolved(api: Mapping[str, Any], item: Schema) -> Schema:
    """Return an item, or what it refers to."""
    if "$ref" not in item:
        return item
    found: Any = api
    for part in item["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    resolved_item: Schema = found
    return resolved_item


def operations(api: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the requests that the document describes."""
    return {
        (method.upper(), path)
        for path, operations_ in api["paths"].items()
        for method in operations_
        if method in _METHODS
    }
