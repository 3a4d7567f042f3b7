"""``jupyter exec --hub`` and ``--binder``: servers that are started for a command."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import ExecClient, JupyterConnectionInfo
from jupyter_exec_ext.errors import Unauthenticated
from tests.cli.test_cli import command, jupyter_exec
from tests.support import canaries
from tests.support.binderhubs import BUILD, Events, StandInBinderHub, log, ready
from tests.support.full import only_in_full
from tests.support.hosts import clean_environment, running_host
from tests.support.hubs import USER, HubHost
from tests.support.waiting import wait_until

CALLER = "cli-user"


@pytest.fixture(scope="module")
def hub(hosts: Any) -> HubHost:
    started: HubHost = hosts["hub"]
    started.api("POST", f"/users/{CALLER}")
    canaries.note(started.hub_token)
    return started


def tokens_of_commands(hub: HubHost, user: str) -> list[str]:
    """Return the ids of the Hub tokens that commands have left valid."""
    tokens = hub.api("GET", f"/users/{user}/tokens")["api_tokens"]
    return [token["id"] for token in tokens if token["note"] == "jupyter_exec_ext"]


def is_refused(client: ExecClient) -> bool:
    try:
        client.info()
    except Unauthenticated:
        return True
    return False


def servers(hub: HubHost, user: str) -> dict[str, Any]:
    found: dict[str, Any] = hub.api("GET", f"/users/{user}")["servers"]
    return found


@only_in_full
def test_a_session_at_a_hub_outlives_the_commands_that_use_it(hub: HubHost, tmp_path: Path) -> None:
    """The server is started by the first one that needs it to last, and stopped by none that found it running."""
    token = {"env": {"JUPYTER_TOKEN": canaries.note(hub.token_of(CALLER))}}
    there = ["--hub", hub.hub_url]
    started = jupyter_exec(tmp_path, "session", "start", *there, **token)
    assert started.returncode == 0, started.stderr
    session = started.stdout.strip()
    try:
        for code, output in (("x = 41", ""), ("print(x + 1)", "42\n")):
            done = jupyter_exec(tmp_path, "run", "-c", code, "--session", session, *there, **token)
            assert (done.returncode, done.stdout) == (0, output), done.stderr
        listed = jupyter_exec(tmp_path, "session", "list", *there, **token)
        assert session in listed.stdout
        assert servers(hub, CALLER)[""]["ready"]
        checked = jupyter_exec(tmp_path, "doctor", "--verbose", *there, **token)
        assert "exec/v1" in checked.stdout, checked.stderr
        assert servers(hub, CALLER)[""]["ready"]
        # The Hub token that the session was made with is the only one that is left, and the session ends with it.
        (kept,) = tokens_of_commands(hub, CALLER)
        hub.api("DELETE", f"/users/{CALLER}/tokens/{kept}")
        wait_until(lambda: session not in jupyter_exec(tmp_path, "session", "list", *there, **token).stdout)
    finally:
        hub.api("DELETE", f"/users/{CALLER}/server")
    for done in (started, listed, checked):
        assert token["env"]["JUPYTER_TOKEN"] not in done.stdout + done.stderr


@only_in_full
def test_a_token_from_a_hub_outlives_its_command_and_leaves_no_other(hub: HubHost, tmp_path: Path) -> None:
    env = {"env": {"JUPYTER_TOKEN": canaries.note(hub.token_of(CALLER))}}
    there = ["--hub", hub.hub_url]
    try:
        refused = jupyter_exec(tmp_path, "token", "create", "agent", "--policy", "none-such", *there, **env)
        assert refused.returncode != 0
        assert tokens_of_commands(hub, CALLER) == []
        created = jupyter_exec(tmp_path, "token", "create", "agent", "--json", *there, **env)
        assert created.returncode == 0, created.stderr
        secret = canaries.note(json.loads(created.stdout)["token"])
        (kept,) = tokens_of_commands(hub, CALLER)
        server = JupyterConnectionInfo.from_url(f"{hub.hub_url.removesuffix('hub/')}user/{CALLER}/", secret)
        with ExecClient(server) as agent:
            assert agent.run("print(6 * 7)").text == "42"
            hub.api("DELETE", f"/users/{CALLER}/tokens/{kept}")
            wait_until(lambda: is_refused(agent))
    finally:
        hub.api("DELETE", f"/users/{CALLER}/server")


@only_in_full
def test_run_stops_the_server_that_it_has_started_for_a_user(hub: HubHost, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(hub.hub_token)
    code = "import time; print('runs', flush=True); time.sleep(600)"
    options = ["--hub-user", CALLER, "--hub-server", "", "--token-file", "token"]
    process = subprocess.Popen(
        command("run", "-c", code, "--hub", hub.hub_url, *options),
        cwd=tmp_path,
        env=clean_environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout as output:
        assert output.readline() == "runs\n"
        assert servers(hub, CALLER)[""]["ready"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    deadline = time.monotonic() + 30
    while servers(hub, CALLER):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@only_in_full
def test_hub_refusal_is_reported_without_the_token(hub: HubHost, tmp_path: Path) -> None:
    weak = canaries.note(hub.token_of(CALLER, f"read:users:name!user={CALLER}"))
    done = jupyter_exec(tmp_path, "run", "-c", "1", "--hub", f"{hub.hub_url}?token={weak}")
    assert done.returncode == 3
    assert f"tokens!user={CALLER}" in done.stderr
    assert weak not in done.stderr
    nothing = jupyter_exec(tmp_path, "run", "-c", "1", "--hub", hub.hub_url)
    assert (nothing.returncode, "token" in nothing.stderr) == (3, True)
    assert servers(hub, USER)[""]["ready"]


def test_run_in_a_binder_shows_its_phases_and_shuts_it_down(tmp_path: Path) -> None:
    with (
        running_host("server-base-url", tmp_path / "host") as host,
        StandInBinderHub(Events([*BUILD, ready(host.info)])) as binder,
    ):
        where = ["--binder", "gh/org/repo/HEAD", "--binder-url", binder.url]
        # A token of some Jupyter server is none of the BinderHub's business.
        done = jupyter_exec(tmp_path, "run", "-c", "print(6 * 7)", *where, env={"JUPYTER_TOKEN": "s3cret"})
        host.process.wait(20)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert done.stderr.splitlines()[-2:] == ["launching: Launching server...", "ready"]
    assert "Authorization" not in binder.seen[0][1]
    assert str(host.info.token) not in done.stderr


def test_binder_failure_prints_its_reason(tmp_path: Path) -> None:
    events = [*log("building", "Step 1/2"), {"phase": "failed", "message": "pip failed\n"}]
    with StandInBinderHub(Events(events)) as binder:
        done = jupyter_exec(tmp_path, "run", "-c", "1", "--binder", "gh/org/repo/HEAD", "--binder-url", binder.url)
    assert done.returncode == 3
    assert "jupyter exec: Binder could not launch gh/org/repo/HEAD: pip failed; the last lines" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--binder", "repo"], "gh/org/repo/HEAD"),
        (["--binder", "gh/o/r/HEAD", "--hub", "http://h/"], "not allowed with"),
        (["--server", "auto", "--hub", "http://h/"], "not allowed with"),
        (["--binder", "gh/o/r/HEAD", "--session", "ses_1"], "leave one of them out"),
        (["--hub-user", "bob"], "--hub-user goes with --hub URL"),
        (["--hub-server", ""], "--hub-server goes with --hub URL"),
        (["--server", "auto", "--hub-user", "bob"], "--hub-user goes with --hub URL"),
        (["--binder-url", "https://mybinder.org"], "--binder-url goes with --binder SPEC"),
        (["--hub", "http://h/", "--binder-url", "http://b/"], "--binder-url goes with --binder SPEC"),
        (["--token-file", "absent"], "--token-file goes with --server, --hub or --binder"),
        (["--docker", "--token-file", "absent"], "--token-file goes with --server, --hub or --binder"),
        (["--ca-bundle", "absent"], "--ca-bundle goes with --server, --hub or --binder"),
    ],
)
def test_wrong_usage_is_named(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = jupyter_exec(tmp_path, "run", "-c", "print('ran')", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_doctor_checks_every_named_server(tmp_path: Path) -> None:
    done = jupyter_exec(tmp_path, "doctor", "--hub-user", "bob")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--hub-user goes with --hub URL" in done.stderr
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/absent.sock"}
    done = jupyter_exec(tmp_path, "doctor", "--docker", env=nowhere)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no container engine answers" in done.stderr


def test_a_token_file_goes_with_a_session_too_which_is_on_some_server(tmp_path: Path) -> None:
    done = jupyter_exec(tmp_path, "run", "-c", "1", "--session", "ses_1", "--token-file", "absent")
    assert (done.returncode, "--token-file absent cannot be read" in done.stderr) == (2, True)


def test_file_taken_as_docker_image_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    done = jupyter_exec(tmp_path, "run", "--docker", "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "put the file before --docker, or write --docker=IMAGE" in done.stderr
    for arguments in (["--docker", "python:3"], ["--docker"], []):
        done = jupyter_exec(tmp_path, "run", *arguments)
        assert (done.returncode, "there is no code to run" in done.stderr) == (2, True)
