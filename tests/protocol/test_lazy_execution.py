"""Records whose outputs are put together only for who looks at them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, replace
from typing import Any

import pytest

from jupyter_exec_ext.models import DisplayEvent, EndEvent, Execution, ExecutionState, JSONObject, StreamEvent
from jupyter_exec_ext.protocol.large_json import event_is_large, is_large
from jupyter_exec_ext.protocol.lazy_execution import FoldedExecution
from jupyter_exec_ext.protocol.output_joining import OutputFold, finished_record, with_outputs
from jupyter_exec_ext.protocol.records_json import bare_to_json, once_to_json, summary_to_json, to_json
from jupyter_exec_ext.store.log_lines import is_long, line_of

RECORD = Execution("exe_1", "ses_1", ExecutionState.RUNNING, "1", "t")
PIECES = ["a" * 600_000, "b" * 600_000]


class Untouched:
    """A fold that nobody may ask to put anything together."""

    def text(self, name: str) -> str:
        raise AssertionError(name)

    def outputs(self) -> list[JSONObject]:
        raise AssertionError("outputs")

    def parts(self) -> list[Any]:
        return [PIECES, PIECES]


def fold_of(*pieces: str) -> OutputFold:
    fold = OutputFold()
    for piece in pieces:
        fold.add(StreamEvent("stdout", piece))
    fold.add(StreamEvent("stderr", "no"))
    fold.add(DisplayEvent({"text/plain": "7"}, {}))
    return fold


def plain(*pieces: str) -> Execution:
    fold = fold_of(*pieces)
    return replace(
        RECORD,
        state=ExecutionState.OK,
        stdout=fold.text("stdout"),
        stderr=fold.text("stderr"),
        outputs=fold.outputs(),
    )


def folded(*pieces: str) -> Execution:
    return finished_record(RECORD, fold_of(*pieces), ExecutionState.OK)


def test_only_long_text_is_left_as_it_came() -> None:
    assert type(folded(*PIECES)) is FoldedExecution
    assert type(folded("".join(PIECES))) is Execution  # of one piece there is nothing to put together
    assert type(folded("a", "b")) is Execution
    assert folded("a", "b") == plain("a", "b")


def test_what_the_server_does_at_the_end_puts_nothing_together() -> None:
    record = FoldedExecution.of(RECORD, Untouched(), {"state": ExecutionState.OK})
    assert is_large(record)
    assert is_long(record)
    assert event_is_large(EndEvent(record))
    assert bare_to_json(record) == bare_to_json(replace(RECORD, state=ExecutionState.OK))
    assert summary_to_json(record) == summary_to_json(replace(RECORD, state=ExecutionState.OK))
    assert b'"stdout"' not in line_of(EndEvent(record), 7, "t")
    with pytest.raises(AssertionError):
        _ = record.stdout


def test_it_is_a_record_like_any_other() -> None:
    expected = plain(*PIECES)
    assert folded(*PIECES).stdout == "".join(PIECES)
    assert folded(*PIECES).outputs == expected.outputs
    assert folded(*PIECES) == expected
    assert expected == folded(*PIECES)
    assert folded(*PIECES) == folded(*PIECES)
    assert folded(*PIECES) != folded(*PIECES, "c" * 600_000)
    assert folded(*PIECES) != RECORD
    assert repr(folded(*PIECES)) == repr(expected)
    assert asdict(folded(*PIECES)) == asdict(expected)
    assert to_json(folded(*PIECES)) == to_json(expected)
    assert once_to_json(folded(*PIECES)) == once_to_json(expected)
    assert folded(*PIECES).ok
    assert not hasattr(folded(*PIECES), "stdin")


def test_a_copy_is_a_plain_one() -> None:
    expected = plain(*PIECES)
    for made in (
        copy.copy(folded(*PIECES)),
        copy.deepcopy(folded(*PIECES)),
        pickle.loads(pickle.dumps(folded(*PIECES))),
    ):
        assert type(made) is Execution
        assert made == expected


def test_a_changed_one_has_the_same_outputs() -> None:
    changed = replace(folded(*PIECES), reason="why")
    assert changed == replace(plain(*PIECES), reason="why")
    assert is_large(changed)
    assert replace(folded(*PIECES), stdout="other", outputs=[]).stdout == "other"
    again = with_outputs(folded(*PIECES), fold_of("a", "b"))
    assert (again.stdout, again.stderr) == ("ab", "no")


def test_its_text_is_there_once() -> None:
    record = folded(*PIECES)
    assert record.stdout is record.stdout
    assert record.outputs[0]["text"] is record.stdout
