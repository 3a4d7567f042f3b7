"""``jupyter exec token`` and ``jupyter exec approve`` as people type them."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from jupyter_exec_ext.auth.scopes import SCOPES
from jupyter_exec_ext.cli import terminal_text
from jupyter_exec_ext.cli.main import build_parser
from jupyter_exec_ext.cli.token_command import ASK_RULES, PRESETS, chosen_scopes
from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.models import Execution
from tests.cli.kernelspecs.places import needs_sandbox
from tests.cli.test_cli import command, jupyter_exec
from tests.support.hosts import Host, clean_environment
from tests.support.terminals import Terminal

_SECONDS = 30.0


@dataclass
class Desk:
    """A person at a terminal of their own, with the server's own token."""

    host: Host
    home: Path

    def __call__(self, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        where = ["--server", self.host.info.url]
        known = {"JUPYTER_TOKEN": str(self.host.info.token)}
        return jupyter_exec(self.home, *args, *where, env=known | (env or {}))

    def ok(self, *args: str, env: dict[str, str] | None = None) -> str:
        done = self(*args, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def editor(self, code: str, exit_code: int = 0) -> dict[str, str]:
        """Return an environment with an editor that leaves `code`."""
        script = self.home / f"editor-{len(list(self.home.glob('editor-*')))}.py"
        script.write_text(f"import sys; open(sys.argv[1], 'w').write({code!r}); sys.exit({exit_code})")
        return {"EDITOR": shlex.join([sys.executable, str(script)])}


# For what does not depend on the host.
on_one_host = pytest.mark.parametrize("token_host", ["server"], indirect=True)


@pytest.fixture
def desk(token_host: Host, tmp_path: Path) -> Desk:
    return Desk(token_host, tmp_path)


@pytest.fixture
def agent_token(desk: Desk) -> Iterator[str]:
    """A token of the policy that asks before a shell command runs; revoked at the end, with all that it runs."""
    token = desk.ok("token", "create", "agent", "--policy", "asks").strip()
    yield token
    with ExecClient(desk.host.info) as owner:
        owner.tokens.revoke(id_of(token))


@contextlib.contextmanager
def running(desk: Desk, code: str, token: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run code as an agent does."""
    with subprocess.Popen(
        command("run", "-c", code, "--server", desk.host.info.url, *options),
        env=clean_environment(desk.home, JUPYTER_TOKEN=token),
        cwd=desk.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def waiting(desk: Desk, code: str) -> Execution:
    """Return the execution that waits with this code, once it does."""
    deadline = time.monotonic() + _SECONDS
    with ExecClient(desk.host.info) as owner:
        while time.monotonic() < deadline:
            found = [execution for execution in owner.approvals.list() if execution.code == code]
            if found:
                return found[0]
            time.sleep(0.05)  # nothing tells of an approval that is wanted but the list
    raise AssertionError(f"{code!r} does not wait for approval")


def id_of(token: str) -> str:
    return token.split("_")[1]


def ids(desk: Desk) -> list[str]:
    """Return the ids of all tokens, active or not."""
    return [token["id"] for token in json.loads(desk.ok("token", "list", "--ended", "--json"))]


# --- tokens ---


def test_a_token_alone_is_printed_and_lets_an_agent_in(desk: Desk) -> None:
    created = desk("token", "create", "agent", "--expires", "8h", "--limit", "max_sessions=1")
    token = created.stdout.strip()
    assert created.stdout == f"{token}\n" and token.startswith("jex_")
    assert token not in created.stderr
    assert f"jupyter exec token revoke {id_of(token)}" in created.stderr
    assert desk.ok("run", "-c", "print(6 * 7)", env={"JUPYTER_TOKEN": token}) == "42\n"

    listed = desk.ok("token", "list")
    assert [line.split()[1] for line in listed.splitlines() if line.startswith(id_of(token))] == ["active"]
    shown = json.loads(desk.ok("token", "show", id_of(token), "--json"))
    assert (shown["limits"], shown["scopes"]) == ({"max_sessions": 1}, list(PRESETS["agent"]))
    assert "max_sessions" in desk.ok("token", "show", id_of(token))

    rotated = json.loads(desk.ok("token", "rotate", id_of(token), "--json"))
    refused = desk("session", "list", env={"JUPYTER_TOKEN": token})
    assert refused.returncode == 3
    assert rotated["token"] not in desk.ok("session", "list", env={"JUPYTER_TOKEN": rotated["token"]})

    assert desk.ok("token", "revoke", id_of(token)) == ""
    assert id_of(token) not in desk.ok("token", "list")
    assert f"{id_of(token)}  revoked" in desk.ok("token", "list", "--ended")
    refused = desk("session", "list", env={"JUPYTER_TOKEN": rotated["token"]})
    assert (refused.returncode, "was revoked" in refused.stderr) == (3, True)
    for secret in (token, rotated["token"]):
        assert secret[13:] not in desk.host.log_text() + refused.stderr


def test_a_token_goes_into_a_file_for_its_owner_alone(desk: Desk) -> None:
    (desk.home / "token").write_text("old")
    (desk.home / "token").chmod(0o644)
    created = desk("token", "create", "agent", "--scope", "reader", "--output", "token", "--force")
    token = (desk.home / "token").read_text().strip()
    assert (created.returncode, created.stdout) == (0, "")
    assert token not in created.stderr
    assert (desk.home / "token").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in desk.home.glob("*token*")] == ["token"]
    desk.ok("session", "list", "--token-file", "token", env={"JUPYTER_TOKEN": ""})
    refused = desk("run", "-c", "1", "--token-file", "token", env={"JUPYTER_TOKEN": ""})
    assert (refused.returncode, "sessions:create" in refused.stderr) == (3, True)
    shown = json.loads(desk.ok("token", "rotate", id_of(token), "--overlap", "1h", "--output", "token", "--json"))
    assert "token" not in shown
    assert (desk.home / "token").read_text().strip() not in ("", token)
    desk.ok("session", "list", env={"JUPYTER_TOKEN": token})  # for an hour still
    desk.ok("token", "revoke", id_of(token))


@on_one_host
def test_ask_chooses_what_waits_for_approval(desk: Desk) -> None:
    for rule, limits in ASK_RULES.items():
        token = desk.ok("token", "create", "agent", "--ask", rule, "--json")
        assert json.loads(token)["limits"] == ({"approval": limits} if limits else {})
        desk.ok("token", "revoke", json.loads(token)["id"])
    done = desk("token", "create", "agent", "--ask", "shell", "--limit", "approval=always")
    assert (done.returncode, "leave one of them out" in done.stderr) == (2, True)


@on_one_host
def test_unwritable_output_file_creates_no_token(desk: Desk) -> None:
    before = ids(desk)
    for target in (".", "missing/token"):
        done = desk("token", "create", "agent", "--output", target)
        assert done.returncode == 2
        assert "--output cannot be used" in done.stderr
    assert ids(desk) == before


@on_one_host
def test_output_file_that_exists_is_kept_without_force(desk: Desk) -> None:
    before = ids(desk)
    (desk.home / "token").write_text("precious")
    done = desk("token", "create", "agent", "--output", "token")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "jupyter exec: --output: token exists; name another file, or add --force to replace it\n"
    assert (desk.home / "token").read_text() == "precious"
    refused = desk("token", "create", "agent", "--policy", "nope", "--output", "new")
    assert refused.returncode == 3
    assert [path.name for path in desk.home.iterdir() if path.is_file()] == ["token"]
    assert desk("token", "create", "agent", "--force").returncode == 2
    assert ids(desk) == before


@on_one_host
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--scope", "nope"], "there is no scope 'nope'"),
        (["--policy", "nope"], "there is no policy 'nope'"),
        (["--limit", "max_sessions=99"], "allows: 5"),
        (["--limit", "max_session=1"], "'limits': unknown field 'max_session'; did you mean 'max_sessions'?"),
        (["--expires", "99d"], "max_token_seconds"),
    ],
)
def test_refused_token_prints_one_sentence(desk: Desk, args: list[str], words: str) -> None:
    done = desk("token", "create", "agent", *args)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert words in done.stderr


@on_one_host
def test_policies_are_shown_with_their_limits(desk: Desk) -> None:
    shown = desk.ok("token", "policies")
    assert "asks\n" in shown
    assert '"when": ["shell"]' in shown
    assert {"default", "asks"} <= {policy["name"] for policy in json.loads(desk.ok("token", "policies", "--json"))}


@on_one_host
def test_an_agents_names_cannot_steer_the_terminal(desk: Desk) -> None:
    token = desk.ok("token", "create", "\x1b[2Jx", "--scope", "agent,tokens:create").strip()
    desk.ok("session", "start", "--name", "\x1b[2Jy", env={"JUPYTER_TOKEN": token})
    for listed in (desk.ok("token", "list"), desk.ok("token", "show", id_of(token)), desk.ok("session", "list")):
        assert "\x1b" not in listed
        assert "'\\x1b[2J" in listed
    desk.ok("token", "revoke", id_of(token))


# --- a run that waits ---


def test_a_run_says_that_it_waits_and_how_to_approve_it(desk: Desk, agent_token: str) -> None:
    with running(desk, "!echo accepted", agent_token) as run:
        assert run.stderr is not None
        told = run.stderr.readline()
        execution = waiting(desk, "!echo accepted")
        assert "since it runs a shell command" in told
        assert str(execution.approval and execution.approval.expires_at) in told
        assert told.endswith(f"to approve it: jupyter exec approve accept {execution.id}\n")
        desk.ok("approve", "accept", execution.id)
        assert run.communicate(timeout=_SECONDS) == ("accepted\n", "")
        assert run.returncode == 0


def test_a_run_that_was_edited_or_rejected_says_so(desk: Desk, agent_token: str) -> None:
    (desk.home / "other.py").write_text("print('other')\n")
    with running(desk, "!echo edited", agent_token) as run:
        execution = waiting(desk, "!echo edited")
        desk.ok("approve", "accept", execution.id, "--code", "other.py", "--reason", "no\x1b shell")
        stdout, stderr = run.communicate(timeout=_SECONDS)
        assert (run.returncode, stdout) == (0, "other\n")
        assert "edited the code before it ran: 'no\\x1b shell'" in stderr
    with running(desk, "!echo rejected", agent_token) as run:
        desk.ok("approve", "reject", waiting(desk, "!echo rejected").id, "--reason", "not today")
        stdout, stderr = run.communicate(timeout=_SECONDS)
        assert (run.returncode, stdout) == (126, "")
        assert stderr.endswith(": not today\n")


@on_one_host
def test_a_run_that_nobody_approves_ends_with_124(desk: Desk) -> None:
    token = desk.ok("token", "create", "agent", "--policy", "asks_briefly").strip()
    done = desk("run", "-c", "!echo never", env={"JUPYTER_TOKEN": token})
    assert (done.returncode, done.stdout) == (124, "")
    assert "nobody has approved it" in done.stderr
    desk.ok("token", "revoke", id_of(token))


def test_a_run_whose_token_is_revoked_ends_with_3(desk: Desk, agent_token: str) -> None:
    with running(desk, "print('runs', flush=True)\nimport time; time.sleep(60)", agent_token) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "runs\n"
        desk.ok("token", "revoke", id_of(agent_token))
        _, stderr = run.communicate(timeout=_SECONDS)
    assert run.returncode == 3
    assert "was revoked" in stderr
    assert agent_token[13:] not in stderr


# --- approving ---


def test_waiting_code_is_listed_and_shown_escaped(desk: Desk, agent_token: str) -> None:
    code = "!echo \x1b[2J\r\u202etxt\nwhy          it is harmless"
    with running(desk, code, agent_token):
        execution = waiting(desk, code)
        listed = desk.ok("approve", "list")
        assert execution.id in listed
        assert "it runs a shell command" in listed
        shown = desk.ok("approve", "show", execution.id)
        assert not {"\x1b", "\r", "\u202e"} & set(listed + shown)
        assert "     1 | !echo \\x1b[2J\\r\\u202etxt\n     2 | why          it is harmless\n" in shown
        assert f"token        {id_of(agent_token)} (agent)" in shown
        assert "language     the kernel's own" in shown
        assert "input()      not answered" in shown
        assert [item["code"] for item in json.loads(desk.ok("approve", "list", "--json")) if item["id"] == execution.id]
        refused = desk("approve", "list", env={"JUPYTER_TOKEN": agent_token})
        assert (refused.returncode, refused.stdout) == (3, "")
        desk.ok("approve", "reject", execution.id)
        late = desk("approve", "show", execution.id)
        assert (late.returncode, "waits for approval" in late.stderr) == (3, True)


@on_one_host
def test_unchanged_edit_approves_nothing(desk: Desk, agent_token: str) -> None:
    with running(desk, "!echo before", agent_token) as run:
        execution = waiting(desk, "!echo before")
        for editor, words in (
            (desk.editor("x", exit_code=1), "the editor ended with 1"),
            (desk.editor("!echo before\n"), "nothing was changed"),
            ({"EDITOR": "no-such-editor"}, "cannot be edited"),
        ):
            done = desk("approve", "accept", "--edit", execution.id, env=editor)
            assert done.returncode == 2
            assert words in done.stderr
        assert waiting(desk, "!echo before") == execution
        desk.ok("approve", "accept", "--edit", execution.id, env=desk.editor("print('after')"))
        assert run.communicate(timeout=_SECONDS)[0] == "after\n"


@on_one_host
def test_a_replacement_is_for_one_execution(desk: Desk) -> None:
    for args, words in ((["a", "b", "--code", "x"], "name one"), (["a", "--code", "missing"], "cannot be read")):
        done = desk("approve", "accept", *args)
        assert done.returncode == 2
        assert words in done.stderr


@on_one_host
@pytest.mark.timeout(120)
def test_watch_asks_about_each_waiting_execution(desk: Desk, agent_token: str) -> None:
    question = "s(kip): "
    env = clean_environment(desk.home, JUPYTER_TOKEN=str(desk.host.info.token), **desk.editor("print('edited')"))
    env["NO_COLOR"] = "1"
    watching = Terminal(command("approve", "watch", "--server", desk.host.info.url), env)
    try:
        watching.read_until("Ctrl-C to leave")
        watching.type("y")  # before anything was asked: no answer
        long = "!echo " + "x" * 40 + "why " * 20
        with running(desk, long, agent_token) as run:
            shown = watching.read_until(question)
            lines = [line for line in shown.splitlines() if " | " in line]
            assert "".join(line.partition(" | ")[2] for line in lines).replace(" ", "") == long.replace(" ", "")
            assert [line for line in lines if len(line) > 60] == []
            assert waiting(desk, long)
            watching.type("what?")
            watching.read_until(question)
            watching.type("e")
            assert "     1 | print('edited')" in watching.read_until(question)
            approved = waiting(desk, long).id
            watching.type("y")
            watching.read_until(f"approved {approved} as edited; it runs now\n")
            assert run.communicate(timeout=_SECONDS)[0] == "edited\n"
        with running(desk, "!echo no", agent_token) as run:
            watching.read_until(question)
            watching.type("n")
            watching.read_until("agent to read: ")
            rejected = waiting(desk, "!echo no").id
            watching.type("too loud")
            watching.read_until(f"rejected {rejected}; it does not run\n")
            assert "too loud" in run.communicate(timeout=_SECONDS)[1]
            assert run.returncode == 126
        with running(desk, "!echo skipped", agent_token) as run:
            watching.read_until(question)
            watching.type("s")
            watching.read_until(f"skipped {waiting(desk, '!echo skipped').id}; it waits until ")
            desk.ok("approve", "accept", waiting(desk, "!echo skipped").id)
            assert run.communicate(timeout=_SECONDS)[0] == "skipped\n"
        agent = {"JUPYTER_TOKEN": agent_token}
        session = desk.ok("session", "start", env=agent).strip()
        with running(desk, "!echo always", agent_token, "--session", session) as run:
            assert "a(lways in this session)" in watching.read_until(question)
            watching.type("a")
            watching.read_until("not asked about in this session from now on: shell\n")
            assert run.communicate(timeout=_SECONDS)[0] == "always\n"
        assert desk.ok("run", "-c", "!echo again", "--session", session, env=agent) == "again\n"
        unknown = desk("approve", "withdraw", session, "shel")
        assert (unknown.returncode, unknown.stderr.partition("; ")[2]) == (2, "approved kinds: shell\n")
        desk.ok("approve", "withdraw", session, "shell")
        with running(desk, "!echo late", agent_token, "--session", session) as run:
            watching.read_until(question)
            desk.ok("approve", "reject", waiting(desk, "!echo late").id)
            run.communicate(timeout=_SECONDS)
            watching.type("y")
            watching.read_until("jupyter exec: ")
        watching.process.send_signal(signal.SIGINT)
        assert watching.process.wait(_SECONDS) == 130
    finally:
        watching.close()


# --- doctor ---


def test_the_doctor_notes_what_is_not_isolated(desk: Desk) -> None:
    done = desk("doctor")
    assert done.returncode == 0, done.stdout
    assert "note  without isolation: python3" in done.stdout
    assert "(ExecEngine.allow_unprotected_tokens)" in done.stdout
    local = jupyter_exec(desk.home, "doctor")
    assert local.returncode == 0, local.stdout
    assert "note  without isolation: python3" in local.stdout
    assert "scoped tokens" in local.stdout


@needs_sandbox
def test_the_doctor_says_what_isolation_a_server_gives_on_request(desk: Desk) -> None:
    done = desk("doctor", "--verbose")
    assert "ok    kernels get the isolation 'sandbox' there where it is asked for or required" in done.stdout
    assert "these policies require" not in done.stdout
    local = jupyter_exec(desk.home, "doctor")
    assert "scoped tokens get the isolation 'sandbox' for them" in local.stdout


@on_one_host
def test_doctor_works_with_a_scoped_token(desk: Desk, agent_token: str) -> None:
    done = desk("doctor", "--verbose", env={"JUPYTER_TOKEN": agent_token})
    assert done.returncode == 0, done.stdout
    assert "these policies require" not in done.stdout


# --- without a server ---


def test_presets_consist_of_known_scopes() -> None:
    assert all(set(scopes) <= set(SCOPES) for scopes in PRESETS.values())
    assert not any("tokens:create" in scopes for scopes in PRESETS.values())
    assert chosen_scopes([]) == list(PRESETS["agent"])
    assert chosen_scopes(["reader,files:write", " files:write ,x"]) == [*PRESETS["reader"], "files:write", "x"]


def test_durations_and_values_are_parsed() -> None:
    def parsed(*args: str) -> tuple[float, dict[str, object]]:
        args_ = build_parser().parse_args(["token", "create", "a", *args])
        return args_.expires, dict(args_.limits)

    for written, seconds in {"90": 90.0, "1.5h": 5400.0, "30m": 1800.0, "2d": 172_800.0, "5s": 5.0}.items():
        assert parsed("--expires", written)[0] == seconds
    limits = ["a=1", 'b=["x"]', "c=always", "d=null", "e=f=g"]
    assert parsed(*(word for limit in limits for word in ("--limit", limit)))[1] == {
        "a": 1,
        "b": ["x"],
        "c": "always",
        "d": None,
        "e": "f=g",
    }
    for wrong in (["--expires", "h"], ["--expires", "-1h"], ["--expires", "inf"], ["--limit", "a"], ["--limit", "=1"]):
        with pytest.raises(SystemExit) as caught:
            parsed(*wrong)
        assert caught.value.code == 2


def test_shown_code_cannot_imitate_the_command() -> None:
    assert terminal_text.numbered("a\n\nb\n", None) == "     1 | a\n     2 |\n     3 | b"
    assert terminal_text.numbered("", None) == "     1 |"
    assert terminal_text.numbered("\tx", None) == "     1 |         x"
    for char in "\x00\x07\x08\x0b\x0c\r\x1b\x7f\x85\x9b\u200b\u2028\u202e\u2066\ufeff\u3164\U000e0041":
        shown = terminal_text.numbered(f"a{char}b", None)
        assert char not in shown and "\\" in shown
    assert terminal_text.numbered("é漢🙂", 80) == "     1 | é漢🙂"
    for code in ("x" * 100, "漢" * 100, "\x1b" * 30):
        lines = terminal_text.numbered(code, 40).splitlines()
        assert len(lines) > 2
        assert all(line[:9] in ("     1 | ", "       | ") for line in lines)
        assert "".join(line[9:] for line in lines) == terminal_text.visible(code)
        wide = 2 if code[0] == "漢" else 1
        assert all(len(line[9:]) * wide <= 31 for line in lines)


def test_every_new_command_explains_itself(tmp_path: Path) -> None:
    for args in (["token"], ["token", "create"], ["approve"], ["approve", "watch"]):
        done = jupyter_exec(tmp_path, *args, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith("usage: jupyter exec")


@on_one_host
def test_no_secret_is_in_what_the_client_shows_of_itself(token_host: Host) -> None:
    with ExecClient(token_host.info) as owner:
        issued = owner.tokens.create("agent", ["sessions:read"])
        info = replace(token_host.info, token=issued.text)
        with ExecClient(info) as agent:
            agent.list_sessions()
            shown = f"{issued!r} {issued.token!r} {agent!r} {agent.tokens!r} {agent.approvals!r} {info!r}"
        owner.tokens.revoke(issued.token.id)
    assert issued.text[13:] not in shown + token_host.log_text()
