"""Output without measure: large, endless, broken; see `test_faults` for the scale."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.wire.jsontext import to_bytes
from jupyter_exec_ext.wire.kernel import FrameCodec
from jupyter_exec_ext.wire.large import read_large
from jupyter_exec_ext.wire.limits import OutputLimiter
from jupyter_exec_ext.wire.native import event_to_text
from jupyter_exec_ext.wire.translate import RunTranslator
from tests.hosts import Host, running_host

SCALE = int(os.environ.get("EXEC_FAULT_SCALE", "1"))
CAP = 1024 * 1024


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_host("server", tmp_path_factory.mktemp("floods"), max_output_bytes=CAP) as host:
        yield host


def report(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        print(f"\n{line}")


def round_trips(session: Any, until: Callable[[], bool]) -> list[float]:
    """Return how long each of many small runs took, while something else goes on."""
    waits = []
    while not until():
        began = time.monotonic()
        assert session.run("1 + 1").ok
        waits.append(time.monotonic() - began)
    return sorted(waits)


def finished(session: Any) -> bool:
    return all(record.state.finished for record in session.list_executions(1))


@pytest.mark.parametrize(
    ("code", "left_out"),
    [
        ("display({'image/png': 'A' * 100_000_000}, raw=True)", 100_000_000),
        ("display({'text/html': 'é' * 50_000_000}, raw=True)", 100_000_000),
        ("print('x' * 100_000_000, end='')", 100_000_000 - CAP),
    ],
)
def test_f5_a_message_of_100_mb_stalls_nobody(
    host: Host, capsys: pytest.CaptureFixture[str], code: str, left_out: int
) -> None:
    with ExecClient(host.info) as client, client.session() as session, client.session() as other:
        other.run("1")
        handle = session.submit(code)
        waits = round_trips(other, lambda: finished(session))
        record = handle.result()
    assert record.ok
    assert record.truncated is not None
    assert record.truncated.dropped_bytes == left_out
    report(capsys, f"F5: {len(waits)} round trips meanwhile, max {waits[-1] * 1000:.0f} ms")
    assert waits[-1] <= 0.25


def test_f29_random_frames_are_read_or_refused() -> None:
    """10,000 frames with wrong signatures, malformed parts, unknown types and contents: refused, or valid UTF-8 out."""
    rng = random.Random(29)
    codec, keyless = FrameCodec(b"key", "hmac-sha256", "s"), FrameCodec(b"", "hmac-sha256", "s")
    types = ["stream", "display_data", "execute_result", "error", "status", "execute_reply", "input_request", "novel"]
    junk: list[Any] = [
        None,
        1,
        1.5,
        True,
        "\ud800",
        "x\0y",
        [],
        [1, None],
        {},
        {"a": [{}]},
        {"text/plain": "\udfff"},
        "é" * 9,
    ]
    fields = ["text", "name", "data", "metadata", "transient", "ename", "evalue", "traceback", "status", "payload"]
    refused = told = 0
    for number in range(10_000):
        content: Any = {field: rng.choice(junk) for field in rng.sample(fields, rng.randint(0, 10))}
        header = {"msg_type": rng.choice(types), "msg_id": "x", "date": rng.choice(junk)}
        parts = [
            json.dumps(part).encode()
            for part in (header, {"msg_id": "ours"}, {}, rng.choice([content, rng.choice(junk)]))
        ]
        signer = rng.choice([codec, codec, keyless])
        frames = [b"topic", b"<IDS|MSG>", signer._sign(parts), *parts]
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(frames))
            frames[at] = rng.choice([b"", rng.randbytes(9), b"[" * 9999, frames[at][:-1], b"null", b"<IDS|MSG>"])
        if rng.random() < 0.2:
            del frames[rng.randrange(len(frames))]
        reader = rng.choice([codec, keyless])
        translator, limiter = RunTranslator("ours"), OutputLimiter(4096)
        try:
            if number % 2:
                messages = [reader.decode("iopub", frames)]
            else:
                messages = read_large(reader, "iopub", frames[:-1], memoryview(frames[-1] if frames else b""), 1024)
        except (ValueError, RecursionError):
            refused += 1
            continue
        for message in messages:
            event = translator.feed(message)
            for passed in [] if event is None else [*limiter.feed(event), *limiter.close()]:
                to_bytes(event_to_text(passed, 1, "t")).decode("utf-8")
                told += 1
    assert refused > 1000
    assert told > 1000


STREAMS = """\
import os, random, sys
rng = random.Random({seed})
kinds = [
    lambda: os.write(1, rng.randbytes(5000)),
    lambda: display({{"text/plain": "é\\x07" * rng.randint(1, 5000)}}, raw=True),
    lambda: print("\\0" * rng.randint(1, 5000)),
    lambda: print("\\x1b[31m\\x1b]8;;x\\x07" * 2000, file=sys.stderr),
    lambda: sys.stdout.write("".join(map(chr, rng.choices(range(0xD800), k=500)))),
    lambda: print("x" * 10_000_000) if rng.random() < 0.05 else None,
]
for _ in range(100):
    rng.choice(kinds)()
"""


@pytest.mark.timeout(300)
def test_f29_byte_streams_of_any_kind_come_out_as_utf_8(host: Host, tmp_path: Path) -> None:
    """1,000 (100) streams of garbage: 0 crashes, 0 failures, and every answer is valid UTF-8."""
    with ExecClient(host.info) as client, client.session() as session:
        for seed in range(SCALE):
            record = session.run(STREAMS.format(seed=seed))
            assert record.ok, record
            assert record.stdout
        assert session.run("1 + 1").ok
    assert "Traceback" not in host.log_text()
