"""Output far beyond its cap, and what a kill and a full disk do to it; see `test_faults` for the scale."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.models import ExecutionState
from tests.support.full import only_in_full
from tests.support.hosts import Host, free_port, running_host

CAP = 1024 * 1024
MIB = 1024 * 1024
LINES = 1_000_000
FLOOD = f"for i in range({LINES}): print(f'{{i:099d}}')"


@contextmanager
def peak_of(host: Host) -> Iterator[list[int]]:
    """Yield a list that has, at the end, by how many bytes the server's memory grew at most."""
    process, stop, growth = psutil.Process(host.process.pid), threading.Event(), [0]
    before = process.memory_info().rss

    def watch() -> None:
        while not stop.wait(0.01):
            growth[0] = max(growth[0], process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield growth
    finally:
        stop.set()
        watcher.join()


@pytest.mark.timeout(300)
@only_in_full
def test_a_flood_of_100_mb_comes_down_byte_for_byte_in_bounded_memory(tmp_path: Path) -> None:
    expected = hashlib.sha256()
    for number in range(LINES):
        expected.update(b"%099d\n" % number)
    with (
        running_host("server", tmp_path, max_output_bytes=CAP) as host,
        ExecClient(host.info) as client,
        client.session() as session,
    ):
        session.run("1")
        with peak_of(host) as spooling:
            execution = session.submit(FLOOD)
            record = execution.result()
        (output,) = record.spooled
        with peak_of(host) as sending:
            path = execution.download_output("stdout", tmp_path)
    assert record.truncated is not None
    assert (record.truncated.unspooled_reason, output.complete) == (None, True)
    assert path.stat().st_size == output.size_bytes == LINES * 100
    assert hashlib.sha256(path.read_bytes()).hexdigest() == output.sha256 == expected.hexdigest()
    print(f"100 MB spooled in +{spooling[0] / MIB:.0f} MiB, sent in +{sending[0] / MIB:.0f} MiB")
    assert spooling[0] < 150 * MIB
    assert sending[0] < 32 * MIB


@pytest.mark.timeout(300)
def test_values_too_large_to_wait_together_are_all_kept(tmp_path: Path) -> None:
    """Three of 100 MB, one after the other without a pause: reading waits for the disk."""
    code = "for i in range(3): display({'text/html': str(i) * 100_000_000}, raw=True)"
    options = ["--ExecStore.max_spool_bytes=400000000"]
    with (
        running_host("server", tmp_path, *options, max_output_bytes=CAP) as host,
        ExecClient(host.info) as client,
        client.session() as session,
    ):
        record = session.run(code)
    assert record.truncated is not None
    assert record.truncated.unspooled_reason is None
    assert [(output.size_bytes, output.complete) for output in record.spooled] == [(100_000_000, True)] * 3
    assert len({output.sha256 for output in record.spooled}) == 3


@pytest.mark.timeout(200)
def test_a_kill_while_spooling_leaves_no_file_that_no_record_names(tmp_path: Path) -> None:
    port, token = free_port(), "a" * 32
    with (
        running_host("server", tmp_path, max_output_bytes=CAP, port=port, token=token) as host,
        ExecClient(host.info) as client,
    ):
        session = client.session()
        kept = session.run("print('x' * 3_000_000)")
        cut = session.submit(FLOOD)
        give_up_at = time.monotonic() + 60
        while len(list(tmp_path.rglob("*.outputs/stdout"))) < 2:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)  # a file's appearance is no event
        os.kill(host.process.pid, signal.SIGKILL)
        host.process.wait()
    with (
        running_host("server", tmp_path, max_output_bytes=CAP, port=port, token=token) as host,
        ExecClient(host.info) as client,
    ):
        record = client.get_execution(cut.id).refresh()
        assert (record.state, record.spooled) == (ExecutionState.SERVER_RESTARTED, ())
        assert [path.parent.stem for path in tmp_path.rglob("*.outputs/*")] == [kept.id]
        path = client.get_execution(kept.id).download_output("stdout", tmp_path)
        assert path.read_bytes() == b"x" * 3_000_000 + b"\n"


MOUNT = 'mount -t tmpfs -o size=100m tmpfs {path} && exec "$@"'


@pytest.mark.needs("mounts")
@pytest.mark.timeout(200)
def test_a_spool_does_not_fill_the_disk(tmp_path: Path) -> None:
    """On a disk of 100 MiB: the spool ends where 64 MiB are left, the run goes on, and new code is accepted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    prefix = ["unshare", "--mount", "sh", "-c", MOUNT.format(path=disk), "sh"]
    options = [f"--ExecStore.path={disk}/store"]
    with (
        running_host("server", tmp_path, *options, prefix=prefix, max_output_bytes=CAP) as host,
        ExecClient(host.info) as client,
        client.session() as session,
    ):
        execution = session.submit("for i in range(60): print('x' * 999_999)\nprint('end')")
        record = execution.result()
        assert record.ok
        assert record.stdout.endswith("end\n")
        (output,) = record.spooled
        assert (output.name, output.complete) == ("stdout", False)
        assert 20 * MIB < output.size_bytes < 36 * MIB
        assert record.truncated is not None
        assert record.truncated.unspooled_reason == "it could not be written: the disk is almost full"
        path = execution.download_output("stdout", tmp_path)
        assert path.stat().st_size == output.size_bytes
        assert session.run("print('more')").stdout == "more\n"
        assert client.info().get("trouble") is None
