"""What the cap leaves out and where it goes: against the record as it would be without a cap."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.models import (
    ClearEvent,
    DisplayEvent,
    ErrorEvent,
    OutputEvent,
    ResultEvent,
    StreamEvent,
    Truncation,
)
from jupyter_exec_ext.models.mime_bundles import extension
from jupyter_exec_ext.protocol.kernel_messages import FrameCodec
from jupyter_exec_ext.protocol.large_messages import read_large
from jupyter_exec_ext.protocol.large_values import ValueContent, raw_bytes
from jupyter_exec_ext.protocol.message_translation import RunTranslator
from jupyter_exec_ext.protocol.output_cap import OutputLimiter
from jupyter_exec_ext.protocol.output_joining import OutputFold
from jupyter_exec_ext.protocol.output_overflow import MAX_SPOOLED_VALUES, OFF, Overflow, SpooledFile

CAP = 1000


@dataclass
class MemorySpool:
    max_bytes: int = 1_000_000
    files: dict[str, bytes] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def append(self, name: str, content: Iterable[bytes], size_bytes: int) -> None:
        data = b"".join(content)
        assert len(data) <= size_bytes
        self.files[name] = self.files.get(name, b"") + data
        assert sum(map(len, self.files.values())) <= self.max_bytes

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def report(self) -> dict[str, SpooledFile]:
        return {
            name: SpooledFile(len(data), hashlib.sha256(data).hexdigest(), name not in self.broken)
            for name, data in self.files.items()
        }


class Run:
    """One execution's output, as the engine passes it on."""

    def __init__(self, cap: int = CAP, max_bytes: int = 1_000_000) -> None:
        self.spool = MemorySpool(max_bytes)
        self.opened = 0
        self.whole, self.fold = OutputFold(), OutputFold()
        self.overflow = Overflow(self.fold, self._open)
        self.limiter = OutputLimiter(cap, self.overflow)

    def _open(self) -> MemorySpool:
        self.opened += 1
        return self.spool

    def feed(self, *events: OutputEvent) -> Run:
        for event in events:
            self.whole.add(event)
            if self.overflow.active:
                self.overflow.see(event)
            for passed in self.limiter.feed(event):
                self.fold.add(passed)
            if self.overflow.active:
                self.overflow.flush()
        return self

    def close(self, problem: str | None = None) -> Truncation | None:
        for event in self.limiter.close(*self.overflow.report(self.spool.report(), problem)):
            self.fold.add(event)
        return self.fold.truncated


def out(text: str) -> StreamEvent:
    return StreamEvent("stdout", text)


def err(text: str) -> StreamEvent:
    return StreamEvent("stderr", text)


def show(text: Any, display_id: str | None = None, *, update: bool = False, mime: str = "text/plain") -> DisplayEvent:
    return DisplayEvent({mime: text}, {}, display_id, update)


def test_what_fits_the_cap_opens_no_spool() -> None:
    run = Run().feed(out("a" * 740), err("b" * 4), ClearEvent(wait=True), ErrorEvent("E", "v"))
    assert run.close() is None
    assert run.opened == 0


def test_of_a_flood_the_stream_is_kept_from_its_first_byte() -> None:
    lines = [f"{number:09d}\n" for number in range(1000)]
    run = Run().feed(err("short"), *map(out, lines))
    truncated = run.close()
    assert truncated is not None
    assert run.spool.files == {"stdout": "".join(lines).encode()}  # stderr is whole in the record
    (kept,) = truncated.spooled
    assert (kept.name, kept.mime_type, kept.size_bytes, kept.complete) == ("stdout", "text/plain", 10_000, True)
    assert kept.sha256 == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert truncated.unspooled_reason is None
    assert truncated.stdout_bytes + len(run.fold.text("stdout")) > 10_000


def test_values_are_kept_by_type_and_a_picture_as_itself() -> None:
    picture = bytes(range(256)) * 8
    png = "\n".join(base64.encodebytes(picture).decode().split())
    data = {"image/png": png, "application/vnd.x+json": {"a": ["é" * 600]}, "text/html": "<p>" * 400, "text/plain": "x"}
    run = Run().feed(DisplayEvent(data, {"m": "y" * 900}), ResultEvent({"text/x-odd/../": "z" * 1000}, {}))
    truncated = run.close()
    assert truncated is not None
    assert run.spool.files == {
        "metadata-1.json": json.dumps({"m": "y" * 900}, separators=(",", ":")).encode(),
        "display-2.png": picture,
        "display-3.json": json.dumps({"a": ["é" * 600]}, separators=(",", ":"), ensure_ascii=False).encode(),
        "display-4.html": b"<p>" * 400,
        "display-5.txt": b"z" * 1000,
    }
    assert [kept.mime_type for kept in truncated.spooled][1:4] == ["image/png", "application/vnd.x+json", "text/html"]
    assert run.fold.outputs()[0]["data"] == {"text/plain": "x"}


