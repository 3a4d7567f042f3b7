"""Packages of sessions on both hosts: installed by the API and as typed, for one session alone, and its end."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_exec_ext.adapters._autogen_resources import SessionWithFunctions
from jupyter_exec_ext.adapters._tool_text import NotRun
from jupyter_exec_ext.client import AsyncExecClient, ExecClient
from jupyter_exec_ext.errors import CodeError, Conflict, PackagesNotFound, PolicyDenied, QuotaExceeded
from jupyter_exec_ext.executors import JupyterCodeExecutor
from jupyter_exec_ext.executors.code_blocks import CodeBlock
from jupyter_exec_ext.executors.function_loading import FunctionsModule
from jupyter_exec_ext.store.audit_table import AuditReader
from tests.mcp.raw_client import RawClient
from tests.server.test_pool import prepared, until
from tests.support.bearers import Bearer, mint, owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host, clean_environment

pytestmark = pytest.mark.needs("sandbox")
_VERSION = "import small; print(small.version)"
_WORK = Path("jupyter_data_dir", "jupyter_exec_ext", "work")
# Each line is a way to change the cache or the packages of another session; all of them have to fail.
_ATTACKS = """
import os, pathlib, shutil
wheels = pathlib.Path(os.environ["PIP_FIND_LINKS"].split()[0])
wheel = next(wheels.glob("small-1*.whl"))
for attack in (
    lambda: (wheels / "new.whl").write_text("x"),
    lambda: wheel.write_text("x"),
    lambda: wheel.unlink(),
    lambda: wheel.chmod(0o666),
    lambda: wheel.rename(wheels / "small-9.whl"),
    lambda: os.link(wheel, wheels / "small-9.whl"),
    lambda: os.symlink("/etc/passwd", wheels / "link.whl"),
    lambda: os.truncate(wheel, 0),
    lambda: os.utime(wheel),
    lambda: shutil.rmtree(wheels),
    lambda: os.listdir(wheels.parent / "sets"),
    lambda: os.listdir({others!r}),
    lambda: next(pathlib.Path({others!r}).rglob("small/__init__.py")).write_text("x"),
):
    try:
        attack()
    except (OSError, StopIteration):
        continue
    print("line", attack.__code__.co_firstlineno)
