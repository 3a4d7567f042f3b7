"""The numbered event log: streamed as it grows, and read again as often as wanted."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
import requests

from jupyter_exec_ext.errors import ExecutionNotFound, InvalidRequest
from jupyter_exec_ext.models import EndEvent, ExecutionState, StateEvent, StreamEvent
from jupyter_exec_ext.protocol.output_joining import OutputFold
from tests.support.hosts import Host

THREE_LINES = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.2)"


def text_of(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, StreamEvent))


def test_events_come_while_the_code_runs(session: Any) -> None:
    arrived = [(time.monotonic(), event) for event in session.stream(THREE_LINES)]
    lines = [at for at, event in arrived if isinstance(event, StreamEvent)]
    assert len(lines) >= 3  # a kernel may send a line and its end apart
    assert lines[-1] - lines[0] > 0.3
    assert isinstance(arrived[-1][1], EndEvent)


def test_numbers_start_at_one_and_have_no_gaps(session: Any) -> None:
    events = list(session.stream("for i in range(200): print(i, flush=True)"))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert text_of(events) == "".join(f"{i}\n" for i in range(200))


def test_states_come_in_order_and_the_end_is_last(session: Any) -> None:
    events = list(session.stream("1"))
    assert [e.state for e in events if isinstance(e, StateEvent)] == [ExecutionState.QUEUED, ExecutionState.RUNNING]
    assert [event.type for event in events][-1] == "end"
    assert events[-1].execution.state is ExecutionState.OK


def test_the_end_holds_the_record_that_can_be_read_later(client: Any, session: Any) -> None:
    end = list(session.stream("print('x')\n5"))[-1].execution
    assert client.get_execution(end.id).record == end
    assert client.get_execution(end.id).record == end


def test_folding_the_events_gives_the_records_outputs(session: Any) -> None:
    events = list(session.stream("print(1)\nh = display(2, display_id=True)\nh.update(3)\n1/0"))
    fold = OutputFold()
    for event in events:
        fold.add(event)
    assert fold.outputs() == list(events[-1].execution.outputs)


def test_a_log_is_read_again_from_the_start_and_from_a_cursor(client: Any, session: Any) -> None:
    first = list(session.stream("for i in range(20): print(i, flush=True)"))
    handle = client.get_execution(first[-1].execution.id)
    assert list(handle.events()) == first
    assert list(handle.events(after=7)) == first[7:]
    assert list(handle.events(after=first[-1].seq)) == []


def test_two_readers_and_a_late_one_see_the_same(client: Any, session: Any) -> None:
    handle = session.submit(THREE_LINES)
    seen: list[list[Any]] = [[], []]
    readers = [threading.Thread(target=lambda i=i: seen[i].extend(handle.events())) for i in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert seen[0] == seen[1] == list(handle.events())
    assert text_of(seen[0]) == "0\n1\n2\n"


def test_leaving_a_stream_leaves_the_code_running(client: Any, session: Any) -> None:
    for event in session.stream("import time; print('go', flush=True); time.sleep(0.5); left_running = True"):
        if isinstance(event, StreamEvent):
            break
    assert session.run("print(left_running)").stdout == "True\n"


def test_a_cursor_beyond_the_log_is_refused(session: Any) -> None:
    handle = session.submit("1")
    handle.result()
    with pytest.raises(InvalidRequest, match="events"):
        list(handle.events(after=99))


def test_the_log_of_an_unknown_execution_is_not_found(client: Any, session: Any) -> None:
    handle = session.submit("1")
    handle.result()
    handle.record = type(handle.record)(**{**_fields(handle.record), "id": "exe_unknown"})
    with pytest.raises(ExecutionNotFound):
        list(handle.events()) if not hasattr(handle, "_target") else list(_events_of(client, "exe_unknown"))


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _events_of(client: Any, execution_id: str) -> Any:
    return client.get_execution(execution_id).events()


def test_ndjson_carries_the_same_events(host: Host, session: Any) -> None:
    end = list(session.stream("print(1)"))[-1].execution
    url = f"{host.info.url}exec/v1/executions/{end.id}/events"
    headers = host.info.auth_headers
    lines = requests.get(url, headers={**headers, "Accept": "application/x-ndjson"}, timeout=30).text.splitlines()
    sse = requests.get(url, headers={**headers, "Accept": "text/event-stream"}, timeout=30).text
    data = [line.removeprefix("data: ") for line in sse.splitlines() if line.startswith("data: ")]
    assert [json.loads(line) for line in lines] == [json.loads(line) for line in data]


MUCH = "print('ä' * 300_000, flush=True)\ndisplay({'text/html': 'y' * 300_000}, raw=True)\nprint('again')"


def test_much_output_is_the_same_however_it_is_read(client: Any, session: Any) -> None:
    """The log does not repeat it at its end; neither do answers to our clients."""
    run = session.run(MUCH)
    assert (run.stdout, len(run.outputs)) == ("ä" * 300_000 + "\nagain\n", 3)
    streamed = list(session.stream(MUCH))
    end = streamed[-1].execution
    assert [output.get("text") or output["data"] for output in end.outputs] == [
        output.get("text") or output["data"] for output in run.outputs
    ]
    handle = client.get_execution(end.id)
    assert handle.record == end
    assert list(handle.events()) == streamed
    assert list(handle.events(after=3)) == streamed[3:]


@pytest.mark.parametrize("media_type", ["text/event-stream", "application/x-ndjson"])
def test_who_does_not_ask_for_less_gets_the_whole_record_at_the_end(
    host: Host, client: Any, session: Any, media_type: str
) -> None:
    execution = session.run(MUCH)
    headers = {**host.info.auth_headers, "Accept": media_type}
    url = f"{host.info.url}exec/v1/executions/{execution.id}"

    def end(**more: str) -> Any:
        lines = requests.get(f"{url}/events", headers={**headers, **more}, timeout=30).content.strip().split(b"\n")
        return json.loads(lines[-1].removeprefix(b"data: "))["execution"]

    record = requests.get(url, headers=host.info.auth_headers, timeout=30).json()
    assert record == end()
    assert (record["stdout"], len(record["outputs"])) == (execution.stdout, 3)
    outputs = {"stdout", "stderr", "outputs"}
    assert end(Prefer="return=minimal") == {name: value for name, value in record.items() if name not in outputs}


def test_a_stream_without_less_has_the_whole_record_at_its_end_while_it_is_written(host: Host, session: Any) -> None:
    url = f"{host.info.url}exec/v1/sessions/{session.id}/executions"
    headers = {**host.info.auth_headers, "Accept": "application/x-ndjson"}
    lines = requests.post(url, json={"code": MUCH}, headers=headers, timeout=60).content.strip().split(b"\n")
    end = json.loads(lines[-1])
    assert (end["seq"], len(end["execution"]["outputs"])) == (len(lines), 3)
    assert len(end["execution"]["stdout"]) == 300_007


def test_last_event_id_resumes(host: Host, session: Any) -> None:
    end = list(session.stream("for i in range(5): print(i, flush=True)"))[-1]
    url = f"{host.info.url}exec/v1/executions/{end.execution.id}/events"
    answer = requests.get(url, headers={**host.info.auth_headers, "Last-Event-ID": str(end.seq - 1)}, timeout=30)
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert [line for line in answer.text.splitlines() if line.startswith("id:")] == [f"id: {end.seq}"]
    answer = requests.get(
        f"{url}?after=0", headers={**host.info.auth_headers, "Last-Event-ID": str(end.seq - 1)}, timeout=30
    )
    assert answer.text.startswith(f"id: {end.seq}\n")


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 17])
def test_a_cursor_that_is_no_number_is_refused(host: Host, session: Any, cursor: str) -> None:
    execution = session.run("1")
    url = f"{host.info.url}exec/v1/executions/{execution.id}/events"
    answer = requests.get(url, headers={**host.info.auth_headers, "Last-Event-ID": cursor}, timeout=30)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
