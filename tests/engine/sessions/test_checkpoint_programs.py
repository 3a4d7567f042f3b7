"""Programs with threads, locks, pools, processes, connections and tasks: a checkpoint works with each, or names it."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from jupyter_exec_ext.auth.caller import owner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.errors import CheckpointHindered
from jupyter_exec_ext.models import ExecutionRequest, ExecutionState, SessionRequest
from tests.support.full import scaled

ME = owner("me")
_WITHIN_SECONDS = 20.0


@dataclass(frozen=True)
class Program:
    """A program: code before the checkpoint, and either code that must work after the return, or what is named."""

    before: str
    after: str = ""
    named: str = ""


PROGRAMS = {
    "ended thread": Program(
        "import threading; t = threading.Thread(target=int); t.start(); t.join()", "assert not t.is_alive(); t.join()"
    ),
    "running thread": Program(
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), name='mine').start()",
        named="thread: mine",
    ),
    "timer": Program("import threading; timer = threading.Timer(60, int); timer.start()", named="thread: Thread"),
    "interval timer": Program("import signal; signal.setitimer(signal.ITIMER_REAL, 60)", named="timer: "),
    "lock of the main thread": Program(
        "import threading; lock = threading.RLock(); lock.acquire()", "lock.release(); assert lock.acquire(timeout=1)"
    ),
    "queue and event": Program(
        "import queue, threading; q = queue.Queue(); q.put(1); e = threading.Event(); e.set()",
        "assert q.get(timeout=1) == 1 and e.wait(1)",
    ),
    "thread that a pool has started again": Program(
        "from concurrent.futures import ThreadPoolExecutor as P; pool = P(3); assert list(pool.map(abs, [-1]))",
        "assert list(pool.map(abs, range(-20, 0), timeout=5)) == list(range(20, 0, -1)); pool.shutdown()",
    ),
    "busy pool": Program(
        "import time; from concurrent.futures import ThreadPoolExecutor as P; f = P(1).submit(time.sleep, 60)",
        named="thread: ThreadPoolExecutor",
    ),
    "pool with an initializer": Program(
        "from concurrent.futures import ThreadPoolExecutor as P\ndef begin(x): calls.append(x)\ncalls = []\n"
        "pool = P(1, initializer=begin, initargs=(1,)); pool.submit(int).result()",
        "assert calls == [1]; assert pool.submit(int, '3').result(5) == 3",
    ),
    "pool whose thread has taken more work": Program(
        "import time; from concurrent.futures import ThreadPoolExecutor as P; pool = P(1); pool.submit(int).result()\n"
        "f = [pool.submit(int), pool.submit(time.sleep, 60)]; time.sleep(0.2)",
        named="thread: ThreadPoolExecutor",
    ),
    "dead proxy": Program("import weakref\nclass A: pass\np = weakref.proxy(A())", "assert 'p' in globals()"),
    "pool of multiprocessing": Program(
        "from multiprocessing.pool import ThreadPool; pool = ThreadPool(1); pool.map(abs, [1])", named="thread: "
    ),
    "process that has ended": Program(
        "import subprocess; p = subprocess.run(['true'], check=True)", "subprocess.run(['true'], check=True)"
    ),
    "process that runs": Program("import subprocess; p = subprocess.Popen(['sleep', '60'])", named="process: sleep"),
    "pool of processes": Program(
        "from concurrent.futures import ProcessPoolExecutor as P; p = P(1); p.submit(abs, 1).result()", named="process"
    ),
    "shared memory": Program(
        "from multiprocessing.shared_memory import SharedMemory; m = SharedMemory(create=True, size=10)",
        named="process",
    ),
    "map without a file": Program("import mmap; m = mmap.mmap(-1, 10)", named="shared memory: a map without a file"),
    "maps that are not shared, or not written": Program(
        "import mmap, numpy as np; np.arange(3, dtype='u1').tofile('a.bin')\n"
        "a = np.memmap('a.bin', dtype='u1', mode='r'); b = np.memmap('a.bin', dtype='u1', mode='c'); b[0] = 7",
        "assert a.tolist() == [0, 1, 2] and b.tolist() == [7, 1, 2]",
    ),
    "lock of multiprocessing": Program(
        "import multiprocessing; lock = multiprocessing.get_context('fork').RLock(); lock.acquire()",
        "lock.release(); assert lock.acquire(timeout=1)",
    ),
    "database in memory": Program(
        "import sqlite3; db = sqlite3.connect(':memory:'); db.execute('create table t (a)')",
        "db.execute('insert into t values (1)'); assert db.execute('select a from t').fetchall() == [(1,)]",
    ),
    "database in a file": Program(
        "import sqlite3; db = sqlite3.connect('a.db'); db.execute('create table t (a)'); db.commit()",
        named="database: ",
    ),
    "closed database": Program(
        "import sqlite3; db = sqlite3.connect('a.db'); db.execute('create table t (a)'); db.commit(); db.close()",
        "db = sqlite3.connect('a.db'); assert db.execute('select * from t').fetchall() == []",
    ),
    "kept connection": Program(
        "import requests; s = requests.Session(); s.get(URL).raise_for_status()", named="connection: 127.0.0.1"
    ),
    "closed connections": Program(
        "import requests; s = requests.Session(); s.get(URL).raise_for_status(); s.close()",
        "s.get(URL).raise_for_status(); s.close()",
    ),
    "task": Program("import asyncio; t = asyncio.create_task(asyncio.sleep(60), name='mine')", named="task: mine"),
    "locks, queues and futures of asyncio": Program(
        "import asyncio; lock = asyncio.Lock(); q = asyncio.Queue(); q.put_nowait(1); await q.get()\n"
        "future = asyncio.get_running_loop().create_future()\n"
        "async def use():\n    async with lock: await asyncio.sleep(0)\nawait asyncio.gather(use(), use())",
        "await asyncio.gather(use(), use()); q.put_nowait(2); assert await q.get() == 2\n"
        "asyncio.get_running_loop().call_soon(future.set_result, 3); assert await future == 3",
    ),
    "threads of asyncio": Program(
        "import asyncio; await asyncio.to_thread(int)", "assert await asyncio.to_thread(int, '5') == 5"
    ),
    "pipe": Program("import os; ends = os.pipe()", named="pipe: descriptor"),
    "linear algebra": Program(
        "import numpy as np; a = np.ones((300, 300)); a @ a", "assert (a @ a)[0, 0] == 300; np.linalg.inv(np.eye(200))"
    ),
    "values of a thread and a context": Program(
        "import contextvars, threading; local = threading.local(); local.x = 1; var = contextvars.ContextVar('v')",
        "assert local.x == 1",
    ),
    "generator": Program("g = iter(range(5)); next(g)", "assert next(g) == 1"),
    "mapped file": Program(
        "import mmap; f = open('m', 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); m[:2] = b'ab'",
        named="shared memory: ",
    ),
    "file that is being written": Program(
        "f = open('f', 'w'); f.write('one ')", "f.write('two'); f.close(); assert open('f').read() == 'one two'"
    ),
    "log file": Program(
        "import logging; h = logging.FileHandler('log'); log = logging.getLogger('mine'); log.addHandler(h)\n"
        "log.warning('one')",
        "log.warning('two'); assert open('log').read() == 'one\\ntwo\\n'",
    ),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A web server of another process than the kernel's."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("name", sorted(PROGRAMS)[:: scaled(1, per_commit=3)])
async def test_a_program_works_after_a_return_or_is_named(
    make_engine: Callable[..., ExecEngine], url: str, name: str
) -> None:
    engine, program = make_engine(), PROGRAMS[name]

    async def run(code: str) -> None:
        handle = await engine.execute(ME, session_id, ExecutionRequest(code.replace("URL", repr(url))))
        execution = await asyncio.wait_for(handle.wait(), _WITHIN_SECONDS)
        assert execution.state is ExecutionState.OK, execution.error

    session_id = (await engine.create_session(ME, SessionRequest())).id
    await run(program.before)
    if program.named:
        with pytest.raises(CheckpointHindered) as refused:
            await engine.checkpoints.create(ME, session_id)
        assert program.named in refused.value.message
        # By force it is taken, and the session that comes of it works.
        checkpoint = await engine.checkpoints.create(ME, session_id, force=True)
        assert checkpoint.lost
    else:
        checkpoint = await engine.checkpoints.create(ME, session_id)
    await asyncio.wait_for(engine.checkpoints.restore(ME, session_id, checkpoint.id), _WITHIN_SECONDS)
    await run(program.after or "print('works')")
