"""Large messages from a kernel, on their way into log and record."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest

from jupyter_exec_ext.models import DisplayEvent, Execution, ExecutionState
from jupyter_exec_ext.protocol.kernel_messages import FrameCodec, KernelMessage, Sender
from jupyter_exec_ext.protocol.large_messages import read_large
from jupyter_exec_ext.protocol.large_values import encode_in_pieces
from jupyter_exec_ext.protocol.message_translation import RunTranslator
from jupyter_exec_ext.protocol.output_joining import OutputFold, with_outputs
from jupyter_exec_ext.protocol.records_json import to_json
from jupyter_exec_ext.store.log_file import line_of

PICTURE = base64.b64encode(os.urandom(300_000)).decode()


def display(data: Any) -> DisplayEvent:
    """Return the event that a display with such data is, read from the kernel's message."""
    codec = FrameCodec(b"key", "hmac-sha256", "s")
    header = {"msg_type": "display_data", "msg_id": "1"}
    parts = [json.dumps(part).encode() for part in (header, {"msg_id": "ours"}, {}, {"data": data, "metadata": {}})]
    head = [b"topic", b"<IDS|MSG>", codec._sign(parts), *parts[:3]]
    (message,) = read_large(codec, "iopub", head, bytearray(parts[3]), 10_000_000)
    event = RunTranslator("ours").feed(message)
    assert isinstance(event, DisplayEvent)
    return event


def test_a_picture_is_the_same_in_log_and_record() -> None:
    event = display({"image/png": PICTURE, "text/plain": "<Figure>"})
    assert event.data == {"image/png": PICTURE, "text/plain": "<Figure>"}
    fold = OutputFold()
    fold.add(event)
    record = with_outputs(Execution("exe_1", "ses_1", ExecutionState.OK, "1", "t"), fold)
    parts = list(encode_in_pieces(to_json(record)))
    assert json.loads(line_of(event, 1, "t"))["data"] == event.data
    assert json.loads(b"".join(parts))["outputs"][0]["data"] == event.data


@pytest.mark.parametrize("odd", ["\n", '"', "\\", "é", "\x00"])
def test_characters_that_json_escapes_survive_in_the_log(odd: str) -> None:
    event = display({"text/html": PICTURE + odd})
    assert json.loads(line_of(event, 1, "t"))["data"] == {"text/html": PICTURE + odd}


def test_large_reply_of_forked_child_does_not_end_the_run() -> None:
    """Both processes have the session id of the kernel; their pids differ."""
    codec = FrameCodec(b"key", "hmac-sha256", "s")

    def read(channel: str, msg_type: str, pid: int, content: dict[str, Any]) -> KernelMessage:
        header = {"msg_type": msg_type, "msg_id": f"abc_{pid}_1"}
        parent = {"msg_id": "ours", "msg_type": "execute_request"}
        parts = [json.dumps(part).encode() for part in (header, parent, {}, content)]
        head = [b"<IDS|MSG>", codec._sign(parts), *parts[:3]]
        (message,) = read_large(codec, channel, head, bytearray(parts[3]), 10_000_000)
        return message

    translator = RunTranslator("ours")
    translator.feed(read("iopub", "status", 17, {"execution_state": "busy"}))
    error = {"status": "error", "ename": "E", "evalue": "x" * 300_000, "traceback": []}
    reply = read("shell", "execute_reply", 18, error)
    assert (reply.sender, reply.parent_type) == (Sender("abc", "18"), "execute_request")
    translator.feed(reply)
    assert translator.close() == []
    translator.feed(read("shell", "execute_reply", 17, error))
    assert len(translator.close()) == 1
