"""Checkpoints when the server is killed, and what sessions have of them that never use any."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from jupyter_exec_ext.client import ExecClient
from tests.support.hosts import Host, running_host
from tests.support.session_processes import ends, kernel_of
from tests.support.waiting import wait_until


def test_no_frozen_process_and_no_kernel_of_one_outlives_a_killed_server(tmp_path: Path) -> None:
    with running_host("server", tmp_path) as host, ExecClient(host.info) as client:
        session = client.session()
        session.run("x = 1", check=True)
        session.restore(session.checkpoint())
        (branch,) = session.branch()
        kernels = [psutil.Process(kernel_of(one)) for one in (session, branch)]
        frozen = {kernels[0].ppid()}  # the one of the branch has ended with it
        os.kill(host.pid, signal.SIGKILL)
        assert all(ends(pid, within_seconds=2) for pid in [*frozen, *(kernel.pid for kernel in kernels)])
        session.detach()
        branch.detach()


def test_a_session_that_never_uses_them_has_nothing_of_them(tmp_path: Path) -> None:
    with (
        running_host("server", tmp_path, "--ExecEngine.pool_size=0") as host,
        ExecClient(host.info) as client,
        client.session() as session,
    ):
        kernel = psutil.Process(kernel_of(session))
        assert session.run("import sys; print([name for name in sys.modules if 'checkpoint' in name])").stdout == "[]\n"
        before = _use(host, kernel)
        before[0] += _EXECUTOR_THREADS  # fewer than there would be if each checkpoint left one
        for _ in range(_EXECUTOR_THREADS + 2):
            checkpoint = session.checkpoint()
            session.delete_checkpoint(checkpoint)
        session.run("pass", check=True)
        # Afterwards neither, but for the program in the kernel.
        wait_until(lambda: all(now <= then for now, then in zip(_use(host, kernel), before, strict=True)))


#: The most threads of asyncio's executor, which starts one more when it has none that is idle, and ends none.
_EXECUTOR_THREADS = min(32, (os.cpu_count() or 1) + 4)


def _use(host: Host, kernel: psutil.Process) -> list[int]:
    """Return the numbers of threads and descriptors of both, and of the server's processes.

    Without the server's databases, which it opens once more when two requests read at once.
    """
    server = psutil.Process(host.pid)
    databases = [file for file in server.open_files() if ".db" in file.path]
    children = server.children(recursive=True)
    of_server = [server.num_threads(), server.num_fds() - len(databases), len(children)]
    return [*of_server, kernel.num_threads(), kernel.num_fds()]
