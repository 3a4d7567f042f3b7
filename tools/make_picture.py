"""Write the README's animated picture: its commands in real terminals, and the panel's rows from the server's feed.

python -m tools.make_picture            rewrite docs/images/terminal.svg
python -m tools.make_picture --check    run all again, and exit with 1 if the picture shows something else

All text is recorded: the terminals' from a pseudo-terminal, without the server's log lines and with the README's port,
and the panel's from the server's change feed, in the panel's words. The pace follows rules, so that the same commands
make the same picture.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import socket
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import psutil
from ptyprocess import PtyProcess

from jupyter_exec_ext import ExecClient
from jupyter_exec_ext.models import Change, Execution, ExecutionState, Session, SessionState
from tools.animated_svg import Frame, PanelRow, draw_frames

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
MAX_BYTES = 150_000
TITLE = "jupyter exec serve, a Python program that uses it, and the panel"
DESCRIPTION = (
    "A terminal starts a server. A second one shows a Python program and runs it: the program keeps a variable between "
    "two runs and gets a result, then a time limit stops an endless loop. The panel beside it lists each run."
)
COLUMNS = 72
_ROWS = 40
_WAIT_SECONDS = 60.0
_PORT = "8888"
_PROGRAM = "hello.py"
# The terminals' titles.
_SERVER = "Terminal 1: the server"
_RUNNER = "Terminal 2: a program"

# The pace of the picture.
_KEY_SECONDS = 0.045
_PAUSE_SECONDS = 0.7
_LINE_SECONDS = 0.08
_READ_SECONDS = 2.5
_CHANGE_SECONDS = 0.5
_END_SECONDS = 6.0

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_LOG_LINE = re.compile(r"\[[DIWEC] \d{4}-\d\d-\d\d ")
_MASKED = (
    (re.compile(r">\[?\d+(?:\.\d+)? m?s<"), ">TIME<"),
    (re.compile(r"(timed out) \d+(?:\.\d+)? m?s"), r"\1 TIME"),
)
# The panel's words, as in labextension/src/words.ts, for the states that occur here.
_EXECUTION_WORDS = {
    ExecutionState.OK: "",
    ExecutionState.RUNNING: "running",
    ExecutionState.TIMEOUT: "timed out",
}


@dataclass
class Terminal:
    """A shell in a pseudo-terminal, with the time at which each line came."""

    process: PtyProcess
    text: str = ""
    read: int = 0
    times: list[float] = field(default_factory=list)
    # A read may end inside of a character.
    _decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))

    @classmethod
    def open(cls, env: Mapping[str, str], directory: Path) -> Terminal:
        """Start a shell whose prompt is a dollar."""
        own = {**env, "PS1": "$ ", "TERM": "dumb"}
        command = ["bash", "--noprofile", "--norc", "-i"]
        terminal = cls(PtyProcess.spawn(command, cwd=str(directory), env=own, dimensions=(_ROWS, COLUMNS)))
        terminal.read_until("$ ")
        return terminal

    def type(self, line: str) -> None:
        """Type a command."""
        self.process.write(f"{line}\n".encode())

    def read_until(self, words: str) -> None:
        """Read until words come that stand behind those of the last call.

        Raises
        ------
        TimeoutError
            If they do not come within a minute; with all that came.
        """
        deadline = time.monotonic() + _WAIT_SECONDS
        while (found := self.text.find(words, self.read)) < 0:
            if not select.select([self.process.fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"{words!r} did not come:\n{self.text}")
            came = self._decoder.decode(self.process.read(65536))
            self.text += _ESCAPE.sub("", came).replace("\r\n", "\n")
            self.times += [time.time()] * (self.text.count("\n") - len(self.times))
        self.read = found + len(words)

    def lines(self) -> list[tuple[str, float]]:
        """Return the lines that ended and are no log's, each with the time at which its end came."""
        ended = zip(self.text.split("\n"), self.times, strict=False)
        return [(line, at) for line, at in ended if not _LOG_LINE.match(line)]

    def close(self) -> None:
        """End all that runs in it."""
        for end in (signal.SIGINT, signal.SIGHUP):
            group = os.tcgetpgrp(self.process.fd)
            # Without a foreground group there is 0, which means our own; 1 would mean all processes of the user.
            if group > 1 and group != os.getpgrp():
                os.killpg(group, end)
        self.process.close(force=True)


