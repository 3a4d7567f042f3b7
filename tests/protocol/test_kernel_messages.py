from __future__ import annotations

import hashlib
import hmac
import json
import struct
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.models import (
    ClearEvent,
    DisplayEvent,
    ErrorEvent,
    ErrorInfo,
    ExecutionState,
    InputRequestEvent,
    OutputEvent,
    ResultEvent,
    StreamEvent,
)
from jupyter_exec_ext.models.plain_text import strip_ansi
from jupyter_exec_ext.protocol.kernel_messages import (
    FrameCodec,
    KernelMessage,
    decode_websocket,
    encode_websocket,
    execute_request,
    new_header,
    unpack_parts,
)
from jupyter_exec_ext.protocol.message_translation import MAX_COLOUR_BYTES, RunTranslator
from jupyter_exec_ext.protocol.run_states import Code, End

from .recorded import MSG_ID, clear, display, error, message, reply, result, run_of, status, stream


def translate(messages: list[KernelMessage]) -> tuple[RunTranslator, list[OutputEvent]]:
    translator = RunTranslator(MSG_ID)
    events = [event for event in map(translator.feed, messages) if event is not None]
    return translator, events + translator.close()


# --- what messages mean ---


def test_each_kind_of_output_becomes_its_event() -> None:
    _, events = translate(
        run_of(
            stream("a"),
            stream("b", "stderr"),
            display({"text/plain": "d"}, "id-1"),
            display({"text/plain": "u"}, "id-1", update=True),
            clear(wait=True),
            result("5", 3),
        )
    )
    assert events == [
        StreamEvent("stdout", "a"),
        StreamEvent("stderr", "b"),
        DisplayEvent({"text/plain": "d"}, {}, "id-1", False),
        DisplayEvent({"text/plain": "u"}, {}, "id-1", True),
        ClearEvent(True),
        ResultEvent({"text/plain": "5"}, {}, 3),
    ]


def test_a_run_is_complete_when_reply_and_idle_have_both_come() -> None:
    for halves in ([reply(), status("idle")], [status("idle"), reply()]):
        translator = RunTranslator(MSG_ID)
        translator.feed(halves[0])
        assert translator.states.end is None
        translator.feed(halves[1])
        assert translator.states.end is End.COMPLETE


def test_a_reply_on_iopub_is_no_reply() -> None:
    translator = RunTranslator(MSG_ID)
    translator.feed(message("execute_reply", {"status": "ok"}, channel="iopub"))
    assert not translator.states.has_reply


def test_the_code_counts_as_started_when_the_kernel_repeats_it() -> None:
    translator = RunTranslator(MSG_ID)
    translator.feed(status("busy"))
    progress = [translator.states.code]
    translator.feed(message("execute_input", {"code": "1", "execution_count": 9}))
    progress.append(translator.states.code)
    assert progress == [Code.TAKEN_UP, Code.RUNNING]
    assert translator.execution_count == 9


@pytest.mark.parametrize(
    ("messages", "state"),
    [
        (run_of(), ExecutionState.OK),
        (run_of(error(), status_reply="error"), ExecutionState.ERROR),
        (run_of(error()), ExecutionState.ERROR),
        ([reply("aborted"), status("idle")], ExecutionState.CANCELLED),
        ([reply("abort"), status("idle")], ExecutionState.CANCELLED),
        ([error(), status("idle")], ExecutionState.ERROR),
        ([status("idle")], ExecutionState.OK),
    ],
    ids=["ok", "error", "error before ok", "aborted", "abort", "error without reply", "idle without reply"],
)
def test_the_verdict_follows_reply_and_errors(messages: list[KernelMessage], state: ExecutionState) -> None:
    translator, _ = translate(messages)
    assert translator.verdict() is state


def test_an_error_has_its_traceback_plain_and_coloured() -> None:
    translator, events = translate(run_of(error("ValueError", "bad"), status_reply="error"))
    assert events == [ErrorEvent("ValueError", "bad", "---\nValueError: bad", "\x1b[31m---\x1b[39m\nValueError: bad")]
    assert translator.error == ErrorInfo("ValueError", "bad", "---\nValueError: bad")


