"""JSON output of the commands that list or show records, each against a schema."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from jupyter_exec_ext.cli.main import build_parser, main
from jupyter_exec_ext.client import ExecClient
from tests.cli.test_cli import jupyter_exec
from tests.store.test_audit_trail import tamper
from tests.store.test_audit_trail import trail as trail  # a fixture
from tests.support.hosts import Host

TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
TEXT_OR_NULL = {"type": ["string", "null"]}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"}


def record(**properties: Any) -> dict[str, Any]:
    """Return the schema of a record that has at least these fields."""
    return {"type": "object", "required": list(properties), "properties": properties}


def only(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with exactly these fields."""
    return record(**properties) | {"additionalProperties": False}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


SESSION = record(id=TEXT, name=TEXT, state=TEXT, kernel_name=TEXT, isolation=TEXT, last_activity_at=TIME)
CHECKPOINT = only(
    id=TEXT,
    session_id=TEXT,
    name=TEXT,
    created_at=TIME,
    automatic=FLAG,
    after=TEXT_OR_NULL,
    files=FLAG,
    lost={"type": "array", "items": only(kind=TEXT, name=TEXT)},
    memory_bytes={"type": ["number", "null"]},
)
FILE = record(path=TEXT, size_bytes=NUMBER, mtime=TIME)
TOKEN = record(id=TEXT, name=TEXT, scopes=array(TEXT), policy=TEXT, expires_at=TIME)
ISSUED = record(token=TEXT)
GRANT = record(id=TEXT, token_id=TEXT, kernel_id=TEXT, name=TEXT, expires_at=TEXT_OR_NULL, ended_at=TEXT_OR_NULL)
EXECUTION = record(id=TEXT, session_id=TEXT, state={"const": "awaiting_approval"}, code=TEXT, approval=record(why=TEXT))
RUN = record(id=TEXT, session_id=TEXT, state=TEXT, code=TEXT, created_at=TIME)
OUTPUT = record(name=TEXT, size_bytes=NUMBER, mime_type=TEXT, complete=FLAG)
KERNELSPEC = only(
    name=TEXT,
    isolation=TEXT_OR_NULL,
    provisioner=TEXT_OR_NULL,
    is_readable=FLAG,
    is_startable=FLAG,
    host_network=FLAG,
    directory=TEXT,
)
VERDICT = only(
    whole=FLAG, records=NUMBER, first_seq=NUMBER, head=TEXT_OR_NULL, faults={"type": "array"}, fault_count=NUMBER
)
PATH = only(path=TEXT)
PROFILE = only(name=TEXT, server=TEXT, token_file=TEXT_OR_NULL, ca_bundle=TEXT_OR_NULL)
SECRET = only(name=TEXT, hosts=array(TEXT), header=TEXT, created_at=TIME, changed_at=TIME)
FINDING = only(mark={"enum": ["ok", "note", "FAIL"]}, what=TEXT, remedy=TEXT)

#: The shape that each command prints with ``--json``; `audit tail` prints an object of it a line.
SHAPES = {
    "session start": SESSION,
    "session list": only(sessions=array(SESSION)),
    "session port": only(
        port=NUMBER, url=TEXT, opened_by=TEXT, opened_at=TIME, browser_url=TEXT_OR_NULL, browser_reason=TEXT_OR_NULL
    ),
    "session network": only(
        session_id=TEXT,
        network={"enum": ["none", "rules", "host"]},
        rules=array(TEXT),
        allowed=array(TEXT),
        requests=array(record(at=TIME, host=TEXT, port=NUMBER, verdict=TEXT)),
    ),
    "session checkpoint": CHECKPOINT,
    "session checkpoints": only(checkpoints=array(CHECKPOINT)),
    "session restore": SESSION
    | record(restores=array(only(checkpoint=TEXT, at=TIME, after=TEXT_OR_NULL, before=TEXT_OR_NULL))),
    "session branch": only(sessions=array(record(id=TEXT, name=TEXT, branch_of=TEXT))),
    "execution list": only(executions=array(RUN)),
    "execution search": only(
        found=array(only(execution=RUN, owner=TEXT, session_name=TEXT, token_name=TEXT)), complete=FLAG
    ),
    "file upload": FILE,
    "file list": only(files=array(FILE), truncated=FLAG),
    "file download": PATH,
    "output list": only(outputs=array(OUTPUT), unspooled_reason=TEXT_OR_NULL),
    "output download": PATH,
    "token create": ISSUED,
    "token list": array(TOKEN),  # a list, as from the beginning, and so are the next lists without a name
    "token show": TOKEN,
    "token rotate": ISSUED,
    "token grant": GRANT,
    "token grants": array(GRANT),
    "token policies": array(record(name=TEXT)),
    "secret set": SECRET,
    "secret list": only(secrets=array(SECRET)),
    "approve list": array(EXECUTION),
    "approve show": EXECUTION,
    "profile list": only(profiles={"type": "array", "items": PROFILE}),
    "drain": record(draining=FLAG, sessions=NUMBER, running=NUMBER, queued=NUMBER),
    "doctor": only(summary=TEXT, findings=array(FINDING)),
    "kernelspec list": only(kernelspecs=array(KERNELSPEC)),
    "audit verify": VERDICT,
    "audit tail": record(seq=NUMBER, digest=TEXT, at=TIME),
}


