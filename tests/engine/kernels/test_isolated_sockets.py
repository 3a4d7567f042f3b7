"""The directory of an isolated kernel's sockets: nothing in it costs the machine anything, and nothing of it stays."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.isolation.common.launch_request import SOCKETS_BYTES
from jupyter_exec_ext.isolation.common.leftovers import base_directory, own_name
from jupyter_exec_ext.models import ExecutionRequest, ExecutionState, SessionRequest
from tests.support.kernelspecs import add_kernelspec
from tests.support.outside_parts import require_part

ME = owner("me")
# The levels of isolation, and the part that each needs.
LEVELS = {"sandbox": "sandbox", "landlock": "Landlock"}


@pytest.fixture
def engine(make_engine: Callable[..., ExecEngine]) -> ExecEngine:
    """An engine that keeps no kernels ready."""
    return make_engine(pool_size=0)


@pytest.fixture(params=LEVELS)
async def session(engine: ExecEngine, request: pytest.FixtureRequest) -> str:
    """A session whose kernel is isolated."""
    require_part(LEVELS[request.param])
    add_kernelspec(Path(os.environ["JUPYTER_DATA_DIR"]).parent, "isolated", f"{request.param}-provisioner")
    created = await engine.create_session(ME, SessionRequest("isolated"))
    assert created.isolation == request.param
    return created.id


async def run(engine: ExecEngine, session: str, code: str) -> str:
    """Return what code prints; an error is printed, too."""
    execution = await engine.execute(ME, session, ExecutionRequest(code))
    record = await execution.wait()
    assert record.state in (ExecutionState.OK, ExecutionState.ERROR), record
    return record.stdout.strip() or (record.error.name if record.error else "")


SOCKETS_DIRECTORY = """
import os, json
from ipykernel.connect import get_connection_file
info = json.load(open(get_connection_file()))
os.chdir(os.path.dirname(os.path.realpath(f"{info['ip']}-{info['shell_port']}")))
"""
TRICKS = {
    "a large file": "open('file', 'wb').write(bytes(10**6))",
    "many files": "[open(f'{n}', 'wb').write(bytes(5000)) for n in range(100)]",
    "a file that grows": "f = open('grows', 'ab', 0)\nwhile True: f.write(bytes(5000))",
    "a sparse file": "f = open('sparse', 'wb', 0); f.truncate(10**9)\n"
    "for n in range(100): f.seek(n * 4096); f.write(b'x')",
    "reserved space": "f = open('reserved', 'wb'); os.posix_fallocate(f.fileno(), 0, 10**6)",
    "copies": "import shutil\nfor n in range(5): shutil.copyfile(os.__file__, f'copy{n}')",
}


@pytest.mark.parametrize("trick", TRICKS)
async def test_sockets_directory_takes_little_whatever_code_writes(
    engine: ExecEngine, session: str, trick: str
) -> None:
    caught = f"try:\n    exec({TRICKS[trick]!r})\n    print('written')\nexcept OSError as error: print(error.errno)"
    said = await run(engine, session, SOCKETS_DIRECTORY + caught)
    assert said.isdecimal(), "it was refused"
    used = "s = os.statvfs('.'); print(sum(f.stat().st_blocks for f in os.scandir('.') if f.is_file()) * 512)"
    assert int(await run(engine, session, used)) <= SOCKETS_BYTES


async def test_nothing_but_links_of_ours_is_in_the_directory_for_sockets(engine: ExecEngine, session: str) -> None:
    await run(
        engine, session, SOCKETS_DIRECTORY + "for n in range(3):\n    try: os.mkdir(f'd{n}')\n    except OSError: pass"
    )
    found = list((base_directory() / own_name()).iterdir())
    assert found and all(path.is_symlink() for path in found)


async def test_nothing_is_left_of_the_sockets_when_the_session_has_ended(engine: ExecEngine, session: str) -> None:
    assert await run(engine, session, "print(1)") == "1"
    await engine.delete_session(ME, session)
    directory = base_directory() / own_name()
    assert not directory.exists() or list(directory.iterdir()) == []


async def test_sockets_are_found_again_after_a_restart(engine: ExecEngine, session: str) -> None:
    for _ in range(2):
        await engine.restart_session(ME, session)
        assert await run(engine, session, "print(2)") == "2"


async def test_a_kernel_that_replaces_its_sockets_reaches_no_other(engine: ExecEngine, session: str) -> None:
    """It may put links there to whatever it likes; the server connects to sockets alone."""
    replace = SOCKETS_DIRECTORY + (
        "names = [name for name in os.listdir('.') if '-' in name]\n"
        "for name in names:\n    os.unlink(name)\n"
        "    try: os.symlink('/run/other', name)\n    except OSError: pass\n"
        "print(len(names))"
    )
    assert int(await run(engine, session, replace)) >= 5
    assert await run(engine, session, "print(3)") == "3", "the connections that there are stay"
    await engine.restart_session(ME, session)
    assert await run(engine, session, "print(4)") == "4"


async def test_crash_of_an_isolated_kernel_is_explained_by_its_report(engine: ExecEngine, session: str) -> None:
    execution = await engine.execute(
        ME, session, ExecutionRequest("import faulthandler\ndef culprit(): faulthandler._sigsegv()\nculprit()")
    )
    record = await execution.wait()
    assert record.state is ExecutionState.KERNEL_DIED
    assert record.error is not None and "culprit" in record.error.traceback


async def test_report_of_a_crash_is_the_servers_own_file_whatever_the_kernel_puts_there(
    engine: ExecEngine, session: str
) -> None:
    code = (
        "import os, gc, io\n"
        "for f in gc.get_objects():\n"
        "    name = f.name if isinstance(f, io.FileIO) and not f.closed else ''\n"
        "    if isinstance(name, str) and len(os.path.basename(name)) == 32:\n"
        "        os.unlink(name)\n"
        "        try: os.symlink('/etc/passwd', name)\n"
        "        except OSError: pass\n"
        "os._exit(3)"
    )
    execution = await engine.execute(ME, session, ExecutionRequest(code))
    record = await execution.wait()
    assert record.error is not None and "root:" not in record.error.traceback


def test_an_environment_below_work_is_seen_with_the_working_directory_elsewhere(tmp_path: Path) -> None:
    from jupyter_exec_ext.isolation.common.launch_request import WORK_PLACES, View
    from jupyter_exec_ext.isolation.sandbox.bubblewrap import work_place

    def place(*seen: str) -> str:
        return work_place(View(read_only=seen, links={}, hidden=[], work_directory=str(tmp_path)))

    assert place("/usr", "/workshop") == WORK_PLACES[0]
    assert place("/usr", "/work/env") == WORK_PLACES[1]
    assert place("/work", "/session/env") == WORK_PLACES[2]
    assert os.path.isabs(WORK_PLACES[0])
