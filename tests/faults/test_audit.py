"""F9 for the audit trail: however often the server is killed, every execution has its two records."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.audit.digest_chain import Head
from jupyter_exec_ext.client.sync.session import ExecSession
from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.models import AuditKind
from tests.store.test_audit_trail import faults, head, records
from tests.support.full import SCALE, only_in_full
from tests.support.hosts import Host, free_port, running_host

EXECUTIONS_EACH = 50


@pytest.mark.timeout(120 * SCALE)
@only_in_full
def test_killed_servers_leave_a_pair_of_records_for_every_execution(tmp_path: Path) -> None:
    """1,000 executions and 20 kills in full: an accepted and an ended record for each, in a chain that is whole."""
    rng = random.Random(23)
    kills, port, token = 2 * SCALE, free_port(), "a" * 32
    store = tmp_path / "jupyter_data_dir" / "jupyter_exec_ext"
    acknowledged: set[str] = set()
    kept: Head | None = None
    for _ in range(kills):
        with (
            running_host("server", tmp_path, token=token, port=port) as host,
            ExecClient(host.info, outage_seconds=0.0) as client,
        ):
            acknowledged |= _submit_until_killed(host, client, EXECUTIONS_EACH + rng.randrange(10))
        assert faults(store, kept) == []
        kept = head(store)
    with running_host("server", tmp_path, token=token, port=port):
        pass  # it ends what the last kill has cut
    assert faults(store, kept) == []
    found = [record for record in records(store) if record.kind is AuditKind.EXECUTION]
    accepted = Counter(record.subject for record in found if record.action == "accepted")
    ended = Counter(record.subject for record in found if record.action == "ended")
    assert set(accepted.values()) == set(ended.values()) == {1}
    assert set(accepted) == set(ended) >= acknowledged
    assert len(acknowledged) >= kills * EXECUTIONS_EACH
    states = Counter(record.data["state"] for record in found if record.action == "ended")
    sessions = Counter(record.action for record in records(store) if record.kind is AuditKind.SESSION)
    assert sessions["created"] == sessions["ended"]
    print(f"F9: {kills} kills, {len(accepted)} executions with a pair of records: {dict(states)}")
    assert states["server_restarted"] > 0


def _submit_until_killed(host: Host, client: ExecClient, count: int) -> set[str]:
    """Let four clients submit, and kill the server once it has acknowledged `count` executions."""
    sessions = [client.session() for _ in range(2)]
    acknowledged: set[str] = set()
    enough = threading.Event()

    def submit(session: ExecSession) -> None:
        with contextlib.suppress(ExecError, OSError):
            while True:
                handle = session.submit("print(1)")
                acknowledged.add(handle.id)
                if len(acknowledged) >= count:
                    enough.set()
                if len(acknowledged) % 3 == 0:
                    handle.result()

    threads = [threading.Thread(target=submit, args=(session,)) for session in sessions * 2]
    for thread in threads:
        thread.start()
    assert enough.wait(60)
    os.kill(host.process.pid, signal.SIGKILL)
    host.process.wait()
    for thread in threads:
        thread.join(60)
    return acknowledged
