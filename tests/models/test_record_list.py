"""Lists of records as tables."""

from __future__ import annotations

import copy
import pickle

from jupyter_exec_ext.models import Execution, ExecutionState, FileInfo, RecordList, Session, SessionState

AT = "2026-01-01T00:00:00.000Z"


def session(name: str) -> Session:
    return Session(f"ses_{name}", "owner", "python3", "python", SessionState.IDLE, AT, AT, name=name)


def test_repr_is_a_table_with_the_number_of_records() -> None:
    shown = repr(RecordList(Session, [session("first"), session("second")]))
    assert shown.splitlines() == [
        "id          name    kernel   state  last activity",
        "ses_first   first   python3  idle   2026-01-01 00:00:00",
        "ses_second  second  python3  idle   2026-01-01 00:00:00",
        "2 sessions",
    ]


def test_empty_list_says_what_it_has_none_of() -> None:
    assert repr(RecordList(FileInfo)) == RecordList(FileInfo)._repr_html_() == "no files"


def test_cells_are_single_short_lines_and_escaped_in_html() -> None:
    code = "print('<b>')\n\x1b[2J" + "x" * 1000
    records = RecordList(Execution, [Execution("exe_1", "ses_1", ExecutionState.OK, code, AT)])
    assert len(repr(records).splitlines()) == 3
    assert "\x1b" not in repr(records)
    assert max(map(len, repr(records).splitlines())) < 120
    assert "&lt;b&gt;" in records._repr_html_()
    assert "<b>" not in records._repr_html_()


def test_long_list_is_cut_and_says_so() -> None:
    records = RecordList(Session, [session(str(number)) for number in range(1000)])
    assert repr(records).splitlines()[-1] == "1,000 sessions, 60 of them shown"
    assert "60 of them shown" in records._repr_html_()


def test_list_behaves_as_any_other() -> None:
    records = RecordList(Session, [session("a")])
    assert records == [session("a")]
    assert pickle.loads(pickle.dumps(records)) == copy.copy(records) == records
    assert repr(pickle.loads(pickle.dumps(records))) == repr(records)