def test_colours_are_kept_up_to_their_limit_and_no_other_escape_sequences() -> None:
    hostile = "\x1b]8;;javascript:x\x07go\x1b]8;;\x07\x1b[2J\x1b[31mred\x1b[0m\x9b31m\rb\x08\x85c"
    (event,) = translate(run_of(raised(hostile)))[1]
    assert isinstance(event, ErrorEvent)
    assert event.coloured_traceback == "go\x1b[31mred\x1b[0mbc"
    for text in ("no colours", "\x1b[31m" + "x" * MAX_COLOUR_BYTES, "\x1b[31m" * (MAX_COLOUR_BYTES // 8)):
        (event,) = translate(run_of(raised(text)))[1]
        assert isinstance(event, ErrorEvent)
        assert (event.traceback, event.coloured_traceback) == (strip_ansi(text), "")
    half = "\x1b[31m" + "x" * (MAX_COLOUR_BYTES // 2)
    events = translate(run_of(raised(half), raised(half), raised("\x1b[31mshort")))[1]
    kept = [isinstance(event, ErrorEvent) and bool(event.coloured_traceback) for event in events]
    assert kept == [True, False, True]


def raised(traceback: str) -> KernelMessage:
    return message("error", {"ename": "E", "evalue": "v", "traceback": [traceback]})


def test_an_error_that_only_the_reply_carries_is_not_lost() -> None:
    only_reply = reply("error", ename="NameError", evalue="x", traceback=["tb"])
    translator, events = translate([status("busy"), only_reply, status("idle")])
    assert events == [ErrorEvent("NameError", "x", "tb")]
    assert translator.error is not None


def test_an_error_on_both_channels_is_one_error() -> None:
    both = reply("error", ename="ValueError", evalue="bad", traceback=["tb"])
    _, events = translate([error(), both, status("idle")])
    assert len(events) == 1


def test_the_pagers_text_comes_from_the_reply() -> None:
    paged = reply(payload=[{"source": "page", "data": {"text/plain": "help"}}, {"source": "ask_exit"}, "odd"])
    _, events = translate([paged, status("idle")])
    assert events == [DisplayEvent({"text/plain": "help"}, {})]


def test_an_input_request_says_what_is_asked() -> None:
    translator, events = translate([message("input_request", {"prompt": "pw", "password": True}, channel="stdin")])
    assert events == [InputRequestEvent("pw", True)]
    assert translator.waiting_for_input


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"name": 5, "text": None},
        {"data": "no mapping", "metadata": [], "transient": 7},
        {"ename": None, "evalue": 3, "traceback": "text"},
        {"execution_count": "x", "payload": {}},
        {"execution_state": []},
        {"wait": "yes"},
    ],
)
@pytest.mark.parametrize(
    "msg_type",
    ["stream", "display_data", "execute_result", "error", "clear_output", "status", "execute_input", "unknown"],
)
def test_odd_content_never_raises(msg_type: str, content: dict[str, object]) -> None:
    translate([message(msg_type, content), message("execute_reply", content, channel="shell")])


def test_content_that_is_not_json_is_empty() -> None:
    assert KernelMessage("iopub", "stream", None, b"{").content == {}
    assert KernelMessage("iopub", "stream", None, b"[1]").content == {}
    assert KernelMessage("iopub", "stream", None, b"\xff").content == {}


