"""Why a kernel died: crash reports that are hostile input, and kills for lack of memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.engine.kernels.death_report import (
    CrashFile,
    OomWatch,
    counter_files,
    oom_kills,
    plain_text,
    was_oom_killed,
)
from jupyter_exec_ext.models import ExecutionRequest, ExecutionState, SessionRequest

ME = owner("me")

# --- crash files ---


def test_a_crash_file_is_private_and_its_name_cannot_be_guessed(tmp_path: Path) -> None:
    one, other = CrashFile(tmp_path), CrashFile(tmp_path)
    assert stat.S_IMODE(one.path.stat().st_mode) == 0o600
    assert len(one.path.name) == 32
    assert one.path != other.path


def test_a_crash_file_is_read_up_to_a_bound_as_plain_text(tmp_path: Path) -> None:
    file = CrashFile(tmp_path)
    assert file.read() == ""
    file.path.write_bytes(b"Fatal\x1b[31m\x00\r\n  File \xff\xe2\x80\xae\n")
    assert file.read() == "Fatal[31m\n  File \ufffd"
    file.path.write_bytes(b"x" * 1_000_000)
    assert file.read() == "x" * 16 * 1024
    file.remove()
    file.remove()
    assert file.read() == ""


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory", "other file"])
def test_what_took_a_crash_files_place_is_not_read(tmp_path: Path, kind: str) -> None:
    file = CrashFile(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    file.path.rename(tmp_path / "kept, so that its inode is not used again")
    if kind == "symlink":
        file.path.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(file.path)
    elif kind == "directory":
        file.path.mkdir()
    else:
        os.link(secret, file.path)
    assert file.read() == ""
    file.remove()


def test_plain_text_has_no_control_or_bidirectional_characters() -> None:
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x2100)])).encode()
    shown = plain_text(everything)
    assert all(char in "\n\t" or char >= " " for char in shown)
    assert not {"\x7f", "\x9b", "\u202e", "\u2066"} & set(shown)


# --- out of memory ---


@pytest.mark.parametrize(
    ("signal", "killed_by_us", "before", "after", "verdict"),
    [
        ("SIGKILL", False, 0, 1, True),
        ("SIGKILL", False, 1, 1, False),
        ("SIGKILL", True, 0, 1, False),
        ("SIGSEGV", False, 0, 1, False),
        (None, False, 0, 1, False),
        ("SIGKILL", False, None, 1, False),
        ("SIGKILL", False, 0, None, False),
    ],
)
def test_the_verdict(
    signal: str | None, killed_by_us: bool, before: int | None, after: int | None, verdict: bool
) -> None:
    assert was_oom_killed(signal, killed_by_us=killed_by_us, before=before, after=after) is verdict


def test_the_counter_is_found_in_either_version_of_control_groups(tmp_path: Path) -> None:
    assert counter_files("0::/kernels/one\n", tmp_path)[0] == tmp_path / "kernels/one/memory.events"
    assert counter_files("4:memory:/a\n0::/\n", tmp_path)[0] == tmp_path / "memory/a/memory.oom_control"
    assert counter_files("0::/../../outside\n", tmp_path) == []
    assert counter_files("nonsense", tmp_path) == [tmp_path / "memory.events", tmp_path / "unified/memory.events"]
    assert oom_kills([tmp_path / "absent"]) is None


def test_a_kill_for_lack_of_memory_is_seen_by_the_counter(tmp_path: Path) -> None:
    (tmp_path / "proc" / "42").mkdir(parents=True)
    (tmp_path / "proc" / "42" / "cgroup").write_text("0::/kernel\n")
    group = tmp_path / "cgroups" / "kernel"
    group.mkdir(parents=True)
    events = group / "memory.events"
    events.write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n")
    watch = OomWatch(42, proc=tmp_path / "proc", root=tmp_path / "cgroups")
    assert not watch.explains("SIGKILL", killed_by_us=False)
    events.write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n")
    assert watch.explains("SIGKILL", killed_by_us=False)
    assert not watch.explains("SIGKILL", killed_by_us=True)
    assert not OomWatch(43, proc=tmp_path / "proc", root=tmp_path).explains("SIGKILL", killed_by_us=False)


# --- with a kernel ---


async def run(engine: ExecEngine, session_id: str, code: str) -> Any:
    return await (await engine.execute(ME, session_id, ExecutionRequest(code))).wait(60)


async def test_a_crash_is_explained_by_the_stack_and_an_exit_is_not(engine: ExecEngine) -> None:
    session = await engine.create_session(ME, SessionRequest())
    crash = "import ctypes\ndef culprit():\n    ctypes.string_at(0)\nculprit()"
    crashed = await run(engine, session.id, crash)
    assert (crashed.state, crashed.kernel_signal) == (ExecutionState.KERNEL_DIED, "SIGSEGV")
    assert "Segmentation fault" in crashed.error.traceback
    assert "in culprit" in crashed.error.traceback
    left = await run(engine, session.id, "import os; os._exit(3)")
    assert (left.kernel_exit_code, left.error.traceback) == (3, "")
    again = await run(engine, session.id, crash)
    assert "in culprit" in again.error.traceback


async def test_the_preparation_leaves_no_trace_in_the_session(engine: ExecEngine) -> None:
    session = await engine.create_session(ME, SessionRequest())
    seen = "[n for n in dir() if 'fault' in n or n in ('io', 'path')], In[:-1], Out, _, __, ___"
    first = await run(engine, session.id, seen)
    assert first.execution_count == 1
    assert [output["data"]["text/plain"] for output in first.outputs] == ["([], [''], {}, '', '', '')"]
    assert (first.stdout, first.stderr) == ("", "")


async def test_nothing_is_left_in_the_private_directory(make_engine: Callable[..., ExecEngine]) -> None:
    engine = make_engine(pool_size=0)  # whose kernels have files there, too
    session = await engine.create_session(ME, SessionRequest())
    directory = engine._resources.private_directory()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert len(list(directory.iterdir())) == 1
    await engine.restart_session(ME, session.id)
    assert len(list(directory.iterdir())) == 1
    await engine.delete_session(ME, session.id)
    assert list(directory.iterdir()) == []
    await engine.shutdown()
    assert not directory.exists()
