"""Sessions on kernels that somebody else uses, over the API: the person works through Jupyter's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.errors import Conflict, FilesNotAvailable, InvalidRequest, KernelNotFound, SessionEnded
from jupyter_exec_ext.models import ExecutionState, SessionState
from tests.contract.test_control import wait_for_output
from tests.support.hosts import Host

FOR_EVER = "import time\nprint('started', flush=True)\nwhile True: time.sleep(0.05)"


@pytest.fixture
def person(host: Host) -> Iterator[Any]:
    with ExecClient(host.owner) as client, client.standard_session() as session:
        yield session


def kernel(host: Host, person: Any, verb: str = "") -> requests.Response:
    """Look at the person's kernel with Jupyter's own API, or do something to it."""
    url = f"{host.info.url}api/kernels/{person.id}"
    return requests.request("POST" if verb else "GET", url + verb, headers=host.owner.auth_headers, timeout=60)


def test_agent_and_person_share_state_both_ways(client: Any, person: Any) -> None:
    person.run("x = 20")
    with client.session(kernel_id=person.id) as session:
        assert (session.record.attached, session.record.kernel_id) == (True, person.id)
        assert session.run("y = x + 1; print(y * 2)").stdout == "42\n"
        assert person.run("print(y)").stdout == "21\n"
        assert [listed.attached for listed in client.list_sessions() if listed.id == session.id] == [True]


def test_ending_the_session_leaves_the_kernel_and_its_variables(client: Any, host: Host, person: Any) -> None:
    with client.session(kernel_id=person.id) as session:
        session.run("x = 1")
        running = session.submit(FOR_EVER)
        wait_for_output(running)
    assert running.result(timeout_seconds=20).state is ExecutionState.CANCELLED
    assert kernel(host, person).json()["id"] == person.id
    assert person.run("print(x)").stdout == "1\n"


def test_a_time_limit_stops_the_agents_code_alone(client: Any, person: Any) -> None:
    person.run("x = 1")
    with client.session(kernel_id=person.id) as session:
        result = session.run(FOR_EVER, timeout_seconds=0.5)
        assert (result.state, result.session_state_preserved) == (ExecutionState.TIMEOUT, True)
        assert person.run("print(x)").stdout == "1\n"


def test_cancelling_what_waits_for_the_person_leaves_the_persons_code_running(client: Any, person: Any) -> None:
    with client.session(kernel_id=person.id) as session:
        for event in person.stream("import time; print(1, flush=True); time.sleep(1); done = True"):
            if event.type == "stream":
                waiting = session.submit("ours = True")
                assert waiting.cancel().state is ExecutionState.CANCELLED
        assert event.execution.state is ExecutionState.OK
        assert person.run("print(done, 'ours' in globals())").stdout == "True False\n"


def test_the_persons_interrupt_and_restart_end_the_execution(client: Any, host: Host, person: Any) -> None:
    with client.session(kernel_id=person.id) as session:
        execution = session.submit(FOR_EVER)
        wait_for_output(execution)
        assert kernel(host, person, "/interrupt").status_code == 204
        assert execution.result(timeout_seconds=20).state is ExecutionState.INTERRUPTED
        execution = session.submit(FOR_EVER)
        wait_for_output(execution)
        assert kernel(host, person, "/restart").status_code == 200
        assert execution.result(timeout_seconds=20).state is ExecutionState.KERNEL_DIED
        after = session.run("6 * 7")
        assert (after.state, after.kernel_starts) == (ExecutionState.OK, 2)


def test_the_session_ends_with_the_kernel(client: Any, person: Any) -> None:
    session = client.session(kernel_id=person.id)
    execution = session.submit(FOR_EVER)
    wait_for_output(execution)
    person.close()
    assert execution.result(timeout_seconds=20).state is ExecutionState.KERNEL_DIED
    give_up_at = time.monotonic() + 20
    while session.refresh().state is not SessionState.ENDED:  # once the host is done with the kernel
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    with pytest.raises(SessionEnded, match="outside the session"):
        session.run("1")


def test_what_cannot_be_is_refused_with_a_reason(client: Any, person: Any, session: Any) -> None:
    with pytest.raises(KernelNotFound):
        client.session(kernel_id="no-such-kernel")
    with pytest.raises(Conflict, match=session.id):
        client.session(kernel_id=session.record.kernel_id)
    for other in ({"kernel_name": "python3"}, {"env": {"A": "1"}}):
        with pytest.raises(InvalidRequest, match="without 'kernel_name', 'env' and 'cwd'"):
            client.session(kernel_id=person.id, **other)
    with client.session(kernel_id=person.id) as attached:
        with pytest.raises(Conflict, match="in the notebook"):
            attached.restart()
        with pytest.raises(FilesNotAvailable):
            attached.list_files()
        with pytest.raises(FilesNotAvailable):
            attached.write_file("a", b"1")
