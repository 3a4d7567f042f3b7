from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.errors import UnexpectedAnswer
from jupyter_exec_ext.protocol.records_json import bare_to_json
from jupyter_exec_ext.protocol.strict_json import dump_bytes
from jupyter_exec_ext.store.log_file import INDEX_STEP_BYTES, LogFile, LogText, record_in, recovered

from .test_execution_store import finished


def lines(first: int, last: int, size: int = 10) -> list[bytes]:
    return [str(number).encode().rjust(size, b".") for number in range(first, last + 1)]


def test_lines_are_read_from_any_number_on(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "session" / "log")
    log.append(lines(1, 5))
    log.append(lines(6, 9))
    assert [log.read(after, 3, 10**6) for after in (0, 4, 8, 9)] == [lines(1, 3), lines(5, 7), lines(9, 9), []]
    assert log.read_at(log.last_offset) == lines(9, 9)[0]
    assert (log.path.stat().st_mode & 0o777, log.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_long_lines_are_written_beside_short_ones(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log")
    sizes = (10, 300_000, 10, 100_000, 200_000, 10, 1_000_000)
    expected = [line for number, size in enumerate(sizes) for line in lines(number, number, size)]
    log.append(expected)
    assert log.path.read_bytes() == b"".join(line + b"\n" for line in expected)
    assert log.read(0, 10, 10**9) == expected


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 40))
def test_the_index_finds_every_line(per_batch: int, count: int, after: int) -> None:
    log = LogFile(Path(f"/tmp/jupyter-exec-test-{os.getpid()}"))  # hypothesis has no fixture per example
    log.path.unlink(missing_ok=True)
    expected = lines(1, count, INDEX_STEP_BYTES // 3)
    for start in range(0, count, per_batch):
        log.append(expected[start : start + per_batch])
    assert log.read(after, 5, 10**9) == expected[after : after + 5]
    again = LogFile(log.path, log.size_bytes, log.last_seq, log.index)
    assert again.read(after, 5, 10**9) == expected[after : after + 5]
    log.path.unlink()


def test_a_reader_gets_no_more_than_it_asked_for_but_always_something(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log")
    log.append(lines(1, 5, 1000))
    assert len(log.read(0, 100, 2500)) == 3
    assert len(log.read(0, 100, 1)) == 1


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log")
    log.append(lines(1, 3))
    before = log.path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 500, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.append(lines(4, 5, 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert log.path.read_bytes() == before
    log.append(lines(4, 4))
    assert log.read(0, 10, 10**6) == lines(1, 4)


def test_a_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        LogFile(tmp_path / "log").append([b"x"])
    assert not (tmp_path / "elsewhere").exists()


def test_log_whose_name_has_a_fifo_fails_without_blocking(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log", size_bytes=2, last_seq=1)
    os.mkfifo(log.path)
    assert not log.exists
    with pytest.raises(OSError, match="regular"):
        log.append([b"x"])
    with pytest.raises(OSError, match="regular"):
        log.sync()
    with pytest.raises(OSError, match="regular"):
        log.read(0, 1, 1)
    with pytest.raises(OSError, match="regular"):
        recovered(log.path, lambda _: True)


def test_log_is_not_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/zero")  # it has no end
    log = LogFile(tmp_path / "log", size_bytes=2, last_seq=1)
    assert not log.exists
    with pytest.raises(OSError, match="symbolic"):
        log.read_at(0)


@given(st.binary(max_size=40))
def test_a_torn_log_is_cut_back_to_its_last_whole_line(torn: bytes) -> None:
    path = Path(f"/tmp/jupyter-exec-test-{os.getpid()}")
    path.write_bytes(b"one\ntwo\n" + torn)
    log = recovered(path, lambda line: line in (b"one\n", b"two\n"))
    assert path.read_bytes() == b"one\ntwo\n"
    assert (log.last_seq, log.read(0, 9, 99)) == (2, [b"one", b"two"])
    log.append([b"three"])
    assert log.read(2, 9, 99) == [b"three"]
    path.unlink()


def test_a_log_that_was_never_begun_is_empty(tmp_path: Path) -> None:
    assert recovered(tmp_path / "none", lambda _: True).last_seq == 0


@pytest.mark.parametrize("end", [b"[]", b"7", b"{}", b'{"execution": null}', b'{"execution": []}', b"", b"\0"])
def test_log_whose_end_has_no_record_is_damaged(end: bytes) -> None:
    log = LogText.of([end])
    with pytest.raises((ValueError, UnexpectedAnswer)):
        record_in(log, log.last_offset)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "stream", "name": "stdout", "text": 1},
        {"type": "error", "name": "E", "value": "v", "traceback": 1},
        {"type": "display", "data": {}, "metadata": {}, "display_id": [1]},
        {"type": "truncated", "truncated": None},
    ],
)
def test_log_with_event_that_cannot_be_read_is_damaged(event: dict[str, Any]) -> None:
    lines = [dump_bytes({"seq": seq, "at": "", **event}) for seq in (1, 2)]
    log = LogText.of([*lines, dump_bytes({"seq": 3, "type": "end", "execution": bare_to_json(finished())})])
    with pytest.raises(ValueError, match="event"):
        record_in(log, log.last_offset)
