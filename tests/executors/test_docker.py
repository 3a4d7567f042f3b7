"""`DockerJupyterServer` on a real engine: what runs, what it may do, how it is reached, and that it ends."""

from __future__ import annotations

import contextlib
import gc
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

import jupyter_exec_ext
from jupyter_exec_ext import CodeBlock, DockerJupyterServer, JupyterCodeExecutor
from jupyter_exec_ext.executors.containers import container_image as image_module
from jupyter_exec_ext.executors.containers.container_engine import is_gone
from jupyter_exec_ext.executors.containers.container_image import build_own_wheel
from tests.client.test_fork_safety import child
from tests.executors.images import build, containers_of
from tests.executors.seed_examples import AGENT, DOCKER, DOCKERFILE, LOCAL_PRINTS
from tests.support import canaries
from tests.support.container_engines import BASE, engine_over_tcp, own_address
from tests.support.full import IS_FULL, only_in_full

# The first test of a session may have to make the images.
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("engine")]


def run_code(server: DockerJupyterServer, code: str) -> str:
    with JupyterCodeExecutor(server) as executor:
        return executor.execute_code_blocks([CodeBlock(code, "python")]).output


def container_of(engine: Any, server: DockerJupyterServer) -> Any:
    return engine.containers.get(server._container.id)


