from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_exec_ext import ExecClient, JupyterCodeExecutor
from jupyter_exec_ext.engine.kernels.death_report import KernelStderr
from jupyter_exec_ext.errors import ExecError, KernelStartFailed
from tests.support.hosts import Host, running_host
from tests.support.kernelspecs import add_kernelspec
from tests.support.waiting import until


@contextmanager
def servers_own(descriptor: int) -> Iterator[None]:
    """Have another descriptor as this process's standard error."""
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def opened() -> int:
    return len(os.listdir("/proc/self/fd"))


async def write(code: str, stderr: KernelStderr) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=stderr.for_kernel)
    stderr.close_write_end()
    await asyncio.wait_for(process.wait(), 20)


async def test_what_a_kernel_writes_is_passed_on_and_its_end_kept(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, servers_own(log.fileno()):
        stderr = KernelStderr()
        await write("import os; os.write(2, b'first\\n' + b'x' * 300_000 + b'\\x1b[31mlast\\xff\\n')", stderr)
        await until(lambda: stderr.last_words.endswith("\ufffd"))
    assert (tmp_path / "log").read_bytes() == b"first\n" + b"x" * 300_000 + b"\x1b[31mlast\xff\n"
    assert stderr.last_words.endswith("xxx[31mlast\ufffd")
    assert len(stderr.last_words) <= 2000
    stderr.close()
    stderr.close()


async def test_it_is_over_when_nobody_can_write_any_more() -> None:
    before = opened()
    stderr = KernelStderr()
    await write("import sys; sys.exit('why')", stderr)
    await until(lambda: opened() == before)
    assert stderr.last_words == "why"
    stderr.close()


async def test_a_log_that_nobody_reads_holds_up_nothing() -> None:
    unread, full = os.pipe()
    with servers_own(full):
        stderr = KernelStderr()
        await write("import os; os.write(2, b'x' * 1_000_000)", stderr)
        stderr.close()
    os.close(unread)
    with servers_own(full):
        stderr = KernelStderr()
        await write("import os; os.write(2, b'nobody reads it any more')", stderr)
        assert stderr.last_words == "nobody reads it any more"
        stderr.close()
    os.close(full)


# --- why a kernel did not start ---

LAUNCHER = [sys.executable, "-c"]
FAILING = {
    "no-module": ([sys.executable, "-m", "no_such_kernel"], "No module named no_such_kernel"),
    "no-licence": ([*LAUNCHER, "raise SystemExit('no licence')"], "no licence"),
    "no-import": ([*LAUNCHER, "import numpyy"], "No module named 'numpyy'"),
    "talks": ([*LAUNCHER, "import sys; print('x' * 100_000, file=sys.stderr); sys.exit('out of room')"], "out of room"),
    "shell": (["sh", "-c", "echo this is why >&2; exit 3"], "this is why"),
    "missing": (["/no/such/program", "{connection_file}"], "/no/such/program"),
    "no-argv": (None, "argv"),
}
UNREADABLE = {
    "cut": '{"argv": [',
    "empty": "",
    "list": "[]",
    "not-text": "\udcff",
}


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("failing")
    specs = {name: {"argv": argv} for name, (argv, _) in FAILING.items()}
    del specs["no-argv"]["argv"]
    texts = {name: json.dumps({**spec, "display_name": name, "language": "python"}) for name, spec in specs.items()}
    for name, text in (texts | UNREADABLE).items():
        directory = home / "jupyter_data_dir" / "kernels" / name
        directory.mkdir(parents=True)
        (directory / "kernel.json").write_text(text, errors="surrogateescape")
    add_kernelspec(home, "forked", "forkserver-provisioner")
    with running_host(str(request.param), home) as host:
        yield host


def test_why_a_kernel_did_not_start_is_in_the_error(host: Host, tmp_path: Path) -> None:
    with ExecClient(host.info) as client:
        for name, (_, why) in FAILING.items():
            with pytest.raises(KernelStartFailed) as failed:
                client.session(name)
            assert why in failed.value.message, name
            assert len(failed.value.message) < 3000
        for name in UNREADABLE:
            with pytest.raises(ExecError) as unreadable:
                client.session(name)
            assert os.path.join(name, "kernel.json") in unreadable.value.message, name
    with pytest.raises(KernelStartFailed, match="no licence"):
        JupyterCodeExecutor(host.info, "no-licence", output_dir=tmp_path)
    assert "this is why" in host.log_text()


@pytest.mark.parametrize("kernel_name", ["python3", "forked"])
def test_what_a_kernel_writes_past_its_output_is_in_the_servers_log(host: Host, kernel_name: str) -> None:
    write = "import sys; _ = sys.__stderr__; import os, ipykernel.iostream\nos.write({}, b'{}\\n')"
    find = "fds = [s._original_stdstream_copy for s in (sys.stderr,) if getattr(s, '_original_stdstream_copy', None)]"
    with ExecClient(host.info) as client, client.session(kernel_name) as session:
        for moment in ("started", "restarted"):
            found = session.run(f"import sys\n{find}\nprint(fds[0])")
            assert session.run(write.format(found.stdout.strip(), f"{kernel_name} has {moment}")).ok
            session.restart()
    for moment in ("started", "restarted"):
        assert f"{kernel_name} has {moment}" in host.log_text()
