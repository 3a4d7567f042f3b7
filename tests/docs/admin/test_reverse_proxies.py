"""The proxies of the page, run in full: everything works through them, and each line of their tables is needed."""

from __future__ import annotations

import http.client
import re
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme
import websocket

from jupyter_exec_ext.auth.token_format import new_token
from jupyter_exec_ext.client import ExecClient, JupyterConnectionInfo
from jupyter_exec_ext.engine.access.token_service import ATTEMPTS_AT_ONCE
from jupyter_exec_ext.errors import ExecError
from jupyter_exec_ext.models import StreamEvent
from tests.docs.admin import SECONDS, page
from tests.support.full import only_in_full
from tests.support.hosts import Host, free_port, stop, wait_until_ready
from tests.support.howto_pages import Recipe, account, serving, shells
from tests.support.nginx import start_nginx
from tests.support.outside_parts import require_part

PAGE = page("reverse-proxies")
NAME = "lab.example.org"
_LARGE = 24 * 1024**2

pytestmark = pytest.mark.timeout(420)


@dataclass(frozen=True)
class Place:
    """A server behind a proxy, as a caller sees it."""

    info: JupyterConnectionInfo
    ca: str
    log: Path

    @property
    def site(self) -> str:
        return f"https://{NAME}:{self.info.port}"

    def status_from(self, address: str, **headers: str) -> int:
        """Return the status of a request with a wrong token from one of this machine's loopback addresses."""
        context = ssl.create_default_context(cafile=self.ca)
        connection = http.client.HTTPSConnection(
            NAME, self.info.port, timeout=SECONDS, context=context, source_address=(address, 0)
        )
        try:
            connection.request("GET", "/exec/v1/", headers={"Authorization": f"Bearer {new_token().text}", **headers})
            return connection.getresponse().status
        finally:
            connection.close()


# --- what has to work -------------------------------------------------------------------------------------------


def can_run(place: Place) -> bool:
    try:
        with ExecClient(place.info) as client, client.session() as session:
            return session.run("print(6 * 7)").stdout == "42\n"
    except ExecError:
        return False


def can_stream(place: Place) -> bool:
    """Wait for the first line of code that ends only when its reader says that it has the line."""
    code = "import pathlib, time\nprint('first', flush=True)\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)"
    with ExecClient(place.info) as client, client.session() as session:
        ended = ""
        for event in session.stream(code, timeout=20):
            if isinstance(event, StreamEvent):
                session.write_file("go", b"")
            ended = event.type
        return ended == "end" and session.list_executions()[0].state == "ok"


def log_in(place: Place) -> requests.Session:
    """Return a browser that has the server's cookies."""
    browser = requests.Session()
    browser.trust_env = False  # or a CA of this machine's environment would take the place of ours
    browser.verify = place.ca
    browser.get(f"{place.site}/login", timeout=SECONDS).raise_for_status()
    form = {"password": str(place.info.token), "_xsrf": str(browser.cookies["_xsrf"])}
    browser.post(f"{place.site}/login", data=form, timeout=SECONDS).raise_for_status()
    return browser


def can_use_a_kernel(place: Place) -> bool:
    """Connect to a kernel's WebSocket as a browser does: with its cookies, and the site that it is on."""
    browser = log_in(place)
    xsrf = {"X-XSRFToken": str(browser.cookies["_xsrf"])}
    made = browser.post(f"{place.site}/api/kernels", headers=xsrf, timeout=SECONDS)
    made.raise_for_status()
    kernel = f"{place.site}/api/kernels/{made.json()['id']}"
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies)
    options: dict[str, Any] = {"origin": place.site, "cookie": cookies, "sslopt": {"ca_certs": place.ca}}
    try:
        address = kernel.replace("https://", "wss://") + "/channels"
        websocket.create_connection(address, timeout=SECONDS, **options).close()
    except websocket.WebSocketBadStatusException:
        return False
    finally:
        browser.delete(kernel, headers=xsrf, timeout=SECONDS).raise_for_status()
    return True


def can_upload(place: Place) -> bool:
    data = secrets.token_bytes(3 * 1024**2)
    with ExecClient(place.info) as client, client.session() as session:
        try:
            session.write_file("data", data)
        except ExecError:
            return False
        return session.read_file("data") == data


def passes_uploads_on_at_once(place: Place) -> bool:
    return can_upload(place) and "a client request body is buffered" not in place.log.read_text()