def wait_until_gone(engine: Any, container_id: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_gone(engine, container_id):
        assert time.monotonic() < deadline, "the container is still there"
        time.sleep(0.1)


@pytest.fixture(params=["ours", "custom"])
def image(request: pytest.FixtureRequest) -> str | None:
    """The image of this package, and one that has nothing of it."""
    return None if request.param == "ours" else str(request.getfixturevalue("seeds_image"))


@pytest.fixture(scope="module")
def shared(engine: Any) -> Iterator[DockerJupyterServer]:
    with DockerJupyterServer() as server:
        canaries.note(str(server.connection_info.token))
        yield server


@only_in_full
def test_the_seeds_example_prints_what_the_seed_prints(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DOCKER], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == LOCAL_PRINTS
    assert done.stderr == ""


def test_the_dockerfile_can_be_seen_as_in_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    exec(DOCKERFILE, {"DockerJupyterServer": DockerJupyterServer})
    assert capsys.readouterr().out.startswith("FROM ")
    assert ":" in BASE and not BASE.endswith(":latest")


@only_in_full
def test_a_server_that_is_left_to_the_end_of_the_program_ends_with_it(tmp_path: Path, engine: Any) -> None:
    code = f"""{AGENT}
from jupyter_exec_ext import CodeBlock
picture = "from IPython.display import Image, display; import base64; display(Image(base64.b64decode(" \
    "'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=')))"
result = code_execution_config["executor"].execute_code_blocks([CodeBlock(picture, "python")])
print(result.output_files[0], server._container.id)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    picture, container_id = done.stdout.split()
    assert Path(tmp_path, picture).read_bytes().startswith(b"\x89PNG")
    assert Path(picture).parent.name == "coding"
    assert is_gone(engine, container_id)
    assert done.stderr == ""


@only_in_full
def test_an_image_that_only_meets_the_seeds_requirements_works(seeds_image: str) -> None:
    with DockerJupyterServer(custom_image_name=seeds_image, token="chosen", docker_env={"MODE": "test"}) as server:
        assert server.connection_info.token == "chosen"
        assert requests.get(f"{server.connection_info.url}api/kernels", timeout=10).status_code in (401, 403)
        with JupyterCodeExecutor(server) as executor:
            results = [
                executor.execute_code_blocks([CodeBlock(code, "python")])
                for code in ("import os, matplotlib, numpy; x = os.environ['MODE']", "print(x)", "1 / 0")
            ]
    assert results[1].output == "test\n"
    assert [result.exit_code for result in results] == [0, 0, 1]


def test_an_image_built_from_ours_keeps_its_token_to_itself(engine: Any) -> None:
    version = build_own_wheel().version
    name = build(engine, "jupyter-exec-test-derived", f"FROM {image_module.REPOSITORY}:{version}\nENV EXTRA=1\n")
    with DockerJupyterServer(custom_image_name=name) as server:
        assert str(server.connection_info.token) not in str(container_of(engine, server).attrs)
        with server.get_client() as client:
            assert client.info()["host"] == "kernel_gateway"


def test_the_image_is_built_once_and_again_when_what_it_is_made_of_changes(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    first = image_module.find_or_build_default_image(engine, told.append, "host")
    assert told == []
    monkeypatch.setattr(image_module, "DOCKERFILE", image_module.DOCKERFILE + "LABEL another=1\n")
    other = image_module.find_or_build_default_image(engine, told.append, "host")
    assert other.id != first.id
    assert any("building" in line for line in told) and any("LABEL another" in line for line in told)
    engine.images.remove(other.id, force=True)


def test_a_build_that_fails_says_why(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "DOCKERFILE", f"FROM {BASE}\nRUN echo broken on purpose; exit 3\n")
    with pytest.raises(ValueError, match=r"cannot be built(.|\n)*broken on purpose"):
        image_module.find_or_build_default_image(engine, lambda line: None, "host")


def test_the_code_cannot_read_the_token(engine: Any, shared: DockerJupyterServer) -> None:
    """It looks where a process of the same user could; and the engine's records do not have it either."""
    look = """
import os, pathlib
found, denied = [], []
for process in pathlib.Path("/proc").glob("[0-9]*"):
    for name in ("cmdline", "environ", "mem"):
        try:
            with open(process / name, "rb") as file:
                found.append((process.name, name))
                if name != "mem":
                    print(file.read())
        except OSError:
            denied.append((process.name, name))
parent = str(os.getppid())
print((parent, "cmdline") in found, (parent, "environ") in denied, (parent, "mem") in denied)
for path in [*pathlib.Path.home().rglob("*"), *pathlib.Path("/tmp").rglob("*"), *pathlib.Path("/run").rglob("*")]:
    try:
        print(path.read_bytes())
    except OSError:
        pass
"""
    output = run_code(shared, look)
    token = shared.connection_info.token
    assert "True True True" in output
    assert "managed_gateway" in output
    assert token and token not in output
    container = container_of(engine, shared)
    assert token not in str(container.attrs)
    assert token.encode() not in container.logs()
    assert token not in repr(shared)


def test_container_has_no_capabilities(shared: DockerJupyterServer) -> None:
    status = run_code(shared, "print(open('/proc/self/status').read())").splitlines()
    values = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    assert values["CapBnd"] == values["CapEff"] == "0" * 16
    assert values["NoNewPrivs"] == "1"
    assert values["Uid"].split()[0] != "0"


def test_it_is_published_to_this_machine_alone(engine: Any, shared: DockerJupyterServer) -> None:
    ports = container_of(engine, shared).attrs["NetworkSettings"]["Ports"]
    assert {binding["HostIp"] for bindings in ports.values() for binding in bindings or ()} == {"127.0.0.1"}
    info = shared.connection_info
    assert (info.host, info.use_https) == ("127.0.0.1", False)
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://{own_address()}:{info.port}/", timeout=5)


def test_two_servers_have_nothing_in_common(shared: DockerJupyterServer) -> None:
    with DockerJupyterServer() as other:
        assert other.connection_info.token != shared.connection_info.token
        assert other.connection_info.port != shared.connection_info.port
        run_code(shared, "open('/tmp/one', 'w').close()")
        assert run_code(other, "import os; print(os.path.exists('/tmp/one'))") == "False\n"
        wrong = {"Authorization": f"token {shared.connection_info.token}"}
        assert requests.get(f"{other.connection_info.url}exec/v1", headers=wrong, timeout=10).status_code == 401


def test_limits_are_in_force(image: str | None) -> None:
    """In either kind of image: a memory hog dies and the server lives on, so does one that forks; so is time shared."""
    count = """
import subprocess
started = []
try:
    for _ in range(200):
        started.append(subprocess.Popen(["sleep", "60"]))
except OSError as error:
    print(len(started) < 100, type(error).__name__)
for process in started:
    process.kill()
    process.wait()
"""
    burn = """
import os, time
children = [os.fork() for _ in range(1)]
if 0 in children:
    end = time.monotonic() + 20
    while time.monotonic() < end: pass
    os._exit(0)
began, used = time.monotonic(), time.process_time()
while time.monotonic() - began < 4: pass
share = (time.process_time() - used) / (time.monotonic() - began)
os.kill(children[0], 9)
os.waitpid(children[0], 0)
print(share < 0.4)
"""
    with (
        DockerJupyterServer(custom_image_name=image, memory="300m", cpus=0.5, max_processes=100) as server,
        server.get_client() as client,
        client.session() if image is None else client.standard_session() as session,
    ):
        hog = session.run("data = bytearray(10**9)\nfor i in range(0, 10**9, 4096): data[i] = 1")
        assert hog.state.value in ("oom_killed", "kernel_died"), hog
        assert session.run("print(1)").stdout == "1\n"
        assert session.run(count).stdout.startswith("True ")
        assert session.run(burn).stdout == "True\n"


CONNECT = """
import socket
try:
    socket.create_connection(({address!r}, {port}), 3)
    print("reached")
except OSError as error:
    print(error)
"""


@pytest.fixture
def listening() -> Iterator[str]:
    """Code that tries to connect to a server of this machine which listens to others."""
    with http.server.ThreadingHTTPServer((own_address(), 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield CONNECT.format(address=own_address(), port=server.server_port)
        server.shutdown()


@only_in_full
def test_the_network_is_as_asked(engine: Any, shared: DockerJupyterServer, listening: str) -> None:
    assert run_code(shared, listening) == "reached\n"
    before = {network.name for network in engine.networks.list()}
    with DockerJupyterServer(internet=False) as server:
        assert "unreachable" in run_code(server, listening)
        assert not any(container_of(engine, server).attrs["NetworkSettings"]["Ports"].values())
    assert {network.name for network in engine.networks.list()} == before


@only_in_full
def test_a_network_can_be_named(engine: Any, listening: str) -> None:
    network = engine.networks.create("jupyter-exec-test-internal", internal=True)
    try:
        with DockerJupyterServer(network=network.name) as server:
            assert "unreachable" in run_code(server, listening)
    finally:
        network.remove()
    for name in ("jupyter-exec-test-no-such", "host", "none"):
        with pytest.raises(ValueError, match=name):
            DockerJupyterServer(network=name)


def test_a_remote_engines_host_is_named(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is here, but under a name of another machine, as far as it is told."""
    address, name = own_address(), "engine.example"
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: resolve(address if host == name else host, *rest, **more)
    )
    with engine_over_tcp(address) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://{name}:{port}")
        with DockerJupyterServer() as server:
            assert server.connection_info.host == name
            ports = container_of(engine, server).attrs["NetworkSettings"]["Ports"]["8888/tcp"]
            assert [binding["HostIp"] for binding in ports] == [address]
            assert run_code(server, "print(1)") == "1\n"
        with pytest.raises(ValueError, match="bind_dir"):
            DockerJupyterServer(bind_dir=".")
        with pytest.raises(ValueError, match="another machine"):
            DockerJupyterServer(internet=False)


def test_a_directory_can_be_shared_and_keeps_its_mode(image: str | None, tmp_path: Path) -> None:
    """Ours runs as the directory's owner; the other one as it always does, so that others must be let in there."""
    directory = tmp_path / "work"
    directory.mkdir()
    mode = 0o750 if image is None else 0o757
    directory.chmod(mode)
    (directory / "data.txt").write_text("42")
    if image is None:  # what another image does with modules of the working directory is its own affair
        (directory / "secrets.py").write_text("raise SystemExit('shadowed')")
    owner = 12345 if os.getuid() == 0 else os.getuid()
    os.chown(directory, owner, -1)
    with DockerJupyterServer(custom_image_name=image, bind_dir=directory) as server:
        code = "print(open('data.txt').read()); open('made.txt', 'w').write('x'); import os; print(os.getcwd())"
        assert run_code(server, code) == "42\n/workspace\n"
    assert (directory / "made.txt").read_text() == "x"
    assert image is not None or (directory / "made.txt").stat().st_uid == owner
    assert directory.stat().st_mode & 0o777 == mode
    with pytest.raises(ValueError, match="no directory"):
        DockerJupyterServer(bind_dir=tmp_path / "absent")


def test_environment_reaches_the_kernels_but_cannot_change_the_token(engine: Any) -> None:
    with DockerJupyterServer(docker_env={"MODE": "test"}) as server:
        assert run_code(server, "import os; print(os.environ['MODE'], os.environ.get('TOKEN'))") == "test None\n"
    with pytest.raises(ValueError, match="TOKEN"):
        DockerJupyterServer(docker_env={"TOKEN": "other"})
    with pytest.raises(ValueError, match="is not allowed with this image"):
        DockerJupyterServer(
            token="", custom_image_name=image_module.find_or_build_default_image(engine, print, "host").id
        )


@pytest.mark.parametrize(
    ("command", "timeout_seconds", "words"),
    [
        ("echo broken on purpose; exit 3", 60.0, r"ended before it answered(.|\n)*broken on purpose"),
        ("echo waiting; sleep 600", 2.0, r"not ready within 2 s(.|\n)*waiting"),
        ("echo it is $TOKEN; sleep 600", 2.0, r"it is \*\*\*"),
        (
            "python -m jupyter kernelgateway --KernelGatewayApp.ip=0.0.0.0 --KernelGatewayApp.auth_token=own",
            60.0,
            "respect TOKEN",
        ),
    ][:: 1 if IS_FULL else 2],
    ids=["ends", "does not answer", "prints its token", "has another token"][:: 1 if IS_FULL else 2],
)
@only_in_full
def test_container_is_ready_when_server_answers(
    engine: Any, seeds_image: str, command: str, timeout_seconds: float, words: str
) -> None:
    name = build(engine, "jupyter-exec-test-other", f"FROM {seeds_image}\nCMD {command}\n")
    with pytest.raises(ValueError, match=words):
        DockerJupyterServer(custom_image_name=name, startup_timeout_seconds=timeout_seconds)
    assert containers_of(engine, name) == []


@only_in_full
def test_a_name_can_be_chosen_and_used_again(engine: Any) -> None:
    for _ in range(2):
        with DockerJupyterServer(container_name="jupyter-exec-test-name") as server:
            assert container_of(engine, server).name == "jupyter-exec-test-name"
            with pytest.raises(ValueError, match="jupyter-exec-test-name"):
                DockerJupyterServer(container_name="jupyter-exec-test-name")


def test_a_container_that_is_not_to_be_removed_is_stopped_and_kept(engine: Any) -> None:
    with DockerJupyterServer(auto_remove=False) as server:
        pass
    container = container_of(engine, server)
    assert container.status == "exited"
    container.remove()
    server.stop()


def test_a_container_that_is_not_to_be_stopped_goes_on(engine: Any, image: str | None, tmp_path: Path) -> None:
    code = f"""
from jupyter_exec_ext import DockerJupyterServer
with DockerJupyterServer(custom_image_name={image!r}, stop_container=False, token="chosen") as server:
    print(server._container.id, server.connection_info.port)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    container_id, port = done.stdout.split()
    try:
        info = jupyter_exec_ext.JupyterConnectionInfo("127.0.0.1", False, int(port), "chosen")
        with JupyterCodeExecutor(info) as executor:
            assert executor.execute_code_blocks([CodeBlock("print(1)", "python")]).output == "1\n"
    finally:
        engine.containers.get(container_id).stop(timeout=1)
    wait_until_gone(engine, container_id)


def test_forked_child_that_leaves_block_keeps_container() -> None:
    with DockerJupyterServer() as server:
        with child(lambda: server.__exit__(SystemExit, SystemExit(), None)), child(server.stop):
            pass
        assert run_code(server, "print(1)") == "1\n"


def test_stop_works_after_context_that_keeps_container(engine: Any) -> None:
    with DockerJupyterServer(stop_container=False) as server:
        pass
    assert run_code(server, "print(1)") == "1\n"
    server.stop()
    assert is_gone(engine, server._container.id)


PARENT = """
import os, sys, time
from jupyter_exec_ext import CodeBlock, DockerJupyterServer, JupyterCodeExecutor
server = DockerJupyterServer(custom_image_name={image!r}, internet={internet})
JupyterCodeExecutor(server).execute_code_blocks([CodeBlock("1", "python")])
if {fork} and os.fork() == 0: time.sleep(60)
print(server._container.id, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("ours", "signal_name", "internet", "fork"),
    [
        (True, "SIGKILL", False, False),
        (True, "SIGKILL", True, True),
        (True, "SIGTERM", True, False),
        (False, "SIGKILL", True, False),
    ][:: 1 if IS_FULL else 2],
    ids=[
        "killed, with a network",
        "killed, and a forked relative is left",
        "terminated",
        "killed, with a custom image",
    ][:: 1 if IS_FULL else 2],
)
@only_in_full
def test_nothing_outlives_a_parent_that_is_killed(
    engine: Any, seeds_image: str, ours: bool, signal_name: str, internet: bool, fork: bool
) -> None:
    image = None if ours else seeds_image
    networks = {network.name for network in engine.networks.list()}
    code = PARENT.format(image=image, internet=internet, fork=fork)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        container_id = parent.stdout.readline().strip()
        assert not is_gone(engine, container_id)
        processes = psutil.Process(parent.pid).children()
        parent.send_signal(getattr(signal, signal_name))
        parent.wait(10)
        wait_until_gone(engine, container_id)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []
    assert {network.name for network in engine.networks.list()} == networks


def test_without_a_watchdog_no_container_and_no_network_is_left(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, networks = "jupyter-exec-test-unwatched", {network.name for network in engine.networks.list()}
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match="absent"):
        DockerJupyterServer(internet=False, container_name=name)
    assert not [each for each in engine.api.containers(all=True) if f"/{name}" in each["Names"]]
    assert {network.name for network in engine.networks.list()} <= networks


def test_default_image_ends_with_its_input_without_watchdog(engine: Any) -> None:
    """As when the whole machine of the agent is lost: the engine alone sees that the connection is gone."""
    code = PARENT.format(image=None, internet=True, fork=False)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        container_id = parent.stdout.readline().strip()
        for watchdog in psutil.Process(parent.pid).children():
            watchdog.kill()
        parent.kill()
    wait_until_gone(engine, container_id)


def test_the_container_can_be_gone_when_it_is_stopped(engine: Any) -> None:
    server = DockerJupyterServer()
    container_of(engine, server).remove(force=True)
    server.stop()
    server.stop()


@only_in_full
def test_starting_and_stopping_leaves_no_thread_process_or_descriptor() -> None:
    def use() -> tuple[int, int, int]:
        with DockerJupyterServer() as server:
            run_code(server, "1")
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd")), len(psutil.Process().children())

    threads, descriptors, processes = use()
    threads_later, descriptors_later, processes_later = use()
    assert threads_later <= threads
    assert descriptors_later <= descriptors
    assert processes_later <= processes


def test_a_flood_of_output_does_not_freeze_it(shared: DockerJupyterServer) -> None:
    run_code(shared, "import os\nfor _ in range(3000): os.write(1, b'x' * 1000 + b'\\n')")
    assert run_code(shared, "print('alive')") == "alive\n"


INSIDE = """
from jupyter_exec_ext import CodeBlock, DockerJupyterServer, JupyterCodeExecutor
with DockerJupyterServer(bind_dir="/shared") as server, JupyterCodeExecutor(server) as executor:
    print(executor.execute_code_blocks([CodeBlock("print(open('data.txt').read())", "python")]).output)
    print(server.connection_info.host, server.connection_info.port)
for more in ({"bind_dir": "/etc"}, {"internet": False}):
    try:
        DockerJupyterServer(**more)
    except ValueError as error:
        print(error)
"""


@only_in_full
def test_it_works_from_inside_a_container(engine: Any, tmp_path: Path) -> None:
    """The program's container has the engine's socket, and what Docker's library takes."""
    (tmp_path / "data.txt").write_text("42")
    os.chmod(tmp_path, 0o755)
    socket_path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    library = Path(sys.modules["docker"].__path__[0])
    output = engine.containers.run(
        image_module.find_or_build_default_image(engine, print, "host").id,
        ["python", "-c", INSIDE],
        user="0",
        environment={"DOCKER_HOST": "unix:///engine.sock", "PYTHONPATH": "/library"},
        volumes={
            socket_path: {"bind": "/engine.sock", "mode": "rw"},
            str(library): {"bind": "/library/docker", "mode": "ro"},
            str(tmp_path): {"bind": "/shared", "mode": "rw"},
        },
        remove=True,
        stderr=True,
    ).decode()
    lines = output.split("\n")
    assert lines[0] == "42", output
    assert lines[2].endswith(" 8888")
    assert "only what is mounted" in output
    assert "docker network create --internal" in output


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the library leaves a socket open
def test_an_engine_that_does_not_answer_and_a_missing_library_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    with pytest.raises(ConnectionError, match=r"start Docker .*DOCKER_HOST"):
        DockerJupyterServer()
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(ImportError, match=r"pip install 'jupyter-exec-ext\[docker\]'"):
        DockerJupyterServer()
    gc.collect()


@only_in_full
def test_missing_image_is_reported_by_name() -> None:
    with pytest.raises(ValueError, match=r"Custom image localhost:1/no-such-image:1 does not exist"):
        DockerJupyterServer(custom_image_name="localhost:1/no-such-image:1")
