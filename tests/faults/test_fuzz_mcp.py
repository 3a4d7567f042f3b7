"""Messages of the Model Context Protocol that no client would send: the endpoint fails at none, and none hangs.

By default each message is the same every time; in full they differ, and the seed is printed. `EXEC_FUZZ_SEED` repeats
a run.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import requests
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from tests.mcp.raw_client import HANDSHAKE, MODERN, TASKS, RawClient, text_of
from tests.support.bearers import UNPROTECTED, mint
from tests.support.full import SCALE, scaled
from tests.support.hosts import running_host

SEED = int(os.environ.get("EXEC_FUZZ_SEED", "33" if SCALE == 1 else str(random.SystemRandom().randrange(2**32))))
MESSAGES = scaled(10_000, per_commit=100)
_ANSWER_SECONDS = 30
_CODES = ["1", "print('x')", "1 / 0", "open('a.txt', 'w').write('x')", "\ud800", "x" * 100_000]

NUMBERS = st.one_of(
    st.integers(), st.integers(-(10**400), 10**400), st.floats(), st.sampled_from([2**31, 2**53, 2**63, 2**64, -1, 0])
)
TEXTS = st.one_of(st.text(st.characters(codec=None), max_size=30), st.sampled_from(["", "\x00", "\udfff", "é" * 3000]))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
# Bodies that no JSON library would write.
BODIES = [
    b"",
    b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001,
    b'{"jsonrpc":"2.0","id":' + b"9" * 10_000 + b',"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"\\udfff"}',
    b'{"jsonrpc":"2.0","id":NaN,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1e400,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}',
    b"\xff\xfe\x00",
    b"[]",
    b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]',
]
METHODS = [
    *("tools/list", "server/discover", "initialize", "ping", "resources/list", "resources/templates/list"),
    *("prompts/list", "completion/complete", "logging/setLevel", "notifications/cancelled", "notifications/progress"),
    *("notifications/initialized", "tasks/list", "tasks/result", "roots/list", "elicitation/create"),
]


def templates(session: str, execution: str) -> list[tuple[str, dict[str, Any]]]:
    """Return valid requests."""
    uri = f"exec://session/{session}/files/a.txt"
    tools: list[tuple[str, dict[str, Any]]] = [
        *(("execute_code", {"code": code, "session": session, "timeout_seconds": 5}) for code in _CODES),
        ("interrupt_session", {"session": session}),
        ("list_sessions", {}),
        ("list_files", {"session": session, "path": ""}),
        ("read_file", {"session": session, "path": "a.txt", "offset": 1, "max_bytes": 10}),
        ("write_file", {"session": session, "path": "b.txt", "text": "x"}),
        ("write_file", {"session": session, "path": "b.bin", "base64": "AAAA"}),
        ("download_output", {"execution": execution, "name": "stdout"}),
        ("end_session", {"session": "ses_nothing"}),
        ("start_session", {"kernel_name": "no such kernel"}),
    ]
    return [
        *(("tools/call", {"name": name, "arguments": arguments}) for name, arguments in tools),
        *((method, {}) for method in METHODS),
        ("resources/read", {"uri": uri}),
        ("resources/subscribe", {"uri": uri}),
        ("resources/unsubscribe", {"uri": uri}),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri], "taskIds": [execution]}}),
        ("tasks/get", {"taskId": execution}),
        ("tasks/cancel", {"taskId": execution}),
        ("tasks/update", {"taskId": execution, "inputResponses": {"input-1": {"action": "accept"}}}),
    ]


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a message with each of its keys."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places_in(value[key])


def mutate(draw: Any, message: Any) -> Any:
    """Return a message with some of its parts replaced, removed, or added."""
    message = copy.deepcopy(message)
    for _ in range(draw(st.integers(0, 3))):
        places = list(places_in(message))
        if not places:
            return message
        container, key = draw(st.sampled_from(places))
        how = draw(st.sampled_from(["replace", "remove", "add", "replace"]))
        if how == "replace":
            container[key] = draw(VALUES)
        elif how == "remove":
            del container[key]
        elif isinstance(container, dict):
            container[draw(TEXTS)] = draw(VALUES)
    return message


def send(client: RawClient, body: bytes, headers: dict[str, str]) -> int:
    """Send a body, read its answer or the first of its stream, and return the status."""
    # A message's method and name are in headers, too, and no client can send all texts there.
    encoded = {name: re.sub(rb"[\r\n]|^\s", b"?", value.encode("utf-8", "replace")) for name, value in headers.items()}
    shown: dict[str, str | bytes | None] = {"Content-Type": "application/json", **encoded}
    with requests.post(client.url, data=body, headers=shown, timeout=_ANSWER_SECONDS, stream=True) as answer:
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            next(answer.iter_content(None), b"")
        elif answer.content:
            answer.json()
        return answer.status_code


def fuzz(clients: list[RawClient], session: str, execution: str) -> Counter[int]:
    """Send the messages, and return how often which status came."""
    statuses: Counter[int] = Counter()
    known = templates(session, execution)

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=MESSAGES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(st.data())
    def ask(data: st.DataObject) -> None:
        draw = data.draw
        client = draw(st.sampled_from(clients))
        kind = draw(st.sampled_from(["mutated"] * 6 + ["random", "body", "response"]))
        message: Any = None
        if kind == "mutated":
            message = mutate(draw, client.message(*draw(st.sampled_from(known))))
        elif kind == "response":
            message = mutate(draw, {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "x"}})
        elif kind == "random":
            message = draw(VALUES)
        body = draw(st.sampled_from(BODIES)) if kind == "body" else json.dumps(message).encode()
        headers = client.headers_for(message)
        if draw(st.integers(0, 9)) == 0:
            name = draw(st.sampled_from([*headers, "Mcp-Param-Session", "Mcp-Name", "Last-Event-ID"]))
            if name != "Authorization":
                headers[name] = draw(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20))
        status = send(client, body, headers)
        statuses[status] += 1
        assert status < 500, (status, body[:2000], headers)

    ask()
    return statuses


@pytest.mark.timeout(240 * SCALE)
def test_f33_no_message_of_mcp_makes_the_server_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """10,000 (100) messages in both revisions: no failure, no hang, and the server works as before."""
    with running_host("server", tmp_path, UNPROTECTED) as host:
        bearer = mint(host, max_sessions=3)
        session = bearer.session()
        execution = bearer.run(session, "print(1)").json()["id"]
        clients = [RawClient.of(bearer, MODERN, extensions={TASKS: {}}), RawClient.of(bearer, HANDSHAKE)]
        statuses = fuzz(clients, session, execution)
        for client in clients:
            if client.revision == HANDSHAKE:  # a mutated message may have ended its protocol session
                client.shake_hands()
            assert text_of(client.tool("execute_code", code="6 * 7", session=session)) == "42"
        assert statuses.total() >= MESSAGES and statuses[200] > MESSAGES / 5
        assert "failed (request" not in host.log_text()
        assert "Traceback" not in host.log_text()
    with capsys.disabled():
        print(f"\nF33: {statuses.total()} messages, {dict(sorted(statuses.items()))}, seed {SEED}")
