"""Output of restored sessions: nothing comes into it that code has not printed, and nothing of other sessions."""

from __future__ import annotations

import json
import re
import sys
from contextlib import ExitStack
from typing import Any

import pytest

from jupyter_exec_ext.client import ExecClient
from tests.support.full import scaled

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


@pytest.mark.timeout(1800)
def test_outputs_of_a_session_and_its_branches_never_cross(hosts: Any, record_property: Any) -> None:
    # Each line says which process printed it, on all ways out of a process: streams, descriptors and displays. A line
    # is written in one piece, since what comes by the descriptor may be between two.
    code = (
        "import os, sys\nfor line in range(5):\n    text = f'{OWN} {line}\\n'\n"
        "    sys.stdout.write(text); sys.stderr.write(text)\n"
        "    os.write(1, f'{OWN} by descriptor\\n'.encode())\n    display({'text/plain': OWN}, raw=True)\n"
        "os.system(f'echo {OWN} by a child'); OWN"
    )
    rounds = scaled(200, per_commit=2)
    with ExecClient(hosts["server"].info) as client, client.session() as session:
        session.run("OWN = 'trunk'", check=True)
        expected = of_own(session.run(code, check=True), "trunk")
        checkpoint = session.checkpoint()
        for _ in range(rounds):
            with ExitStack() as stack:
                branches = [stack.enter_context(branch) for branch in session.branch(3, checkpoint)]
                for number, branch in enumerate(branches):
                    branch.run(f"OWN = 'branch{number}'", check=True)
                printing = [("trunk", session), *((f"branch{number}", one) for number, one in enumerate(branches))]
                runs = [(own, one.submit(code)) for own, one in printing]
                for own, run in runs:
                    assert of_own(run.result(timeout_seconds=60), own) == expected
                session.restore(checkpoint)
                # What its former kernel has printed late, and what branches have, is not in it.
                assert of_own(session.run(code, check=True), "trunk") == expected
    record_property("runs beside each other whose output did not cross", 5 * rounds)


def of_own(execution: Any, own: str) -> list[str]:
    """Return the sorted words of an output, with `own` replaced: that of another process stays."""
    shown = json.dumps([execution.stdout.splitlines(), execution.stderr.splitlines(), execution.text])
    displays = json.dumps([output["data"] for output in execution.outputs if output.get("data")])
    return sorted(re.findall(r"[\w ]+", (shown + displays).replace(own, "own")))
