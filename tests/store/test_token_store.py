"""Tokens in a real database: who is let in, for how long, and after whatever happened to the file."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_exec_ext.auth.caller import token_principal
from jupyter_exec_ext.auth.token_format import TokenText, new_token
from jupyter_exec_ext.errors import StoreUnavailable, TokenRevoked, TooManyTokens
from jupyter_exec_ext.models import Grant, StoredToken, Token
from jupyter_exec_ext.protocol.records_json import utc_timestamp
from jupyter_exec_ext.store.eviction import expire
from jupyter_exec_ext.store.store import ExecStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ExecStore]:
    opened = ExecStore(path=str(tmp_path / "store"), reserve_bytes=4096)
    yield opened
    opened.close()


def record(
    secret: TokenText, parent: StoredToken | None = None, seconds: float = 600.0, name: str = "t"
) -> StoredToken:
    grants = (*(parent.grants if parent else ()), Grant(secret.id, "default"))
    now = time.time()
    expires_at_seconds = now + seconds if parent is None else min(now + seconds, parent.expires_at_seconds)
    token = Token(
        id=secret.id,
        principal=token_principal(tuple(grant.token_id for grant in grants)),
        name=name,
        policy="default",
        scopes=("sessions:read",),
        created_at=utc_timestamp(now),
        expires_at=utc_timestamp(expires_at_seconds),
        parent_id=parent.token.id if parent else None,
        limits={"max_sessions": 1},
    )
    return StoredToken(token, grants, {"username": "ada"}, expires_at_seconds)


async def add(
    store: ExecStore, parent: StoredToken | None = None, seconds: float = 600.0, max_tokens: int = 0
) -> tuple[TokenText, StoredToken]:
    secret = new_token()
    stored = record(secret, parent, seconds)
    await store.tokens.add(stored, secret.secret_hash, max_tokens)
    return secret, stored


def found(store: ExecStore, secret: TokenText) -> StoredToken | None:
    return store.tokens.find(secret.id, secret.secret_hash)


async def test_a_token_is_found_by_its_secret_alone(store: ExecStore) -> None:
    secret, stored = await add(store)
    assert found(store, secret) == stored
    assert found(store, new_token()) is None
    assert found(store, new_token(secret.id)) is None
    assert store.tokens.find(secret.id, b"") is None
    assert store.tokens.find("unknown1", b"\0" * 32) is None  # whom nothing is compared with does not fit nothing
    assert store.tokens.find("' OR 1 --", secret.secret_hash) is None


async def test_no_secret_is_in_any_file(store: ExecStore) -> None:
    secret, _ = await add(store)
    for path in store.directory.rglob("*"):
        if path.is_file():
            assert secret.secret.encode() not in path.read_bytes(), path
            assert path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0


# --- rotation ---


async def test_with_overlap_both_secrets_are_good_for_a_while(store: ExecStore) -> None:
    old, _ = await add(store)
    new = new_token(old.id)
    await store.tokens.rotate(old.id, new.secret_hash, 0.3, {"username": "ada"}, time.time() + 60)
    assert found(store, old) and found(store, new)
    deadline = time.monotonic() + 5
    while found(store, old):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert found(store, new)


async def test_without_overlap_the_old_secret_is_worth_nothing_whatever_the_clock_says(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = await add(store)
    new = new_token(old.id)
    await store.tokens.rotate(old.id, new.secret_hash, 0.0, {"username": "ada"}, time.time() + 60)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    assert found(store, old) is None
    assert found(store, new)


async def test_only_the_last_secret_has_an_overlap(store: ExecStore) -> None:
    first, _ = await add(store)
    second, third = new_token(first.id), new_token(first.id)
    await store.tokens.rotate(first.id, second.secret_hash, 60.0, {"username": "ada"}, time.time() + 60)
    await store.tokens.rotate(first.id, third.secret_hash, 60.0, {"username": "ada"}, time.time() + 60)
    assert [found(store, each) is not None for each in (first, second, third)] == [False, True, True]


# --- revocation ---


async def test_with_a_token_the_tree_below_it_is_revoked_and_nothing_else(store: ExecStore) -> None:
    root, root_record = await add(store)
    child, child_record = await add(store, root_record)
    grandchild, _ = await add(store, child_record)
    sibling, _ = await add(store, root_record)
    stranger, stranger_record = await add(store)
    assert set(await store.tokens.revoke(child_record.token.principal)) == {child.id, grandchild.id}
    for secret, revoked in ((root, False), (child, True), (grandchild, True), (sibling, False), (stranger, False)):
        seen = found(store, secret)
        assert seen is not None
        assert (seen.token.revoked_at is not None) is revoked
    ended = store.tokens.ended([root.id, child.id, grandchild.id, "unknown1"])
    assert set(ended) == {child.id, grandchild.id, "unknown1"}
    assert ended["unknown1"] is None
    assert await store.tokens.revoke(child_record.token.principal) == []
    assert set(await store.tokens.revoke(root_record.token.principal)) == {root.id, sibling.id}
    assert stranger_record.token.active


async def test_whose_id_only_begins_alike_is_not_below(store: ExecStore) -> None:
    one = TokenText("abcdefgh", "x" * 43)
    stored = record(one)
    await store.tokens.add(stored, one.secret_hash, 0)
    other = TokenText("zzzzzzzz", "y" * 43)
    alike = record(other)
    alike = replace(alike, token=replace(alike.token, principal="token:abcdefghi"))
    await store.tokens.add(alike, other.secret_hash, 0)
    for character in ("%", "_", "?", "*"):  # which a pattern would take for any
        assert await store.tokens.revoke(f"token:{character * 8}") == []
    assert await store.tokens.revoke(stored.token.principal) == ["abcdefgh"]


@pytest.mark.parametrize("end", ["revoked", "expired", "gone"])
async def test_whoever_has_ended_has_no_more_children(store: ExecStore, end: str) -> None:
    _, parent = await add(store, seconds=-1.0 if end == "expired" else 600.0)
    if end == "revoked":
        await store.tokens.revoke(parent.token.principal)
    if end == "gone":
        parent = record(new_token())
    with pytest.raises(TokenRevoked):
        await add(store, parent)


async def test_a_revocation_holds_at_another_server_at_once(store: ExecStore) -> None:
    secret, stored = await add(store)
    other = ExecStore(path=str(store.directory), reserve_bytes=4096)
    try:
        assert found(other, secret)
        await store.tokens.revoke(stored.token.principal)
        seen = found(other, secret)
        assert seen is not None and seen.token.revoked_at is not None
        assert set(other.tokens.ended([secret.id])) == {secret.id}
        new = new_token(secret.id)
        await other.tokens.rotate(secret.id, new.secret_hash, 0.0, {"username": "ada"}, time.time() + 60)
        assert found(store, secret) is None
        assert found(store, new) is not None
    finally:
        other.close()


# --- expiry ---


async def test_a_token_once_seen_expired_stays_so(store: ExecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, _ = await add(store)
    other = ExecStore(path=str(store.directory), reserve_bytes=4096)
    try:
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 601)
        seen = found(store, secret)
        assert seen is not None and seen.token.expired
        monkeypatch.setattr(time, "time", lambda: now)
        seen = found(store, secret)
        assert seen is not None and seen.token.expired  # before it was written down
        await store.tokens.note_expired(secret.id)
        seen = found(other, secret)
        assert seen is not None and seen.token.expired
        assert set(other.tokens.ended([secret.id])) == {secret.id}
        assert await other.tokens.list(None, ended=False) == []
    finally:
        other.close()
    store.close()
    again = ExecStore(path=str(store.directory), reserve_bytes=4096)
    try:
        seen = found(again, secret)
        assert seen is not None and seen.token.expired
    finally:
        again.close()


# --- how many, how long ---


async def test_there_are_no_more_than_there_may_be(store: ExecStore) -> None:
    results = await asyncio.gather(*(add(store, max_tokens=5) for _ in range(50)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 45
    assert {type(error) for error in refused} == {TooManyTokens}
    (first, *_) = [result for result in results if not isinstance(result, BaseException)]
    await store.tokens.revoke(first[1].token.principal)
    await add(store, max_tokens=5)  # one that has ended takes no place
    with pytest.raises(TooManyTokens):
        await add(store, max_tokens=5)


async def test_two_servers_do_not_have_more_together(store: ExecStore) -> None:
    other = ExecStore(path=str(store.directory), reserve_bytes=4096)
    try:
        results = await asyncio.gather(
            *(add((store, other)[n % 2], max_tokens=5) for n in range(50)), return_exceptions=True
        )
    finally:
        other.close()
    assert sum(not isinstance(result, BaseException) for result in results) == 5


async def test_what_has_ended_is_forgotten_after_its_time_and_not_before(store: ExecStore) -> None:
    active, _ = await add(store)
    revoked, revoked_record = await add(store)
    child, _ = await add(store, revoked_record)
    expired, _ = await add(store, seconds=-1.0)
    await store.tokens.revoke(revoked_record.token.principal)
    await asyncio.sleep(0.01)

    async def after(max_age_seconds: float) -> set[str]:
        await store._writer.run(lambda db: expire(db, store.logs, max_age_seconds), write=True)
        return {token.id for token in await store.tokens.list(None, ended=True)}

    assert await after(60.0) == {active.id, revoked.id, child.id, expired.id}
    assert await after(0.0) == {active.id}
    assert found(store, revoked) is None
    assert found(store, active)


# --- a file that is not well (F16) ---


async def test_after_the_database_was_set_aside_no_old_token_is_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = str(tmp_path / "damaged")
    store = ExecStore(path=directory, reserve_bytes=4096, log=logging.getLogger("test"))
    secret, _ = await add(store)
    store.close()
    database = tmp_path / "damaged" / "executions.db"
    data = bytearray(database.read_bytes())
    data[100:4096] = b"\xff" * (4096 - 100)  # the schema; the rows themselves are as they were
    database.write_bytes(data)
    store = ExecStore(path=directory, reserve_bytes=4096, log=logging.getLogger("test"))
    try:
        assert found(store, secret) is None
        assert await store.tokens.list(None, ended=True) == []
        assert "no record or token in it is used any more" in caplog.text
        fresh, _ = await add(store)
        assert found(store, fresh)
    finally:
        store.close()


async def test_a_database_that_is_damaged_while_it_is_used_lets_nobody_in(tmp_path: Path) -> None:
    store = ExecStore(path=str(tmp_path / "damaged"), reserve_bytes=4096, log=logging.getLogger("test"))
    try:
        secret, _ = await add(store)
        assert found(store, secret)
        for name in ("executions.db", "executions.db-wal"):
            path = tmp_path / "damaged" / name
            path.write_bytes(b"\xff" * max(4096, path.stat().st_size))
        store._reader.close()  # as after any failure; what SQLite has in memory it may still answer with
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                found(store, secret)
    finally:
        store.close()
    store = ExecStore(path=str(tmp_path / "damaged"), reserve_bytes=4096, log=logging.getLogger("test"))
    try:
        assert found(store, secret) is None
        assert store.tokens.ended([secret.id]) == {secret.id: None}  # so that what runs in its name ends, too
    finally:
        store.close()


async def test_a_database_that_is_gone_lets_nobody_in(store: ExecStore) -> None:
    secret, _ = await add(store)
    (store.directory / "executions.db").rename(store.directory / "away")
    with pytest.raises(StoreUnavailable):
        found(store, secret)
    (store.directory / "away").rename(store.directory / "executions.db")
    assert found(store, secret)


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Keep everybody out, even readers, as a program does that copies or repairs the file."""
    connection = sqlite3.connect(database, isolation_level=None, timeout=5)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        connection.close()


async def test_a_locked_database_is_neither_a_yes_nor_a_no(tmp_path: Path) -> None:
    store = ExecStore(path=str(tmp_path / "locked"), reserve_bytes=4096)
    try:
        secret, _ = await add(store)
        store._writer._database._connection.execute("PRAGMA journal_mode=DELETE")  # where a lock keeps readers out
        with locked(tmp_path / "locked" / "executions.db"):
            for each in (secret, new_token()):
                with pytest.raises(StoreUnavailable) as raised:
                    found(store, each)
                assert raised.value.retry_after_seconds
        assert found(store, secret)
    finally:
        store.close()
