"""The executor for ACA sessions with real kernels, behind our own endpoint, in both families of the protocol."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext import ACADynamicSessionsCodeExecutor, CodeBlock, IPythonCodeResult, with_requirements
from jupyter_exec_ext.aca.executor import pool_session
from jupyter_exec_ext.errors import InvalidRequest
from jupyter_exec_ext.executors import FunctionWithRequirements
from tests.aca.executor.pools import ENVELOPE, FLAT, Cancellation, HostsToken, delete, endpoint_of, python, sessions_of
from tests.adapters.beacon import PICTURE, SHOW_PICTURE, beacon
from tests.support.hosts import Host

Make = Callable[..., ACADynamicSessionsCodeExecutor]
POOLS = [("server", ENVELOPE), ("server", FLAT), ("gateway", FLAT)]


@pytest.fixture(params=POOLS, ids=lambda pool: "-".join(pool))
def pool(request: pytest.FixtureRequest, hosts: Any) -> tuple[Host, str]:
    name, api_version = request.param
    return hosts[name], api_version


@pytest.fixture
async def make(pool: tuple[Host, str], tmp_path: Path) -> AsyncIterator[Make]:
    made: list[ACADynamicSessionsCodeExecutor] = []

    def make(**options: Any) -> ACADynamicSessionsCodeExecutor:
        host, api_version = pool
        options = {"timeout": 30, "work_dir": tmp_path / "work", "api_version": api_version, **options}
        made.append(ACADynamicSessionsCodeExecutor(endpoint_of(host), HostsToken(host), **options))
        return made[-1]

    yield make
    for executor in made:
        await executor.stop()


@pytest.fixture
def executor(make: Make) -> ACADynamicSessionsCodeExecutor:
    return make()


async def run(executor: ACADynamicSessionsCodeExecutor, *codes: str) -> IPythonCodeResult:
    result = await executor.execute_code_blocks(python(*codes))
    assert isinstance(result, IPythonCodeResult)
    return result


async def test_state_is_kept_and_only_what_was_printed_is_in_the_output(
    executor: ACADynamicSessionsCodeExecutor,
) -> None:
    assert await run(executor, "x = 20", "print('hello')") == IPythonCodeResult(0, "hello\n", [])
    assert (await run(executor, "x + 1")).output == "21"
    assert (await run(executor, "None", "[x, 'a']")).output == "[20, 'a']"


async def test_blocks_after_a_failing_one_do_not_run_and_nothing_before_is_lost(
    executor: ACADynamicSessionsCodeExecutor,
) -> None:
    result = await run(executor, "print('before')", "print('in it')\n1 / 0", "print('after')")
    assert result.exit_code == 1
    assert result.output.startswith("before\nin it\n")
    assert result.output.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "after" not in result.output
    assert "\x1b" not in result.output
    assert "_aca_session" not in (await run(executor, "1 / 0")).output


async def test_what_a_session_is_entered_with_is_not_in_the_traceback_of_its_first_code(
    executor: ACADynamicSessionsCodeExecutor,
) -> None:
    output = (await run(executor, "1 / 0")).output
    assert "ZeroDivisionError" in output
    assert "_aca_session" not in output


async def test_the_value_can_be_left_out(make: Make) -> None:
    assert (await run(make(suppress_result_output=True), "print('said')\n7")).output == "said\n"


async def test_a_picture_is_a_file_and_its_base64_is_not_in_the_output(
    executor: ACADynamicSessionsCodeExecutor, tmp_path: Path
) -> None:
    result = await run(executor, SHOW_PICTURE)
    (path,) = result.output_files
    assert Path(path).read_bytes() == PICTURE
    assert Path(path).parent == tmp_path / "work"
    assert result.output == f"here\nImage data saved to {path}"


async def test_the_time_limit_is_the_services_and_gives_a_result(make: Make) -> None:
    executor = make(timeout=2)
    await run(executor, "x = 1")
    began = time.monotonic()
    result = await run(executor, "print('before')", "print('in it', flush=True)\nimport time\ntime.sleep(60)")
    assert result.exit_code == 124
    assert result.output.startswith("before\nin it\n")
    assert result.output.endswith("time limit of 2 s; the session's variables were kept")
    assert (await run(executor, "x")).output == "1"
    assert time.monotonic() - began < 20


async def test_cancelling_frees_the_caller_stops_the_code_and_the_next_result_says_it(
    executor: ACADynamicSessionsCodeExecutor, pool: tuple[Host, str]
) -> None:
    await run(executor, "x = 1")
    known = await sessions_of(pool[0])
    async with beacon() as light:
        token = Cancellation()
        running = asyncio.create_task(executor.execute_code_blocks(python(light.code), token))
        await light.lit()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 5)
        await light.out()
    result = await run(executor, "print('x' in globals())")
    assert result.exit_code == 0
    assert result.output.startswith("Lost: the session was ended together with code in it that was cancelled. A fresh")
    assert result.output.endswith("\nFalse\n")
    assert len(known - await sessions_of(pool[0])) == 1
    assert (await run(executor, "print(1)")).output == "1\n"


async def test_a_task_that_is_cancelled_stops_its_code_too(executor: ACADynamicSessionsCodeExecutor) -> None:
    async with beacon() as light:
        running = asyncio.create_task(executor.execute_code_blocks(python(light.code)))
        await light.lit()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await light.out()


async def test_with_a_token_that_is_cancelled_already_nothing_runs(
    executor: ACADynamicSessionsCodeExecutor, pool: tuple[Host, str]
) -> None:
    before = await sessions_of(pool[0])
    token = Cancellation()
    token.cancel()
    for call in (
        lambda: executor.execute_code_blocks(python("1"), token),
        lambda: executor.get_file_list(token),
        lambda: executor.get_available_packages(token),
    ):
        with pytest.raises(asyncio.CancelledError):
            await call()
    assert await sessions_of(pool[0]) == before


async def test_cancelling_who_waits_does_not_stop_who_runs(executor: ACADynamicSessionsCodeExecutor) -> None:
    async with beacon() as light:
        token, other = Cancellation(), Cancellation()
        running = asyncio.create_task(executor.execute_code_blocks(python("x = 1", light.code), token))
        await light.lit()
        waiting = asyncio.create_task(executor.execute_code_blocks(python("x"), other))
        await asyncio.sleep(0)
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not light._out.is_set()
        assert not running.done()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_the_death_of_the_kernel_is_said_and_files_outlive_it(executor: ACADynamicSessionsCodeExecutor) -> None:
    result = await run(executor, "open('kept.txt', 'w').write('x') and None", "import os; os._exit(1)")
    assert result.exit_code == 1
    assert "Lost: the session's kernel has ended. A fresh session was started" in result.output
    assert (await run(executor, "print(open('kept.txt').read())")).output == "x\n"


async def test_restart_gives_a_fresh_session_and_ends_what_runs_as_cancelled(
    executor: ACADynamicSessionsCodeExecutor, pool: tuple[Host, str]
) -> None:
    await run(executor, "x = 1")
    async with beacon() as light:
        running = asyncio.create_task(run(executor, "print('before')", light.code))
        await light.lit()
        before = await sessions_of(pool[0])
        await executor.restart()
        result = await asyncio.wait_for(running, 10)
        await light.out()
    assert result.exit_code == 1
    assert result.output.startswith("before\nCancelled: the session was restarted or stopped while this ran")
    assert (await run(executor, "print('x' in globals())")).output == "False\n"
    assert len(before - await sessions_of(pool[0])) == 1


async def test_stop_deletes_the_session_and_it_can_be_used_again(
    executor: ACADynamicSessionsCodeExecutor, pool: tuple[Host, str]
) -> None:
    before = await sessions_of(pool[0])
    await run(executor, "x = 1")
    assert len(await sessions_of(pool[0]) - before) == 1
    await executor.stop()
    assert await sessions_of(pool[0]) == before
    await executor.stop()
    assert (await run(executor, "print('x' in globals())")).output == "False\n"
    await executor.close()
    assert await sessions_of(pool[0]) == before


async def test_a_named_session_is_shared_left_by_stop_and_deleted_by_restart(
    make: Make, pool: tuple[Host, str]
) -> None:
    name = f"shared {time.time_ns()}".replace(" ", "#&=")
    one, other = make(session_id=name), make(session_id=name)
    await run(one, "x = 7")
    await one.stop()
    assert (await run(other, "x")).output == "7"
    await other.restart()
    assert name not in await sessions_of(pool[0])
    assert (await run(other, "print('x' in globals())")).output == "False\n"
    await other.stop()


@pytest.mark.parametrize("save_files", [False, True])
async def test_a_session_that_the_pool_has_ended_is_noticed_and_said(
    make: Make, pool: tuple[Host, str], monkeypatch: pytest.MonkeyPatch, save_files: bool
) -> None:
    executor = make(functions=[area], session_id=f"lost-{time.time_ns()}", save_files=save_files)
    await run(executor, "x = 1")
    await delete(pool[0], (await executor._sessions.current()).identifier)
    monkeypatch.setattr(pool_session, "IDLE_SECONDS", 0.0)  # as if it had been idle for that long
    result = await run(executor, "x")
    assert result.exit_code == 1
    assert result.output.startswith("Not run: the session was not used for long and has ended. A fresh session")
    assert (await run(executor, "print('x' in globals(), round(area(1), 2))")).output == "False 3.14\n"
    await delete(pool[0], (await executor._sessions.current()).identifier)
    assert await executor.get_file_list() == []
    result = await run(executor, "print('x' in globals())")
    assert re.fullmatch(r"Lost: the session was not used for long and has ended\. A fresh .*\nFalse\n", result.output)
    await executor.restart()


@with_requirements(python_packages=["ipykernel>=6"], global_imports=["math"])
def area(radius: float) -> float:
    """Return the area of a circle."""
    return math.pi * radius**2  # type: ignore[name-defined,no-any-return]  # noqa: F821


def broken() -> None:
    raise RuntimeError("in a function")


async def test_functions_can_be_imported_and_called_by_name_in_every_session(make: Make) -> None:
    executor = make(functions=[area, broken], functions_module="tools")
    show = "import importlib, tools\nfrom tools import area as a\nprint(a(0), area(0), tools.area(0))"
    assert (await run(executor, show)).output == "0.0 0.0 0.0\n"
    assert 'raise RuntimeError("in a function")' in (await run(executor, "broken()")).output
    await executor.restart()
    assert (await run(executor, show)).output == "0.0 0.0 0.0\n"
    assert "Lost" in (await run(executor, "import os; os._exit(1)")).output
    assert (await run(executor, show)).output == "0.0 0.0 0.0\n"
    assert (executor.functions, executor.functions_module) == (["area", "broken"], "tools")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (FunctionWithRequirements(broken, ["no-such-package>=2", "ipykernel"]), "no-such-package>=2$"),
        (FunctionWithRequirements(broken, global_imports=["no_such_module"]), "No module named 'no_such_module'"),
    ],
)
async def test_what_functions_lack_is_named(make: Make, function: Any, said: str) -> None:
    executor = make(functions=[function])
    for _ in range(2):
        with pytest.raises(ValueError, match=said):
            await run(executor, "1")


async def test_packages_are_those_of_the_session_and_can_be_asked_for_first(make: Make) -> None:
    executor = make(suppress_result_output=True)
    packages = await executor.get_available_packages()
    assert {"ipykernel", "jupyter_client"} <= packages
    assert not [name for name in packages if not re.fullmatch(r"[\w.-]+", name)]
    made = "import sys, pathlib\nplace = pathlib.Path.cwd() / 'just_made-1.0.dist-info'\n"
    made += "place.mkdir()\nplace.joinpath('METADATA').write_text('Name: just-made\\nVersion: 1.0\\n')\n"
    await run(executor, f"{made}sys.path.append(str(place.parent))")
    assert await executor.get_available_packages() - packages == {"just-made"}


async def test_code_may_install_what_it_wants(executor: ACADynamicSessionsCodeExecutor) -> None:
    """No list of packages stands between the code and the session."""
    result = await run(executor, "!pip --version a b")
    assert result.exit_code == 0
    assert result.output.startswith("pip ")


async def test_files_go_there_and_back(executor: ACADynamicSessionsCodeExecutor, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "in").mkdir()
    (work / "t 1.txt").write_bytes(b"one")
    (work / "in" / "ü#%20&.bin").write_bytes(b"two" * 1_000_000)
    await executor.upload_files(["t 1.txt", Path("in") / "ü#%20&.bin"])
    names = await executor.get_file_list()
    assert sorted(names) == ["t 1.txt", "ü#%20&.bin"]
    swap = "import os\nprint(open('t 1.txt').read())\nos.rename('/mnt/data/t 1.txt', 'moved.txt')"
    assert (await run(executor, swap)).output == "one\n"
    (work / "t 1.txt").unlink()
    paths = await executor.download_files([Path("moved.txt"), "ü#%20&.bin"])
    assert paths == [str(work / "moved.txt"), str(work / "ü#%20&.bin")]
    assert (work / "moved.txt").read_bytes() == b"one"
    assert (work / "ü#%20&.bin").read_bytes() == b"two" * 1_000_000


async def test_files_that_are_not_there_or_not_meant_are_refused(
    executor: ACADynamicSessionsCodeExecutor, tmp_path: Path
) -> None:
    (tmp_path / "work" / "other").mkdir()
    for place in (tmp_path / "work" / "a.txt", tmp_path / "work" / "other" / "a.txt"):
        place.write_bytes(b"a")
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        await executor.upload_files(["a.txt", "none.txt"])
    with pytest.raises(ValueError, match=r"more than one file would be uploaded as a\.txt"):
        await executor.upload_files(["a.txt", "other/a.txt"])
    assert await executor.get_file_list() == []
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        await executor.download_files(["none.txt"])
    for path in ("../a.txt", "/etc/passwd", "x/../../a.txt"):
        with pytest.raises(InvalidRequest):
            await executor.download_files([path])
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["a.txt", "other"]


async def test_files_that_code_writes_are_saved_and_replace_nothing(make: Make, tmp_path: Path) -> None:
    executor = make(save_files=True, output_dir=tmp_path / "out")
    (tmp_path / "work" / "given.txt").write_text("given")
    (tmp_path / "out" / "made.txt").write_text("here before")
    await executor.upload_files(["given.txt"])
    result = await run(executor, "print('x')", "open('made.txt', 'w').write('made') and None", "1/0")
    (path,) = result.output_files
    assert path == str(tmp_path / "out" / "made-2.txt")
    assert Path(path).read_text() == "made"
    assert (tmp_path / "out" / "made.txt").read_text() == "here before"
    assert result.output.endswith(f"File 'made.txt' saved to {path}")
    assert (await run(executor, "2")).output_files == []
    result = await run(executor, "open('given.txt', 'a').write(' more') and None")
    assert [Path(path).read_text() for path in result.output_files] == ["given more"]


async def test_the_language_of_a_block_counts(executor: ACADynamicSessionsCodeExecutor) -> None:
    result = await executor.execute_code_blocks(
        [CodeBlock("print(1)", "Python"), CodeBlock("print(2)", ""), CodeBlock("print(3)", "py")]
    )
    assert (result.exit_code, result.output) == (0, "1\n2\n3\n")
    result = await executor.execute_code_blocks([CodeBlock("print(1)", "python"), CodeBlock("echo", "bash")])
    assert (result.exit_code, result.output) == (1, "1\nNot run: unknown language bash; this runs python")


@pytest.mark.parametrize(
    ("first", "printed"),
    [
        ("%%capture out\nprint(1)", ""),
        ("from __future__ import annotations\ndef f(x: nothing): pass\nprint(1)", "1\n"),
        ("  x = 1\n  print(x)", "1\n"),
        (">>> print(1)", "1\n"),
        ("# nothing", ""),
        ("", ""),
        ("def f(:", None),
        ("%time\n!echo 1\nawait __import__('asyncio').sleep(0)\nprint(2)", None),
    ],
)
async def test_the_first_code_of_a_session_runs_as_it_is_and_in_the_directory(
    executor: ACADynamicSessionsCodeExecutor, first: str, printed: str | None
) -> None:
    result = await run(executor, first)
    assert printed is None or (result.exit_code, result.output) == (0, printed)
    await run(executor, "open('here.txt', 'w').close()")
    assert await executor.get_file_list() == ["here.txt"]
    assert (await run(executor, "[n for n in dir() if 'aca' in n or n in ('os', 'sys')]")).output == "[]"


async def test_tasks_may_share_an_executor(executor: ACADynamicSessionsCodeExecutor) -> None:
    await run(executor, "n = 0")
    results = await asyncio.gather(*(run(executor, f"n += 1\nprint('{number}')") for number in range(5)))
    assert [result.output for result in results] == [f"{number}\n" for number in range(5)]
    assert (await run(executor, "n")).output == "5"


async def test_long_output_is_not_cut_at_the_services_default(executor: ACADynamicSessionsCodeExecutor) -> None:
    assert len((await run(executor, "print('x' * 100_000)")).output) == 100_001


def test_it_needs_neither_autogen_nor_azure() -> None:
    code = (
        "import sys\n"
        "for name in ('autogen_core', 'autogen_ext', 'azure', 'azure.core'): sys.modules[name] = None\n"
        "from jupyter_exec_ext import ACADynamicSessionsCodeExecutor\n"
        "import jupyter_exec_ext.aca.client.aio.pool_client\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_example_runs(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "aca_executor.py"
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "The 20 numbers add up to 2870.\n"), done.stderr
