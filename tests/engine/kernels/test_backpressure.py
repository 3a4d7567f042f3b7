"""What the setup makes of a real IPython kernel's output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import random
import resource
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest
import zmq
import zmq.asyncio
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext.engine.kernels.kernel_connection import KernelConnection
from jupyter_exec_ext.engine.kernels.shared_resources import EngineResources
from jupyter_exec_ext.errors import OutOfResources
from jupyter_exec_ext.protocol.kernel_messages import KernelMessage, execute_request
from jupyter_exec_ext.protocol.kernel_preparation import agrees_to_wait

MIB = 1024 * 1024


class Reader:
    """Runs code in a kernel and collects what it prints."""

    def __init__(self, info: dict[str, Any]) -> None:
        self._resources = EngineResources(10 * MIB)
        self.info = info
        self.pid = 0
        self.parts: list[str] = []
        self._idle = asyncio.Event()
        self.printed = asyncio.Event()
        self.connection = KernelConnection(self._resources, info, self._take, can_wait=True)

    def _take(self, message: KernelMessage) -> None:
        if message.msg_type == "stream":
            self.parts.append(message.content["text"])
            self.printed.set()
        elif message.msg_type == "status" and message.content["execution_state"] == "idle":
            self._idle.set()

    def begin(self, code: str) -> None:
        self.parts.clear()
        self._idle.clear()
        self.printed.clear()
        self.connection.send("shell", "execute_request", execute_request(code, allow_input=False))

    async def end(self) -> str:
        await asyncio.wait_for(self._idle.wait(), 60)
        return "".join(self.parts)

    async def run(self, code: str) -> str:
        self.begin(code)
        return await self.end()

    def close(self) -> None:
        self.connection.close()
        self._resources.close()


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    manager = AsyncKernelManager()
    await manager.start_kernel()
    reader = Reader(manager.get_connection_info())  # type: ignore[arg-type]
    await reader.connection.check(60)
    reader.pid = manager.provisioner.pid  # type: ignore[union-attr]
    yield reader
    reader.close()
    await manager.shutdown_kernel(now=True)


async def test_a_subscription_for_which_there_is_no_descriptor_is_refused_as_such() -> None:
    """The socket for output is made last, once the kernel has agreed to wait."""
    manager = AsyncKernelManager()
    await manager.start_kernel()
    reader = Reader(manager.get_connection_info())  # type: ignore[arg-type]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    connect = reader.connection._connect

    def connect_without_descriptors(name: str) -> None:
        free = os.open("/dev/null", os.O_RDONLY)  # the lowest that there is
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limit[1]))
        try:
            connect(name)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)

    reader.connection._connect = connect_without_descriptors  # type: ignore[method-assign]
    with pytest.raises(OutOfResources, match="too many open files"):
        await reader.connection.check(60)
    reader.close()
    await manager.shutdown_kernel(now=True)


async def test_an_ipython_kernel_agrees_and_its_user_sees_nothing_of_it(reader: Reader) -> None:
    assert reader.connection.waits
    assert await reader.run("print(sorted(n for n in globals() if n[0] != '_'))") == (
        "['In', 'Out', 'exit', 'get_ipython', 'open', 'quit']\n"
    )


@pytest.mark.parametrize(
    "code",
    [
        "print(text)",
        "for start in range(0, len(text), 100_000): print(text[start : start + 100_000], end='')\nprint()",
        "import sys; sys.stdout.writelines(text[i : i + 7] for i in range(0, len(text), 7)); print()",
        "import threading; t = threading.Thread(target=print, args=(text,)); t.start(); t.join()",
    ],
)
async def test_what_is_printed_arrives_whole_and_in_parts(reader: Reader, code: str) -> None:
    await reader.run("import random; text = ''.join(random.Random(4).choices('ab\u00e9\\n\U0001f600', k=5_000_000))")
    text = "".join(random.Random(4).choices("ab\u00e9\n\U0001f600", k=5_000_000))
    assert await reader.run(code) == text + "\n"
    assert max(map(len, reader.parts)) <= 256 * 1024


async def test_a_flood_takes_no_memory_of_the_kernel(reader: Reader) -> None:
    """IPython keeps what a cell prints."""
    flood = "for number in range(500): print(f'{number}'.ljust(100_000, 'x'))"
    await reader.run(flood)
    before = psutil.Process(reader.pid).memory_info().rss
    await reader.run(flood)
    assert psutil.Process(reader.pid).memory_info().rss - before < 10 * MIB


async def test_the_beginning_of_what_a_cell_prints_is_in_its_notebook(reader: Reader, tmp_path: Path) -> None:
    await reader.run("print('first'); print('second'); print('x' * 16_400); print('last')")
    await reader.run("import sys; sys.stderr.write('error\\n')")
    await reader.run(f"%notebook {tmp_path / 'made.ipynb'}")
    made = json.loads((tmp_path / "made.ipynb").read_text())
    texts = ["".join(output["text"]) for cell in made["cells"] for output in cell["outputs"] if "text" in output]
    assert texts[0] == "first\nsecond\n"
    assert texts[-1] == "error\n"


async def test_what_a_cell_puts_around_printing_stays_until_its_end(reader: Reader) -> None:
    loud = """
        import sys
        write = sys.stdout.write
        sys.stdout.write = lambda text: write(text.upper())
        print("x" * 20_000)
        print("y")
    """
    assert await reader.run(dedent(loud)) == "X" * 20_000 + "\nY\n"
    assert await reader.run("print('z')") == "z\n"


async def test_only_text_is_printed(reader: Reader) -> None:
    refused = "try: sys.stdout.write(5)\nexcept TypeError as error: print(error)"
    assert "must be str" in await reader.run(f"import sys\n{refused}")
    assert "must be str" in await reader.run(f"print('x' * 20_000)\n{refused}")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's malloc")
async def test_a_kernel_keeps_the_memory_of_a_picture_for_the_next_one(reader: Reader) -> None:
    await reader.run("""
        import os, resource
        from IPython.display import Image, display
        picture = Image(data=os.urandom(5_000_000), format="png")
        def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    """)
    for _ in range(3):
        await reader.run("before = faults(); display(picture)")
    assert int(await reader.run("print(faults() - before)")) < 5_000_000 // 4096


class Arrivals:
    """What arrives while code runs, a word or text of each message."""

    def __init__(self, reader: Reader) -> None:
        self.seen: list[str] = []
        self._take, reader.connection._on_message = reader.connection._on_message, self._note
        self._news = asyncio.Event()

    def _note(self, message: KernelMessage) -> None:
        content = message.content
        words = {
            "status": lambda: content["execution_state"],
            "stream": lambda: content["text"].strip(),
            "display_data": lambda: content["data"]["text/plain"],
            "execute_result": lambda: content["data"]["text/plain"],
        }
        self.seen.append(words.get(message.msg_type, lambda: message.msg_type)())
        self._news.set()
        self._take(message)

    async def has(self, what: str, seconds: float = 60) -> bool:
        async def wait() -> None:
            while not any(what in seen for seen in self.seen):
                self._news.clear()
                await self._news.wait()

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), seconds)
        return any(what in seen for seen in self.seen)


async def test_what_a_run_publishes_keeps_its_order(reader: Reader) -> None:
    arrivals = Arrivals(reader)
    await reader.run("import sys\nprint('a')\ndisplay(1)\nprint('b', file=sys.stderr)\ndisplay(2)\nprint('c')\n3")
    # The end of a printed line may come by itself.
    published = [what for what in arrivals.seen if what not in ("execute_reply", "")]
    assert published == ["busy", "execute_input", "a", "1", "b", "2", "c", "3", "idle"]


async def test_a_run_that_takes_longer_shows_what_it_has_so_far(reader: Reader) -> None:
    arrivals = Arrivals(reader)
    reader.begin("display('shown')\nprint('printed')\nwhile True: pass")
    for what in ("busy", "execute_input", "'shown'", "printed"):
        assert await arrivals.has(what)
    assert "idle" not in arrivals.seen
    process = psutil.Process(reader.pid)
    process.send_signal(signal.SIGINT)
    await reader.end()


async def test_what_comes_after_the_end_of_a_run_arrives_too(reader: Reader) -> None:
    arrivals = Arrivals(reader)
    await reader.run("""
        import asyncio, threading
        async def later(): await asyncio.sleep(0.3); print("by a task", end=""); display("shown by a task")
        task = asyncio.get_event_loop().create_task(later())
        threading.Timer(0.3, lambda: (print("by a thread"), display("shown by a thread"))).start()
    """)
    for what in ("by a task", "'shown by a task'", "by a thread", "'shown by a thread'"):
        assert await arrivals.has(what), arrivals.seen


async def test_a_reader_that_comes_late_is_greeted_whoever_sends(reader: Reader) -> None:
    """The socket tells of it once, to whichever thread uses it then."""
    greets = await reader.run("print(hasattr(get_ipython().kernel.iopub_thread, '_xpub_stream'))") == "True\n"
    came = asyncio.Event()

    async def keep_running() -> None:
        while not came.is_set():
            await reader.run("display(1)")

    running = asyncio.create_task(keep_running())
    with zmq.asyncio.Context() as context:
        for number in range(20 if greets else 0):
            with context.socket(zmq.SUB) as late:
                late.connect(f"tcp://{reader.info['ip']}:{reader.info['iopub_port']}")
                late.subscribe(f"topic {number}")
                greeting = await asyncio.wait_for(late.recv_multipart(), 10)
                assert json.loads(greeting[-1]) == {"subscription": f"topic {number}"}
    came.set()
    await running


async def test_output_keeps_its_order_whenever_it_is_flushed_by_the_clock(reader: Reader) -> None:
    """The sending thread flushes by itself now and then, which may be just when a run ends."""
    await reader.run("import sys; sys.stdout.flush_interval = 0.0003")
    order: list[str] = []
    take = reader.connection._on_message

    def note(message: KernelMessage) -> None:
        if message.msg_type == "stream":
            order.extend(message.content["text"].split())
        elif message.msg_type == "display_data":
            order.append(message.content["data"]["text/plain"])
        take(message)

    reader.connection._on_message = note
    for length in range(300):
        order.clear()
        await reader.run(
            f"for i in range({length % 40}): print(i)\ndisplay(100)\nprint(101)\nsum(range({length * 20}));"
        )
        assert order == [*map(str, range(length % 40)), "100", "101"]


async def test_an_interrupt_at_any_moment_leaves_a_kernel_that_sends(reader: Reader) -> None:
    process = psutil.Process(int(await reader.run("import os; print(os.getpid())")))
    for number in range(60):
        reader.begin("while True: print('x', flush=True)")
        await asyncio.wait_for(reader.printed.wait(), 60)
        await asyncio.sleep(number / 10_000)  # for the interrupt to come at another moment
        process.send_signal(signal.SIGINT)
        assert set((await reader.end()).split()) == {"x"}
        assert await reader.run(f"print({number})") == f"{number}\n"


async def test_code_that_flushes_waits_until_its_output_is_gone(reader: Reader) -> None:
    code = """
    import sys, time
    get_ipython().kernel.iopub_thread.schedule(lambda: time.sleep(0.3))
    print("x")
    began = time.monotonic()
    sys.stdout.flush()
    print(time.monotonic() - began > 0.2)
    """
    assert await reader.run(dedent(code)) == "x\nTrue\n"


async def test_what_threads_print_is_there_when_the_code_ends_whoever_flushes(reader: Reader) -> None:
    await reader.run("""
        import sys, threading
        def say(): [print(number) for number in range(50)]
        def all_say():
            threads = [threading.Thread(target=say) for _ in range(4)]
            [thread.start() for thread in threads]
            while any(thread.is_alive() for thread in threads): sys.stdout.flush()
    """)
    for _ in range(30):
        assert (await reader.run("all_say()")).count("\n") == 200  # a number and its end may stand apart


async def test_what_another_thread_is_about_to_flush_is_not_overtaken_by_the_end(reader: Reader) -> None:
    await reader.run("""
        import sys, threading
        from ipykernel.iostream import OutStream
        flush, entered, go_on = OutStream.flush, threading.Event(), threading.Event()
        def held_up(stream):
            if threading.current_thread() is thread:
                entered.set()
                go_on.wait(30)
            flush(stream)
        OutStream.flush = held_up
        thread = threading.Thread(target=sys.stdout.flush)
    """)
    assert await reader.run("print('x', end=''); thread.start(); entered.wait();") == "x"
    await reader.run("go_on.set(); thread.join()")


async def test_what_a_child_prints_is_printed_once(reader: Reader) -> None:
    """A child of the kernel's process has the buffer that its parent has begun, but nobody who sends it."""
    code = """
    import os, sys
    print("before")
    child = os.fork()
    if child == 0:
        for number in range(100):
            sys.stdout.write(f"child {number}\\n")
        os._exit(0)
    os.waitpid(child, 0)
    print("after")
    """
    lines = (await reader.run(dedent(code))).splitlines()
    assert sorted(set(lines)) == sorted(["before", "after", *(f"child {number}" for number in range(100))])
    assert [line for line in lines if line != "before"].count("after") == 1