@dataclass
class Recording:
    """All that is in the picture: the lines of two terminals, and the changes of the server's feed."""

    serving: list[tuple[str, float]]
    running: list[tuple[str, float]]
    changes: list[Change]


def commands_of_readme(readme: str) -> tuple[str, str]:
    """Return the command that serves and the program that uses the server."""
    serve = re.search(r"^jupyter exec serve .*?(?=  +#|$)", readme, re.MULTILINE)
    program = re.search(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if serve is None or program is None:
        raise ValueError("README.md has no line 'jupyter exec serve …' or no block of Python")
    return serve[0], program[1]


def record(directory: Path) -> Recording:
    """Run the README's commands.

    Parameters
    ----------
    directory : Path
        An empty one.

    Returns
    -------
    Recording
    """
    serve, program = commands_of_readme((ROOT / "README.md").read_text(encoding="utf-8"))
    port = _free_port()
    env = _environment(directory)
    work = directory / "work"
    work.mkdir()
    (work / _PROGRAM).write_text(program, encoding="utf-8")
    server, shell = Terminal.open(env, work), Terminal.open(env, work)
    try:
        shell.type(f"cat {_PROGRAM}")
        shell.read_until("\n$ ")
        server.type(serve.replace(_PORT, port))
        server.read_until("Try: ")
        server.read_until("\n")
        token = (work / "token").read_text(encoding="utf-8").strip()
        changes, following = _follow(f"http://127.0.0.1:{port}/", token)
        shell.type(f"python {_PROGRAM}")
        shell.read_until("\n$ ")
        following.join(_WAIT_SECONDS)
    finally:
        below = psutil.Process(server.process.pid).children(recursive=True)
        shell.close()
        server.close()
        psutil.wait_procs(below, timeout=_WAIT_SECONDS)  # until then they write to the directory
    return Recording([(line.replace(port, _PORT), at) for line, at in server.lines()], shell.lines(), changes)


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _environment(directory: Path) -> dict[str, str]:
    """Return an environment with directories of its own, where root may serve, and JupyterLab is not loaded."""
    config = directory / "config"
    config.mkdir()
    labs = dict.fromkeys(("jupyterlab", "jupyter_lsp", "notebook_shim"), False)
    settings = f"c.ServerApp.allow_root = True\nc.ServerApp.jpserver_extensions = {labs}\n"
    (config / "jupyter_server_config.py").write_text(settings, encoding="utf-8")
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON", "PYTEST", "COLUMNS", "LINES"))
    }
    own = {"HOME": directory, "JUPYTER_CONFIG_DIR": config, "JUPYTER_RUNTIME_DIR": directory / "run"}
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    return {**kept, **{name: str(value) for name, value in own.items()}, "PATH": path}


def _follow(url: str, token: str) -> tuple[list[Change], threading.Thread]:
    """Collect changes until a session ends, in a thread of its own that has begun to listen."""
    changes: list[Change] = []
    listening = threading.Event()

    def collect() -> None:
        with ExecClient(url, token) as client:
            for change in client.events():
                listening.set()
                changes.append(change)
                if change.session is not None and change.session.state is SessionState.ENDED:
                    return

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    if not listening.wait(_WAIT_SECONDS):
        raise TimeoutError(f"the server at {url} sent no change")
    return changes, thread


def frames_of(recording: Recording) -> list[Frame]:
    """Return the frames of a recording, at the pace of the picture."""
    frames: list[Frame] = []
    connecting = (PanelRow("note", "Connecting…"),)
    waiting = (PanelRow("note", "No agent has a session on this server."),)
    for lines, is_command in _growing(line for line, _ in recording.serving):
        served = lines[-1].startswith("Serving") or len(lines) > 2
        frames.append(_frame(_SERVER, lines, is_command, waiting if served else connecting))
    frames[-1] = replace(frames[-1], seconds=_READ_SECONDS)
    until = next(i for i, (line, _) in enumerate(recording.running) if line.startswith("$ python"))
    for lines, is_command in _growing(line for line, _ in recording.running[: until + 1]):
        if len(lines) > until:  # the program has been shown, and is to be read
            frames[-1] = replace(frames[-1], seconds=_READ_SECONDS)
        frames.append(_frame(_RUNNER, lines, is_command, waiting))
    shown = frames[-1].lines
    rest = recording.running[until + 1 :]
    for rows, finished_at in _panel_rows(recording.changes):
        frames.append(Frame(_CHANGE_SECONDS, _RUNNER, shown, rows))
        if finished_at is None:
            continue
        # A program prints a result after its run has finished, and before the next run has.
        later = _next_end(recording.changes, finished_at)
        for line in [line for line, at in rest if finished_at <= at < later]:
            shown = (*shown, line)
            frames.append(Frame(_CHANGE_SECONDS, _RUNNER, shown, rows))
    return [*frames[:-1], replace(frames[-1], seconds=_END_SECONDS)]


