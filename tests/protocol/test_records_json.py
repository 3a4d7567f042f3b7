from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.errors import ExecError, UnexpectedAnswer
from jupyter_exec_ext.models import (
    ClearEvent,
    DisplayEvent,
    EndEvent,
    ErrorEvent,
    ErrorInfo,
    Execution,
    ExecutionState,
    FileInfo,
    FilesEvent,
    InputRequestEvent,
    OutputEvent,
    ResultEvent,
    Session,
    SessionState,
    StateEvent,
    StreamEvent,
    TruncatedEvent,
    Truncation,
)
from jupyter_exec_ext.protocol.records_json import (
    event_from_json,
    event_to_text,
    execution_from_json,
    once_to_json,
    session_from_json,
    summary_to_json,
    to_json,
    utc_timestamp,
)
from jupyter_exec_ext.protocol.request_parsing import (
    execution_request_from_json,
    input_from_json,
    session_request_from_json,
)
from jupyter_exec_ext.protocol.strict_json import dump_bytes, loads_lenient, loads_strict

EXECUTION = Execution(
    id="exe_1",
    session_id="ses_1",
    state=ExecutionState.ERROR,
    code="1/0",
    created_at="2026-01-02T03:04:05.678Z",
    metadata={"k": [1]},
    timeout_seconds=5.0,
    started_at="2026-01-02T03:04:05.679Z",
    finished_at="2026-01-02T03:04:06.000Z",
    execution_count=3,
    stdout="x\n",
    outputs=[{"output_type": "stream", "name": "stdout", "text": "x\n"}],
    error=ErrorInfo("ZeroDivisionError", "division by zero", "tb"),
    reason="why",
    truncated=Truncation(100, stdout_bytes=5),
    files=(FileInfo("a/b.csv", 3, "2026-01-02T03:04:05.678Z", "text/csv", None),),
    files_omitted=2,
    session_state_preserved=True,
    kernel_starts=2,
)
SESSION = Session(
    id="ses_1",
    owner="owner",
    kernel_name="python3",
    language="python",
    state=SessionState.BUSY,
    created_at="2026-01-02T03:04:05.678Z",
    last_activity_at="2026-01-02T03:04:05.678Z",
    metadata={"a": "ü"},
    memory_bytes=2**33,
)
EVENTS: list[OutputEvent] = [
    StateEvent(ExecutionState.RUNNING, seq=1, at="t"),
    StreamEvent("stdout", "grüße \u2028\n", seq=2, at="t"),
    DisplayEvent({"image/png": "AAAA"}, {"m": 1}, "id", True, seq=3, at="t"),
    ResultEvent({"text/plain": "5"}, {}, 7, seq=4, at="t"),
    ClearEvent(True, seq=5, at="t"),
    ErrorEvent("E", "v", "tb", "\x1b[31mtb\x1b[0m", seq=6, at="t"),
    InputRequestEvent("? ", True, seq=7, at="t"),
    TruncatedEvent(Truncation(10, display_count=1), seq=8, at="t"),
    FilesEvent(EXECUTION.files, 2, seq=9, at="t"),
    EndEvent(EXECUTION, seq=10, at="t"),
]


def through_json(value: Any) -> Any:
    return loads_strict(dump_bytes(value))


def test_records_survive_the_trip() -> None:
    assert execution_from_json(through_json(to_json(EXECUTION))) == EXECUTION
    assert session_from_json(through_json(to_json(SESSION))) == SESSION


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: str(event.type))
def test_events_survive_the_trip(event: OutputEvent) -> None:
    text = event_to_text(event, event.seq, event.at)
    assert "\n" not in text
    assert event_from_json(json.loads(text)) == event


def test_a_summary_leaves_the_outputs_out() -> None:
    assert set(to_json(EXECUTION)) - set(summary_to_json(EXECUTION)) == {"stdout", "stderr", "outputs"}


def test_times_are_utc_with_z() -> None:
    assert utc_timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert utc_timestamp(1.5) == "1970-01-01T00:00:01.500Z"


def test_what_a_newer_server_adds_is_ignored() -> None:
    assert execution_from_json({**to_json(EXECUTION), "novelty": 1}) == EXECUTION
    assert event_from_json({"type": "novelty", "seq": 1}) is None
    assert event_from_json([]) is None


@pytest.mark.parametrize("data", [None, [], "x", {}, {"id": "exe_1"}, {**to_json(EXECUTION), "state": "novel"}])
def test_an_answer_that_is_no_execution_is_unexpected(data: Any) -> None:
    with pytest.raises(UnexpectedAnswer):
        execution_from_json(data)


@pytest.mark.parametrize("kind", [[], {}, ["stream"], {"type": "stream"}])
def test_event_with_type_that_is_no_text_is_of_unknown_type(kind: Any) -> None:
    assert event_from_json({"type": kind, "seq": 1}) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
field_names = st.sampled_from(
    ["code", "language", "timeout_seconds", "metadata", "allow_input", "env", "name", "value"]
)


@given(st.dictionaries(field_names | st.text(max_size=8), json_values, max_size=5) | json_values)
def test_any_json_is_either_a_request_or_refused_with_a_sentence(body: Any) -> None:
    for read in (execution_request_from_json, session_request_from_json, input_from_json):
        refusal = None
        try:
            read(body)
        except ExecError as error:
            refusal = error
        assert refusal is None or (refusal.status == 400 and refusal.message)


def test_an_execution_that_says_nothing_twice_is_read_as_a_whole() -> None:
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": "stdout", "text": "a"},
        {"output_type": "stream", "name": "stderr", "text": "e"},
        {"output_type": "display_data", "data": {"text/plain": "d"}, "metadata": {}},
        {"output_type": "stream", "name": "stdout", "text": "b"},
    ]
    whole = Execution("exe_1", "ses_1", ExecutionState.OK, "1", "t", stdout="ab", stderr="e", outputs=outputs)
    told = once_to_json(whole)
    assert "stdout" not in told
    assert execution_from_json(loads_strict(dump_bytes(told))) == whole


@pytest.mark.parametrize("outputs", [[1], [{}], [{"output_type": "stream", "name": "stdout", "text": 1}] * 2, 7])
def test_outputs_that_cannot_be_read_are_named_as_such(outputs: object) -> None:
    told = {"id": "e", "session_id": "s", "state": "ok", "code": "", "created_at": "t", "outputs": outputs}
    with pytest.raises(UnexpectedAnswer):
        execution_from_json(told)


@given(st.text())
def test_any_text_is_written_as_json_in_utf8(text: str) -> None:
    assert loads_strict(dump_bytes({"t": text})) == {"t": text}


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'"caf\xe9"', "caf\udce9"),
        (b'"\xed\xa0\x80"', "\ud800"),
        (b"[NaN, -Infinity, 1e999, 1.5]", ["NaN", "-Infinity", "1e999", 1.5]),
    ],
    ids=["bytes of a file name", "a surrogate", "numbers that JSON has not"],
)
def test_whatever_a_kernel_sends_is_kept_and_can_be_sent_on(raw: bytes, value: Any) -> None:
    assert loads_lenient(raw) == value
    assert loads_strict(dump_bytes(value)) == value


def test_lone_surrogates_are_written_as_escapes() -> None:
    assert dump_bytes("a\ud800") == b'"a\\ud800"'
    assert loads_strict(dump_bytes("a\ud800")) == "a\ud800"


@pytest.mark.parametrize("text", ["NaN", "1e999", "[Infinity]", '{"a": -Infinity}', "[" * 100_000])
def test_what_is_not_json_is_refused_strictly(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        loads_strict(text)