def test_nan_in_content_is_read_as_text() -> None:
    data = KernelMessage("iopub", "display_data", None, b'{"data":{"application/json":{"x":NaN,"y":-Infinity}}}')
    assert data.content["data"]["application/json"] == {"x": "NaN", "y": "-Infinity"}


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[0;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b[2K\x1b[1Gline", "line"),
        ("\x1bM\x1b7up", "up"),
        ("no escapes", "no escapes"),
    ],
)
def test_escape_sequences_are_stripped(text: str, plain: str) -> None:
    assert strip_ansi(text) == plain


def test_an_execute_request_does_not_abort_what_others_have_queued() -> None:
    content = execute_request("1", allow_input=False)
    assert (content["stop_on_error"], content["allow_stdin"], content["silent"]) == (False, False, False)


# --- how messages travel ---


def test_frames_are_signed_as_the_protocol_says() -> None:
    codec = FrameCodec(b"key", "hmac-sha256", "client")
    msg_id, frames = codec.encode("execute_request", {"code": "ü"})
    delimiter, signature, *parts = frames
    assert delimiter == b"<IDS|MSG>"
    assert signature.decode() == hmac.new(b"key", b"".join(parts), hashlib.sha256).hexdigest()
    header = json.loads(parts[0])
    assert (header["msg_id"], header["msg_type"], header["session"]) == (msg_id, "execute_request", "client")
    assert header["date"].endswith("+00:00")
    assert json.loads(parts[3]) == {"code": "ü"}


def frames_of(codec: FrameCodec, parts: list[bytes]) -> list[bytes]:
    return [b"topic", b"<IDS|MSG>", codec._sign(parts), *parts]


def test_a_message_is_read_back() -> None:
    codec = FrameCodec(b"key", "hmac-sha256", "client")
    parts = [b'{"msg_type":"stream"}', b'{"msg_id":"run-1"}', b"{}", b'{"text":"x"}']
    read = codec.decode("iopub", [*frames_of(codec, parts), b"buffer"])
    assert (read.channel, read.msg_type, read.parent_id, read.content) == ("iopub", "stream", "run-1", {"text": "x"})


def test_an_unsigned_kernel_is_read_too() -> None:
    codec = FrameCodec(b"", "hmac-sha256", "client")
    parts = [b'{"msg_type":"status"}', b"{}", b"{}", b"{}"]
    assert codec.decode("iopub", [b"<IDS|MSG>", b"", *parts]).parent_id is None


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"no delimiter"],
        [b"<IDS|MSG>"],
        [b"<IDS|MSG>", b"bad", b"{}", b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"", b"{}", b"{}"],
    ],
)
def test_malformed_or_forged_frames_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r".*"):
        FrameCodec(b"key", "hmac-sha256", "client").decode("iopub", frames)


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_random_frames_are_refused_and_nothing_else(frames: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r".*"):
        FrameCodec(b"key", "hmac-sha256", "client").decode("iopub", frames)


@pytest.mark.parametrize("binary", [True, False])
def test_a_websocket_message_survives_the_trip(binary: bool) -> None:
    header = new_header("execute_request", "client")
    data = encode_websocket("shell", header, {"code": "ü"}, binary=binary)
    assert isinstance(data, bytes) is binary
    read = decode_websocket(data)
    assert (read.channel, read.msg_type, read.parent_id) == ("shell", "execute_request", None)
    assert read.content == {"code": "ü"}


def test_the_json_form_is_the_protocols() -> None:
    header = new_header("execute_request", "client")
    message = json.loads(encode_websocket("shell", header, {"code": "1"}, binary=False))
    common = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}}
    assert message == {**common, "content": {"code": "1"}, "buffers": []}
    assert datetime.fromisoformat(header["date"]).tzinfo is not None


def test_the_binary_form_is_jupyter_servers() -> None:
    from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1

    header = new_header("execute_request", "client")
    data = encode_websocket("shell", header, {"code": "1"}, binary=True)
    assert isinstance(data, bytes)
    channel, parts = deserialize_msg_from_ws_v1(data)
    assert (channel, json.loads(parts[0]), json.loads(parts[3])) == ("shell", header, {"code": "1"})
    sent = serialize_msg_to_ws_v1([b'{"msg_type":"status"}', b'{"msg_id":"p"}', b"{}", b"{}", b"buffer"], "iopub")
    assert decode_websocket(sent).parent_id == "p"


@pytest.mark.parametrize("data", ["", "[]", "{}", "nope", b"", b"\x00", struct.pack("<Q", 2**60), b"\x01" * 100])
def test_malformed_websocket_messages_are_refused(data: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode_websocket(data)


def test_parts_that_overlap_are_refused() -> None:
    body = b"x" * 1000
    for offsets in (
        [8 * 8, 1064, 64, 1064, 64, 1064, 1064],  # the same bytes again and again
        [0, 8, 16, 24, 32, 40],  # in the offsets themselves
        [64, 64, 64, 64, 64, 10**6],  # beyond the end
    ):
        frame = struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + body
        with pytest.raises(ValueError, match="overlap"):
            unpack_parts(frame)
