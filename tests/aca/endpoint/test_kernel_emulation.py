"""Kernels as programs for session pools expect them: /mnt/data and pkg_resources, without a sandbox and with one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.bearers import owner_of
from tests.support.full import only_in_full
from tests.support.hosts import Host, running_host
from tests.support.kernelspecs import add_kernelspec
from tests.support.outside_parts import require_part
from tests.support.pool_clients import Pool, pool_of

LEVELS = {"none": "local-provisioner", "landlock": "landlock-provisioner", "sandbox": "sandbox-provisioner"}
PARTS = {"landlock": "Landlock", "sandbox": "sandbox"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("kernels")
    for level, provisioner in LEVELS.items():
        add_kernelspec(home, level, provisioner)
    with running_host("server", home) as host:
        yield host


@pytest.fixture(scope="module", params=LEVELS)
def fresh(host: Host, request: pytest.FixtureRequest) -> Pool:
    """A session that nobody has used, in a pool of kernels with a level of isolation."""
    if request.param in PARTS:
        require_part(PARTS[request.param])
    return pool_of(host).another(path=f"/sessionPools/{request.param}")


@pytest.fixture(scope="module")
def shared(fresh: Pool) -> Pool:
    return fresh.another()


@pytest.fixture
def pool(shared: Pool) -> Pool:
    code = "%reset -f\nimport os, shutil\nos.chdir('/mnt/data')\nfor name in os.listdir('.'):\n"
    shared.run(code + "    os.remove(name) if os.path.isfile(name) else shutil.rmtree(name)")
    return shared


# What AutoGen's client sends before anything else.
PROBE = "\nimport pkg_resources\n[d.project_name for d in pkg_resources.working_set]\n"


def test_the_first_questions_of_clients_are_answered(pool: Pool) -> None:
    listed = pool.run(PROBE, outputStreamsMaxLength=2**20)
    assert (listed["status"], listed["result"]["stderr"]) == ("Succeeded", "")
    packages = listed["result"]["executionResult"]
    assert "'ipykernel'" in packages and ",\n" in packages
    assert pool.run("import os; os.chdir('/mnt/data')")["status"] == "Succeeded"
    found = pool.value("[(d.project_name, d.version) for d in pkg_resources.working_set if d.key == 'ipykernel']")
    assert found.startswith("[('ipykernel', '")


def test_pkg_resources_of_setuptools_goes_before_ours(pool: Pool) -> None:
    code = "import os, sys; sys.modules.pop('pkg_resources', None); os.mkdir('p'); sys.path.insert(0, 'p')\n"
    code += "open('p/pkg_resources.py', 'w').write('theirs = True'); import pkg_resources\n"
    code += "sys.path.remove('p'); sys.modules.pop('pkg_resources').theirs"
    assert pool.value(code) is True
    warns = "import warnings; warnings.warn('pkg_resources is deprecated as an API.', UserWarning)"
    assert pool.run(warns)["result"]["stderr"] == ""


WAYS = [
    "open('/mnt/data/a', 'w').write('x'); open('/mnt/data/a').read() == 'x'",
    "import io; io.open('/mnt/data/a', 'w').close(); os.path.getsize('a') == 0",
    "import pathlib; pathlib.Path('/mnt/data/a').write_text('x'); pathlib.Path('/mnt/data', 'a').read_bytes() == b'x'",
    "import pathlib; p = pathlib.Path('/mnt/data/d/e'); p.mkdir(parents=True); p.is_dir() and os.path.isdir('d/e')",
    "import pathlib; open('a.t', 'w').close(); [p.name for p in pathlib.Path('/mnt/data').glob('*.t')] == ['a.t']",
    "os.makedirs('/mnt/data/d/e', exist_ok=True); os.listdir('/mnt/data') == ['d']",
    "open('a', 'w').close(); os.listdir(b'/mnt/data') == [b'a']",
    "open('a', 'w').close(); [entry.name for entry in os.scandir('/mnt/data')] == ['a']",
    "open('a', 'w').close(); os.rename('/mnt/data/a', '/mnt/data/b'); os.path.exists('/mnt/data/b')",
    "open('a', 'w').close(); os.replace(src='/mnt/data/a', dst='b'); os.stat(path='/mnt/data/b').st_size == 0",
    "open('a', 'w').close(); os.remove('/mnt/data/a'); not os.path.exists('a') and not os.path.exists('/mnt/data/a')",
    "import shutil; open('a', 'w').close(); shutil.copy('/mnt/data/a', '/mnt/data/b'); os.path.isfile('/mnt/data/b')",
    "import shutil; os.makedirs('d/e'); shutil.copytree('/mnt/data/d', '/mnt/data/g'); os.path.isdir('/mnt/data/g/e')",
    "import shutil; os.makedirs('d/e'); shutil.rmtree('/mnt/data/d'); os.listdir('/mnt/data') == []",
    "import glob; open('a.csv', 'w').close(); glob.glob('/mnt/data/*.csv') == ['/mnt/data/a.csv']",
    "os.makedirs('d/e'); [r for r, _, _ in os.walk('/mnt/data')] == ['/mnt/data', '/mnt/data/d', '/mnt/data/d/e']",
    "import tempfile; f = tempfile.NamedTemporaryFile(dir='/mnt/data'); len(os.listdir('.')) == 1",
    "import zipfile; zipfile.ZipFile('/mnt/data/z.zip', 'w').close(); zipfile.is_zipfile('/mnt/data/z.zip')",
    "import json; json.dump([1], open('/mnt/data/a', 'w')); json.load(open('a')) == [1]",
    "os.chdir('/'); os.chdir('/mnt/data'); open('a', 'w').close(); os.path.exists('/mnt/data/a')",
    "open('/mnt/data/../' + os.path.basename(os.getcwd()) + '/a', 'w').close(); os.path.exists('a')",
    "os.access('/mnt/data', os.W_OK) and os.path.realpath('/mnt/data/x').endswith('/x')",
    "os.path.isabs('/mnt/data') and not os.path.exists('/mnt/database') and not os.path.exists('/mnt/data/none')",
    "f = os.open('/mnt/data/a', os.O_CREAT | os.O_WRONLY); os.write(f, b'x'); os.close(f); os.path.getsize('a') == 1",
]


@pytest.mark.parametrize("code", WAYS)
def test_python_finds_its_files_at_mnt_data(pool: Pool, code: str) -> None:
    *before, last = code.split("; ")
    home = "import os; os.chdir('/mnt/data')"
    assert pool.value("; ".join([home, *before]) + f"\nbool({last})") is True


def test_errors_and_other_arguments_are_those_of_the_functions(pool: Pool) -> None:
    answer = pool.run("open('/mnt/data/none')")["result"]["stderr"]
    assert "FileNotFoundError" in answer
    code = "import os\nresults = []\n"
    code += "for call in (lambda: open(), lambda: open(1.5), lambda: os.stat(None), lambda: os.rename('a')):\n"
    code += "    try: call()\n    except TypeError: results.append(1)\nlen(results)"
    assert pool.value(code) == 4
    assert pool.value("r, w = os.pipe(); open(w, 'w').close(); os.close(r); os.listdir() == os.listdir('.')") is True
    assert pool.value("os.stat in os.supports_dir_fd and os.stat in os.supports_follow_symlinks") is True


def test_nothing_of_it_is_among_the_users_names(fresh: Pool) -> None:
    names = fresh.value("import json; json.dumps(sorted(n for n in globals() if not n.startswith('_')))")
    assert set(json.loads(names)) <= {"In", "Out", "exit", "get_ipython", "json", "open", "quit"}


def test_it_is_there_after_a_crash(fresh: Pool) -> None:
    pool = fresh.another()
    pool.run("import os; os._exit(1)")
    assert pool.value("import os; os.chdir('/mnt/data'); open('/mnt/data/a', 'w').write('12')") == 2
    assert pool.call("GET", "files/a/content").content == b"12"


def test_in_a_sandbox_it_is_really_there(pool: Pool) -> None:
    """For other programs, too; elsewhere they do not know of it, which the documentation says."""
    pool.upload("a.txt", b"x")
    seen = pool.run("import subprocess; subprocess.run(['ls', '/mnt/data'], capture_output=True, text=True).stdout")
    assert seen["result"]["executionResult"] == ("a.txt\n" if pool.path.endswith("sandbox") else "")


@only_in_full
def test_sessions_of_our_own_api_are_as_they_were(host: Host) -> None:
    """What programs for pools need is done for them alone."""
    owner = owner_of(host)
    session_id = owner.session()
    told: Any = owner.run(session_id, "import sys; [type(f).__name__ for f in sys.meta_path].count('PackageResources')")
    assert told.json()["outputs"][0]["data"]["text/plain"] == "0"