async def test_what_is_printed_goes_with_the_request_that_printed_it(reader: Reader) -> None:
    parents: dict[str, str] = {}
    take = reader.connection._on_message

    def note(message: KernelMessage) -> None:
        if message.msg_type == "stream":
            for line in message.content["text"].splitlines():
                parents[line] = str(message.parent_id)
        take(message)

    reader.connection._on_message = note
    code = """
    import sys, threading, time
    def slowly():
        for number in range(200):
            sys.stdout.write(f"thread {number}\\n")
            time.sleep(0.001)
    threading.Thread(target=slowly).start()
    for number in range(20):
        sys.stdout.write(f"first {number}\\n")
    """
    await reader.run(dedent(code))
    await reader.run("for number in range(2000): sys.stdout.write(f'second {number}\\n')")
    first, second = parents["first 0"], parents["second 0"]
    assert first != second
    assert {parent for line, parent in parents.items() if line.startswith("first")} == {first}
    assert {parent for line, parent in parents.items() if line.startswith("second")} == {second}


async def test_a_stream_that_was_closed_takes_nothing(reader: Reader) -> None:
    code = """
    import sys
    from IPython import get_ipython
    print("open")
    sys.stderr.write("begun")
    sys.stderr.close()
    try:
        sys.stderr.write("more")
    except ValueError as error:
        print(error)
    """
    assert (await reader.run(dedent(code))).replace("begun", "").splitlines() == [
        "open",
        "I/O operation on closed file",
    ]


