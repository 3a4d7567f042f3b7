"""Raw MCP client for tests: messages over HTTP in both revisions, without an SDK between."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import requests

from tests.support.bearers import Bearer

MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"
REVISIONS = (MODERN, HANDSHAKE)
TASKS = "io.modelcontextprotocol/tasks"
_PREFIX = "io.modelcontextprotocol/"
_NAMED = {"tools/call": "name", "resources/read": "uri"} | {
    f"tasks/{verb}": "taskId" for verb in ("get", "update", "cancel")
}


@dataclass
class RawClient:
    """A client with a token."""

    url: str
    token: str = field(repr=False)
    revision: str = MODERN
    extensions: dict[str, Any] = field(default_factory=dict)
    session_id: str = ""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    @classmethod
    def of(cls, bearer: Bearer, revision: str = MODERN, **fields: Any) -> RawClient:
        """Return a client with a bearer's token, after its handshake if the revision has one."""
        client = cls(f"{bearer.host.info.url}exec/mcp", bearer.token, revision, **fields)
        if revision == HANDSHAKE:
            client.shake_hands()
        return client

    def shake_hands(self) -> None:
        """Open a protocol session."""
        about = {"name": "raw", "version": "1"}
        answer = self.post("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": about})
        assert answer.status_code == 200, answer.text
        self.session_id = answer.headers["Mcp-Session-Id"]
        assert self.send({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202

    def message(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return a request with an id of its own."""
        params = dict(params or {})
        if self.revision == MODERN:
            params["_meta"] = {
                f"{_PREFIX}protocolVersion": MODERN,
                f"{_PREFIX}clientInfo": {"name": "raw", "version": "1"},
                f"{_PREFIX}clientCapabilities": {"extensions": self.extensions},
                **params.get("_meta", {}),
            }
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}

    def headers_for(self, message: Any) -> dict[str, str]:
        """Return the headers of a message."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json, text/event-stream"}
        if self.session_id:
            headers["Mcp-Session-Id"] = self.session_id
        if self.revision == MODERN and isinstance(message, dict) and isinstance(message.get("method"), str):
            method = message["method"]
            headers["Mcp-Method"] = method
            params = message.get("params")
            name = params.get(_NAMED[method]) if method in _NAMED and isinstance(params, dict) else None
            if isinstance(name, str):
                headers["Mcp-Name"] = name
        return headers | {"MCP-Protocol-Version": self.revision}

    def send(self, message: Any, headers: dict[str, str] | None = None, **options: Any) -> requests.Response:
        """Send a message."""
        options.setdefault("timeout", 90)
        return requests.post(self.url, json=message, headers=self.headers_for(message) | (headers or {}), **options)

    def post(self, method: str, params: dict[str, Any] | None = None, **options: Any) -> requests.Response:
        """Send a request."""
        return self.send(self.message(method, params), **options)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, and return its response: a result or an error."""
        return last_message(self.post(method, params))

    def tool(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool, and return its result."""
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, method: str, params: dict[str, Any] | None = None) -> requests.Response:
        """Send a request whose response is read while it comes."""
        return self.post(method, params, stream=True)

    def get(self, last_event_id: str = "", **options: Any) -> requests.Response:
        """Open the stream of messages that belong to no request, or the rest of a response."""
        headers = self.headers_for(None) | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        return requests.get(self.url, headers=headers, stream=True, timeout=30, **options)

    def delete(self) -> int:
        """End the protocol session; return the status."""
        return requests.delete(self.url, headers=self.headers_for(None), timeout=30).status_code


def events(answer: requests.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ids and messages of a stream while they come."""
    event_id = ""
    for line in answer.iter_lines():
        if line.startswith(b"id: "):
            event_id = line[4:].decode()
        elif line.startswith(b"data: ") and line[6:].strip():
            yield event_id, json.loads(line[6:])


def last_message(answer: requests.Response) -> dict[str, Any]:
    """Return the response in an answer, which may be a stream."""
    if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
        return [message for _, message in events(answer)][-1]
    message: dict[str, Any] = answer.json()
    return message


def text_of(result: dict[str, Any]) -> str:
    """Return the text of a tool's result."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
