from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.models import (
    ClearEvent,
    DisplayEvent,
    ErrorEvent,
    InputRequestEvent,
    OutputEvent,
    ResultEvent,
    StreamEvent,
    TruncatedEvent,
)
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage
from jupyter_exec_ext.protocol.message_translation import RunTranslator
from jupyter_exec_ext.protocol.output_cap import OutputLimiter
from jupyter_exec_ext.protocol.output_joining import OutputFold
from jupyter_exec_ext.protocol.output_sizes import event_size, head_of, tail_of

from .recorded import MSG_ID, clear, display, error, result, run_of, stream


def outputs_of(*messages: KernelMessage) -> list[dict[str, Any]]:
    """Translate and fold a recorded run."""
    translator, fold = RunTranslator(MSG_ID), OutputFold()
    for message in run_of(*messages):
        event = translator.feed(message)
        if event is not None:
            fold.add(event)
    return fold.outputs()


def shown(text: str) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {"text/plain": text}, "metadata": {}}


def streamed(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


# --- the fold ---


def test_pieces_of_one_stream_are_joined_exactly() -> None:
    assert outputs_of(stream("a"), stream("b\n"), stream("c")) == [streamed("ab\nc")]


def test_streams_that_alternate_stay_apart() -> None:
    assert outputs_of(stream("a"), stream("b", "stderr"), stream("c")) == [
        streamed("a"),
        streamed("b", "stderr"),
        streamed("c"),
    ]


def test_a_display_between_streams_keeps_its_place() -> None:
    assert outputs_of(stream("a"), display({"text/plain": "d"}), stream("b")) == [
        streamed("a"),
        shown("d"),
        streamed("b"),
    ]


def test_an_update_replaces_every_display_of_its_id() -> None:
    assert outputs_of(
        display({"text/plain": "1"}, "x"),
        display({"text/plain": "other"}, "y"),
        display({"text/plain": "2"}, "x"),
        display({"text/plain": "new"}, "x", update=True),
    ) == [shown("new"), shown("other"), shown("new")]


def test_an_update_of_an_unknown_display_is_shown() -> None:
    assert outputs_of(display({"text/plain": "late"}, "z", update=True)) == [shown("late")]


def test_displays_without_an_id_are_never_updated() -> None:
    assert outputs_of(display({"text/plain": "a"}), display({"text/plain": "b"}, update=True)) == [
        shown("a"),
        shown("b"),
    ]


def test_clear_empties_at_once() -> None:
    assert outputs_of(stream("a"), clear(), stream("b")) == [streamed("b")]
    assert outputs_of(stream("a"), clear()) == []


def test_clear_with_wait_empties_when_something_follows() -> None:
    assert outputs_of(stream("a"), clear(wait=True)) == [streamed("a")]
    assert outputs_of(stream("a"), clear(wait=True), stream("b")) == [streamed("b")]
    assert outputs_of(stream("a"), clear(wait=True), result("5")) == [
        {"output_type": "execute_result", "data": {"text/plain": "5"}, "metadata": {}, "execution_count": 1}
    ]


def test_an_error_after_output_leaves_the_output() -> None:
    first, second = outputs_of(stream("before"), error())
    assert first == streamed("before")
    assert second == {
        "output_type": "error",
        "ename": "ValueError",
        "evalue": "bad",
        "traceback": ["---", "ValueError: bad"],
    }


def test_outputs_are_valid_nbformat() -> None:
    import nbformat

    cell = nbformat.v4.new_code_cell(
        "…", outputs=outputs_of(stream("a"), display({"text/plain": "d"}, "x"), result("5"), error()), execution_count=1
    )
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))


# --- the cap ---


def limited(max_bytes: int, *events: OutputEvent) -> list[OutputEvent]:
    limiter = OutputLimiter(max_bytes)
    passed = [out for event in events for out in limiter.feed(event)]
    return passed + limiter.close()


def text_of(events: list[OutputEvent], name: str = "stdout") -> str:
    return "".join(e.text for e in events if isinstance(e, StreamEvent) and e.name == name)


def test_what_fits_passes_untouched() -> None:
    events = [StreamEvent("stdout", "a" * 700), DisplayEvent({"text/plain": "b" * 40}, {}), ErrorEvent("E", "v")]
    assert limited(1000, *events) == events


