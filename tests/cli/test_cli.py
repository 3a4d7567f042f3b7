"""``jupyter exec`` as people type it."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_exec_ext.cli.main import main
from jupyter_exec_ext.cli.serve_command import _token as token_to_demand
from jupyter_exec_ext.client import ExecClient, ExecSession
from tests.support.hosts import Host, clean_environment, free_port, running_host

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "jupyter_exec_ext.cli", *args]


def jupyter_exec(tmp_path: Path, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = clean_environment(tmp_path, **options.pop("env", {}))
    return subprocess.run(
        command(*args), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False, **options
    )


@pytest.fixture
def server(hosts: Any) -> Host:
    started: Host = hosts["server"]
    return started


def at(server: Host) -> dict[str, Any]:
    """Where the server is, as options and environment of a command."""
    return {"env": {"JUPYTER_TOKEN": str(server.info.token)}}


def test_an_error_that_ipython_prints_itself_is_printed_once(tmp_path: Path, server: Host) -> None:
    done = jupyter_exec(tmp_path, "run", "-c", "%nosuchmagic", "--server", server.info.url, **at(server))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "UsageError: Line magic function `%nosuchmagic` not found.\n"


def test_values_of_every_kind_are_saved_or_printed(tmp_path: Path, server: Host) -> None:
    code = "display({'audio/wav': 'UklGRg=='}, raw=True)\ndisplay({'application/json': {'a': 1}}, raw=True)"
    done = jupyter_exec(tmp_path, "run", "-c", code, "--server", server.info.url, **at(server))
    saved = tmp_path / "output-1.wav"
    assert (done.stdout, done.stderr) == (f'Audio data saved to {saved}\n{{"a":1}}\n', "")
    assert saved.read_bytes() == b"RIFF"


def test_the_quickstart_prints_and_saves_a_picture(tmp_path: Path) -> None:
    done = jupyter_exec(tmp_path, "run", str(QUICKSTART), "--output-dir", "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Counting to three, in a real kernel:\n1\n2\n3\nImage data saved to ")
    assert (tmp_path / "out" / "quickstart-1.png").read_bytes().startswith(b"\x89PNG")
    assert not list((tmp_path / "run").glob("kernel-*"))


@pytest.mark.parametrize(
    ("code", "exit_code", "stdout", "stderr"),
    [
        ("print('out')", 0, "out\n", ""),
        ("import sys; print('err', file=sys.stderr)", 0, "", "err\n"),
        ("6 * 7", 0, "42\n", ""),
        ("import sys; sys.exit(3)", 3, "", None),
        ("import sys; sys.exit('why')", 1, "", "why"),
        ("raise SystemExit", 0, "", ""),
        ("exit(4)\nprint('not reached')", 4, "", ""),
        ("print(1)\nquit()\nprint('not reached')", 0, "1\n", ""),
        ("import argparse; argparse.ArgumentParser(prog='p').parse_args(['-x'])", 2, "", "unrecognized arguments: -x"),
        (
            "import unittest\nclass T(unittest.TestCase):\n def test(self): assert 0\nunittest.main(argv=[''])",
            1,
            "",
            None,
        ),
        ("print('before'); 1/0", 1, "before\n", "ZeroDivisionError: division by zero"),
        ("import os; os._exit(5)", 5, "", "exited with code 5"),
        ("import os; os.kill(os.getpid(), 9)", 137, "", "SIGKILL"),
    ],
)
def test_output_and_exit_code_are_the_codes_own(
    tmp_path: Path, server: Host, code: str, exit_code: int, stdout: str, stderr: str | None
) -> None:
    done = jupyter_exec(tmp_path, "run", "-c", code, "--server", server.info.url, **at(server))
    assert (done.returncode, done.stdout) == (exit_code, stdout)
    assert stderr is None or stderr in done.stderr


def test_code_that_takes_too_long_ends_with_124(tmp_path: Path, server: Host) -> None:
    code = "import time; time.sleep(60)"
    done = jupyter_exec(tmp_path, "run", "-c", code, "--timeout", "0.5", "--server", server.info.url, **at(server))
    assert done.returncode == 124
    assert "its time limit of 0.5 s was reached" in done.stderr


def test_code_comes_from_standard_input_or_a_shell_script(tmp_path: Path, server: Host) -> None:
    done = jupyter_exec(tmp_path, "run", "-", "--server", server.info.url, input="print('piped')", **at(server))
    assert done.stdout == "piped\n"
    (tmp_path / "script.sh").write_text("echo $((6 * 7))")
    done = jupyter_exec(tmp_path, "run", "script.sh", "--server", server.info.url, **at(server))
    assert done.stdout == "42\n"


@pytest.mark.parametrize(("script", "exit_code"), [("exit 3", 3), ("false", 1), ("nosuchcommand", 127), ("true", 0)])
def test_a_shell_scripts_exit_status_is_the_exit_code(
    tmp_path: Path, server: Host, script: str, exit_code: int
) -> None:
    (tmp_path / "script.sh").write_text(script)
    done = jupyter_exec(tmp_path, "run", "script.sh", "--server", server.info.url, **at(server))
    assert done.returncode == exit_code
    assert "Traceback" not in done.stderr


def test_output_comes_while_the_code_runs(tmp_path: Path, server: Host) -> None:
    code = "import time\nprint('first', flush=True)\ntime.sleep(30)"
    with subprocess.Popen(
        command("run", "-c", code, "--server", server.info.url),
        env=clean_environment(tmp_path, JUPYTER_TOKEN=str(server.info.token)),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "first\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
        assert time.monotonic() - began < 20
    assert process.returncode == 130
    assert "Interrupting" in stderr
    assert "cancelled" in stderr


def test_a_session_keeps_its_variables_between_commands(tmp_path: Path, server: Host) -> None:
    where = ["--server", server.info.url]
    started = jupyter_exec(tmp_path, "session", "start", "--name", "mine", *where, **at(server))
    session_id = started.stdout.strip()
    assert session_id.startswith("ses_")
    jupyter_exec(tmp_path, "run", "-c", "x = 41", "--session", session_id, *where, **at(server))
    done = jupyter_exec(tmp_path, "run", "-c", "print(x + 1)", "--session", session_id, *where, **at(server))
    assert done.stdout == "42\n"
    listed = jupyter_exec(tmp_path, "session", "list", *where, **at(server)).stdout
    assert listed.startswith("ID ")
    assert f"{session_id}  idle" in listed
    assert "mine" in listed
    assert jupyter_exec(tmp_path, "session", "interrupt", session_id, *where, **at(server)).returncode == 0
    assert jupyter_exec(tmp_path, "session", "stop", session_id, *where, **at(server)).returncode == 0
    assert session_id not in jupyter_exec(tmp_path, "session", "list", *where, **at(server)).stdout
    assert session_id in jupyter_exec(tmp_path, "session", "list", "--ended", *where, **at(server)).stdout


def test_a_session_can_share_a_running_kernel(tmp_path: Path, server: Host) -> None:
    where = ["--server", server.info.url]
    with ExecClient(server.info) as client, client.standard_session() as person:
        person.run("x = 41")
        started = jupyter_exec(tmp_path, "session", "start", "--attach", person.id, *where, **at(server))
        session_id = started.stdout.strip()
        done = jupyter_exec(tmp_path, "run", "-c", "print(x + 1)", "--session", session_id, *where, **at(server))
        assert done.stdout == "42\n"
        assert f"(attached to {person.id})" in jupyter_exec(tmp_path, "session", "list", *where, **at(server)).stdout
        assert jupyter_exec(tmp_path, "session", "stop", session_id, *where, **at(server)).returncode == 0
        assert person.run("print(x)").stdout == "41\n"
    both = jupyter_exec(tmp_path, "session", "start", "--attach", "x", "--kernel", "python3", *where, **at(server))
    assert both.returncode == 2


def test_files_go_up_and_come_down(tmp_path: Path, server: Host) -> None:
    where = ["--server", server.info.url]

    def run(*args: str) -> str:
        done = jupyter_exec(tmp_path, *args, *where, **at(server))
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""  # no progress bar where nobody looks
        return done.stdout

    (tmp_path / "in.txt").write_text("21")
    session_id = run("session", "start").strip()
    run("file", "upload", session_id, "in.txt", "data/in.txt")
    run("run", "--session", session_id, "-c", "open('out\\x1b[1m', 'w').write('42')")
    listed = run("file", "list", session_id, "--sha256").splitlines()
    assert [line.split()[0] for line in listed] == ["2", "2"]
    assert listed[0].endswith("  data/in.txt")
    assert listed[1].endswith("'out\\x1b[1m'")
    run("session", "stop", session_id)
    (tmp_path / "down").mkdir()
    assert run("file", "download", session_id, "data/in.txt", "down") == "down/in.txt\n"
    assert (tmp_path / "down" / "in.txt").read_text() == "21"
    run("file", "delete", session_id, "data/in.txt", "out\x1b[1m")
    assert run("file", "list", session_id) == ""


def test_output_beyond_the_cap_is_announced_and_downloadable(tmp_path: Path, server: Host) -> None:
    where = ["--server", server.info.url]
    code = "for i in range(10): print('x' * 999_999)"
    done = jupyter_exec(tmp_path, "run", "-c", code, *where, **at(server))
    assert done.returncode == 0
    advice = done.stderr.splitlines()[-1]
    assert advice.endswith("NAME (of stdout)")
    execution_id = advice.split("download ")[1].split()[0]
    listed = jupyter_exec(tmp_path, "output", "list", execution_id, *where, **at(server))
    assert (listed.stdout.split(), listed.stderr) == (["10000000", "stdout", "text/plain"], "")
    done = jupyter_exec(tmp_path, "output", "download", execution_id, "stdout", "all.txt", *where, **at(server))
    assert (done.stdout, done.stderr) == ("all.txt\n", "")
    assert (tmp_path / "all.txt").read_text() == ("x" * 999_999 + "\n") * 10
    missing = jupyter_exec(tmp_path, "output", "download", execution_id, "nope", *where, **at(server))
    assert missing.returncode == 3
    assert "there are: stdout" in missing.stderr


def test_a_transfer_shows_its_progress_on_a_terminal(tmp_path: Path, server: Host) -> None:
    (tmp_path / "in.bin").write_bytes(bytes(3 * 2**20))
    where = ["--server", server.info.url]
    session_id = jupyter_exec(tmp_path, "session", "start", *where, **at(server)).stdout.strip()
    terminal, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        args = command("file", "upload", session_id, "in.bin", *where)
        env = clean_environment(tmp_path, **at(server)["env"])
        subprocess.run(args, cwd=tmp_path, env=env, stderr=end, check=True, timeout=60)
        shown = os.read(terminal, 65536).decode()
    finally:
        os.close(terminal)
        os.close(end)
    assert "in.bin: 100%" in shown
    assert "3.00M/3.00M" in shown


def test_temporary_gateway_runs_in_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("here")
    assert jupyter_exec(tmp_path, "run", "-c", "print(open('in.txt').read())").stdout == "here\n"


def test_a_server_without_our_api_runs_code_too(tmp_path: Path) -> None:
    with running_host("server", tmp_path / "plain", "--ExecExtensionApp.enabled=False") as plain:
        done = jupyter_exec(tmp_path, "run", "-c", "print(1)", "--server", plain.info.url, **at(plain))
        listed = jupyter_exec(tmp_path, "session", "list", "--server", plain.info.url, **at(plain))
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert (listed.returncode, "has no exec/v1 API" in listed.stderr) == (3, True)


def test_the_token_is_read_from_a_file(tmp_path: Path, server: Host) -> None:
    (tmp_path / "token").write_text(f"{server.info.token}\n")
    done = jupyter_exec(tmp_path, "run", "-c", "1", "--server", server.info.url, "--token-file", "token")
    assert done.stdout == "1\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "-c", "1", "--server", "http://127.0.0.1:1/"], "nothing listens at http://127.0.0.1:1/"),
        (["run", "-c", "1", "--server", "ftp://x/"], "https://host:port/path/"),
        (["session", "list"], "name it with --server URL"),
    ],
)
def test_failure_prints_one_sentence_with_the_remedy(tmp_path: Path, args: list[str], words: str) -> None:
    done = jupyter_exec(tmp_path, *args)
    assert done.returncode == 3
    assert done.stderr.startswith("jupyter exec: ")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "missing.py"], "missing.py"),
        (["run", "latin1.py"], "cannot be read"),
        (["run", "-c", "1", "--output-dir", "latin1.py"], "--output-dir"),
        (["run", "-c", "1", "--timeout", "-1"], "--timeout"),
        (["run", "-c", "1", "--timeout", "nan"], "--timeout"),
        (["run", "-c", "1", "--server", "http://h/", "--token-file", "missing"], "--token-file"),
    ],
)
def test_unusable_arguments_exit_with_2(tmp_path: Path, args: list[str], words: str) -> None:
    (tmp_path / "latin1.py").write_bytes("print('ü')".encode("latin-1"))
    done = jupyter_exec(tmp_path, *args)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]


# --- leaving ---


@pytest.fixture
def shared(server: Host) -> Iterator[ExecSession]:
    """A session in which somebody else works, too."""
    with ExecClient(server.info) as client, client.session() as session:
        yield session


def test_ctrl_c_ends_our_code_and_no_other(tmp_path: Path, server: Host, shared: ExecSession) -> None:
    others = shared.submit("import time; time.sleep(6); print('undisturbed')")
    with subprocess.Popen(
        command("run", "-c", "mine = 1", "--session", shared.id, "--server", server.info.url),
        env=clean_environment(tmp_path, JUPYTER_TOKEN=str(server.info.token)),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    ) as process:
        while len(shared.list_executions()) < 2:
            time.sleep(0.05)
        time.sleep(0.3)  # until the command follows it
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130
    assert others.result().stdout == "undisturbed\n"
    assert shared.run("print('mine' in globals())").stdout == "False\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_command_that_is_ended_leaves_nothing_on_the_server(tmp_path: Path, server: Host, name: str) -> None:
    with ExecClient(server.info) as client:
        before = {session.id for session in client.list_sessions()}
    with subprocess.Popen(
        command("run", "-c", "print('go', flush=True)\nimport time; time.sleep(60)", "--server", server.info.url),
        env=clean_environment(tmp_path, JUPYTER_TOKEN=str(server.info.token)),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        number = getattr(signal, name)
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == 128 + number
    with ExecClient(server.info) as client:
        assert {session.id for session in client.list_sessions()} <= before


@pytest.mark.parametrize(("key", "words"), [(b"\x03", ""), (b"\x04", "no more input")], ids=["ctrl-c", "ctrl-d"])
def test_end_of_input_cancels_the_code(tmp_path: Path, server: Host, key: bytes, words: str) -> None:
    terminal, end = pty.openpty()
    with subprocess.Popen(
        command("run", "-c", "print('hi', input('name? '))", "--server", server.info.url),
        env=clean_environment(tmp_path, JUPYTER_TOKEN=str(server.info.token)),
        cwd=tmp_path,
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(end)
        shown = b""
        while b"name? " not in shown:
            shown += os.read(terminal, 1000)
        for _ in range(4):  # Python's `input` misses a Ctrl-C that comes between its prompt and its reading
            os.write(terminal, key)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
                break
        assert process.wait(30) == 130
        assert words.encode() in os.read(terminal, 1000)
    os.close(terminal)


def test_broken_pipe_is_silent(tmp_path: Path, server: Host) -> None:
    code = "import time\nfor i in range(500): print(i, flush=True); time.sleep(0.01)"
    with subprocess.Popen(
        command("run", "-c", code, "--server", server.info.url),
        env=clean_environment(tmp_path, JUPYTER_TOKEN=str(server.info.token)),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 141


def test_a_closed_standard_input_and_a_narrow_encoding_do_no_harm(tmp_path: Path, server: Host) -> None:
    at_server = {"JUPYTER_TOKEN": str(server.info.token), "PYTHONIOENCODING": "ascii"}
    line = shlex.join(command("run", "-c", "print('größe')", "--server", server.info.url)) + " <&-"
    done = subprocess.run(
        line,
        shell=True,
        env=clean_environment(tmp_path, **at_server),
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"gr??e\n", b"")


def test_a_module_in_the_current_directory_is_not_taken_for_the_gateways(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "jupyter_core.py").write_text("raise SystemExit('shadowed')")
    executable = Path(sys.executable).parent / "jupyter-exec"
    done = subprocess.run(
        [executable, "run", "-c", "print(1)"],
        env=clean_environment(tmp_path),
        cwd=tmp_path / "mine",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_wrong_token_is_a_sentence_too(tmp_path: Path, server: Host) -> None:
    done = jupyter_exec(tmp_path, "run", "-c", "1", "--server", server.info.url, env={"JUPYTER_TOKEN": "wr0ng"})
    assert done.returncode == 3
    assert "pass --token-file or set JUPYTER_TOKEN" in done.stderr
    assert "wr0ng" not in done.stderr


# --- serve ---


def wait_for_line(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"the command ended without saying {words!r}")


@pytest.fixture(params=["--gateway", ""])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server that `jupyter exec serve` started, and its port."""
    port = free_port()
    args = [*([request.param] if request.param else []), "--port", str(port), "--token-file", "token"]
    options = ["--allow-root"] if request.param else ["--", "--allow-root"]
    with subprocess.Popen(
        command("serve", *args, *options),
        env=clean_environment(tmp_path),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        wait_for_line(process, "Serving exec/v1")
        yield process, port
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_serve_is_found_and_used_and_stops_cleanly(tmp_path: Path, served: tuple[subprocess.Popen[str], int]) -> None:
    process, port = served
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    done = jupyter_exec(tmp_path, "run", "-c", "print('found')", "--server", "auto")
    assert (done.returncode, done.stdout) == (0, "found\n"), done.stderr
    url = f"http://127.0.0.1:{port}/"
    session = jupyter_exec(tmp_path, "session", "start")
    assert session.stdout.startswith("ses_"), session.stderr
    healthy = jupyter_exec(tmp_path, "doctor", "--server", url, "--token-file", "token")
    assert (healthy.returncode, "FAIL" in healthy.stdout) == (0, False), healthy.stdout
    assert (tmp_path / "token").read_text().strip() not in str(psutil.Process(process.pid).cmdline())
    kernels = psutil.Process(process.pid).children(recursive=True)
    assert kernels
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    _, alive = psutil.wait_procs(kernels, timeout=30)
    assert alive == []
    assert not list((tmp_path / "run").glob("jpserver-*"))


@pytest.mark.parametrize("options", [["--gateway"], []])
def test_an_empty_token_file_opens_no_server(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "token").write_text(" \n")
    done = jupyter_exec(tmp_path, "serve", *options, "--port", "0", "--token-file", "token")
    assert done.returncode == 3
    assert "is empty" in done.stderr


def test_a_token_file_is_made_whole_and_only_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with ThreadPoolExecutor(8) as pool:
        tokens = {token for token, _ in pool.map(token_to_demand, [str(file)] * 8)}
    assert tokens == {file.read_text().strip()}
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.glob("*token*")] == ["token"]


