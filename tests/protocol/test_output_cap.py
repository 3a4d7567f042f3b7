"""The cap on output, as a bound on the log: whatever a kernel sends, the log has little more than the cap."""

from __future__ import annotations

import json
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.models import (
    DisplayEvent,
    EndEvent,
    ErrorEvent,
    Execution,
    ExecutionState,
    FileInfo,
    FilesEvent,
    InputRequestEvent,
    OutputEvent,
    ResponsiveEvent,
    StateEvent,
    StreamEvent,
    TruncatedEvent,
    UnresponsiveEvent,
)
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage
from jupyter_exec_ext.protocol.large_json_parser import LeftOut
from jupyter_exec_ext.protocol.message_translation import RunTranslator
from jupyter_exec_ext.protocol.output_cap import OutputLimiter
from jupyter_exec_ext.protocol.output_joining import OutputFold, finished_record
from jupyter_exec_ext.protocol.output_overflow import Overflow, SpooledFile
from jupyter_exec_ext.protocol.output_sizes import cost_of, fitting_head
from jupyter_exec_ext.protocol.strict_json import dump_bytes, encoded_size
from jupyter_exec_ext.store.log_file import line_of

SLACK_BYTES = 64 * 1024
MOMENT = "2026-11-25T12:00:00.000000Z"


class FakeSpool:
    """A spool that remembers sizes only."""

    max_bytes = 1 << 40

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def append(self, name: str, content: Any, size_bytes: int) -> None:
        self.sizes[name] = self.sizes.get(name, 0) + size_bytes

    def remove(self, name: str) -> None:
        self.sizes.pop(name, None)


class Log:
    """The log of one execution, made of a kernel's messages as the engine makes it."""

    def __init__(self, cap: int, *, allow_input: bool = False) -> None:
        self.lines: list[bytes] = []
        self._translator = RunTranslator("ours", allow_input=allow_input)
        self._fold = OutputFold()
        self._spool = FakeSpool()
        self._overflow: Overflow[FakeSpool] = Overflow(self._fold, lambda: self._spool)
        self._limiter = OutputLimiter(cap, self._overflow)
        for state in (ExecutionState.AWAITING_APPROVAL, ExecutionState.QUEUED, ExecutionState.RUNNING):
            self._add(StateEvent(state))

    def _add(self, event: OutputEvent) -> None:
        self._fold.add(event)
        self.lines.append(line_of(event, 10**9 + len(self.lines), MOMENT) + b"\n")

    def feed(self, channel: str, msg_type: str, content: dict[str, Any]) -> None:
        event = self._translator.feed(KernelMessage(channel, msg_type, "ours", content))
        if event is not None:
            self.emit(event)

    def emit(self, event: OutputEvent) -> None:
        if self._overflow.active:
            self._overflow.see(event)
        for passed in self._limiter.feed(event):
            self._add(passed)
        if self._overflow.active:
            self._overflow.flush()

    def close(self, files: FilesEvent | None = None) -> int:
        """End the execution and return the size of its log."""
        for event in self._translator.close():
            self.emit(event)
        written = {name: SpooledFile(size, "0" * 64, True) for name, size in self._spool.sizes.items()}
        report = self._overflow.report(written, None)
        if files is not None:
            files = self._limiter.fit_files(files)
        for event in self._limiter.close(*report):
            self._add(event)
        if files is not None:
            self._add(files)
        accepted = Execution("exe_" + "0" * 24, "ses_" + "0" * 24, ExecutionState.RUNNING, "code", MOMENT)
        self._add(EndEvent(finished_record(accepted, self._fold, ExecutionState.ERROR, reason="r" * 200)))
        return sum(map(len, self.lines))


TEXT = st.text(max_size=40) | st.builds(lambda text, times: text * times, st.text(max_size=5), st.integers(0, 3000))
VALUES = TEXT | st.recursive(
    st.none() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)
)
BUNDLES = st.dictionaries(TEXT, VALUES, max_size=5)
MESSAGES = st.one_of(
    st.tuples(st.just("iopub"), st.just("stream"), st.fixed_dictionaries({"name": TEXT, "text": TEXT})),
    st.tuples(
        st.just("iopub"),
        st.sampled_from(["display_data", "update_display_data", "execute_result"]),
        st.fixed_dictionaries(
            {"data": BUNDLES, "metadata": BUNDLES, "transient": st.fixed_dictionaries({"display_id": VALUES})}
        ),
    ),
    st.tuples(
        st.sampled_from(["iopub", "shell"]),
        st.sampled_from(["error", "execute_reply"]),
        st.fixed_dictionaries(
            {"status": st.just("error"), "ename": TEXT, "evalue": TEXT, "traceback": st.lists(TEXT, max_size=3)}
        ),
    ),
    st.tuples(st.just("iopub"), st.just("clear_output"), st.fixed_dictionaries({"wait": st.booleans()})),
    st.tuples(
        st.just("stdin"), st.just("input_request"), st.fixed_dictionaries({"prompt": TEXT, "password": st.booleans()})
    ),
)


