"""What belongs to the hosts themselves: the stock API is unharmed, their options hold, and they start closed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import websocket

from jupyter_exec_ext.client import ExecClient
from jupyter_exec_ext.errors import ApiNotFound, InvalidRequest, TooManyKernels
from tests.support.bearers import mint
from tests.support.full import only_in_full
from tests.support.hosts import Host, clean_environment, running_host


def stock(host: Host, method: str, path: str, **options: Any) -> requests.Response:
    return requests.request(method, f"{host.info.url}api/{path}", headers=host.info.auth_headers, timeout=60, **options)


@pytest.fixture(params=["server", "server-base-url", "gateway"])
def host(request: pytest.FixtureRequest, hosts: Any) -> Host:
    started: Host = hosts[request.param]
    return started


def test_the_stock_endpoints_answer_as_before(host: Host) -> None:
    specs = stock(host, "GET", "kernelspecs").json()
    assert "python3" in specs["kernelspecs"]
    created = stock(host, "POST", "kernels", json={"name": "python3"})
    assert created.status_code == 201
    kernel = created.json()
    assert set(kernel) >= {"id", "name", "last_activity", "execution_state", "connections"}
    assert created.headers["Location"] == f"{host.info.base_url}api/kernels/{kernel['id']}"
    assert kernel["id"] in {listed["id"] for listed in stock(host, "GET", "kernels").json()}
    assert stock(host, "GET", f"kernels/{kernel['id']}").json()["name"] == "python3"
    assert stock(host, "POST", f"kernels/{kernel['id']}/interrupt").status_code == 204
    assert stock(host, "POST", f"kernels/{kernel['id']}/restart").status_code == 200
    assert stock(host, "DELETE", f"kernels/{kernel['id']}").status_code == 204
    assert stock(host, "GET", f"kernels/{kernel['id']}").status_code == 404
    model = {"path": "x.ipynb", "type": "notebook", "name": "", "kernel": {"name": "python3"}}
    session = stock(host, "POST", "sessions", json=model)
    assert session.status_code == 201
    assert stock(host, "DELETE", f"sessions/{session.json()['id']}").status_code == 204


def test_the_stock_endpoints_still_ask_for_the_token(host: Host) -> None:
    for method, path in (("GET", "kernels"), ("POST", "kernels"), ("GET", "kernelspecs"), ("GET", "sessions")):
        assert requests.request(method, f"{host.info.url}api/{path}", timeout=30).status_code in (401, 403)


def test_the_stock_websocket_still_runs_code(host: Host) -> None:
    with ExecClient(host.info) as client, client.standard_session() as session:
        assert session.run("print(6 * 7)").stdout == "42\n"


def test_a_sessions_kernel_is_one_of_the_hosts(host: Host) -> None:
    with ExecClient(host.info) as client, client.session() as session:
        kernel_id = session.record.kernel_id
        assert stock(host, "GET", f"kernels/{kernel_id}").json()["name"] == "python3"
    assert stock(host, "GET", f"kernels/{kernel_id}").status_code == 404


def test_session_is_a_connection_and_a_named_server_session(host: Host) -> None:
    agent = mint(host, name="ci")
    session_id = agent.session(name="analysis")
    (listed,) = (each for each in stock(host, "GET", "sessions").json() if each.get("path") == f"exec:{session_id}")
    assert (listed["name"], listed["type"], listed["kernel"]["connections"]) == ("analysis (ci)", "exec", 1)
    path = f"sessions/{listed['id']}"
    for method in ("GET", "PATCH", "DELETE"):
        url = f"{host.info.url}api/{path}"
        refused = requests.request(method, url, headers={"Authorization": f"token {agent.token}"}, json={}, timeout=30)
        assert refused.status_code in (401, 403)
    assert stock(host, "DELETE", path).status_code == 204
    deadline = time.monotonic() + 30
    while (left := agent.call("GET", f"/sessions/{session_id}").json())["state"] != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert left["ended_reason"] == "its kernel was shut down outside the session"
    answer = stock(host, "GET", "sessions")
    assert (answer.status_code, listed["id"] in answer.text) == (200, False)


# --- Kernel Gateway ---


def environment_of(host: Host, kernel_id: str) -> dict[str, str]:
    """Ask a kernel, over the stock WebSocket, for its environment."""
    url = f"{host.info.ws_url}api/kernels/{kernel_id}/channels?session_id=s"
    socket = websocket.create_connection(url, header=host.info.auth_headers, timeout=60)
    header = {
        "msg_id": "m",
        "msg_type": "execute_request",
        "session": "s",
        "username": "",
        "version": "5.3",
        "date": "",
    }
    content = {
        "code": "import os, json; print(json.dumps(dict(os.environ)))",
        "silent": False,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
    }
    request = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    socket.send(json.dumps({**request, "buffers": []}))
    try:
        while True:
            message = json.loads(socket.recv())
            if message["parent_header"].get("msg_id") == "m" and message["msg_type"] == "stream":
                environment: dict[str, str] = json.loads(message["content"]["text"])
                return environment
    finally:
        socket.close()


def test_ten_kernels_started_at_once_each_get_their_own_environment(hosts: Any) -> None:
    gateway: Host = hosts["gateway"]

    def start(number: int) -> str:
        body: dict[str, Any] = {"name": "python3"}
        if number % 3:  # every third one comes without an environment
            body["env"] = {"KERNEL_NUMBER": str(number), "NOT_ALLOWED": "x"}
        return str(stock(gateway, "POST", "kernels", json=body).json()["id"])

    with ThreadPoolExecutor(10) as pool:
        kernels = list(pool.map(start, range(10)))
    try:
        for number, kernel_id in enumerate(kernels):
            environment = environment_of(gateway, kernel_id)
            assert environment.get("KERNEL_NUMBER") == (str(number) if number % 3 else None)
            assert "NOT_ALLOWED" not in environment
            assert "KG_AUTH_TOKEN" not in environment
    finally:
        for kernel_id in kernels:
            stock(gateway, "DELETE", f"kernels/{kernel_id}")


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        '{"name": 5}',
        '{"env": []}',
        '{"env": {"KERNEL_A": 1}}',
        '{"path": 1}',
        '{"name": "no-such"}',
        '{"kernel_id": "../../x"}',
        '{"kernel_id": "a/b"}',
        '{"kernel_id": "\\u0000"}',
        '{"env": {"KERNEL_A": "\\u0000"}}',
        '{"env": {"KERNEL_A=B": "1"}}',
        '{"env": {"KERNEL_A": "\\ud800"}}',
    ],
)
def test_a_malformed_kernel_request_is_refused_without_a_traceback(hosts: Any, body: str) -> None:
    answer = stock(hosts["gateway"], "POST", "kernels", data=body)
    assert answer.status_code == 400
    assert "Traceback" not in answer.text


def test_a_default_kernelspec_that_is_not_installed_is_the_gateways_fault(tmp_path: Path) -> None:
    with running_host("gateway", tmp_path, "--KernelGatewayApp.default_kernel_name=absent") as host:
        for body in ({}, {"name": None}, {"name": ""}, None):
            answer = stock(host, "POST", "kernels", json=body)
            assert answer.status_code == 500
            assert "'absent' is not installed" in answer.text
        assert stock(host, "POST", "kernels", json={"name": "absent"}).status_code == 400
        assert stock(host, "POST", "kernels", json={"name": "other"}).status_code == 400


def test_a_gateways_base_url_needs_no_slash_at_the_end(tmp_path: Path) -> None:
    with running_host("gateway", tmp_path, base_url="/foo") as host:
        answer = requests.post(f"{host.info.url}exec/v1/sessions", json={}, headers=host.info.auth_headers, timeout=60)
        assert answer.headers["Location"] == f"/foo/exec/v1/sessions/{answer.json()['id']}"


def test_a_browser_may_ask_a_gateway_whether_it_may_send(tmp_path: Path) -> None:
    options = ["allow_origin=https://lab.example", "allow_methods=POST", "allow_headers=Authorization"]
    with running_host("gateway", tmp_path, *(f"--KernelGatewayApp.{option}" for option in options)) as host:
        url = f"{host.info.url}exec/v1/sessions"
        ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        answer = requests.options(url, headers={"Origin": "https://lab.example", **ask}, timeout=30)
        assert answer.status_code in (200, 204)
        assert answer.headers["Access-Control-Allow-Origin"] == "https://lab.example"
        assert requests.options(url, headers={"Origin": "https://evil.example", **ask}, timeout=30).status_code == 403


def test_the_gateways_limit_on_kernels_holds_for_both_apis(tmp_path: Path) -> None:
    with (
        running_host("gateway", tmp_path, "--KernelGatewayApp.max_kernels=2") as gateway,
        ExecClient(gateway.info) as client,
    ):
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: stock(gateway, "POST", "kernels", json={}), range(6)))
        assert sorted(answer.status_code for answer in answers) == [201, 201, 403, 403, 403, 403]
        with pytest.raises(TooManyKernels, match="2 kernels"):
            client.session()
        started = next(answer for answer in answers if answer.status_code == 201)
        stock(gateway, "DELETE", f"kernels/{started.json()['id']}")
        with client.session() as session:
            assert session.run("1").ok
            assert stock(gateway, "POST", "kernels", json={}).status_code == 403


def test_the_gateways_kernelspec_and_environment_options_hold(tmp_path: Path) -> None:
    kernels = tmp_path / "jupyter_data_dir" / "kernels" / "forced"
    kernels.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernels / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "F", "language": "python"}))
    options = [
        "--KernelGatewayApp.force_kernel_name=forced",
        "--KernelGatewayApp.env_process_whitelist=LET_THROUGH",
        "--ExecPersonality.env_whitelist=ALLOWED",
    ]
    with (
        running_host("gateway", tmp_path, *options, env={"LET_THROUGH": "yes", "KEPT_OUT": "x"}) as gateway,
        ExecClient(gateway.info) as client,
    ):
        with client.session("anything", env={"ALLOWED": "1", "KERNEL_A": "2"}) as session:
            assert session.record.kernel_name == "forced"
            code = "import os\nfor n in ('LET_THROUGH', 'KEPT_OUT', 'ALLOWED', 'KERNEL_A'): print(os.environ.get(n))"
            assert session.run(code).stdout == "yes\nNone\n1\n2\n"
        with pytest.raises(InvalidRequest, match="OTHER"):
            client.session(env={"OTHER": "1"})


def test_a_gateway_without_a_token_does_not_listen_to_the_world(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernel_gateway", "--KernelGatewayApp.api=jupyter_exec_ext.gateway"]
    done = subprocess.run(
        [*command, "--KernelGatewayApp.ip=0.0.0.0"],
        env=clean_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "refusing to listen on 0.0.0.0 without a token" in done.stderr
    assert "KG_AUTH_TOKEN" in done.stderr


def test_a_gateway_without_a_token_serves_this_machine_alone(tmp_path: Path) -> None:
    with running_host("gateway", tmp_path, token="") as gateway, ExecClient(gateway.info) as client:
        with client.session() as session:
            assert session.run("print(1)").stdout == "1\n"
        for path in ("exec/v1/", "api/kernelspecs", "api/kernels"):
            answer = requests.get(f"{gateway.info.url}{path}", headers={"Host": "rebind.example"}, timeout=30)
            assert answer.status_code == 403
        answer = requests.post(f"{gateway.info.url}api/kernels", headers={"Host": "rebind.example"}, timeout=30)
        assert answer.status_code == 403


def test_a_gateway_may_be_given_more_names(tmp_path: Path) -> None:
    with running_host("gateway", tmp_path, "--ExecPersonality.allowed_hosts=gw.example") as gateway:
        for path in ("exec/v1/", "api/kernelspecs"):
            url, headers = f"{gateway.info.url}{path}", gateway.info.auth_headers
            assert requests.get(url, headers={**headers, "Host": "gw.example:8888"}, timeout=30).status_code == 200
            assert requests.get(url, headers={**headers, "Host": "other.example"}, timeout=30).status_code == 403


# --- Jupyter Server ---


def test_a_server_without_authentication_still_checks_xsrf_and_our_client_passes(tmp_path: Path) -> None:
    with running_host("server", tmp_path, "--IdentityProvider.token=", token="") as server:
        answer = requests.post(f"{server.info.url}exec/v1/sessions", timeout=30)
        assert (answer.status_code, answer.json()["code"]) == (403, "xsrf_check_failed")
        with ExecClient(server.info) as client, client.session() as session:
            assert session.run("print(1)").stdout == "1\n"


def test_the_extension_can_be_switched_off(tmp_path: Path) -> None:
    with (
        running_host("server", tmp_path, "--ExecExtensionApp.enabled=False") as server,
        ExecClient(server.info) as client,
        pytest.raises(ApiNotFound, match="pip install jupyter-exec-ext"),
    ):
        client.session()


def test_a_server_whose_kernels_live_on_a_gateway_says_where_to_install(tmp_path: Path, hosts: Any) -> None:
    gateway: Host = hosts["gateway"]
    options = [f"--GatewayClient.url={gateway.info.url}", f"--GatewayClient.auth_token={gateway.info.token}"]
    with running_host("server", tmp_path, *options) as server, ExecClient(server.info) as client:
        with pytest.raises(ApiNotFound):
            client.info()
        assert "Install jupyter_exec_ext there" in server.log_text()


@only_in_full
def test_running_code_keeps_a_server_from_stopping_and_a_kernel_from_being_culled(tmp_path: Path) -> None:
    culling = ["cull_idle_timeout=2", "cull_interval=1", "cull_busy=True"]
    options = [f"--MappingKernelManager.{option}" for option in culling]
    with (
        running_host("server", tmp_path, *options) as server,
        ExecClient(server.info) as client,
        client.session() as idle,
        client.session() as session,
    ):
        assert session.run("import time; time.sleep(5); print('not culled')").stdout == "not culled\n"
        reason = client.get_session(idle.id).record.ended_reason
        assert reason is not None and reason.endswith("(cull_idle_timeout is 2 s)")
        activity = stock(server, "GET", "status").json()["last_activity"]
        assert activity >= session.run("1").created_at[:18]


@pytest.mark.parametrize("name", ["server", "lab", "gateway"])
def test_nothing_is_left_after_a_host_stops(tmp_path: Path, name: str) -> None:
    with running_host(name, tmp_path) as host, ExecClient(host.info) as client:
        session = client.session()
        session.run("print(1)")
        client.session().submit("import time; time.sleep(60)")
        processes = [psutil.Process(host.process.pid), *psutil.Process(host.process.pid).children(recursive=True)]
        assert len(processes) >= 3
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []
    left = [path.name for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert [name for name in left if name != "jupyter_cookie_secret"] == []


@pytest.mark.parametrize("name", ["server", "gateway"])
def test_a_second_interrupt_or_kill_leaves_no_kernel(tmp_path: Path, name: str) -> None:
    with running_host(name, tmp_path) as host, ExecClient(host.info, max_retries=0) as client:
        client.session().submit("while True: pass")
        kernels = psutil.Process(host.process.pid).children(recursive=True)
        os.kill(host.process.pid, signal.SIGKILL)
        host.process.wait(10)
        _, alive = psutil.wait_procs(kernels, timeout=15)
        assert kernels
        assert alive == []


def test_after_a_kill_only_the_sessions_own_kernels_are_tidied_up(tmp_path: Path) -> None:
    with running_host("server", tmp_path) as host, ExecClient(host.info) as client:
        kernel = stock(host, "POST", "kernels", json={"name": "python3"}).json()
        shared = client.session(kernel_id=kernel["id"]).record.kernel_id
        own = client.session().record.kernel_id
        host.process.kill()
        host.process.wait(20)
    runtime = tmp_path / "run"
    assert (runtime / f"kernel-{own}.json").exists()
    with running_host("server", tmp_path):
        assert not (runtime / f"kernel-{own}.json").exists()
        assert (runtime / f"kernel-{shared}.json").exists()