def passes_downloads_on_at_once(place: Place) -> bool:
    with ExecClient(place.info) as client, client.session() as session:
        session.run(f"open('data', 'wb').write(bytes({_LARGE}))", check=True)
        assert len(session.read_file("data")) == _LARGE
    return "an upstream response is buffered" not in place.log.read_text()


def has_a_secure_cookie(place: Place) -> bool:
    (cookie,) = [cookie for cookie in log_in(place).cookies if cookie.name.startswith("username-")]
    return cookie.secure


def ignores_invented_addresses(place: Place) -> bool:
    """Send wrong tokens under another invented address each; at last they are refused by the real one."""
    seen = {
        place.status_from("127.0.0.2", **{"X-Forwarded-For": f"198.51.{number}.{secrets.randbelow(250)}"})
        for number in range(ATTEMPTS_AT_ONCE + 1)
    }
    return 429 in seen


def counts_callers_apart(place: Place) -> bool:
    first, second = (f"127.{secrets.randbelow(250)}.{secrets.randbelow(250)}.{last}" for last in (3, 4))
    assert 429 in {place.status_from(first) for _ in range(ATTEMPTS_AT_ONCE + 1)}
    return place.status_from(second) == 401


CHECKS = (
    can_run,
    can_stream,
    can_use_a_kernel,
    passes_uploads_on_at_once,
    passes_downloads_on_at_once,
    has_a_secure_cookie,
    ignores_invented_addresses,
    counts_callers_apart,
)

Check = Callable[[Place], bool]
#: For each table of the page: the line, and what does not hold without it. Of Caddy: with it.
SERVER_LINES: dict[str, Check] = {"trust_xheaders": counts_callers_apart, "local_hostnames": can_run}
NGINX_LINES: dict[str, Check] = {
    "client_max_body_size 0": can_upload,
    "proxy_set_header Upgrade": can_use_a_kernel,
    "proxy_set_header Connection": can_use_a_kernel,
    "proxy_set_header Host": can_use_a_kernel,
    "proxy_set_header X-Forwarded-For": ignores_invented_addresses,
    "proxy_set_header X-Forwarded-Proto": has_a_secure_cookie,
    "proxy_buffering off": passes_downloads_on_at_once,
    "proxy_request_buffering off": passes_uploads_on_at_once,
}
CADDY_LINES: dict[str, Check] = {
    "header_up Host {upstream_hostport}": can_use_a_kernel,
    "header_up X-Forwarded-For {header.X-Forwarded-For}": ignores_invented_addresses,
    "request_body { max_size 1MB }": can_upload,
}


