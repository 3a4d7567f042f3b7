"""Late output: whose it is, what of it is kept and counted, and which process ends a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_exec_ext.models import DisplayEvent, ErrorEvent, OutputEvent, StreamEvent
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage, Sender
from jupyter_exec_ext.protocol.late_output import (
    MAX_REQUESTS,
    MAX_WAITING_BYTES,
    MAX_WAITING_EVENTS,
    LateOutputBuffer,
    left_out_marker,
)
from jupyter_exec_ext.protocol.message_translation import RunTranslator, late_event
from jupyter_exec_ext.protocol.output_cap import OutputLimiter
from jupyter_exec_ext.protocol.output_joining import OutputFold
from jupyter_exec_ext.protocol.output_sizes import cost_of
from jupyter_exec_ext.protocol.records_json import event_from_json, event_to_json, event_to_text
from jupyter_exec_ext.protocol.run_states import End


def message(kind: str, content: dict[str, Any], parent: str | None = "old", channel: str = "iopub") -> KernelMessage:
    return KernelMessage(channel, kind, parent, content)


def text(words: str, parent: str | None = "old", name: str = "stdout") -> KernelMessage:
    return message("stream", {"name": name, "text": words}, parent)


def buffer_after(*executions: str) -> LateOutputBuffer:
    buffer = LateOutputBuffer()
    for name in executions:
        buffer.remember(name, f"exe_{name}")
    return buffer


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("stream", {"name": "stdout", "text": "a"}, StreamEvent("stdout", "a", late_from="exe_old")),
        ("stream", {"name": "stderr", "text": "a"}, StreamEvent("stderr", "a", late_from="exe_old")),
        (
            "display_data",
            {"data": {"text/plain": "a"}, "metadata": {}, "transient": {"display_id": "d"}},
            DisplayEvent({"text/plain": "a"}, {}, "d", late_from="exe_old"),
        ),
        (
            "update_display_data",
            {"data": {"text/plain": "a"}, "metadata": {}, "transient": {"display_id": "d"}},
            DisplayEvent({"text/plain": "a"}, {}, "d", update=True, late_from="exe_old"),
        ),
        # Not the value of the later execution, nor its error.
        (
            "execute_result",
            {"data": {"text/plain": "a"}, "metadata": {}, "execution_count": 7},
            DisplayEvent({"text/plain": "a"}, {}, late_from="exe_old"),
        ),
        (
            "error",
            {"ename": "E", "evalue": "v", "traceback": []},
            StreamEvent("stderr", "E: v\n", late_from="exe_old"),
        ),
        ("clear_output", {"wait": False}, None),
        ("status", {"execution_state": "idle"}, None),
        ("comm_msg", {}, None),
    ],
)
def test_late_message_becomes_output_of_the_next_execution(
    kind: str, content: dict[str, Any], expected: OutputEvent | None
) -> None:
    assert late_event(message(kind, content), "exe_old") == expected
    assert late_event(message(kind, content, channel="shell"), "exe_old") is None


@pytest.mark.parametrize("parent", [None, "", "of another client"])
def test_output_of_unknown_requests_is_not_late_output(parent: str | None) -> None:
    buffer = buffer_after("old")
    buffer.remember("", "exe_never_sent")
    assert buffer.keep(text("a", parent)) is None
    assert (buffer.take(), buffer.changed) == ([], {})


def test_late_output_is_kept_in_order_counted_and_taken_once() -> None:
    buffer = buffer_after("old", "new")
    for words, parent in (("a", "old"), ("é", "new"), ("b", "old")):
        buffer.keep(text(words, parent))
    assert {name: count.late_bytes for name, count in buffer.changed.items()} == {"exe_old": 2, "exe_new": 2}
    assert [(event.late_from, event.late) for event in buffer.take()] == [
        ("exe_old", True),
        ("exe_new", True),
        ("exe_old", True),
    ]
    assert buffer.take() == []


def test_only_the_newest_requests_are_remembered() -> None:
    buffer = buffer_after(*(str(number) for number in range(MAX_REQUESTS + 1)))
    assert buffer.keep(text("a", "0")) is None
    assert buffer.keep(text("a", "1")) is not None


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("x", MAX_WAITING_EVENTS + 500),
        ("x" * 1000, 2000),
        ("x" * (MAX_WAITING_BYTES * 4), 3),
        ("é" * 5000, 500),
        ("\x00" * 3000, 200),
    ],
)
def test_output_between_two_executions_is_bounded_and_the_rest_counted(words: str, count: int) -> None:
    buffer = buffer_after("old")
    for _ in range(count):
        buffer.keep(text(words))
    came = len(words.encode()) * count
    assert buffer.changed["exe_old"].late_bytes == came
    *events, marker = buffer.take()
    assert len(events) <= MAX_WAITING_EVENTS
    assert sum(map(cost_of, events)) <= MAX_WAITING_BYTES
    kept = sum(len(event.text.encode()) for event in events if isinstance(event, StreamEvent))
    assert kept > 0
    assert marker == StreamEvent("stderr", left_out_marker(came - kept), late_from="exe_old")
    buffer.keep(text("again"))  # there is room again
    assert buffer.take() == [StreamEvent("stdout", "again", late_from="exe_old")]


def test_a_display_beyond_the_room_is_left_out_as_a_whole() -> None:
    buffer = buffer_after("old")
    assert buffer.keep(message("display_data", {"data": {"text/plain": "x" * MAX_WAITING_BYTES}})) is None
    assert buffer.take() == [StreamEvent("stderr", left_out_marker(MAX_WAITING_BYTES), late_from="exe_old")]


def test_an_event_that_is_late_says_so_in_json_and_others_say_nothing() -> None:
    late = StreamEvent("stdout", "a", late_from="exe_old")
    told = event_to_json(late, 3, "now")
    assert told == {
        "seq": 3, "type": "stream", "at": "now", "name": "stdout", "text": "a", "late": True, "from": "exe_old",
    }  # fmt: skip
    read = event_from_json(told)
    assert read is not None
    assert (read.late, read.late_from, read.seq) == (True, "exe_old", 3)
    assert set(event_to_json(StreamEvent("stdout", "a"), 3, "now")) == {"seq", "type", "at", "name", "text"}
    line = event_to_text(StreamEvent("stdout", "", late_from=f"exe_{'f' * 24}"), 10**6, "2026-01-01T00:00:00.000Z")
    assert len(line) <= cost_of(late)


def test_late_text_is_an_output_of_its_own_and_the_record_names_its_source() -> None:
    fold = OutputFold()
    for event in (
        StreamEvent("stdout", "own "),
        StreamEvent("stdout", "late ", late_from="exe_a"),
        StreamEvent("stdout", "late too ", late_from="exe_a"),
        StreamEvent("stdout", "other", late_from="exe_b"),
    ):
        fold.add(event)
    assert [output["text"] for output in fold.outputs()] == ["own ", "late late too ", "other"]
    assert fold.late_from == ("exe_a", "exe_b")
    assert fold.text("stdout") == "own late late too other"


def test_late_text_is_not_joined_with_other_text_beyond_the_cap() -> None:
    limiter = OutputLimiter(4000)
    passed: list[OutputEvent] = []
    for number in range(400):
        late_from = "exe_a" if number % 2 else None
        passed += limiter.feed(StreamEvent("stdout", f"{number} " * 20, late_from=late_from))
    passed += limiter.close()
    assert sum(map(cost_of, passed)) < 4000 + 12 * 1024 + 1000
    for event in passed:
        if isinstance(event, StreamEvent):
            assert {int(word) % 2 for word in event.text.split()[1:]} <= {int(event.late)}


# --- which process ends a run --------------------------------------------------------------------------------------


def from_process(kind: str, content: dict[str, Any], msg_id: str, channel: str = "iopub") -> KernelMessage:
    return KernelMessage(channel, kind, "run", content, None, msg_id)


@pytest.mark.parametrize(
    ("parent", "other", "ends"),
    [
        ("s_1_1", "s_1_9", True),
        ("s_1_1", "s_2_9", False),  # a child
        ("s_1_1", "s_22222_9", False),
        ("s_1_1", "t_2_9", True),  # a kernel that has a session for each message
        ("3f2a", "77aa", True),  # ids that do not name a process
        ("s_1_1", "77aa", True),
        ("s_x_1", "s_y_9", True),
    ],
)
def test_only_the_process_that_began_ends_the_run(parent: str, other: str, ends: bool) -> None:
    translator = RunTranslator("run")
    translator.feed(from_process("status", {"execution_state": "busy"}, parent))
    translator.feed(from_process("status", {"execution_state": "idle"}, other))
    assert translator.states.is_idle is ends
    translator.feed(from_process("execute_reply", {"status": "ok"}, other, "shell"))
    assert (translator.states.end is End.COMPLETE) is ends
    child = from_process("stream", {"name": "stdout", "text": "child"}, other)
    assert translator.feed(child) == StreamEvent("stdout", "child")
    translator.feed(from_process("status", {"execution_state": "idle"}, parent))
    translator.feed(from_process("execute_reply", {"status": "ok"}, parent, "shell"))
    assert translator.states.end is End.COMPLETE
    assert translator.has_output_after_idle is ends


@pytest.mark.parametrize("msg_id", [None, 5, "", "a", "a_b", "a_1", "a_1_b", "a__1", "x" * 300 + "_1_1", ["a_1_1"]])
def test_a_message_id_of_another_form_names_no_process(msg_id: Any) -> None:
    assert from_process("status", {}, msg_id).sender is None


def test_a_message_id_of_jupyter_client_names_session_and_process() -> None:
    assert from_process("status", {}, "abc-def_17_3").sender == Sender("abc-def", "17")


def test_an_error_of_the_run_itself_is_still_its_error() -> None:
    translator = RunTranslator("run")
    event = translator.feed(from_process("error", {"ename": "E", "evalue": "v", "traceback": []}, "s_1_1"))
    assert isinstance(event, ErrorEvent)
    assert json.loads(event_to_text(event, 1, "now"))["name"] == "E"
