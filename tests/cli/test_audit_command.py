"""``jupyter exec audit`` as people type it, on the store of a server that runs."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path

import pytest
import requests

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.audit.digest_chain import MAX_LINE_BYTES, format_record
from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.models import AuditKind, AuditRecord
from tests.store.test_audit_trail import tamper
from tests.store.test_audit_trail import trail as trail  # a fixture
from tests.support.hosts import clean_environment, running_host

from .test_cli import command, jupyter_exec

HOSTILE = ["a\r\nb", "\x1b[31mred\x1b[0m\x9b\x7f", "\u2028\u202e", "x" * 200]


def test_verify_accepts_a_whole_trail_and_its_head(tmp_path: Path, trail: Path) -> None:
    done = jupyter_exec(tmp_path, "audit", "verify", "--store", str(trail))
    assert (done.returncode, done.stderr) == (0, "")
    said = re.fullmatch(r"the audit trail is whole: 10 records\nhead (10:[0-9a-f]{64})\n", done.stdout)
    assert said is not None
    again = jupyter_exec(tmp_path, "audit", "verify", "--store", str(trail), "--head", said[1])
    assert (again.returncode, again.stdout) == (0, done.stdout)
    other = jupyter_exec(tmp_path, "audit", "verify", "--store", str(trail), "--head", "10:" + "0" * 64)
    assert other.returncode == 1
    assert "record 10 is not the one whose head was kept" in other.stdout


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM audit WHERE seq = 4", "record 4 is missing\n"),
        ("UPDATE audit SET record = x'00ff' WHERE seq = 4", "record 4 was changed: it does not have its digest\n"),
        ("DELETE FROM audit_ends", "the audit trail was tampered with"),
        ("DROP TABLE audit", "there is no audit trail in"),
    ],
)
def test_changes_to_the_trail_are_reported(tmp_path: Path, trail: Path, statement: str, said: str) -> None:
    tamper(trail, statement)
    done = jupyter_exec(tmp_path, "audit", "verify", "--store", str(trail))
    assert (done.returncode, done.stderr) == (1, "")
    assert said in done.stdout


def test_missing_trail_is_not_created(tmp_path: Path) -> None:
    done = jupyter_exec(tmp_path, "audit", "verify")
    assert done.returncode == 1
    assert "there is no audit trail in" in done.stdout
    assert jupyter_exec(tmp_path, "audit", "tail").returncode == 3
    assert not (tmp_path / "jupyter_data_dir" / "jupyter_exec_ext").exists()
    assert jupyter_exec(tmp_path, "audit", "verify", "--head", "1").returncode == 2
    assert jupyter_exec(tmp_path, "audit", "tail", "-n", "-1").returncode == 2


def test_the_newest_records_are_shown(tmp_path: Path, trail: Path) -> None:
    done = jupyter_exec(tmp_path, "audit", "tail", "--store", str(trail), "-n", "2")
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert re.match(
        r"\S+Z 9 execution accepted me exe_4 code_bytes=\d+ code_sha256=[0-9a-f]{64} isolation=none session_id=ses_1$",
        lines[0],
    )
    assert lines[1][24:] == " 10 execution ended me exe_4 session_id=ses_1 state=ok"
    as_json = jupyter_exec(tmp_path, "audit", "tail", "--store", str(trail), "-n", "1", "--json")
    record = json.loads(as_json.stdout)
    assert (record["seq"], record["data"]["state"], len(record["digest"])) == (10, "ok", 64)


def test_records_are_followed_while_a_server_writes_them(tmp_path: Path) -> None:
    """F31: whatever callers name things, each record is one line of printable ASCII, in the server's log, too."""
    with running_host("server", tmp_path) as host, ExecClient(host.info) as client:
        follow = subprocess.Popen(
            command("audit", "tail", "-n", "0", "--follow"),
            cwd=tmp_path,
            env=clean_environment(tmp_path),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            with client.session(name="first") as session:
                pass
            assert follow.stdout is not None
            shown = [follow.stdout.readline()]
            for name in [*HOSTILE, "x" * 1_000_000]:
                with contextlib.suppress(ExecError), client.session(name=name, metadata={name[:100]: name}):
                    pass
            with client.session() as session:
                for name in [*HOSTILE, "x" * 50_000]:
                    with contextlib.suppress(ExecError):  # refused is fine, too; the log is looked at below
                        session.write_file(name, b"")
                files = f"{host.info.url}exec/v1/sessions/{session.id}/files/"
                for path in ("x" * 50_000, "%0d%0a%1b%5b31m" * 2000):
                    longest = {**host.info.auth_headers, "Referer": "http://" + "r" * 5000}
                    assert (
                        requests.get(f"{files}{path}?q={path[:5000]}", headers=longest, timeout=10).status_code == 400
                    )
            with client.session(name="last") as session:
                last = session.id
            while f" ended owner {last} " not in shown[-1]:
                shown.append(follow.stdout.readline())
                assert shown[-1], "it has ended"
        finally:
            follow.kill()
            follow.communicate(timeout=10)
        printed = host.log.read_bytes()
    assert sum(" session created " in line for line in shown) >= 2
    assert sum(" file uploaded " in line for line in shown) >= 1
    for line in "".join(shown).splitlines():
        assert re.fullmatch(r"[ -~]+", line), line
        assert len(line) <= MAX_LINE_BYTES
        assert re.match(r"20\S+Z \d+ \w+ \w+ owner ", line), line
    for raw in printed.replace(b"\x1b[m", b"").split(b"\n"):
        assert len(raw) <= MAX_LINE_BYTES + 100, raw[:200]
        assert b"\x1b[31m" not in raw
        assert b"\r" not in raw
    whole = jupyter_exec(tmp_path, "audit", "verify")
    assert whole.returncode == 0, whole.stdout


@pytest.mark.parametrize("text", [*HOSTILE, "x" * 1_000_000, "\ud800", "ü", "a b=c", ""])
def test_record_of_any_text_is_one_ascii_line(text: str) -> None:
    line = format_record(AuditRecord(1, text, AuditKind.FILE, "deleted", text, text, {"path": text, "n": 1}, ""))
    assert re.fullmatch(r"[ -~]+", line)
    assert len(line) <= MAX_LINE_BYTES
