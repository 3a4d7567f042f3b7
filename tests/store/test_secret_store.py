"""Secrets at rest: encrypted with a key file that only its owner can read, and with a new key after a rotation."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_exec_ext.errors import Conflict
from jupyter_exec_ext.models import Secret
from jupyter_exec_ext.store.key_file import KeyFile
from jupyter_exec_ext.store.secret_store import MAX_SECRETS
from jupyter_exec_ext.store.store import ExecStore

SECRET = Secret("API_TOKEN", ("a.test",), "Authorization: Bearer {}", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
VALUE = "value-that-is-nowhere"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExecStore]:
    store = ExecStore(path=str(tmp_path))
    yield store
    store.close()


def _key_path(store: ExecStore) -> Path:
    return store.directory / "secrets.key"


async def test_value_is_kept_encrypted_and_comes_back(store: ExecStore) -> None:
    await store.secrets.put(SECRET, VALUE)
    changed = replace(SECRET, hosts=("b.test",))
    await store.secrets.put(changed, VALUE + "2")
    assert [each.hosts for each in await store.secrets.list()] == [["b.test"]]
    (found,) = (await store.secrets.values(["API_TOKEN", "OTHER"])).values()
    assert (found[0].name, found[1]) == ("API_TOKEN", VALUE + "2")
    kept = b"".join(path.read_bytes() for path in store.directory.rglob("*") if path.is_file())
    assert VALUE.encode() not in kept and b"API_TOKEN" in kept
    assert stat.S_IMODE(_key_path(store).stat().st_mode) == 0o600
    assert await store.secrets.delete("API_TOKEN")
    assert not await store.secrets.delete("API_TOKEN")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
async def test_key_file_that_others_can_read_is_refused(store: ExecStore, mode: int) -> None:
    await store.secrets.put(SECRET, VALUE)
    _key_path(store).chmod(mode)
    with pytest.raises(Conflict, match="chmod 600"):
        await store.secrets.values(["API_TOKEN"])
    with pytest.raises(Conflict, match="can be read by other users"):
        await store.secrets.put(SECRET, VALUE)
    assert [each.name for each in await store.secrets.list()] == ["API_TOKEN"]  # so that it can be deleted
    assert await store.secrets.delete("API_TOKEN")


async def test_key_that_is_no_regular_file_is_refused(store: ExecStore) -> None:
    await store.secrets.put(SECRET, VALUE)
    _key_path(store).unlink()
    _key_path(store).symlink_to(os.devnull)
    with pytest.raises(Conflict, match="is no regular file"):
        await store.secrets.values(["API_TOKEN"])


async def test_key_file_that_cannot_be_read_or_written_is_named_with_the_remedy(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.secrets.put(SECRET, VALUE)
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "mkstemp", _raise_full)
        with pytest.raises(Conflict, match=r"secrets\.key cannot be read or written \(No space left on device\)"):
            await store.secrets.rotate_key()
    assert (await store.secrets.values(["API_TOKEN"]))["API_TOKEN"][1] == VALUE
    kept = _key_path(store).rename(store.directory / "kept")
    _key_path(store).mkdir()  # unlike a mode, it stops the superuser as well
    with pytest.raises(Conflict, match=r"cannot be read or written \(Is a directory\); .*'chmod 600'"):
        await store.secrets.values(["API_TOKEN"])
    _key_path(store).rmdir()
    kept.rename(_key_path(store))
    assert (await store.secrets.values(["API_TOKEN"]))["API_TOKEN"][1] == VALUE


def _raise_full(**_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_lost_or_broken_key_is_named_with_the_remedy(store: ExecStore) -> None:
    await store.secrets.put(SECRET, VALUE)
    _key_path(store).write_text("not a key\n")
    with pytest.raises(Conflict, match="has no valid keys"):
        await store.secrets.values(["API_TOKEN"])
    _key_path(store).unlink()
    with pytest.raises(Conflict, match=r"API_TOKEN was not encrypted with the key in .*; set it again"):
        await store.secrets.values(["API_TOKEN"])
    with pytest.raises(Conflict):
        await store.secrets.rotate_key()
    await store.secrets.put(SECRET, VALUE)
    assert (await store.secrets.values(["API_TOKEN"]))["API_TOKEN"][1] == VALUE


async def test_rotated_key_replaces_the_old_one(store: ExecStore) -> None:
    await store.secrets.put(SECRET, VALUE)
    await store.secrets.put(replace(SECRET, name="OTHER"), "another-value")
    old = _key_path(store).read_bytes()
    assert await store.secrets.rotate_key() == 2
    new = _key_path(store).read_bytes()
    assert new != old and len(new.split()) == 1
    assert {name: value for name, (_, value) in (await store.secrets.values(["API_TOKEN", "OTHER"])).items()} == {
        "API_TOKEN": VALUE,
        "OTHER": "another-value",
    }
    _key_path(store).write_bytes(old)
    with pytest.raises(Conflict, match="was not encrypted with the key"):
        await store.secrets.values(["API_TOKEN"])


async def test_two_servers_with_one_store_share_the_key_and_rotate_it_at_once(store: ExecStore) -> None:
    other = ExecStore(path=str(store.directory))
    try:
        names = [f"NAME_{number}" for number in range(20)]
        writes = [(store, other)[n % 2].secrets.put(replace(SECRET, name=name), VALUE) for n, name in enumerate(names)]
        rotations = [each.secrets.rotate_key() for each in (store, other, store)]
        await asyncio.gather(*writes[:10], *rotations, *writes[10:])
        found = await other.secrets.values(names)
        assert {value for _, value in found.values()} == {VALUE} and len(found) == 20
    finally:
        other.close()


async def test_rotation_that_fails_keeps_both_keys_and_all_secrets(
    store: ExecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.secrets.put(SECRET, VALUE)
    add_key = KeyFile.add_key

    def fail(self: KeyFile) -> None:
        add_key(self)
        raise Conflict("the disk is gone")

    monkeypatch.setattr(KeyFile, "add_key", fail)
    with pytest.raises(Conflict, match="the disk is gone"):
        await store.secrets.rotate_key()
    monkeypatch.undo()
    assert len(_key_path(store).read_bytes().split()) == 2
    assert (await store.secrets.values(["API_TOKEN"]))["API_TOKEN"][1] == VALUE
    await store.secrets.rotate_key()
    assert len(_key_path(store).read_bytes().split()) == 1


async def test_number_of_secrets_is_bounded(store: ExecStore) -> None:
    for number in range(MAX_SECRETS):
        await store.secrets.put(replace(SECRET, name=f"NAME_{number}"), VALUE)
    with pytest.raises(Conflict, match=f"there are {MAX_SECRETS} secrets already"):
        await store.secrets.put(SECRET, VALUE)
    await store.secrets.put(replace(SECRET, name="NAME_0"), VALUE)


async def test_key_of_another_user_is_refused(store: ExecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.secrets.put(SECRET, VALUE)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(Conflict, match="belongs to another user; run the server as that user"):
        await store.secrets.values(["API_TOKEN"])
