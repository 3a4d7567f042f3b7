"""Search among many executions: what is planted is found, within the time that a person waits gladly."""

from __future__ import annotations

import time
from pathlib import Path

from jupyter_exec_ext.auth.caller import OWNER
from jupyter_exec_ext.store.store import ExecStore
from tests.support.full import IS_FULL, scaled
from tests.support.many_records import COMMON, PLANTED, fill_store

EXECUTIONS = scaled(10_000, per_commit=400)
ANSWERS_WITHIN_SECONDS = 0.3


async def test_planted_texts_are_found_in_ended_sessions(tmp_path: Path) -> None:
    planted = await fill_store(tmp_path, EXECUTIONS, EXECUTIONS // 50)
    store = ExecStore(path=str(tmp_path))
    store.recover()

    async def search(text: str, before: str | None = None) -> list[str]:
        found, is_complete = await store.executions.search(text, OWNER, before, 50, lambda: True)
        return [one.execution.id for one in found] if is_complete else await search(text, before)

    try:
        assert len(await search(COMMON)) == 50
        took: dict[str, float] = {}
        found = {}
        for text in [*planted, COMMON, "def ", "return", "no such text anywhere"]:
            began = time.perf_counter()
            found[text] = await search(text)
            took[text] = time.perf_counter() - began
        assert len(planted) == PLANTED
        assert {text: found[text] for text in planted} == {text: [ident] for text, ident in planted.items()}
        oldest = f"exe_{0:024}"
        assert await search(COMMON, before=f"exe_{1:024}") == [oldest]
        print(f"{EXECUTIONS} executions: the longest of {len(took)} searches took {1000 * max(took.values()):.0f} ms")
        if IS_FULL:
            assert max(took.values()) <= ANSWERS_WITHIN_SECONDS
    finally:
        store.close()