@given(st.lists(MESSAGES, max_size=30), st.integers(1, 40), st.sampled_from([0, 1000, 20_000]), st.booleans())
def test_log_has_at_most_64_kib_more_than_the_cap(
    messages: list[tuple[str, str, dict[str, Any]]], times: int, cap: int, allow_input: bool
) -> None:
    log = Log(cap, allow_input=allow_input)
    for _ in range(times):
        for message in messages:
            log.feed(*message)
    assert log.close() <= cap + SLACK_BYTES


def _show(number: int, **fields: Any) -> dict[str, Any]:
    return {"data": {"text/plain": ""}, "metadata": {}, "transient": {"display_id": str(number)}, **fields}


KINDS: dict[str, tuple[str, str, Any]] = {
    "long display ids": ("iopub", "display_data", lambda n: _show(n, transient={"display_id": f"{n}{'x' * 20_000}"})),
    "many display ids": ("iopub", "display_data", _show),
    "ids that are no text": ("iopub", "display_data", lambda n: _show(n, transient={"display_id": [["x"] * 999]})),
    "long MIME types": ("iopub", "display_data", lambda n: _show(n, data={f"{n}/{'x' * 20_000}": ""})),
    "many MIME types": ("iopub", "display_data", lambda n: _show(n, data={f"x/{k}": "" for k in range(3000)})),
    "MIME types to be escaped": ("iopub", "display_data", lambda n: _show(n, data={"\x01" * 250: ""})),
    "metadata": ("iopub", "display_data", lambda n: _show(n, metadata={"m": "x" * 5000})),
    "empty displays": ("iopub", "display_data", lambda n: {}),
    "updates": ("iopub", "update_display_data", lambda n: _show(0, data={"text/plain": "x" * 3000})),
    "input requests": ("stdin", "input_request", lambda n: {"prompt": "P" * 4000}),
    "replies": ("shell", "execute_reply", lambda n: {"status": "error", "ename": "x", "traceback": ["z" * 20_000]}),
    "pages": ("shell", "execute_reply", lambda n: {"payload": [{"source": "page", "data": {"text/plain": "x"}}] * 500}),
    "errors": ("iopub", "error", lambda n: {"ename": "E" * 3000, "evalue": "v" * 3000, "traceback": ["t"] * 3000}),
    "colours": ("iopub", "error", lambda n: {"ename": "E", "traceback": [f"{n}\x1b[31m" * 300]}),
    "control characters": ("iopub", "stream", lambda n: {"name": "stdout", "text": "\x01" * 3000}),
    "quotes": ("iopub", "stream", lambda n: {"name": "stdout", "text": '"\\' * 3000}),
    "lone surrogates": ("iopub", "stream", lambda n: {"name": "stdout", "text": "\ud800" * 3000}),
    "single characters": ("iopub", "stream", lambda n: {"name": "stdout", "text": "x"}),
    "two streams in turns": ("iopub", "stream", lambda n: {"name": ("stdout", "stderr")[n % 2], "text": "x"}),
    "clears": ("iopub", "clear_output", lambda n: {"wait": bool(n % 2)}),
    "nested values": ("iopub", "display_data", lambda n: _show(n, data={"application/json": [[]] * 3000})),
    "large counts": ("iopub", "execute_result", lambda n: {"execution_count": 10**4000, "data": {"a/b": "x"}}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cap", [1024, 100_000])
def test_kind_of_message_sent_many_times_keeps_to_the_cap(kind: str, cap: int) -> None:
    channel, msg_type, content = KINDS[kind]
    log = Log(cap, allow_input=True)
    for number in range(100 if kind == "many MIME types" else 3000):
        log.feed(channel, msg_type, content(number))
    assert log.close() <= cap + SLACK_BYTES


def test_input_requests_are_answered_one_at_a_time_and_end_with_the_cap() -> None:
    log = Log(20_000, allow_input=True)
    for number in range(3000):
        log.feed("stdin", "input_request", {"prompt": "P" * 3000})
        log._translator.waiting_for_input = False  # a caller answers
        log.feed("iopub", "stream", {"name": "stdout", "text": str(number)})
    assert log.close() <= 20_000 + SLACK_BYTES


def test_input_request_without_leave_is_no_event() -> None:
    log = Log(20_000)
    before = len(log.lines)
    log.feed("stdin", "input_request", {"prompt": "password: "})
    assert len(log.lines) == before


def test_only_the_first_reply_counts() -> None:
    translator = RunTranslator("ours")
    for status in ("ok", "error", "aborted"):
        translator.feed(KernelMessage("shell", "execute_reply", "ours", {"status": status, "execution_count": 1}))
    assert translator.verdict() is ExecutionState.OK
    assert translator.close() == []


def test_news_of_the_kernel_are_bounded() -> None:
    log = Log(1000)
    for _ in range(20_000):
        log.emit(UnresponsiveEvent("not answering"))
        log.emit(ResponsiveEvent())
    assert log.close() <= 1000 + SLACK_BYTES


@pytest.mark.parametrize("path", ["x" * 1000, "\x01" * 1000, "f"])
def test_changed_files_are_named_as_far_as_there_is_room(path: str) -> None:
    files = FilesEvent(tuple(FileInfo(f"{n}{path}", 1, MOMENT, "text/plain", None) for n in range(1000)), 7)
    small, large = Log(1024), Log(32 * 1024 * 1024)
    assert small.close(files) <= 1024 + SLACK_BYTES
    large.close(files)
    named = json.loads(large.lines[-2])
    assert (len(named["files"]), named["omitted"]) == (1000, 7)
    few = json.loads(small.lines[-2])
    assert len(few["files"]) + few["omitted"] == 1007


def test_spool_names_no_more_files_than_there_is_room_for() -> None:
    log = Log(1024)
    for number in range(3000):
        log.feed("iopub", "display_data", _show(number, data={"\\" * 255: "x" * 2000, "application/json": [1] * 999}))
    assert log.close() <= 1024 + SLACK_BYTES
    assert any(b'"truncated"' in line for line in log.lines)


@given(st.text() | st.text(st.characters(codec=None, categories=["Cc", "Cs", "L", "P"])))
def test_size_in_json_is_never_taken_for_less(text: str) -> None:
    assert len(dump_bytes(text)) <= encoded_size(text) <= 2 * len(dump_bytes(text))


@given(st.text(max_size=300), st.integers(0, 900))
def test_head_that_fits_is_a_beginning_and_fits(text: str, max_cost: int) -> None:
    head = fitting_head(text, max_cost)
    assert text.startswith(head)
    assert not head or encoded_size(head) <= max_cost


EVENTS = st.one_of(
    st.builds(StreamEvent, st.sampled_from(["stdout", "stderr"]), TEXT),
    st.builds(DisplayEvent, st.dictionaries(st.text(max_size=30), VALUES, max_size=4), BUNDLES, TEXT),
    st.builds(ErrorEvent, TEXT, TEXT, TEXT),
    st.builds(InputRequestEvent, TEXT, st.booleans()),
)


@given(EVENTS)
def test_cost_is_at_least_the_line(event: OutputEvent) -> None:
    assert len(line_of(event, 10**9, MOMENT)) + 1 <= cost_of(event)


def test_truncated_counts_stay_exact_where_characters_are_escaped() -> None:
    limiter = OutputLimiter(5000)
    events = [e for _ in range(100) for e in limiter.feed(StreamEvent("stdout", "\x01" * 500))] + limiter.close()
    kept = sum(len(event.text) for event in events if isinstance(event, StreamEvent))
    (truncated,) = [event for event in events if isinstance(event, TruncatedEvent)]
    assert kept + truncated.truncated.stdout_bytes == 50_000


def test_what_was_left_out_of_an_event_is_not_held_on_to() -> None:
    """The next message would wait for its memory."""

    class Pieces(list[str]):
        """Text of which it can be seen whether it is still held."""

    limiter, pieces = OutputLimiter(1000), Pieces(["x" * 10**6])
    held = weakref.ref(pieces)
    assert list(limiter.feed(DisplayEvent({"text/html": LeftOut(10**6, pieces)}, {}))) == []
    del pieces
    assert held() is None
