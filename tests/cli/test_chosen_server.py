"""The server of a command: ``--server auto``, ``JUPYTER_EXEC_SERVER``, profiles, and errors that name the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_exec_ext.cli.main import build_parser, main
from jupyter_exec_ext.cli.serve_command import _token as token_to_demand
from jupyter_exec_ext.cli.server_choice import apply_environment, named_server
from jupyter_exec_ext.client import JupyterConnectionInfo
from jupyter_exec_ext.client.local_servers import find_connection
from tests.cli.test_cli import jupyter_exec
from tests.client.test_local_servers import API, note, runtime, server  # noqa: F401  # a fixture among them
from tests.support.full import only_in_full
from tests.support.hosts import Host

NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> Path:  # noqa: F811
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    return runtime


def connection(*args: str) -> JupyterConnectionInfo | None:
    """Return the connection of a command, after its options and the environment; None for a server of its own."""
    parsed = build_parser().parse_args(args)
    apply_environment(parsed)
    return None if parsed.server is None else named_server(parsed)


def refusal(capsys: pytest.CaptureFixture[str], *args: str, code: int = 2) -> str:
    assert main(args) == code
    return capsys.readouterr().err


def test_auto_takes_the_newest_server_with_exec_v1_and_names_it(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(404, {"message": "no"}) as (plain, _), server(*API) as (newer, _), server(*API) as (older, _):
        for age, url in enumerate((plain, newer, older)):
            note(places, url, "secret", age)
        assert main(["session", "list", "--server", "auto"]) == 3  # the stand-in has no sessions
        said = capsys.readouterr().err
    assert said.splitlines()[0] == f"jupyter exec: using {newer}"
    assert said.splitlines()[1].startswith("jupyter exec: ") and newer in said.splitlines()[1]


def test_auto_combines_with_token_file_and_certificates(
    places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = JupyterConnectionInfo("127.0.0.1", True, 1, "its own")
    asked: list[JupyterConnectionInfo] = []
    monkeypatch.setattr(JupyterConnectionInfo, "discover", lambda: [found])

    def has_api(info: JupyterConnectionInfo) -> bool:
        asked.append(info)
        return True

    monkeypatch.setattr("jupyter_exec_ext.client.local_servers.has_api", has_api)
    (tmp_path / "token").write_text("chosen\n")
    info = connection("session", "list", "--token-file", str(tmp_path / "token"), "--ca-bundle", "ca.pem")
    assert info is not None
    assert (info.port, info.token, info.verify) == (1, "chosen", "ca.pem")
    assert (asked[0].token, asked[0].verify) == ("chosen", "ca.pem")
    assert connection("session", "list") == found


def test_auto_in_a_hub_terminal_chooses_its_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = JupyterConnectionInfo("127.0.0.1", False, 1)
    own = JupyterConnectionInfo("127.0.0.1", False, 2, base_url="/user/ada/")
    monkeypatch.setattr(JupyterConnectionInfo, "discover", lambda: [newer, own])
    monkeypatch.setattr("jupyter_exec_ext.client.local_servers.has_api", lambda info: True)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "the Hub's")
    info = connection("session", "list")
    assert info is not None and (info.port, info.token) == (1, None)
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    info = connection("session", "list")
    assert info is not None and (info.port, info.token) == (2, "the Hub's")
    info = connection("session", "list", "--server", "http://127.0.0.1:2/user/ada/")
    assert info is not None and info.token is None


def test_server_of_the_environment_is_the_default_of_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_EXEC_SERVER", "https://lab.example.org/")
    monkeypatch.setenv("JUPYTER_TOKEN", "secret")
    for args in (["run", "-c", "1"], ["session", "list"], ["token", "list", "--server", "auto"], ["doctor"]):
        info = connection(*args)
        assert info is not None
        assert (info.url, info.token) == ("https://lab.example.org/", "secret")
    info = connection("run", "-c", "1", "--server", NOWHERE)
    assert info is not None and info.url == NOWHERE
    for args in (["--server", "none"], ["--hub", "http://hub/"], ["--docker"], ["--binder", "gh/o/r/HEAD"]):
        assert connection("run", "-c", "1", *args) is None


def test_none_in_the_environment_leaves_the_choice_to_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_EXEC_SERVER", "none")
    assert connection("run", "-c", "1") is None
    assert "no Jupyter server of yours runs" in refusal(capsys, "session", "list", code=3)


def test_none_is_refused_where_no_server_can_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert "name one: URL, profile or auto" in refusal(capsys, "session", "list", "--server", "none")
    refused = refusal(capsys, "run", "-c", "1", "--session", "ses_1", "--server", "none")
    assert "has no session yet" in refused


@only_in_full
def test_run_with_server_none_starts_a_gateway_of_its_own(tmp_path: Path) -> None:
    elsewhere = {"JUPYTER_EXEC_SERVER": NOWHERE}
    done = jupyter_exec(tmp_path, "run", "-c", "print(6 * 7)", "--server", "none", env=elsewhere)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
    done = jupyter_exec(tmp_path, "run", "-c", "print(6 * 7)", env=elsewhere)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"jupyter exec: using {NOWHERE}\njupyter exec: nothing listens at {NOWHERE};")


# --- profiles ---


def test_profile_stands_for_url_token_file_and_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work.token").write_text("secret\n")
    where = ["--token-file", "work.token", "--ca-bundle", "ca.pem"]
    assert main(["profile", "add", "work", "--server", "https://hub.example/user/ada/lab", *where]) == 0
    monkeypatch.setenv("JUPYTER_TOKEN", "another")
    expected = JupyterConnectionInfo("hub.example", True, None, "secret", "/user/ada/", verify=str(tmp_path / "ca.pem"))
    assert connection("session", "list", "--server", "work") == expected
    monkeypatch.setenv("JUPYTER_EXEC_SERVER", "work")
    assert connection("session", "list") == connection("run", "-c", "1") == find_connection() == expected
    (tmp_path / "other.token").write_text("other")
    info = connection("session", "list", "--token-file", "other.token")
    assert info is not None and info.token == "other"
    (tmp_path / "work.token").unlink()
    assert f"the token file {tmp_path}/work.token of the profile 'work' cannot be read" in refusal(
        capsys, "session", "list"
    )


def test_token_file_that_others_can_read_is_named_for_profiles_options_and_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "open.token").write_text("secret\n")
    (tmp_path / "open.token").chmod(0o644)
    file = str(tmp_path / "open.token")
    assert main(["profile", "add", "work", "--server", NOWHERE, "--token-file", file]) == 0
    note = f"jupyter exec: other users can read the token file {file}; close it to them: chmod 600 {file}\n"
    capsys.readouterr()
    for read in (
        lambda: connection("session", "list", "--server", "work"),
        lambda: connection("session", "list", "--server", NOWHERE, "--token-file", file),
        lambda: token_to_demand(file),
    ):
        read()
        assert capsys.readouterr().err == note
    (tmp_path / "open.token").chmod(0o600)
    connection("session", "list", "--server", "work")
    assert capsys.readouterr().err == ""


def test_machine_name_alone_is_refused_with_its_url(capsys: pytest.CaptureFixture[str]) -> None:
    refused = refusal(capsys, "session", "list", "--server", "myhost")
    assert "a word without a dot, a colon or a slash names a profile" in refused and "write http://myhost/" in refused


def test_unknown_profile_suggests_a_similar_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "add", "staging", "--server", "http://h/"]) == 0
    capsys.readouterr()
    for args in (["session", "list", "--server", "stagging"], ["profile", "remove", "stagging"]):
        refused = refusal(capsys, *args)
        assert refused.startswith("jupyter exec: there is no profile 'stagging'; did you mean 'staging'? ")
        assert len(refused.splitlines()) == 1


# --- errors ---


def test_every_error_about_a_server_names_the_server(tmp_path: Path, hosts: dict[str, Host]) -> None:
    host = hosts["server"]
    url = host.info.url
    right, wrong = ({"JUPYTER_TOKEN": token} for token in (str(host.info.token), "wr0ng"))
    for args, env, words in (
        (["session", "list"], {}, "no token was given"),
        (["session", "list"], wrong, "the server refused this token"),
        (["run", "-c", "1", "--kernel", "nope"], right, "nope"),
        (["session", "stop", "ses_zz"], right, "ses_zz"),
    ):
        done = jupyter_exec(tmp_path, *args, "--server", url, env=env)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
        assert words in done.stderr and url in done.stderr
        if env is not right:
            assert "pass --token-file or set JUPYTER_TOKEN, or use a profile" in done.stderr
        for internal in ("Unauthenticated", "Errno", "Traceback", "Authorization", "wr0ng"):
            assert internal not in done.stderr


def test_unreadable_token_file_is_named_without_errno(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, words in (("absent", "No such file or directory"), ("binary", "it is not UTF-8 text")):
        refused = refusal(capsys, "session", "list", "--server", NOWHERE, "--token-file", str(tmp_path / name))
        assert words in refused and "Errno" not in refused and "codec" not in refused
