"""Common programs through the proxy as they are, with TLS: pip and uv with a local index, git, requests, R."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import ssl
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from jupyter_exec_ext.isolation.network.access_decision import NetworkSecret

from .servers import World, access_of, listen, run, start

PLACEHOLDER, VALUE = "exec-secret-placeholder-91ab", "index-password-4711"
NAME = "demo-package"


def make_wheel(directory: Path) -> Path:
    path = directory / "demo_package-1.0-py3-none-any.whl"
    files = {
        "demo_package.py": "ANSWER = 42\n",
        "demo_package-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo-package\nVersion: 1.0\n",
        "demo_package-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        names = [*files, "demo_package-1.0.dist-info/RECORD"]
        archive.writestr(names[-1], "".join(f"{name},,\n" for name in names))
    return path


@pytest.fixture
async def index(world: World, tmp_path: Path) -> AsyncIterator[tuple[int, Path]]:
    """An index of packages that asks for a password, and a git repository, behind TLS; its port and authority."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("index.test").configure_cert(context)
    authority.cert_pem.write_to_path(str(world.authority), append=True)
    wheel = make_wheel(tmp_path)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    wanted = "Basic " + base64.b64encode(f"user:{VALUE}".encode()).decode()

    async def listing(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != wanted and request.path.startswith("/private/"):
            return web.Response(status=401, headers={"WWW-Authenticate": "Basic realm=x"})
        link = f'<a href="/files/{wheel.name}#sha256={digest}">{wheel.name}</a>'
        return web.Response(text=f"<!DOCTYPE html><html><body>{link}</body></html>", content_type="text/html")

    application = web.Application()
    application.router.add_get("/{kind:simple|private}/demo-package/", listing)
    application.router.add_static("/files/", tmp_path)
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    source, bare = tmp_path / "source", tmp_path / "repository.git"
    for command in (
        ("init", "-q", str(source)),
        ("-C", str(source), *identity, "commit", "-q", "--allow-empty", "-m", "first"),
        ("clone", "-q", "--bare", str(source), str(bare)),
        ("-C", str(bare), "update-server-info"),
    ):
        code, text = await run("git", *command)
        assert code == 0, text
    sock = listen()
    end = await start(application, sock, context)
    yield sock.getsockname()[1], world.authority
    await end()


def environment(proxy: str, ca_file: str) -> dict[str, str]:
    names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE")
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy)
    quiet = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1", "UV_NO_CONFIG": "1"}
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **proxies, **dict.fromkeys(names, ca_file), **quiet}


@pytest.mark.parametrize("installer", ["pip", "uv"])
async def test_installer_installs_through_a_tunnel(
    world: World, index: tuple[int, Path], tmp_path: Path, installer: str
) -> None:
    port, authority = index
    # A certificate of the index is not one that the proxy trusts: it does not read the tunnel.
    proxy = await world.open(access_of(f"index.test:{port}"))
    program = [sys.executable, "-m", "pip"] if installer == "pip" else [shutil.which("uv") or "uv", "pip"]
    target = tmp_path / "target"
    code, text = await run(
        *(*program, "install", "--target", str(target), "--index-url", f"https://index.test:{port}/simple", NAME),
        env=environment(proxy, str(authority)),
    )
    assert code == 0, text
    assert (target / "demo_package.py").read_text() == "ANSWER = 42\n"
    await world.record()
    assert {record.verdict for record in world.records} == {"allowed"}


async def test_pip_shows_why_it_was_refused(world: World, index: tuple[int, Path]) -> None:
    port, authority = index
    proxy = await world.open(access_of("a.test"))
    url = f"https://index.test:{port}/simple"
    command = [sys.executable, "-m", "pip", "download", "--retries", "1", "--index-url", url]
    code, text = await run(*command, NAME, env=environment(proxy, str(authority)))
    assert code != 0
    assert f"policy 'agents' does not allow host index.test:{port}; ask for the rule" in text


async def test_private_index_gets_its_password_by_a_secret(
    world: World, index: tuple[int, Path], tmp_path: Path
) -> None:
    port, _ = index
    host = f"index.test:{port}"
    secret = NetworkSecret("INDEX", PLACEHOLDER, (host,), "Authorization", "Bearer {}", VALUE)
    proxy = await world.open(access_of(host, secrets=(secret,)))
    url = f"https://user:{PLACEHOLDER}@{host}/private"
    command = [sys.executable, "-m", "pip", "install", "-v", "--target", str(tmp_path / "target"), "--index-url", url]
    code, text = await run(*command, NAME, env=environment(proxy, await world.trusted()))
    assert code == 0, text
    assert VALUE not in text and VALUE not in repr(world.records)
    await world.record()
    assert {record.verdict for record in world.records} == {"allowed"}


async def test_git_clones_over_https(world: World, index: tuple[int, Path], tmp_path: Path) -> None:
    port, authority = index
    proxy = await world.open(access_of(f"index.test:{port}"))
    url = f"https://index.test:{port}/files/repository.git"
    code, text = await run("git", "clone", "-q", url, str(tmp_path / "clone"), env=environment(proxy, str(authority)))
    assert code == 0, text
    assert (await run("git", "-C", str(tmp_path / "clone"), "log", "--format=%s"))[1] == "first\n"


async def test_packages_of_r_are_downloaded_as_install_packages_does(
    world: World, index: tuple[int, Path], tmp_path: Path
) -> None:
    # A stand-in for R, whose `install.packages` asks by libcurl, for each file of a repository in turn.
    port, authority = index
    contrib = tmp_path / "src" / "contrib"
    contrib.mkdir(parents=True)
    (contrib / "PACKAGES").write_text("Package: demo\nVersion: 1.0\n")
    (contrib / "demo_1.0.tar.gz").write_bytes(os.urandom(100_000))
    proxy = await world.open(access_of(f"index.test:{port}"))
    url, target = f"https://index.test:{port}/files/src/contrib", tmp_path / "library"
    names = ("PACKAGES.rds", "PACKAGES", "demo_1.0.tar.gz")
    found = []
    for name in names:
        command = ("curl", "-sSf", "--http2", "-A", "R (4.4.1)", "--create-dirs", "-o", str(target / name))
        found.append((await run(*command, f"{url}/{name}", env=environment(proxy, str(authority))))[0] == 0)
    assert found == [False, True, True]  # a repository need not have the first, and R goes on
    assert all((target / name).read_bytes() == (contrib / name).read_bytes() for name in names[1:])
    await world.record()
    assert {record.verdict for record in world.records} == {"allowed"}


async def test_requests_reads_a_terminated_host(world: World) -> None:
    proxy = await world.open(access_of(f"GET https://a.test:{world.https}/v1/*"))
    program = f"""if True:
        import requests
        session = requests.Session()
        for path in ("v1/x", "v1/y", "v2"):
            answer = session.get("https://a.test:{world.https}/" + path)
            print(answer.status_code, answer.text.strip())
    """
    code, text = await run(sys.executable, "-c", program, env=environment(proxy, await world.trusted()))
    assert code == 0, text
    assert text.startswith("200 GET /v1/x 0\n200 GET /v1/y 0\n403 policy 'agents' does not allow GET")