def _growing(lines: Iterator[str]) -> Iterator[tuple[tuple[str, ...], bool]]:
    shown: tuple[str, ...] = ()
    for line in lines:
        shown = (*shown, line)
        yield shown, line.startswith("$ ")


def _frame(title: str, lines: tuple[str, ...], is_command: bool, rows: tuple[PanelRow, ...]) -> Frame:
    typing = round(_KEY_SECONDS * (len(lines[-1]) - 2), 2) if is_command else 0.0
    return Frame(typing + (_PAUSE_SECONDS if is_command else _LINE_SECONDS), title, lines, rows, typing)


def _panel_rows(changes: Sequence[Change]) -> Iterator[tuple[tuple[PanelRow, ...], float | None]]:
    """Yield the panel after each change that it shows, and when an execution finished, if one did."""
    session: Session | None = None
    executions: dict[str, Execution] = {}
    before: tuple[PanelRow, ...] = ()
    for change in changes:
        finished_at = None
        if change.session is not None and change.session.state is not SessionState.ENDED:
            session = change.session
        elif change.execution is not None and change.execution.state is not ExecutionState.QUEUED:
            executions[change.execution.id] = change.execution
            finished_at = _seconds(change.execution.finished_at)
        if session is not None and (finished_at or session.kernel_id):
            rows = (*_session_rows(session), *map(_execution_row, reversed(executions.values())))
            if rows != before:
                yield rows, finished_at
            before = rows


def _session_rows(session: Session) -> tuple[PanelRow, ...]:
    isolation = {"none": "not isolated"}.get(session.isolation, session.isolation)
    return (
        PanelRow("heading", "You", "1"),
        PanelRow("name", f"▾ {session.name}", "now"),
        PanelRow("note", f"{session.state.value} · {isolation} · {session.kernel_name}"),
    )


def _execution_row(execution: Execution) -> PanelRow:
    state = _EXECUTION_WORDS[execution.state]
    started, finished = _seconds(execution.started_at), _seconds(execution.finished_at)
    took = "" if started is None or finished is None else _duration(finished - started)
    count = " " if execution.execution_count is None else execution.execution_count
    is_bad = execution.state is ExecutionState.TIMEOUT
    return PanelRow("code", f"[{count}] {execution.code.splitlines()[0]}", f"{state} {took}".strip(), is_bad)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)} ms" if seconds < 0.0995 else f"{seconds:.1f} s"


def _seconds(moment: str | None) -> float | None:
    return None if moment is None else datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def _next_end(changes: Sequence[Change], finished_at: float) -> float:
    ends = [_seconds(change.execution.finished_at) for change in changes if change.execution is not None]
    return min((end for end in ends if end is not None and end > finished_at), default=float("inf"))


def make_picture() -> str:
    """Return the picture of what the README's commands show now."""
    with tempfile.TemporaryDirectory() as directory:
        recording = record(Path(directory))
    return draw_frames(frames_of(recording), COLUMNS, TITLE, DESCRIPTION)


def masked(picture: str) -> str:
    """Return a picture without the times that differ from run to run."""
    for pattern, instead in _MASKED:
        picture = pattern.sub(instead, picture)
    return picture


def main() -> int:
    """Write the picture, or compare it."""
    picture = make_picture()
    if "--check" in sys.argv[1:]:
        if masked(picture) == masked(PICTURE.read_text(encoding="utf-8")):
            return 0
        print(f"{PICTURE.relative_to(ROOT)} shows something else: run `python -m tools.make_picture`", file=sys.stderr)
        return 1
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