def test_an_error_too_long_for_the_record_is_kept_whole() -> None:
    run = Run().feed(ErrorEvent("E", "v" * 3000, "t" * 3000))
    assert run.close() is not None
    assert run.spool.files == {"error-1.txt": b"E: " + b"v" * 3000 + b"\n" + b"t" * 3000}


def test_a_value_larger_than_the_cap_is_kept_too() -> None:
    """Such a value never reaches the record: it is left in the message, from which the spool takes it."""
    codec = FrameCodec(b"key", "hmac-sha256", "s")
    html, nested = 'é"\\\n😀' * 100_000, {"rows": ["x" * 400_000, {"é": "😀" * 100_000}, 1.5]}
    content = {"data": {"text/html": html, "application/json": nested, "text/plain": "small"}, "metadata": {}}
    header = {"msg_type": "display_data", "msg_id": "1"}
    parts = [json.dumps(part).encode() for part in (header, {"msg_id": "ours"}, {}, content)]
    head = [b"topic", b"<IDS|MSG>", codec._sign(parts), *parts[:3]]
    (message,) = read_large(codec, "iopub", head, bytearray(parts[3]), 1000)
    event = RunTranslator("ours").feed(message)
    assert event is not None
    run = Run(max_bytes=10_000_000).feed(event)
    truncated = run.close()
    assert run.spool.files["display-1.html"] == html.encode()
    assert json.loads(run.spool.files["display-2.json"]) == nested
    assert truncated is not None
    assert truncated.display_bytes == sum(map(len, run.spool.files.values()))
    assert not list(run.limiter._tail)


def test_clearing_empties_the_spool_as_it_does_the_record() -> None:
    run = Run().feed(*[out("x" * 100)] * 50, show("p" * 2000))
    assert set(run.spool.files) == {"stdout", "display-1.txt"}
    run.feed(ClearEvent(wait=True))
    assert set(run.spool.files) == {"stdout", "display-1.txt"}
    run.feed(out("after"))
    assert run.spool.files == {"stdout": b"after"}
    run.feed(ClearEvent())
    assert run.spool.files == {}
    truncated = run.close()
    assert truncated is not None
    assert (truncated.spooled, truncated.unspooled_reason) == ((), None)


def test_an_update_takes_the_place_of_what_it_updates() -> None:
    run = Run()
    for number in range(400):
        run.feed(show(f"{number:04}" * 500, "id", update=number > 0))
    run.feed(show("other" * 500, "other"))
    truncated = run.close()
    assert run.spool.files == {"display-400.txt": b"0399" * 500, "display-401.txt": b"other" * 500}
    assert truncated is not None
    assert truncated.unspooled_reason is None


@given(
    st.lists(
        st.sampled_from([ClearEvent(), ClearEvent(wait=True)])
        | st.builds(
            StreamEvent, st.sampled_from(["stdout", "stderr"]), st.text("aé\ud800\udcff", min_size=1, max_size=60)
        )
        | st.builds(show, st.text("cd", max_size=90)),
        max_size=60,
    ),
    st.sampled_from([600, 1200, 2400]),
)
def test_record_and_spool_have_what_the_record_would_hold_without_a_cap(events: list[OutputEvent], cap: int) -> None:
    run = Run(cap).feed(*events)
    truncated = run.close()
    for name in ("stdout", "stderr"):
        whole = b"".join(raw_bytes(e.text) for e in _shown(events, name))
        if name in run.spool.files:
            assert run.spool.files[name] == whole
        elif truncated is None or not getattr(truncated, f"{name}_bytes"):
            assert run.fold.text(name) == run.whole.text(name)
        else:
            assert whole == b""  # what was left out has been cleared
    shown = [o["data"]["text/plain"] for o in run.whole.outputs() if o["output_type"] == "display_data"]
    kept = [o["data"]["text/plain"] for o in run.fold.outputs() if o["output_type"] == "display_data"]
    spooled = [data.decode() for name, data in run.spool.files.items() if name.startswith("display")]
    assert sorted(shown) == sorted([*kept, *spooled])


@given(
    st.lists(
        st.just(ClearEvent())
        | st.builds(out, st.text("a", min_size=1, max_size=60))
        | st.builds(
            lambda text, id_, update: show(text, id_, update=update),
            st.text("cd", max_size=90),
            st.sampled_from(["1", "2"]),
            st.booleans(),
        ),
        max_size=60,
    ),
    st.sampled_from([600, 1200, 2400]),
)
def test_no_update_is_lost(events: list[OutputEvent], cap: int) -> None:
    run = Run(cap).feed(*events)
    run.close()
    shown, kept = (
        {o["data"]["text/plain"] for o in fold.outputs() if o["output_type"] == "display_data"}
        for fold in (run.whole, run.fold)
    )
    spooled = {data.decode() for name, data in run.spool.files.items() if name.startswith("display")}
    assert shown <= kept | spooled