@pytest.mark.parametrize("options", [["--gateway"], []])
def test_a_new_token_is_shown_once(tmp_path: Path, options: list[str]) -> None:
    with subprocess.Popen(
        command("serve", *options, "--port", "0", "--allow-root"),
        env=clean_environment(tmp_path),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        url = wait_for_line(process, "Serving exec/v1 at").split()[-1]
        token = wait_for_line(process, "Token:").split()[-1]
        done = jupyter_exec(tmp_path, "run", "-c", "print(1)", "--server", url, env={"JUPYTER_TOKEN": token})
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=30)
    assert done.stdout == "1\n"
    assert token not in rest
    assert process.returncode == 0


# --- doctor and help ---


def test_the_doctor_finds_this_installation_healthy(tmp_path: Path) -> None:
    done = jupyter_exec(tmp_path, "doctor", "--verbose")
    assert done.returncode == 0, done.stdout
    assert "FAIL" not in done.stdout
    for words in ("jupyter-server", "the server extension is enabled", "kernelspec python3", "code runs in kernel"):
        assert words in done.stdout


def test_doctor_prints_remedies(tmp_path: Path) -> None:
    disabled = '{"ServerApp": {"jpserver_extensions": {"jupyter_exec_ext": false}}}'
    (tmp_path / "jupyter_server_config.json").write_text(disabled)
    done = jupyter_exec(tmp_path, "doctor", env={"JUPYTER_CONFIG_PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "FAIL  the server extension is disabled" in done.stdout
    assert "-> jupyter server extension enable jupyter_exec_ext" in done.stdout


def test_the_doctor_looks_at_a_server(tmp_path: Path, server: Host) -> None:
    done = jupyter_exec(tmp_path, "doctor", "--verbose", "--server", server.info.url, **at(server))
    assert done.returncode == 0
    assert "jupyter_server 2." in done.stdout
    with running_host("server", tmp_path / "plain", "--ExecExtensionApp.enabled=False") as plain:
        done = jupyter_exec(tmp_path, "doctor", "--server", plain.info.url, **at(plain))
    assert done.returncode == 1
    assert "-> the server has no exec/v1 API; install jupyter_exec_ext there" in done.stdout


def test_doctor_reports_an_unreachable_server(tmp_path: Path) -> None:
    done = jupyter_exec(tmp_path, "doctor", "--server", f"http://127.0.0.1:{free_port()}/")
    assert done.returncode == 1
    assert "nothing listens at" in done.stdout
    assert "-> start the server" in done.stdout


def test_gateway_start_does_not_import_the_iri_grammar() -> None:
    code = """
import sys
sys.modules.pop("rfc3987_syntax", None)  # an environment may have done without it from the beginning
import jupyter_exec_ext.cli.managed_gateway
assert "jsonschema" in sys.modules and "lark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_command_explains_itself(tmp_path: Path) -> None:
    for args in (
        [],
        ["run"],
        ["session"],
        ["session", "list"],
        ["session", "start"],
        ["file", "list"],
        ["output", "list"],
        ["kernelspec"],
        ["kernelspec", "list"],
        ["serve"],
        ["doctor"],
    ):
        done = jupyter_exec(tmp_path, *args, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith("usage: jupyter exec")


def test_wrong_usage_exits_with_2() -> None:
    for args in (["run"], ["run", "x", "-c", "y"], ["session", "stop"], ["session", "nope"], ["nope"]):
        with pytest.raises(SystemExit) as caught:
            raise SystemExit(main(args))
        assert caught.value.code == 2


def test_jupyter_exec_is_a_jupyter_command(tmp_path: Path) -> None:
    jupyter = Path(sys.executable).parent / "jupyter"
    env = clean_environment(tmp_path, PATH=f"{jupyter.parent}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(
        [jupyter, "exec", "--version"], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip()
