"""Output of restored sessions: nothing comes into it that code has not printed, and nothing of other sessions."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="checkpoints need Linux")


def test_tasks_of_the_kernel_before_a_restore_print_nothing_when_they_are_collected(hosts: Any) -> None:
    with ExecClient(hosts["server"].info) as client, client.session() as session:
        session.run(
            "import gc, asyncio\nasync def wait():\n    try: await asyncio.sleep(60)\n    finally: print('ended')"
        )
        session.run("task = asyncio.create_task(wait())")
        session.restore(session.checkpoint(force=True))
        result = session.run("del task; gc.collect(); gc.collect()", check=True)
        assert (result.stdout, result.stderr) == ("", "")