def test_of_many_updates_that_leave_the_tail_the_last_one_counts() -> None:
    run = Run(4000).feed(*(show(f"{number:03}" * 100, "id", update=number > 0) for number in range(100)))
    run.close()
    assert run.spool.files == {}
    assert run.fold.outputs()[-1]["data"]["text/plain"] == "099" * 100


def _shown(events: list[OutputEvent], name: str) -> list[StreamEvent]:
    """Return the text that no clear has voided, message by message: the spool is written in these."""
    shown: list[StreamEvent] = []
    clear = False
    for event in events:
        if isinstance(event, ClearEvent):
            clear = event.wait
        if (isinstance(event, ClearEvent) and not event.wait) or (clear and not isinstance(event, ClearEvent)):
            clear = False
            shown.clear()
        if isinstance(event, StreamEvent) and event.name == name:
            shown.append(event)
    return shown


# --- bounds ---


def test_a_stream_beyond_the_bound_is_cut_and_said_to_be() -> None:
    run = Run(max_bytes=2001).feed(*[out("éé")] * 3000)
    truncated = run.close()
    assert truncated is not None
    assert run.spool.files == {"stdout": "é".encode() * 1000}
    assert [(kept.size_bytes, kept.complete) for kept in truncated.spooled] == [(2000, False)]
    assert "at most 2,001 bytes" in str(truncated.unspooled_reason)


def test_after_a_clear_there_is_room_again() -> None:
    run = Run(max_bytes=2000).feed(*[out("x" * 100)] * 50, ClearEvent(), *[out("y" * 100)] * 10)
    truncated = run.close()
    assert run.spool.files == {"stdout": b"y" * 1000}
    assert truncated is not None
    assert truncated.spooled[0].complete
    assert truncated.unspooled_reason is None


def test_a_value_is_kept_whole_or_not_at_all() -> None:
    run = Run(max_bytes=3000).feed(show("a" * 2000), show("b" * 2000), show("c" * 900))
    truncated = run.close()
    assert truncated is not None
    assert {kept.name for kept in truncated.spooled} == {"display-1.txt", "display-3.txt"}
    assert "at most 3,000 bytes" in str(truncated.unspooled_reason)


def test_values_without_number_are_bounded() -> None:
    run = Run().feed(*[show("x" * 900)] * (MAX_SPOOLED_VALUES + 50))
    truncated = run.close()
    assert truncated is not None
    assert len(truncated.spooled) == MAX_SPOOLED_VALUES
    assert str(MAX_SPOOLED_VALUES) in str(truncated.unspooled_reason)


def test_where_nothing_is_kept_that_is_said() -> None:
    fold = OutputFold()
    overflow: Overflow[MemorySpool] = Overflow(fold, lambda: None)
    limiter = OutputLimiter(CAP, overflow)
    for event in (show("x" * 5000), out("x" * 5000)):
        for passed in limiter.feed(event):
            fold.add(passed)
        overflow.flush()
    assert overflow.report({}, None) == ([], OFF)


def test_what_the_disk_refused_is_not_called_complete() -> None:
    run = Run().feed(*[out("x" * 100)] * 50, show("p" * 2000), show("q" * 2000))
    run.spool.broken = {"stdout", "display-1.txt"}
    truncated = run.close("the disk is full")
    assert truncated is not None
    assert [kept.name for kept in truncated.spooled if not kept.complete] == ["stdout", "display-1.txt"]
    assert truncated.unspooled_reason == "the disk is full"


# --- values as files ---


@pytest.mark.parametrize(
    ("text", "data"), [("é\udcff", b"\xc3\xa9\xff"), ("\udcff\ud800\udcfe", b"\xff\xed\xa0\x80\xfe"), ("", b"")]
)
def test_bytes_that_were_no_text_are_themselves_again(text: str, data: bytes) -> None:
    assert raw_bytes(text) == data


@pytest.mark.parametrize("mime", ["../../etc/passwd", "x/../y", "", "a" * 999, "image/\0", "text/é"])
def test_no_type_can_steer_a_name(mime: str) -> None:
    assert extension(mime).isalpha() and len(extension(mime)) < 6


@given(st.binary(max_size=300), st.integers(1, 50))
def test_base64_is_decoded_wherever_it_is_cut(data: bytes, line: int) -> None:
    text = base64.b64encode(data).decode()
    broken = "\n".join(text[i : i + line] for i in range(0, len(text), line))
    assert b"".join(ValueContent("image/png", broken)) == data


@pytest.mark.parametrize("value", ["<svg/>", "not base64!", "AA=A", "AAAAA", "AAé"])
def test_a_picture_that_is_not_base64_stays_as_it_is(value: str) -> None:
    assert b"".join(ValueContent("image/png", value)) == value.encode()
    assert b"".join(ValueContent("image/svg+xml", "AAAA")) == b"AAAA"
    assert b"".join(ValueContent("image/png", {"not": "text"})) == b'{"not":"text"}'