def test_head_and_tail_are_kept_and_the_middle_is_counted() -> None:
    text = "".join(f"{i:09d}\n" for i in range(1000))
    events = limited(1000, *(StreamEvent("stdout", text[i : i + 10]) for i in range(0, len(text), 10)))
    marker = next(i for i, e in enumerate(events) if isinstance(e, TruncatedEvent))
    head, tail = text_of(events[:marker]), text_of(events[marker:])
    truncated = events[marker]
    assert isinstance(truncated, TruncatedEvent)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) == 750
    assert 220 <= len(tail) <= 250  # a line's end takes two bytes in JSON
    assert len(head) + len(tail) + truncated.truncated.stdout_bytes == len(text)


def test_one_huge_message_is_cut_in_the_same_way() -> None:
    events = limited(1000, StreamEvent("stdout", "a" * 5000 + "z" * 10))
    truncated = next(e for e in events if isinstance(e, TruncatedEvent))
    assert text_of(events).startswith("a" * 750)
    assert text_of(events).endswith("z" * 10)
    assert len(text_of(events)) + truncated.truncated.stdout_bytes == 5010


def test_the_streams_are_counted_apart() -> None:
    events = limited(100, *(StreamEvent(name, "x" * 50) for name in ("stdout", "stderr") * 10))
    counts = next(e for e in events if isinstance(e, TruncatedEvent)).truncated
    assert counts.stdout_bytes + len(text_of(events)) == 500
    assert counts.stderr_bytes + len(text_of(events, "stderr")) == 500


def test_an_oversized_picture_is_dropped_and_its_text_kept() -> None:
    bundle = DisplayEvent({"image/png": "x" * 5000, "text/plain": "<Figure>"}, {})
    events = limited(1000, bundle, StreamEvent("stdout", "after"))
    assert events[0] == DisplayEvent({"text/plain": "<Figure>"}, {})
    assert events[1] == StreamEvent("stdout", "after")
    counts = next(e for e in events if isinstance(e, TruncatedEvent)).truncated
    assert (counts.display_bytes, counts.display_count) == (5000, 0)


def test_a_bundle_of_which_nothing_fits_is_counted_as_a_whole() -> None:
    events = limited(1000, ResultEvent({"image/png": "x" * 5000}, {}))
    counts = next(e for e in events if isinstance(e, TruncatedEvent)).truncated
    assert (counts.display_bytes, counts.display_count) == (5000, 1)


def test_displays_leave_the_tail_oldest_first_and_are_counted() -> None:
    pictures = [DisplayEvent({"text/plain": str(i) * 100}, {}) for i in range(8)]
    events = limited(2400, StreamEvent("stdout", "x" * 1750), *pictures)
    assert [e for e in events if isinstance(e, DisplayEvent)] == pictures[-2:]
    counts = next(e for e in events if isinstance(e, TruncatedEvent)).truncated
    assert (counts.display_bytes, counts.display_count) == (600, 6)


def test_metadata_counts_and_is_dropped_when_it_is_too_much() -> None:
    (shown_, truncated) = limited(1000, DisplayEvent({"text/plain": "x"}, {"m": "y" * 5000}))
    assert shown_ == DisplayEvent({"text/plain": "x"}, {})
    assert isinstance(truncated, TruncatedEvent)
    assert truncated.truncated.display_bytes == len('{"m":""}') + 5000


def test_a_prompt_is_clipped_and_passes() -> None:
    (event,) = limited(1000, InputRequestEvent("?" * 100_000))
    assert isinstance(event, InputRequestEvent)
    assert len(event.prompt) < 5000


def test_many_errors_are_bounded_and_the_last_one_is_kept() -> None:
    errors = [ErrorEvent("E", str(number), "t" * 200) for number in range(1000)]
    events = limited(10_000, *errors)
    kept = [e for e in events if isinstance(e, ErrorEvent)]
    assert kept[-1] == errors[-1]
    counts = next(e for e in events if isinstance(e, TruncatedEvent)).truncated
    assert sum(map(event_size, kept)) + counts.error_bytes == sum(map(event_size, errors))
    assert sum(map(event_size, kept)) <= 10_000


def test_clearing_again_and_again_is_logged_once() -> None:
    assert limited(1000, *[ClearEvent()] * 1000) == [ClearEvent()]


