"""Scripted model behind OpenAI's two APIs, Chat Completions and Responses.

Clients find it by the environment variable ``OPENAI_BASE_URL``, so a page's program runs as it stands there.
`tests.adapters.chat_completions` is the simple one, which knows no tools.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

#: The code that the model has run with a tool, and its last answer, which holds the tool's result.
CODE = "sum(n * n for n in range(1, 21))"
ANSWER = "The sum of the first 20 squares is {}."


class ScriptedModel(http.server.ThreadingHTTPServer):
    """Has code run with the tool that it is offered, and answers with the result; without a tool it sends texts.

    Parameters
    ----------
    texts : sequence of str
        Replies to requests that offer no tool, one after the other.
    """

    daemon_threads = True

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.texts = iter(texts)
        self.problems: list[str] = []

    def reply(self, tools: Sequence[Any], result: str | None) -> str | dict[str, str]:
        """Return the next reply: a text, or the name and the arguments of a tool to call."""
        if result is not None:
            return ANSWER.format(result.strip())
        if not tools:
            return next(self.texts)
        (tool,) = (tool.get("function", tool) for tool in tools)
        wanted = {"code": CODE}
        if "language" in tool["parameters"]["properties"]:
            wanted["language"] = "python"
        return {"name": tool["name"], "arguments": json.dumps(wanted)}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ScriptedModel

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers = {"/v1/chat/completions": self._chat_completion, "/v1/responses": self._response}
        if self.path not in answers or asked.get("stream"):
            self.server.problems.append(f"the model was asked for {self.path}, stream={asked.get('stream')}")
            self.send_error(404)
            return
        body = json.dumps(answers[self.path](asked)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _chat_completion(self, asked: dict[str, Any]) -> dict[str, Any]:
        last = asked["messages"][-1]
        reply = self.server.reply(asked.get("tools") or [], _text(last["content"]) if last["role"] == "tool" else None)
        message: dict[str, Any] = {"role": "assistant", "content": reply}
        if not isinstance(reply, str):
            call = {"id": "call_1", "type": "function", "function": reply}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        ended = "stop" if isinstance(reply, str) else "tool_calls"
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": f"{asked['model']}-2025-08-07",  # the API names the version, and AutoGen compares
            "choices": [{"index": 0, "message": message, "finish_reason": ended}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }

    def _response(self, asked: dict[str, Any]) -> dict[str, Any]:
        given = asked["input"]
        last = given[-1] if isinstance(given, list) else {}
        result = _text(last["output"]) if last.get("type") == "function_call_output" else None
        reply = self.server.reply(asked.get("tools") or [], result)
        item: dict[str, Any] = {"id": "item_1", "status": "completed"}
        if isinstance(reply, str):
            content = [{"type": "output_text", "text": reply, "annotations": []}]
            item |= {"type": "message", "role": "assistant", "content": content}
        else:
            item |= {"type": "function_call", "call_id": "call_1", **reply}
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": f"{asked['model']}-2025-08-07",
            "output": [item],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        }

    def log_message(self, *args: Any) -> None:
        """Print nothing: the page's program prints what goes wrong."""


def _text(content: Any) -> str:
    """Return the text of a tool's result, which is a string or a list of parts."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@contextmanager
def scripted_model(texts: Sequence[str]) -> Iterator[ScriptedModel]:
    """Serve a scripted model on this machine."""
    with ScriptedModel(texts) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        try:
            yield model
        finally:
            model.shutdown()