def commands_with_json(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the commands and actions that have ``--json``."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands_with_json(inner, (*words, name))
        elif "--json" in action.option_strings:
            yield " ".join(words)


def test_every_command_with_json_has_a_shape() -> None:
    assert set(commands_with_json(build_parser())) == set(SHAPES)


class Commands:
    """The commands at a server, in this process."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._where = ["--server", url]
        self._capsys = capsys

    def __call__(self, command: str, *args: str) -> Any:
        """Return what a command prints with ``--json``, once it is valid."""
        self._capsys.readouterr()
        code = main([*command.split(), *args, "--json", *self._where])
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        document = json.loads(printed.out)
        jsonschema.validate(document, SHAPES[command])
        return document


@pytest.fixture
def commands(
    token_host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_TOKEN", str(token_host.info.token))
    return Commands(token_host.info.url, capsys)


on_one_host = pytest.mark.parametrize("token_host", ["server"], indirect=True)


@on_one_host
def test_sessions_and_files(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("21")
    session = commands("session start", "--name", "mine")
    try:
        listed = commands("session list")
        assert session["id"] in [one["id"] for one in listed["sessions"]]
        assert commands("file upload", "mine", "in.txt")["size_bytes"] == 2
        files = commands("file list", "mine", "--sha256")
        assert [(file["path"], len(file["sha256"])) for file in files["files"]] == [("in.txt", 64)]
        assert commands("file download", "mine", "in.txt", "out.txt") == {"path": "out.txt"}
    finally:
        assert main(["session", "stop", session["id"], *commands._where]) == 0


@on_one_host
def test_checkpoints(commands: Commands, token_host: Host) -> None:
    with ExecClient(token_host.info) as client, client.session(name="kept"):
        made = commands("session checkpoint", "kept", "first")
        [listed] = commands("session checkpoints", "kept")["checkpoints"]
        assert (made["name"], listed["id"], listed["memory_bytes"] > 0) == ("first", made["id"], True)
        [restore] = commands("session restore", "kept", "first")["restores"]
        assert restore["checkpoint"] == made["id"]
        branches = commands("session branch", "kept", "--checkpoint", "first", "--count", "2")["sessions"]
        assert [branch["name"] for branch in branches] == ["kept branch 1", "kept branch 2"]
        assert main(["session", "stop", *(branch["id"] for branch in branches), *commands._where]) == 0


@on_one_host
def test_executions(commands: Commands, token_host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    with ExecClient(token_host.info) as client:
        with client.session(name="listed by the command") as session:
            runs = [session.run(f"print({number})") for number in range(3)]
        listed = commands("execution list", "listed by the command", "-n", "2", "--before", runs[2].id)
        assert [one["id"] for one in listed["executions"]] == [runs[0].id, runs[1].id]
        found = commands("execution search", "listed by the", "-n", "1")["found"]
        assert [one["execution"]["id"] for one in found] == [runs[2].id]
        for words in (["list", session.id], ["search", "listed by the"]):
            assert main(["execution", *words, *commands._where]) == 0
            lines = capsys.readouterr().out.splitlines()
            assert len(lines) == 4
            assert "print(1)" in lines[2]


@on_one_host
def test_drain(commands: Commands) -> None:
    assert commands("drain")["draining"] is True
    assert commands("drain", "--undo")["draining"] is False


@on_one_host
def test_outputs(commands: Commands, token_host: Host) -> None:
    with ExecClient(token_host.info) as client, client.session() as session:
        execution = session.run("for i in range(10): print('x' * 999_999)")
        for ident in (execution.id, execution.id[:20]):
            listed = commands("output list", ident)
            assert listed["outputs"][0]["size_bytes"] == 10_000_000
        assert commands("output download", execution.id, "stdout", "all.txt") == {"path": "all.txt"}


@on_one_host
def test_tokens_grants_and_policies(commands: Commands, token_host: Host) -> None:
    created = commands("token create", "agent")
    ident = created["token"].split("_")[1]
    commands("token list")
    assert commands("token show", ident)["id"] == ident
    commands("token rotate", ident)
    commands("token policies")
    with ExecClient(token_host.info) as client, client.standard_session() as notebook:
        grant = commands("token grant", ident, str(notebook.id), "--name", "a.ipynb", "--expires", "1h")
        assert grant in commands("token grants")
        assert main(["token", "revoke", grant["id"], ident, *commands._where]) == 0
        ended = {each["id"]: each["ended_reason"] for each in commands("token grants", "--ended")}
    assert ended[grant["id"]] == "it was revoked"


@on_one_host
def test_secrets(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a-long-value\n"))
    made = commands("secret set", "API_TOKEN", "--host", "a.example", "--header", "X-Key: {}")
    assert commands("secret list") == {"secrets": [made]}
    assert main(["secret", "delete", "API_TOKEN", *commands._where]) == 0


@on_one_host
def test_approvals(commands: Commands, token_host: Host) -> None:
    with ExecClient(token_host.info) as owner:
        issued = owner.tokens.create(
            "agent", ["sessions:create", "sessions:delete", "executions:create"], policy="asks"
        )
        with ExecClient(token_host.info.url, issued.text) as agent, agent.session() as session:
            waiting = session.submit("!echo accepted")
            commands("approve list")
            for ident in (waiting.id, waiting.id[4:20]):
                assert commands("approve show", ident)["id"] == waiting.id
        owner.tokens.revoke(issued.token.id)


def test_kernelspecs(tmp_path: Path) -> None:
    broken = tmp_path / "jupyter_data_dir" / "kernels" / "broken"
    broken.mkdir(parents=True)
    (broken / "kernel.json").write_text("{")
    done = jupyter_exec(tmp_path, "kernelspec", "list", "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, SHAPES["kernelspec list"])
    found = {kernel["name"]: kernel for kernel in document["kernelspecs"]}
    assert (found["python3"]["is_startable"], found["python3"]["isolation"]) == (True, "none")
    assert (found["broken"]["is_readable"], found["broken"]["isolation"]) == (False, None)


def test_audit_trail(tmp_path: Path, trail: Path) -> None:
    def verdict(code: int) -> Any:
        done = jupyter_exec(tmp_path, "audit", "verify", "--json", "--store", str(trail))
        assert (done.returncode, done.stderr) == (code, "")
        document = json.loads(done.stdout)
        jsonschema.validate(document, SHAPES["audit verify"])
        return document

    whole = verdict(0)
    assert (whole["whole"], whole["records"], whole["head"][:3], whole["faults"]) == (True, 10, "10:", [])
    tail = jupyter_exec(tmp_path, "audit", "tail", "--json", "--store", str(trail), "-n", "3").stdout
    assert len(tail.splitlines()) == 3
    for line in tail.splitlines():
        jsonschema.validate(json.loads(line), SHAPES["audit tail"])
    tamper(trail, "DELETE FROM audit WHERE seq = 4")
    faulty = verdict(1)
    assert (faulty["whole"], faulty["head"], faulty["faults"], faulty["fault_count"]) == (
        False,
        None,
        ["record 4 is missing"],
        1,
    )
    assert verdict(1)["records"] == 10
    empty = jupyter_exec(tmp_path, "audit", "verify", "--json", "--store", str(tmp_path / "none"))
    assert (empty.returncode, json.loads(empty.stdout)["whole"]) == (1, False)