print("done")
"""


def install(by: Bearer, session: str, *packages: str) -> dict[str, object]:
    answer = by.call("POST", f"/sessions/{session}/packages", json={"packages": packages})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def sessions_of(by: Bearer) -> set[str]:
    return {each["id"] for each in by.call("GET", "/sessions").json()["sessions"]}


def files_below(*directories: Path) -> dict[Path, bytes]:
    """Return the content of each file, and what else there is."""
    found = (path for directory in directories for path in directory.rglob("*"))
    return {path: path.read_bytes() if path.is_file() and not path.is_symlink() else b"" for path in found}


def output(by: Bearer, session: str, code: str) -> str:
    return str(by.run(session, code).json()["stdout"])


def test_package_is_for_its_session_alone_survives_a_restart_and_ends_with_it(host: Host, agent: Bearer) -> None:
    session, other = agent.session(), agent.session()
    installed = install(agent, session, "other")
    assert installed["state"] == "ok", (installed["stdout"], installed["error"])
    assert "Successfully installed other-1.0 small-2.0" in str(installed["stdout"])
    assert output(agent, session, "import other, small\nprint(small.version)\n!small-version").split() == ["2.0", "2.0"]
    assert agent.run(other, _VERSION).json()["error"]["name"] == "ModuleNotFoundError"
    assert agent.call("GET", f"/sessions/{session}/files").json()["files"] == []
    files = agent.run(session, "open('a.txt', 'w').close()").json()["files"]
    assert [each["path"] for each in files] == ["a.txt"]
    assert agent.call("POST", f"/sessions/{session}/restart").status_code == 200
    assert output(agent, session, _VERSION) == "2.0\n"
    packages = host.home / _WORK / session / ".exec-packages"
    assert packages.exists()
    agent.call("DELETE", f"/sessions/{session}")
    assert not packages.exists()
    assert (packages.parent / "a.txt").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="checkpoints need Linux")
def test_packages_install_after_a_restore_to_before_the_first_installation(host: Host) -> None:
    owner = owner_of(host)
    session = owner.session()
    # In another directory, in which the kernel is to stay.
    owner.run(session, "import os; os.mkdir('deep'); os.chdir('deep')")
    checkpoint = owner.call("POST", f"/sessions/{session}/checkpoints", json={}).json()["id"]
    install(owner, session, "small==2.0")
    answer = owner.call("POST", f"/sessions/{session}/restore", json={"checkpoint": checkpoint})
    assert answer.status_code == 200, answer.text
    assert owner.run(session, _VERSION).json()["error"]["name"] == "ModuleNotFoundError"
    installed = install(owner, session, "small==1.0")
    assert installed["state"] == "ok", (installed["stdout"], installed["error"])
    assert output(owner, session, f"{_VERSION}; print(os.path.basename(os.getcwd()))") == "1.0\ndeep\n"
    owner.call("DELETE", f"/sessions/{session}")


@pytest.mark.skipif(sys.platform != "linux", reason="checkpoints need Linux")
def test_branch_has_packages_of_its_own_which_outlive_the_session(host: Host) -> None:
    by = mint(host, policy="open")
    session = by.session()
    install(by, session, "small==1.0")
    answer = by.call("POST", f"/sessions/{session}/branches", json={})
    assert answer.status_code == 201, answer.text
    [branch] = [each["id"] for each in answer.json()["sessions"]]
    assert install(by, branch, "other")["state"] == "ok"
    assert by.run(session, "import other").json()["error"]["name"] == "ModuleNotFoundError"
    by.call("DELETE", f"/sessions/{session}")
    ran = output(by, branch, "import small, other\nprint(small.version)\n!small-version\n!which small-version")
    assert ran.split() == ["1.0", "1.0", str(host.home / _WORK / branch / ".exec-packages" / "bin" / "small-version")]


def test_installation_is_in_the_audit_trail(host: Host, agent: Bearer) -> None:
    session = agent.session()
    execution = install(agent, session, "small==1.0")
    with closing(AuditReader(host.home / "jupyter_data_dir" / "jupyter_exec_ext")) as trail:
        records = [line.record() for line in trail.newest(1000)]
    found = [each for each in records if (each.action[:8], each.subject) == ("install_", session)]
    data = {each.action: each.data for each in found if each.principal == f"token:{agent.id}"}
    assert data["install_asked"] == {"packages": ["small==1.0"]}
    assert data["install_queued"] == {"execution": execution["id"], "wheels": ["small-1.0-py3-none-any.whl"]}


@only_in_full
def test_typed_pip_upgrades_and_uninstalls_in_the_session(agent: Bearer) -> None:
    session = agent.session()
    install(agent, session, "small==1.0")
    assert output(agent, session, _VERSION) == "1.0\n"
    assert "Successfully installed small-2.0" in output(agent, session, "%pip install --upgrade small")
    assert output(agent, session, "!small-version").strip() == "2.0"
    assert "Successfully uninstalled small-2.0" in output(agent, session, "!pip uninstall -y small")


@only_in_full
@pytest.mark.parametrize(
    "code",
    [
        "!pip install small==1.0",
        "%pip install small==1.0",
        "!python -m pip install small==1.0",
        "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', 'install', 'small==1.0'], check=True)",
        "%%bash\npip install small==1.0",
        "!uv pip install small==1.0",
        "%uv pip install small==1.0",
    ],
)
@pytest.mark.parametrize("policy", ["boxed", "open"])
def test_typed_installers_write_into_the_session(host: Host, policy: str, code: str) -> None:
    before = set(Path(sys.prefix).rglob("small*"))
    agent = mint(host, policy=policy)
    session = agent.session()
    done = agent.run(session, code).json()
    assert done["state"] == "ok", done
    assert output(agent, session, "import small; print(small.version, '.exec-packages' in small.__file__)") == (
        "1.0 True\n"
    )
    assert set(Path(sys.prefix).rglob("small*")) == before
    agent.call("DELETE", f"/sessions/{session}")


@pytest.mark.parametrize("level", ["sandbox", pytest.param("landlock", marks=pytest.mark.needs("Landlock"))])
def test_code_changes_neither_the_cache_nor_packages_of_others(host: Host, agent: Bearer, level: str) -> None:
    victim = agent.session()
    install(agent, victim, "small==1.0")
    attacker = mint(host, policy="open")
    session = attacker.session(kernel_name=level)
    assert attacker.call("GET", f"/sessions/{session}").json()["isolation"] == level
    cache = host.home / "jupyter_data_dir/jupyter_exec_ext/wheels"
    others = str(host.home / _WORK / victim / ".exec-packages")
    before = files_below(cache, Path(others))
    # Landlock has no right for modes and times. Neither changes a content.
    through = "line 8\nline 13\n" if level == "landlock" else ""
    assert output(attacker, session, _ATTACKS.replace("{others!r}", repr(others))) == f"{through}done\n"
    assert files_below(cache, Path(others)) == before
    assert output(agent, victim, _VERSION) == "1.0\n"
    installed = install(attacker, session, "small==1.0")
    assert installed["state"] == "ok", (installed["stdout"], installed["error"])


@only_in_full
def test_changed_wheel_in_the_cache_is_not_installed(host: Host, agent: Bearer) -> None:
    session = agent.session()
    install(agent, session, "small==1.0")
    (wheel,) = (host.home / "jupyter_data_dir/jupyter_exec_ext/wheels").glob("*/wheels/small-1.0-py3-none-any.whl")
    right = wheel.read_bytes()
    wheel.chmod(0o600)
    wheel.write_bytes(right.replace(b"'1.0'", b"'666'"))
    other = agent.session()
    install(agent, other, "small==1.0")
    assert output(agent, other, _VERSION) == "1.0\n"
    assert wheel.read_bytes() == right


@only_in_full
def test_wheel_that_changes_while_its_installation_waits_is_not_installed(host: Host, agent: Bearer) -> None:
    session = agent.session()
    install(agent, session, "large")
    (wheel,) = (host.home / "jupyter_data_dir/jupyter_exec_ext/wheels").glob("*/wheels/large-1.0-py3-none-any.whl")
    right = wheel.read_bytes()
    go = host.home / _WORK / session / "go"
    busy = f"import os, time\nwhile not os.path.exists({go.name!r}):\n    time.sleep(0.01)"
    later = {"Prefer": "respond-async"}
    running = agent.call("POST", f"/sessions/{session}/executions", json={"code": busy}, headers=later).json()["id"]
    body = {"packages": ["large"]}
    waiting = agent.call("POST", f"/sessions/{session}/packages", json=body, headers=later).json()["id"]
    wheel.chmod(0o600)
    wheel.write_bytes(right + b"x")
    go.touch()
    done = [
        agent.call("GET", f"/executions/{each}", headers={"Prefer": "wait=30"}).json() for each in (running, waiting)
    ]
    assert done[0]["state"] == "ok"
    error = done[1]["error"]
    assert (error["name"], "has changed" in error["value"]) == ("PackagesNotInstalled", True)
    wheel.write_bytes(right)


def test_owner_installs_in_a_plain_session_and_it_survives_a_restart(host: Host) -> None:
    owner = owner_of(host)
    session = owner.session()
    assert install(owner, session, "small==1.0")["state"] == "ok"
    assert owner.call("POST", f"/sessions/{session}/restart").status_code == 200
    assert output(owner, session, _VERSION) == "1.0\n"
    owner.call("DELETE", f"/sessions/{session}")


@pytest.mark.skipif(sys.platform != "linux", reason="checkpoints need Linux")
def test_branch_of_an_owners_session_has_packages_after_a_restart(host: Host) -> None:
    owner = owner_of(host)
    session = owner.session()
    install(owner, session, "small==1.0")
    [branch] = [each["id"] for each in owner.call("POST", f"/sessions/{session}/branches", json={}).json()["sessions"]]
    owner.call("DELETE", f"/sessions/{session}")
    assert owner.call("POST", f"/sessions/{branch}/restart").status_code == 200
    assert output(owner, branch, _VERSION) == "1.0\n"
    assert install(owner, branch, "small==2.0")["state"] == "ok"
    owner.call("DELETE", f"/sessions/{branch}")


def test_owners_session_without_an_installation_has_no_environment_for_packages(host: Host) -> None:
    owner = owner_of(host)
    session = owner.session()
    code = "import os, sys; print('PIP_PYTHON' in os.environ, 'exec-packages' in str(sys.path), os.listdir())"
    assert output(owner, session, code) == "False False []\n"
    owner.call("DELETE", f"/sessions/{session}")


async def test_both_clients_install_and_refusals_are_errors(host: Host, agent: Bearer) -> None:
    session = agent.session()
    connection = host.info
    async with AsyncExecClient(connection.url, token=agent.token) as client:
        asynchronous = await client.get_session(session)
        assert (await asynchronous.install("small==1.0")).ok
        with pytest.raises(PackagesNotFound, match="no-such-package"):
            await asynchronous.install("no-such-package")
        with pytest.raises(PackagesNotFound, match="no requirement"):
            await asynchronous.install("--index-url=https://evil.example")
        await asynchronous.run("import sys; sys.modules['jupyter_exec_packages'].install = lambda *_: 1 / 0")
        with pytest.raises(CodeError, match="ZeroDivisionError"):
            await asynchronous.install("small==1.0")
    with ExecClient(connection.url, token=agent.token) as blocking, blocking.session() as made:
        assert made.install("small==1.0", "other").ok
        assert made.run(_VERSION).stdout == "1.0\n"
    refusals = [(PolicyDenied, "default"), (QuotaExceeded, "small"), (Conflict, None)]
    for error, policy in refusals:
        token = connection.token if policy is None else mint(host, policy=policy).token
        with (
            ExecClient(connection.url, token=token) as refused,
            refused.session(isolation="sandbox") as made,
            pytest.raises(error, match="packages"),
        ):
            made.install("large")


def test_another_tokens_session_is_not_found(host: Host, agent: Bearer) -> None:
    answer = mint(host, policy="boxed").call(
        "POST", f"/sessions/{agent.session()}/packages", json={"packages": ["small"]}
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "session_not_found")
    lacking = mint(agent, ["sessions:read", "tokens:create"], policy="boxed")
    answer = lacking.call("POST", f"/sessions/{agent.session()}/packages", json={"packages": ["small"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")


@pytest.mark.parametrize(
    "body",
    [{}, {"packages": []}, {"packages": "small"}, {"packages": [1]}, {"packages": [""]}, {"packages": ["x"] * 101}],
)
def test_wrong_bodies_are_refused(agent: Bearer, body: dict[str, object]) -> None:
    answer = agent.call("POST", "/sessions/ses_any/packages", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_executor_installs_before_anything_else(host: Host, agent: Bearer, tmp_path: Path) -> None:
    connection = replace(host.info, token=agent.token)
    with JupyterCodeExecutor(connection, output_dir=tmp_path, packages=["small==1.0"]) as executor:
        result = executor.execute_code_blocks([CodeBlock(_VERSION, "python")])
        assert (result.exit_code, result.output) == (0, "1.0\n")


async def test_autogens_session_has_packages_also_after_the_server_has_ended_it(host: Host, agent: Bearer) -> None:
    connection = replace(host.info, token=agent.token)
    async with SessionWithFunctions(FunctionsModule((), "functions"), ["small==1.0"], server=connection) as session:
        first = await session.open()
        assert (await session.run(_VERSION)).to_text() == (await session.run(_VERSION)).to_text() == "1.0\n"
        assert len(agent.call("GET", f"/sessions/{first.id}/executions").json()["executions"]) == 3
        agent.call("DELETE", f"/sessions/{first.id}")
        assert isinstance(await session.run("1"), NotRun)
        assert (await session.run(_VERSION)).to_text() == "1.0\n"


def test_mcp_starts_a_session_with_packages(agent: Bearer) -> None:
    client = RawClient.of(agent)
    session = client.tool("start_session", packages=["small==1.0"])["structuredContent"]["session"]
    assert output(agent, session, _VERSION) == "1.0\n"
    before = sessions_of(agent)
    refused = client.tool("start_session", packages=["no-such-package"])
    assert refused["isError"]
    assert "no-such-package" in json.dumps(refused)
    until(lambda: sessions_of(agent) == before)


@only_in_full
def test_command_installs_and_prints_the_installers_messages(host: Host, agent: Bearer, tmp_path: Path) -> None:
    session = agent.session()
    program = str(Path(sys.executable).parent / "jupyter-exec")
    command = [program, "session", "install", session, "small==1.0", "--server", host.info.url]
    env = clean_environment(tmp_path, JUPYTER_TOKEN=agent.token)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "Successfully installed small-1.0" in done.stdout


@only_in_full
def test_pooled_kernel_serves_a_session_with_packages(host: Host, agent: Bearer) -> None:
    def pooled_session() -> str:
        noted = prepared(host.home)
        session = agent.session()
        if session in noted:
            return session
        agent.call("DELETE", f"/sessions/{session}")
        return ""

    session = until(pooled_session)
    install(agent, session, "small==1.0")
    assert output(agent, session, _VERSION) == "1.0\n"