@given(
    st.lists(
        st.sampled_from([ClearEvent(), ClearEvent(wait=True)])
        | st.builds(StreamEvent, st.just("stdout"), st.text("ab", min_size=1, max_size=60))
        | st.builds(lambda t: DisplayEvent({"text/plain": t}, {}), st.text("cd", max_size=60)),
        max_size=40,
    )
)
def test_what_was_cleared_is_gone_however_much_is_left_out(events: list[OutputEvent]) -> None:
    """After the last clear, the outputs with a cap are a part of those without one."""
    whole, capped = OutputFold(), OutputFold()
    for event in events:
        whole.add(event)
    for event in limited(300, *events):
        capped.add(event)
    if capped.truncated is None:
        assert capped.outputs() == whole.outputs()
    text = whole.text("stdout")
    shown_texts = [o["data"]["text/plain"] for o in whole.outputs() if o["output_type"] == "display_data"]
    for output in capped.outputs():
        if output["output_type"] == "display_data":
            assert output["data"]["text/plain"] in shown_texts
        elif capped.truncated is None:
            assert output["text"] in text


def test_the_bytes_clipped_from_an_error_are_counted_exactly() -> None:
    events = limited(1000, ErrorEvent("E" * 400, "V" * 3000, "T" * 3000))
    (kept,) = [e for e in events if isinstance(e, ErrorEvent)]
    counts = next(e for e in events if isinstance(e, TruncatedEvent)).truncated
    assert kept.name.count("E") + kept.value.count("V") + kept.traceback.count("T") + counts.error_bytes == 6400


def test_a_long_error_is_clipped_and_never_dropped() -> None:
    noise = [StreamEvent("stdout", "x" * 5000)] * 3
    events = limited(1000, *noise, ErrorEvent("E" * 400, "v" * 3000, "t" * 3000), *noise)
    (kept,) = [e for e in events if isinstance(e, ErrorEvent)]
    assert event_size(kept) < 1000
    assert kept.value.startswith("v")
    assert kept.value.endswith("v")
    assert "left out" in kept.value


def test_an_input_request_passes_at_once() -> None:
    limiter = OutputLimiter(100)
    list(limiter.feed(StreamEvent("stdout", "x" * 500)))
    assert list(limiter.feed(InputRequestEvent("? "))) == [InputRequestEvent("? ")]


def test_clear_events_are_never_dropped() -> None:
    events = limited(100, StreamEvent("stdout", "x" * 500), ClearEvent(), StreamEvent("stdout", "y" * 500))
    assert ClearEvent() in events


def test_the_folded_text_says_where_something_is_missing() -> None:
    fold = OutputFold()
    for event in limited(1000, StreamEvent("stdout", "a" * 3000)):
        fold.add(event)
    assert "[... 2,000 bytes of stdout left out ...]" in fold.text("stdout")
    assert fold.truncated is not None


pieces = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(max_size=60)), max_size=60)


@given(pieces, st.integers(min_value=8, max_value=400))
def test_kept_plus_dropped_is_what_came(parts: list[tuple[str, str]], max_bytes: int) -> None:
    events = limited(max_bytes, *(StreamEvent(name, text) for name, text in parts))
    counts = next((e.truncated for e in events if isinstance(e, TruncatedEvent)), None)
    kept_all = 0
    for name, dropped in (("stdout", "stdout_bytes"), ("stderr", "stderr_bytes")):
        came = sum(event_size(StreamEvent(n, t)) for n, t in parts if n == name)
        kept = event_size(StreamEvent(name, text_of(events, name)))
        kept_all += kept
        assert kept + (getattr(counts, dropped) if counts else 0) == came
    assert kept_all <= max_bytes


@given(st.text(), st.integers(min_value=0, max_value=200))
def test_heads_and_tails_are_cut_between_characters(text: str, max_bytes: int) -> None:
    head, tail = head_of(text, max_bytes), tail_of(text, max_bytes)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert max(event_size(StreamEvent("stdout", t)) for t in (head, tail)) <= max_bytes


@pytest.mark.parametrize("text", ["a\ud800b" * 50, "\udfff" * 100])
def test_lone_surrogates_are_cut_and_counted_too(text: str) -> None:
    events = limited(40, StreamEvent("stdout", text))
    counts = next(e.truncated for e in events if isinstance(e, TruncatedEvent))
    assert event_size(StreamEvent("stdout", text_of(events))) + counts.stdout_bytes == event_size(
        StreamEvent("stdout", text)
    )