def test_tables_have_the_lines_that_are_tested() -> None:
    tables = re.findall(r"^\| line \|.*\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    rows = [re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) for table in tables]
    assert rows == [list(SERVER_LINES), list(NGINX_LINES), list(CADDY_LINES)]


# --- servers and proxies ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _name_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the name of the page lead to this machine."""
    resolve = socket.getaddrinfo

    def resolve_here(host: Any, *args: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host == NAME else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    issued = authority.issue_cert(NAME, "localhost")
    issued.private_key_pem.write_to_path(directory / f"{NAME}.key")
    for pem in issued.cert_chain_pems:
        pem.write_to_path(directory / f"{NAME}.pem", append=True)
    authority.cert_pem.write_to_path(directory / "ca.pem")
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running_server(tmp_path_factory.mktemp("server")) as host:
        yield host


def without_line(text: str, line: str) -> str:
    lines = text.splitlines(keepends=True)
    kept = [one for one in lines if line not in one]
    assert len(kept) == len(lines) - 1, line
    return "".join(kept)


@contextmanager
def running_server(home: Path, left_out: str | None = None) -> Iterator[Host]:
    """Start the page's Jupyter Server, without one of its lines if one is named."""
    port = free_port()
    env = account(home, JUPYTER_TOKEN=secrets.token_hex(16))
    text = Recipe(PAGE, None, {"port = 8888": f"port = {port}"}).file("~/.jupyter/jupyter_server_config.py")
    (home / ".jupyter").mkdir()
    config = home / ".jupyter" / "jupyter_server_config.py"
    config.write_text(without_line(text, left_out) if left_out else text)
    with serving(f"jupyter server --no-browser --allow-root --config={config}", env, home, port) as host:
        host.info.token = env["JUPYTER_TOKEN"]
        wait_until_ready(host)
        yield host


def start_caddy(text: str, directory: Path) -> list[str]:
    """Write Caddy's configuration, without the ports that it takes beside a site's, and return the command."""
    text = text.replace("{\n", "{\n\tadmin off\n\tauto_https disable_redirects\n", 1)
    (directory / "Caddyfile").write_text(text)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(directory / "Caddyfile")]


Change = Callable[[str], str]


@contextmanager
def proxied(
    name: str, server: Host, certificates: Path, directory: Path, change: Change = lambda text: text
) -> Iterator[Place]:
    """Run a proxy with the page's configuration, changed or as it is, before a server."""
    require_part(name)
    port = free_port()
    directory.mkdir(exist_ok=True)
    common = {"127.0.0.1:8888": f"127.0.0.1:{server.info.port}", "/etc/ssl": str(certificates)}
    if name == "nginx":
        replaced = {**common, "listen 443": f"listen {port}"}
        command = start_nginx(change(Recipe(PAGE, None, replaced).file("/etc/nginx/conf.d/jupyter.conf")), directory)
    else:
        replaced = {**common, f"{NAME} {{": f"{NAME}:{port}, localhost:{port} {{"}
        command = start_caddy(change(Recipe(PAGE, None, replaced).file("/etc/caddy/Caddyfile")), directory)
    log = directory / "log"
    with log.open("ab") as out:
        process = subprocess.Popen(command, env=account(directory), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + SECONDS
        while not is_open(port):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)  # a proxy reports to no parent that it listens
        ca = str(certificates / "ca.pem")
        yield Place(JupyterConnectionInfo(NAME, True, port, server.info.token, verify=ca), ca, log)
    finally:
        stop(process)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- the tests --------------------------------------------------------------------------------------------------


@only_in_full
@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_everything_works_through_a_proxy(name: str, server: Host, certificates: Path, tmp_path: Path) -> None:
    with proxied(name, server, certificates, tmp_path / name) as place:
        assert [check.__name__ for check in CHECKS if not check(place)] == [], place.log.read_text()
        with ExecClient(place.info) as client, client.standard_session() as notebook:
            assert notebook.run("print('over the WebSocket')").stdout == "over the WebSocket\n"
        agent = account(tmp_path / "agent", REQUESTS_CA_BUNDLE=place.ca, SSL_CERT_FILE=place.ca)
        (tmp_path / "agent.token").write_text(str(place.info.token))
        (tmp_path / "agent.token").chmod(0o600)
        recipe = Recipe(PAGE, None, {f"https://{NAME}/": f"https://localhost:{place.info.port}/"})
        with shells({"agent": agent}, tmp_path) as type_in:
            for step in recipe.steps():
                type_in(step)


@only_in_full
@pytest.mark.parametrize("line", NGINX_LINES)
def test_each_line_for_nginx_is_needed(line: str, server: Host, certificates: Path, tmp_path: Path) -> None:
    with proxied("nginx", server, certificates, tmp_path / "nginx", lambda text: without_line(text, line)) as place:
        assert not NGINX_LINES[line](place)
        assert can_stream(place)


@only_in_full
@pytest.mark.parametrize("line", CADDY_LINES)
def test_each_line_that_the_page_warns_of_breaks_caddy(
    line: str, server: Host, certificates: Path, tmp_path: Path
) -> None:
    def add(text: str) -> str:
        if line.startswith("header_up"):
            return re.sub(r"(reverse_proxy .*)", rf"\1 {{\n\t\t{line}\n\t}}", text)
        return text.replace("\treverse_proxy", "\trequest_body {\n\t\tmax_size 1MB\n\t}\n\treverse_proxy")

    with proxied("caddy", server, certificates, tmp_path / "caddy", add) as place:
        assert not CADDY_LINES[line](place)
        assert can_stream(place)


@only_in_full
@pytest.mark.parametrize("line", SERVER_LINES)
def test_each_line_of_the_server_is_needed(line: str, certificates: Path, tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "server", line) as server,
        proxied("nginx", server, certificates, tmp_path / "nginx") as place,
    ):
        assert not SERVER_LINES[line](place)


@only_in_full
def test_nginx_that_ignores_what_the_server_asks_for_holds_streams_back(
    server: Host, certificates: Path, tmp_path: Path
) -> None:
    """Without `proxy_buffering off` streams depend on the server's header: the check of a stream can fail."""

    def hold_back(text: str) -> str:
        return text.replace("proxy_buffering off;", "proxy_ignore_headers X-Accel-Buffering;")

    with proxied("nginx", server, certificates, tmp_path / "nginx", hold_back) as place:
        assert not can_stream(place)