async def test_the_history_is_written_in_batches_and_complete_in_the_session(reader: Reader) -> None:
    await reader.run("first = 1")
    assert await reader.run("%history -l 2\nprint(get_ipython().history_manager.db_cache_size)") == "first = 1\n100\n"


async def test_wrong_use_of_the_streams_is_reported_as_ever(reader: Reader) -> None:
    code = "import sys\ntry: sys.stdout.write(5)\nexcept TypeError as error: print(error)"
    assert "must be str" in await reader.run(code)


async def test_a_kernel_waits_for_a_reader_that_pauses(reader: Reader) -> None:
    """300 MB are printed while nobody reads: they stay where they come from, and none is lost."""
    process = psutil.Process()
    await reader.run("1")
    before, busy_before = process.memory_info().rss, process.cpu_times().user
    reader.connection._pause("iopub")  # as while a large message is being read
    reader.begin("for i in range(3_000): print(f'{i:06}' + 'x' * 100_000)")
    await asyncio.sleep(3)  # this is the pause
    assert process.memory_info().rss - before <= 20 * MIB
    assert process.cpu_times().user - busy_before < 1
    reader.connection._go_on("iopub")
    text = await reader.end()
    assert [int(line[:6]) for line in text.splitlines() if len(line) > 1000] == list(range(3_000))


