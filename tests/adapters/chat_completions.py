"""A model that is a script, behind the HTTP API that its clients expect."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class ChatCompletions(http.server.ThreadingHTTPServer):
    """Answers ``/chat/completions`` with one reply after another, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, replies: Sequence[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.replies = iter(replies)
        self.asked: list[dict[str, Any]] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ChatCompletions

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/chat/completions"
        self.server.asked.append(asked)
        answer = {
            "id": f"chatcmpl-{len(self.server.asked)}",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": next(self.server.replies)},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing: pytest shows what goes wrong."""


@contextmanager
def chat_completions(replies: Sequence[str]) -> Iterator[ChatCompletions]:
    """Serve a script on this machine."""
    with ChatCompletions(replies) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
