"""Download of wheels by the server: which requirements it takes, its bounds, and what it says when pip fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest

from jupyter_exec_ext.engine.packages import download_program, wheel_download
from jupyter_exec_ext.engine.packages.wheel_download import download_environment, download_wheels, parse_requirements
from jupyter_exec_ext.errors import PackagesNotFound
from tests.support.waiting import wait_until
from tests.support.wheels import make_wheel

_MIB = 1024 * 1024


@pytest.mark.parametrize("text", ["pandas", "pandas==2.2", "a[b,c]>=1,<2", "a; python_version > '3'", "Zope.Interface"])
def test_requirements_are_taken(text: str) -> None:
    assert len(parse_requirements([text])) == 1


@pytest.mark.parametrize(
    "text",
    [
        *(
            "-r /etc/passwd",
            "--index-url=https://evil.example",
            "-e .",
            "./a.whl",
            "/a.whl",
            "file:///a.whl",
            "a.whl/..",
        ),
        *(
            "a @ https://evil.example/a.whl",
            "a @ file:///a.whl",
            "git+https://evil.example/a",
            "a b",
            "a\n--pre",
            "$(id)",
        ),
        *("a;", "", " ", "a==", "a\0", "../a", "é"),
        *("foo.zip", "foo.ZIP==1", "foo.tar.gz[a]; python_version > '3'", "foo===1.whl"),
    ],
)
def test_addresses_paths_and_options_are_refused(text: str) -> None:
    with pytest.raises(PackagesNotFound, match="'packages'"):
        parse_requirements([text])


async def test_wheels_come_with_all_that_they_require(tmp_path: Path) -> None:
    house = tmp_path / "house"
    make_wheel(house, "one", requires=["two>=1"])
    make_wheel(house, "two")
    directory = tmp_path / "incoming"
    directory.mkdir()
    found = await download_wheels(sys.executable, ["one"], directory, str(house), max_bytes=_MIB)
    assert [path.name for path in found] == ["one-1.0-py3-none-any.whl", "two-1.0-py3-none-any.whl"]
    with zipfile.ZipFile(next(iter(found))) as archive:
        assert next(iter(found.values())) == sum(entry.file_size for entry in archive.infolist())


async def test_source_distribution_is_not_run(tmp_path: Path) -> None:
    house = tmp_path / "house"
    (house / "evil-1.0").mkdir(parents=True)
    (house / "evil-1.0" / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    process = await asyncio.create_subprocess_exec("tar", "czf", "evil-1.0.tar.gz", "evil-1.0", cwd=house)
    assert await process.wait() == 0
    with pytest.raises(PackagesNotFound, match="No matching distribution found for evil"):
        await download_wheels(sys.executable, ["evil"], tmp_path, str(house), max_bytes=_MIB)
    assert not (tmp_path / "ran").exists()


def make_evil_project(tmp_path: Path) -> str:
    """Write a project whose build leaves a file `ran`, and return its address."""
    project = tmp_path / "evil"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n'
    )
    (project / "b.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    return project.as_uri()


async def test_address_in_metadata_is_refused_and_no_code_of_it_runs(tmp_path: Path) -> None:
    address = make_evil_project(tmp_path)
    make_wheel(tmp_path / "house", "one", requires=[f"evil @ {address}"])
    (tmp_path / "incoming").mkdir()
    with pytest.raises(PackagesNotFound, match="packages come from the index alone"):
        await download_wheels(sys.executable, ["one"], tmp_path / "incoming", str(tmp_path / "house"), max_bytes=_MIB)
    assert not (tmp_path / "ran").exists()


async def test_address_of_an_extra_is_refused_only_with_the_extra(tmp_path: Path) -> None:
    requires = [f"evil @ {make_evil_project(tmp_path)} ; extra == 'more'\nProvides-Extra: more"]
    make_wheel(tmp_path / "house", "one", requires=requires)
    for name, requirement in (("with", "one[more]"), ("without", "one")):
        (tmp_path / name).mkdir()
        downloading = download_wheels(
            sys.executable, [requirement], tmp_path / name, str(tmp_path / "house"), max_bytes=_MIB
        )
        if name == "without":
            assert len(await downloading) == 1
        else:
            with pytest.raises(PackagesNotFound, match="packages come from the index alone"):
                await downloading
    assert not (tmp_path / "ran").exists()


async def test_pip_that_cannot_be_guarded_is_not_used(tmp_path: Path) -> None:
    for module in ("__init__", "_internal/__init__", "_internal/req/__init__", "_internal/req/constructors"):
        (tmp_path / "pip" / f"{module}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pip" / f"{module}.py").touch()
    command = [sys.executable, "-I", download_program.__file__, str(tmp_path / "pip"), str(tmp_path), "1000", "one"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    assert (process.returncode, b"pip cannot refuse addresses" in errors) == (1, True)


def make_pip(directory: Path, main: str) -> Path:
    """Write a package `pip` that can be guarded, and whose main function is `main`."""
    modules = {
        "__init__": "",
        "_internal/__init__": "",
        "_internal/exceptions": "class InstallationError(Exception): ...",
        "_internal/req/__init__": "",
        "_internal/req/constructors": "def install_req_from_req_string(text): ...",
        "_internal/cli/__init__": "",
        "_internal/cli/req_command": "from pip._internal.req.constructors import install_req_from_req_string",
        "_internal/cli/main": f"import signal, time\ndef main(arguments):\n    {main}\n    return 1",
    }
    for name, text in modules.items():
        (directory / "pip" / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (directory / "pip" / f"{name}.py").write_text(text)
    return directory / "pip"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of the end of its parent")
def test_download_ends_with_its_server(tmp_path: Path) -> None:
    pip = make_pip(tmp_path, "print('begun', flush=True); time.sleep(60)")
    command = [sys.executable, "-I", download_program.__file__, str(pip), str(tmp_path), "1000", "one"]
    server = (
        f"import subprocess; process = subprocess.Popen({command!r}); print(process.pid, flush=True); process.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "begun\n"
        process.kill()
        wait_until(lambda: has_ended(pid))


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # a container may have no init that reaps it
    except psutil.NoSuchProcess:
        return True


def test_download_ends_by_itself_after_the_server_would_have_ended_it(tmp_path: Path) -> None:
    pip = make_pip(tmp_path, "print(signal.getsignal(signal.SIGALRM) == signal.SIG_DFL, signal.alarm(0))")
    command = [sys.executable, "-I", download_program.__file__, str(pip), str(tmp_path), "1000", "one"]
    is_default, seconds = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    assert is_default == "True"
    assert wheel_download.DOWNLOAD_SECONDS + 30 < int(seconds) <= download_program._MAX_SECONDS


async def test_programs_are_not_started_during_a_download() -> None:
    code = (
        "import os, subprocess, sys; from runpy import run_path; "
        f"sys.addaudithook(run_path({download_program.__file__!r})['_refuse_programs'])\n"
        "for start in (lambda: subprocess.run([sys.executable, '-c', '']), os.fork, lambda: os.system('true')):\n"
        "    try:\n        start()\n    except PermissionError:\n        print('refused')"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert (await process.communicate())[0] == b"refused\n" * 3


@pytest.mark.parametrize("content", [b"no archive", b""])
async def test_damaged_wheel_is_refused_without_paths_of_the_machine(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "one-1.0-py3-none-any.whl").write_bytes(content)
    (tmp_path / "incoming").mkdir()
    with pytest.raises(PackagesNotFound) as refusal:
        await download_wheels(sys.executable, ["one"], tmp_path / "incoming", str(tmp_path / "house"), max_bytes=_MIB)
    assert str(tmp_path) not in str(refusal.value)


def test_wheel_with_too_many_files_or_an_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="requires evil with an address"):
        download_program._inspect_wheel(
            str(make_wheel(tmp_path, "one", requires=["evil @ https://evil.example/a.whl"]))
        )
    monkeypatch.setattr(download_program, "_MAX_ENTRIES", 4)
    with pytest.raises(ValueError, match="more than 4 files"):
        download_program._inspect_wheel(str(make_wheel(tmp_path, "two")))


def test_download_gets_no_secrets_of_the_server_and_no_index_beside_a_wheelhouse() -> None:
    server = {"PATH": "/bin", "JUPYTER_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "PIP_INDEX_URL": "y", "LC_ALL": "C"}
    assert download_environment(server, "") == {"PATH": "/bin", "PIP_INDEX_URL": "y", "LC_ALL": "C"}
    assert download_environment(server, "/wheels") == {"PATH": "/bin", "LC_ALL": "C", "PIP_CONFIG_FILE": os.devnull}


async def test_download_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_download, "_CHECK_SECONDS", 0.001)
    house = tmp_path / "house"
    make_wheel(house, "one")
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    (incoming / "large").write_bytes(bytes(1000))
    with pytest.raises(PackagesNotFound, match="more than 999 bytes"):
        await download_wheels(sys.executable, ["one"], incoming, str(house), max_bytes=999)


async def test_download_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_download, "DOWNLOAD_SECONDS", 0.0)
    monkeypatch.setattr(wheel_download, "_CHECK_SECONDS", 0.001)
    with pytest.raises(PackagesNotFound, match="took more than"):
        await download_wheels(sys.executable, ["one"], tmp_path, str(tmp_path), max_bytes=_MIB)


def test_messages_of_pip_have_no_credentials_and_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("noise\nERROR: Could not fetch https://user:pass-word@index.example/simple/\x1b[31m\nERROR: b\n")
    assert wheel_download._errors_in(log) == "Could not fetch https://index.example/simple/ [31m b"