async def test_a_kernel_whose_reader_pauses_keeps_little(reader: Reader, tmp_path: Path) -> None:
    """It waits after a few of its messages, not after the thousand that ZeroMQ would keep."""
    progress = tmp_path / "progress"
    await reader.run("1")
    reader.connection._pause("iopub")
    reader.begin(
        f"file = open({str(progress)!r}, 'w')\n"
        "for i in range(2_000): print('x' * 100_000); file.write(f'{i}\\n'); file.flush()"
    )
    await stands_still(progress)
    printed = len(progress.read_text().splitlines())
    assert 0 < printed <= 200
    reader.connection._go_on("iopub")
    assert (await reader.end()).count("\n") == 2_000


async def test_other_readers_confirm_little_and_do_not_block_the_kernel(reader: Reader) -> None:
    """Their connections may have had any number of messages when the kernel is told to keep few unsent."""
    with zmq.Context() as context, context.socket(zmq.SUB) as other:
        other.subscribe(b"")
        other.connect(f"tcp://{reader.info['ip']}:{reader.info['iopub_port']}")
        while not other.poll(0):  # until it is connected
            await reader.run("1")
        for _ in range(2):
            await reader.run("for i in range(100): print(i, flush=True)")
            reader.connection._connection_check._keep_all()
            assert (await reader.run("for i in range(100): print(i, flush=True)")).count("\n") == 100


async def stands_still(file: Path, seconds: float = 1.0) -> None:
    """Wait until a file has not grown for some time."""
    size, since = -1, time.monotonic()
    while time.monotonic() - since < seconds:
        await asyncio.sleep(0.05)
        now = file.stat().st_size if file.exists() else -1
        if now != size:
            size, since = now, time.monotonic()


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"status": "error"},
        {"user_expressions": None},
        {"user_expressions": []},
        {"user_expressions": {"waits": "ok"}},
        {"user_expressions": {"waits": {"status": "error"}}},
        {"user_expressions": {"other": {"status": "ok"}}},
    ],
)
def test_only_a_plain_yes_is_an_agreement(reply: dict[str, Any]) -> None:
    assert not agrees_to_wait(reply)
    assert agrees_to_wait({"user_expressions": {"waits": {"status": "ok"}}})
