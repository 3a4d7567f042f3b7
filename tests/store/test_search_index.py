"""The search index: what is found by whom, in which order, and what is left of removed records."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import OWNER
from jupyter_exec_ext.errors import ExecutionNotFound, InvalidRequest, SearchNotAvailable, Unavailable
from jupyter_exec_ext.models import (
    ErrorInfo,
    Execution,
    ExecutionState,
    Grant,
    ResultEvent,
    Session,
    SessionState,
    StoredToken,
    StreamEvent,
    Token,
)
from jupyter_exec_ext.store import search_database, search_index
from jupyter_exec_ext.store.event_log import DurableLog
from jupyter_exec_ext.store.store import ExecStore

from .test_execution_store import NOW, QUEUED, RUNNING

A, B = "token:aaaa", "token:bbbb"


def open_store(path: Path, **options: Any) -> ExecStore:
    store = ExecStore(path=str(path / "store"), reserve_bytes=4096, **options)
    store.recover()
    return store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ExecStore]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


async def begin(store: ExecStore, name: str, owner: str = OWNER, **changes: Any) -> tuple[Execution, DurableLog]:
    execution = replace(QUEUED, **{"id": name, "session_id": "ses_1", **changes})
    log = await store.executions.accept(execution, owner, None)
    assert isinstance(log, DurableLog)
    return execution, log


async def run(
    store: ExecStore,
    name: str,
    owner: str = OWNER,
    *,
    stdout: str = "",
    error: ErrorInfo | None = None,
    in_file: bool = False,
    **changes: Any,
) -> None:
    execution, log = await begin(store, name, owner, **changes)
    log.append(RUNNING)
    log.append(StreamEvent("stdout", stdout))
    if in_file:
        await log.changed(0)
    state = ExecutionState.OK if error is None else ExecutionState.ERROR
    await store.executions.finish(
        replace(execution, state=state, stdout=stdout, error=error, finished_at=NOW), owner, log
    )


async def found(
    store: ExecStore, text: str, principal: str = OWNER, before: str | None = None, limit: int = 50
) -> list[str]:
    """Return the ids that are found once everything is in the index; each search brings it a step further."""
    while True:
        listed, is_complete = await store.executions.search(text, principal, before, limit, lambda: True)
        if is_complete:
            return [one.execution.id for one in listed]


SESSION = Session("ses_1", A, "python3", "python", SessionState.ENDED, NOW, NOW, name="Quarterly figures")
TOKEN = Token("aaaa", A, "claude-on-laptop", "default", (), NOW, NOW, "ann")


@pytest.mark.parametrize(
    "text",
    [
        "parse_invoice",
        "PARSE_INV",
        "KeyError",
        "no such column: q5",
        "first line\nsecond",
        "Quarterly",
        "laptop",
        "größe",
        'say("NEAR',
        "a* OR b",
    ],
)
async def test_search_finds_code_error_output_and_names(store: ExecStore, text: str) -> None:
    await store.sessions.add(SESSION)
    await store.tokens.add(StoredToken(TOKEN, (Grant("aaaa", "default"),), {}, time.time() + 60), b"hash", 0)
    await run(store, "exe_other", code="unrelated()", session_id="ses_other")
    await run(
        store,
        "exe_1",
        A,
        code='parse_invoice("GRÖSSE"); say("NEAR(x)", a* OR b, größe)',
        stdout="first line\nsecond line",
        error=ErrorInfo("KeyError", "no such column: q5", "…"),
    )
    listed, is_complete = await store.executions.search(text, OWNER, None, 50, lambda: True)
    assert [(one.execution.id, one.owner, one.token_name) for one in listed] == [("exe_1", A, "claude-on-laptop")]
    assert (listed[0].session_name, listed[0].execution.stdout, is_complete) == ("Quarterly figures", "", True)


@pytest.mark.parametrize(
    "text", ["xyz*", '"xyz"', "x OR y", "text:xyz", "NEAR(abc)", "'; DROP TABLE entries", "%y%", "x_z"]
)
async def test_search_text_is_never_syntax(store: ExecStore, text: str) -> None:
    await run(store, "exe_1", code="xyz abc")
    assert await found(store, text) == []
    assert await found(store, "yz a") == ["exe_1"]


@pytest.mark.parametrize("in_file", [False, True])
async def test_search_sees_the_first_4_kib_of_output_and_all_of_long_code(store: ExecStore, in_file: bool) -> None:
    stdout = "x" * 4000 + "seen" + "y" * 5_000_000 * in_file + "y" * 200 + "missed"
    await run(store, "exe_1", stdout=stdout, code="#" * 20_000 + "\\'far\" away", in_file=in_file)
    assert await found(store, "xseen") == await found(store, "\\'far\" away") == ["exe_1"]
    assert await found(store, "missed") == []


async def test_search_finds_the_text_of_a_value_and_what_follows_a_nul(store: ExecStore) -> None:
    execution, log = await begin(store, "exe_1", code="a = 'be\0fore' # hidden? \ud800")
    log.append(ResultEvent({"image/png": "AAAA", "text/plain": '<Figure \\"size\\" 640>'}, {}))
    await store.executions.finish(replace(execution, state=ExecutionState.OK, finished_at=NOW), OWNER, log)
    assert await found(store, "hidden?") == await found(store, '<Figure \\"size') == ["exe_1"]
    assert await found(store, "AAAA") == []


async def test_search_is_newest_first_and_continues_before_an_execution(store: ExecStore) -> None:
    for number in range(7):
        await run(store, f"exe_{number}", code="same code")
    assert await found(store, "same", limit=3) == ["exe_6", "exe_5", "exe_4"]
    assert await found(store, "same", before="exe_4", limit=3) == ["exe_3", "exe_2", "exe_1"]
    assert await found(store, "same", before="exe_0") == []
    with pytest.raises(ExecutionNotFound, match="exe_9"):
        await found(store, "same", before="exe_9")


async def test_search_finds_only_what_the_principal_may_see(store: ExecStore) -> None:
    for owner in (OWNER, A, f"{A}/cccc", f"{A}a", B):
        await run(store, f"exe_{owner}", owner, code="secret")
    assert len(await found(store, "secret")) == 5
    assert await found(store, "secret", A) == [f"exe_{A}/cccc", f"exe_{A}"]
    assert await found(store, "secret", f"{A}/cccc") == [f"exe_{A}/cccc"]
    assert await found(store, "secret", B) == [f"exe_{B}"]


@pytest.mark.parametrize("text", ["", "ab", "ﬁ"[:0] + "é"])
async def test_short_text_is_refused_with_a_remedy(store: ExecStore, text: str) -> None:
    with pytest.raises(InvalidRequest, match="at least 3 characters; write more"):
        await found(store, text)


async def test_running_execution_is_found_by_its_code_and_then_by_its_output(store: ExecStore) -> None:
    execution, log = await begin(store, "exe_1", code="long_running()")
    assert await found(store, "long_run") == ["exe_1"]
    log.append(StreamEvent("stdout", "the result"))
    assert await found(store, "the result") == []
    await store.executions.finish(replace(execution, state=ExecutionState.OK, finished_at=NOW), OWNER, log)
    assert await found(store, "the result") == ["exe_1"]


# --- the index and the store ---


async def test_executions_of_an_earlier_version_are_indexed_after_a_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(5):
        await run(store, f"exe_{number}", code=f"old code {number}", stdout="x" * 20_000 * (number % 2))
    store.close()
    (tmp_path / "store" / search_database.SEARCH_DATABASE).unlink(missing_ok=True)
    store = open_store(tmp_path)
    assert await found(store, "old code") == [f"exe_{number}" for number in (4, 3, 2, 1, 0)]
    store.close()


async def test_indexing_that_was_stopped_goes_on_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "_BATCH", 2)
    monkeypatch.setattr(search_index, "_COMPARED", 3)
    store = open_store(tmp_path)
    for number in range(9):
        await run(store, f"exe_{number}", code="old code")
    store.close()
    (tmp_path / "store" / search_database.SEARCH_DATABASE).unlink(missing_ok=True)
    monkeypatch.setattr(search_index, "_DELAY_SECONDS", 1000.0)
    store = open_store(tmp_path)
    for count in (0, 2):  # the first step compares the first range
        listed, is_complete = await store.executions.search("old code", OWNER, None, 50, lambda: True)
        assert (len(listed), is_complete) == (count, False)
    store.close()
    store = open_store(tmp_path)
    assert len(await found(store, "old code")) == 9
    store.close()


async def test_recovered_execution_is_in_the_index_as_it_ended(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    _, log = await begin(store, "exe_1", code="was_cut()")
    log.append(StreamEvent("stdout", "half of it"))
    await log.changed(0)
    assert await found(store, "was_cut") == ["exe_1"]
    store.close()
    store = open_store(tmp_path)
    assert await found(store, "half of it") == ["exe_1"]
    store.close()


def in_files(directory: Path, text: str) -> list[str]:
    return [path.name for path in directory.glob("search.db*") if text.encode() in path.read_bytes()]


async def test_removed_executions_leave_nothing_in_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "_MERGE_REST", 0.0)
    store = open_store(tmp_path)
    await run(store, "exe_old", code="# 龘靐齉 unmistakable", stdout="plainly printed " * 40, in_file=True)
    await run(store, "exe_kept", code="kept code")
    assert await found(store, "unmistakable") == ["exe_old"]
    await store._writer.run(
        lambda db: db.execute("UPDATE executions SET finished_at = 1 WHERE id = 'exe_old'"), write=True
    )
    await asyncio.to_thread(store._eviction.evict_and_wait)
    assert await found(store, "unmistakable") == []
    assert await found(store, "kept code") == ["exe_kept"]
    await found(store, "kept code")  # with nothing left to index, the step is the merge
    store.close()
    for text in ("龘靐齉", "unmistakable", "plainly printed", "龘靐"):
        assert in_files(tmp_path / "store", text) == [], text
    assert in_files(tmp_path / "store", "kept code") != []
    with sqlite3.connect(tmp_path / "store" / search_database.SEARCH_DATABASE) as index:
        index.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'texts', 'row')")
        terms = {term for (term,) in index.execute("SELECT term FROM temp.terms")}
        assert index.execute("SELECT COUNT(*) FROM entries").fetchone() == (1,)
    text = "\n\nkept code\n"  # without names and output
    assert terms == {text[at : at + 3] for at in range(len(text) - 2)}


async def test_damaged_index_is_made_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await run(store, "exe_1", code="still there")
    store.close()
    (tmp_path / "store" / search_database.SEARCH_DATABASE).write_bytes(b"no database at all " * 1000)
    store = open_store(tmp_path)
    assert await found(store, "still there") == ["exe_1"]
    assert store.trouble() is None
    store.close()


async def test_index_that_cannot_be_written_is_trouble_and_runs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    monkeypatch.setattr(search_database.SearchDatabase, "_insert", refuse)
    await run(store, "exe_1", code="some code")
    await store.executions.search("some code", OWNER, None, 50, lambda: True)
    assert "the search index could not be updated" in (store.trouble() or "")
    monkeypatch.undo()
    assert await found(store, "some code") == ["exe_1"]
    assert store.trouble() is None
    store.close()


def refuse(*arguments: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


async def test_damaged_record_is_not_found_and_keeps_no_other_from_being_found(store: ExecStore) -> None:
    for name in ("exe_1", "exe_2", "exe_3"):
        await run(store, name, code="same code", stdout="long " * 10_000)
    await store._writer.run(
        lambda db: db.execute("UPDATE executions SET record = '{\"code\": 7}' WHERE id = 'exe_2'"), write=True
    )
    next(store.logs.rglob("exe_3.ndjson")).write_bytes(b"\xff\xfe")
    assert await found(store, "same code") == ["exe_3", "exe_1"]


async def test_without_trigrams_search_says_so_and_runs_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = ("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='no_such')", *search_database._TABLES[1:])
    monkeypatch.setattr(search_database, "_TABLES", tables)
    store = open_store(tmp_path)
    await run(store, "exe_1")
    with pytest.raises(SearchNotAvailable, match=r"its SQLite .* use a Python with SQLite 3.34"):
        await found(store, "print")
    assert store.trouble() is None
    assert not (tmp_path / "store" / search_database.SEARCH_DATABASE).exists()
    store.close()


# --- bounds ---


async def test_searches_beyond_the_bound_are_refused_and_unwanted_ones_are_not_made(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(store, "exe_1", code="some code")
    assert await found(store, "some code") == ["exe_1"]
    may_go_on = threading.Event()
    find: Callable[..., Sequence[str]] = search_database.SearchDatabase.find
    made: list[str] = []

    def slow_find(database: Any, wanted: str, *rest: Any) -> Sequence[str]:
        may_go_on.wait(10)
        made.append(wanted)
        return find(database, wanted, *rest)

    monkeypatch.setattr(search_database.SearchDatabase, "find", slow_find)
    is_wanted = dict.fromkeys(range(search_index._MAX_WAITING), True)

    def search(number: int) -> Any:
        return store.executions.search(f"code{number:03}", OWNER, None, 50, lambda: is_wanted[number])

    waiting = [asyncio.ensure_future(search(number)) for number in is_wanted]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many searches"):
        await search(0)
    is_wanted[3] = False
    may_go_on.set()
    await asyncio.gather(*waiting)
    assert made == [f"code{number:03}" for number in is_wanted if number != 3]


async def test_search_that_takes_too_long_is_ended_with_a_remedy(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(store, "exe_1", code="some code")
    assert await found(store, "some code") == ["exe_1"]
    monkeypatch.setattr(search_index, "_MAX_SECONDS", -1.0)
    monkeypatch.setattr(search_index, "_LOOK_INSTRUCTIONS", 1)
    with pytest.raises(InvalidRequest, match="write more of the text"):
        await store.executions.search("some code", OWNER, None, 50, lambda: True)
