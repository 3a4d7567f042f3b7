"""Output beyond the cap through every host and both clients: nothing of it is lost, and what is said of it is true."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import requests

from jupyter_exec_ext import errors
from jupyter_exec_ext.models import EndEvent, ExecutionState, SpooledOutput, TruncatedEvent
from tests.support.hosts import MAX_OUTPUT_BYTES, Host

LINES = MAX_OUTPUT_BYTES // 800
FLOOD = f"import sys\nfor i in range({LINES}):\n    print(f'{{i:0999d}}')\nprint('short', file=sys.stderr)"
PRINTED = "".join(f"{i:0999d}\n" for i in range(LINES)).encode()
PICTURE = """
import base64, random
picture = random.Random(1).randbytes({size})
display({{'image/png': base64.encodebytes(picture).decode(), 'text/plain': 'a picture'}}, raw=True)
"""


def url(host: Host, execution: Any, name: str) -> str:
    return f"{host.info.url}exec/v1/executions/{execution.id}/outputs/{name}"


@pytest.fixture(scope="module")
def flood(session_of_module: Any) -> Any:
    """A finished execution that printed more than its record may hold."""
    execution = session_of_module.submit(FLOOD)
    execution.result()
    return execution


@pytest.fixture(scope="module")
def session_of_module(client: Any) -> Any:
    with client.session() as session:
        yield session


def test_what_was_printed_comes_down_byte_for_byte(flood: Any, tmp_path: Path) -> None:
    record = flood.record
    assert record.state is ExecutionState.OK
    digest = hashlib.sha256(PRINTED).hexdigest()
    assert record.truncated.spooled == (SpooledOutput("stdout", "text/plain", len(PRINTED), digest),)
    assert record.truncated.unspooled_reason is None
    marker = next(line for line in record.stdout.splitlines() if "left out" in line)
    kept = len(record.stdout) - len(f"\n{marker}\n")
    assert kept + record.truncated.stdout_bytes == len(PRINTED)
    assert (record.stderr, record.truncated.stderr_bytes) == ("short\n", 0)
    steps: list[tuple[int, int | None]] = []
    path = flood.download_output("stdout", tmp_path, progress=lambda done, total: steps.append((done, total)))
    assert path == tmp_path / "stdout"
    assert path.read_bytes() == PRINTED
    assert steps[-1] == (len(PRINTED), len(PRINTED))


def test_the_event_log_and_the_list_name_it_too(flood: Any, session_of_module: Any) -> None:
    events = list(flood.events())
    (truncated,) = [event.truncated for event in events if isinstance(event, TruncatedEvent)]
    assert isinstance(events[-1], EndEvent)
    listed = next(e for e in session_of_module.list_executions() if e.id == flood.id)
    assert truncated == events[-1].execution.truncated == listed.truncated == flood.record.truncated


def test_a_picture_that_is_too_large_is_there_as_itself(session_of_module: Any, client: Any, tmp_path: Path) -> None:
    """In the message, but not in the record: between the tail and the cap, and beyond the cap."""
    for size in (MAX_OUTPUT_BYTES * 5 // 8, MAX_OUTPUT_BYTES * 2):
        run = session_of_module.run("print('x' * 3_000_000)\n" * 2 + PICTURE.format(size=size) + "print(len(picture))")
        assert run.outputs[1]["data"] == {"text/plain": "a picture"}
        (output,) = run.spooled
        assert (output.name, output.mime_type, output.size_bytes) == ("display-1.png", "image/png", size)
        path = client.get_execution(run.id).download_output("display-1.png", tmp_path / "here")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == output.sha256
        code = "import hashlib; print(hashlib.sha256(picture).hexdigest())"
        assert session_of_module.run(code).stdout.strip() == output.sha256


def test_what_was_cleared_is_not_kept(session_of_module: Any, client: Any, tmp_path: Path) -> None:
    code = "from IPython.display import clear_output\n" + FLOOD + "\nclear_output(wait=True)\nprint('done')"
    run = session_of_module.run(code)
    assert run.stdout.endswith("done\n")
    assert run.truncated.stdout_bytes > 0
    assert [output.size_bytes for output in run.spooled] == [5]
    path = client.get_execution(run.id).download_output("stdout", tmp_path)
    assert path.read_bytes() == b"done\n"


def test_a_download_is_never_shown(host: Host, flood: Any) -> None:
    answer = requests.get(url(host, flood, "stdout"), headers=host.info.auth_headers, timeout=60)
    assert answer.status_code == 200
    assert answer.content == PRINTED
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment;")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == "sandbox"
    assert answer.headers["Repr-Digest"].startswith("sha-256=:")
    assert requests.get(url(host, flood, "stdout"), timeout=60).status_code == 401


@pytest.mark.parametrize("name", ["stderr", "display-1.png", "...", "..%2f", "stdout%00", "x" * 64, "x" * 65])
def test_only_what_the_record_names_is_there(host: Host, flood: Any, name: str) -> None:
    answer = requests.get(url(host, flood, name), headers=host.info.auth_headers, timeout=60)
    assert answer.status_code == 404
    assert answer.json()["code"] in ("output_not_found", "not_found")


def test_there_is_nothing_beyond_a_record_that_has_it_all(session_of_module: Any, client: Any, tmp_path: Path) -> None:
    run = session_of_module.run("print(1)")
    assert (run.truncated, run.spooled) == (None, ())
    with pytest.raises(errors.OutputNotFound, match="its record has all"):
        client.get_execution(run.id).download_output("stdout", tmp_path)
    running = session_of_module.submit("input('?')", allow_input=True)
    with pytest.raises(errors.OutputNotFound, match="once the execution has ended"):
        running.download_output("stdout", tmp_path)
    running.cancel()
    assert list(tmp_path.iterdir()) == []


def test_output_stays_when_its_session_has_ended(client: Any, tmp_path: Path) -> None:
    with client.session() as session:
        run = session.run(FLOOD)
    client.get_execution(run.id).download_output("stdout", tmp_path)
    assert (tmp_path / "stdout").read_bytes() == PRINTED
