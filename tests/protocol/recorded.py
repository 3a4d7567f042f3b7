"""Messages as kernels send them, written down."""

from __future__ import annotations

from typing import Any

from jupyter_exec_ext.protocol.kernel_messages import KernelMessage

MSG_ID = "run-1"


def message(
    msg_type: str, content: dict[str, Any], channel: str = "iopub", parent: str | None = MSG_ID
) -> KernelMessage:
    return KernelMessage(channel, msg_type, parent, content)


def status(state: str) -> KernelMessage:
    return message("status", {"execution_state": state})


def stream(text: str, name: str = "stdout") -> KernelMessage:
    return message("stream", {"name": name, "text": text})


def display(data: dict[str, Any], display_id: str | None = None, *, update: bool = False) -> KernelMessage:
    transient = {} if display_id is None else {"display_id": display_id}
    kind = "update_display_data" if update else "display_data"
    return message(kind, {"data": data, "metadata": {}, "transient": transient})


def clear(*, wait: bool = False) -> KernelMessage:
    return message("clear_output", {"wait": wait})


def result(text: str, count: int = 1) -> KernelMessage:
    return message("execute_result", {"data": {"text/plain": text}, "metadata": {}, "execution_count": count})


def error(name: str = "ValueError", value: str = "bad") -> KernelMessage:
    traceback = ["\x1b[31m---\x1b[39m", f"\x1b]8;;file:///x\x07{name}\x1b]8;;\x07: {value}"]
    return message("error", {"ename": name, "evalue": value, "traceback": traceback})


def reply(status: str = "ok", count: int = 1, **content: Any) -> KernelMessage:
    return message("execute_reply", {"status": status, "execution_count": count, **content}, channel="shell")


def run_of(*messages: KernelMessage, status_reply: str = "ok") -> list[KernelMessage]:
    """Return a whole run around its output messages."""
    begin = [status("busy"), message("execute_input", {"code": "…", "execution_count": 1})]
    return [*begin, *messages, reply(status_reply), status("idle")]
