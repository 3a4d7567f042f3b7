"""``jupyter exec run``: code in, output as it comes, the code's own exit code."""

from __future__ import annotations

import argparse
import getpass
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ..client.sync import ExecClient, ExecSession, StandardExecSession
from ..errors import ApiNotFound
from ..executors.results import BundleSaver
from ..models import (
    DisplayEvent,
    EndEvent,
    ErrorEvent,
    Execution,
    ExecutionState,
    InputRequestEvent,
    OutputEvent,
    ResponsiveEvent,
    ResultEvent,
    StreamEvent,
    TruncatedEvent,
    UnresponsiveEvent,
)
from ..wire.outputs import truncation_marker
from .servers import client_for

_LANGUAGES = {".sh": "bash", ".bash": "bash"}
_EXIT_TIMEOUT, _EXIT_INTERRUPTED = 124, 130


def run(args: argparse.Namespace) -> int:
    """Run the code and return the exit code it amounts to."""
    code, stem = _source(args)
    if args.session and args.server is None:
        args.server = "auto"
    output_dir = Path(args.output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    language = args.language or _LANGUAGES.get(Path(args.file or "").suffix.lower())
    terminal = _Terminal(BundleSaver(output_dir, stem))
    with client_for(args) as client, _session(client, args) as session, _interrupting(session):
        events = session.stream(
            code,
            timeout_seconds=args.timeout,
            language=language,
            on_input=_ask if sys.stdin.isatty() else None,
        )
        for event in events:
            terminal.show(event)
    assert terminal.finished is not None
    return exit_code(terminal.finished)


def _source(args: argparse.Namespace) -> tuple[str, str]:
    """Return the code, and what to call files that it displays."""
    if args.code is not None:
        return args.code, "output"
    if args.file == "-":
        return sys.stdin.read(), "output"
    return Path(args.file).read_text(encoding="utf-8"), Path(args.file).stem


@contextmanager
def _session(client: ExecClient, args: argparse.Namespace) -> Iterator[ExecSession | StandardExecSession]:
    if args.session:
        yield client.get_session(args.session)  # somebody else's to close
        return
    try:
        session: ExecSession | StandardExecSession = client.session(args.kernel, name="jupyter exec run")
    except ApiNotFound:
        session = client.standard_session(args.kernel)
    with session:
        yield session


@contextmanager
def _interrupting(session: ExecSession | StandardExecSession) -> Iterator[None]:
    """Let the first Ctrl-C interrupt the code and the second one end the command."""

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        print("Interrupting; once more to leave.", file=sys.stderr)
        threading.Thread(target=session.interrupt, daemon=True).start()

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _ask(event: InputRequestEvent) -> str:
    return getpass.getpass(event.prompt) if event.password else input(event.prompt)


class _Terminal:
    """Shows output events."""

    def __init__(self, saver: BundleSaver) -> None:
        self._saver = saver
        self.finished: Execution | None = None

    def show(self, event: OutputEvent) -> None:
        if isinstance(event, StreamEvent):
            file = sys.stderr if event.name == "stderr" else sys.stdout
            print(event.text, end="", file=file, flush=True)
        elif isinstance(event, (DisplayEvent, ResultEvent)):
            for piece in self._saver.text(event.data):
                print(piece, flush=True)
        elif isinstance(event, ErrorEvent):
            if event.name != "SystemExit":
                print(event.traceback or f"{event.name}: {event.value}", file=sys.stderr)
        elif isinstance(event, TruncatedEvent):
            print(truncation_marker(event.truncated.dropped_bytes, "output").strip(), file=sys.stderr)
        elif isinstance(event, UnresponsiveEvent):
            print(f"jupyter exec: the kernel is unresponsive: {event.reason}", file=sys.stderr)
        elif isinstance(event, ResponsiveEvent):
            print("jupyter exec: the kernel answers again", file=sys.stderr)
        elif isinstance(event, EndEvent):
            self.finished = event.execution
            if event.execution.reason:
                print(f"jupyter exec: {event.execution.reason}", file=sys.stderr)


def exit_code(execution: Execution) -> int:
    """Return the exit code of a finished execution; see the command's help."""
    if execution.state is ExecutionState.OK:
        return 0
    if execution.state is ExecutionState.TIMEOUT:
        return _EXIT_TIMEOUT
    if execution.state in (ExecutionState.INTERRUPTED, ExecutionState.CANCELLED):
        return _EXIT_INTERRUPTED
    if execution.kernel_signal is not None:
        number = getattr(signal, execution.kernel_signal, None)
        return 128 + int(number) if number is not None else 1
    if execution.error is not None and execution.error.name == "SystemExit":
        return _system_exit(execution.error.value)
    return execution.kernel_exit_code or 1


def _system_exit(value: str) -> int:
    """Return what Python would exit with: a number, 0 for None, and 1 for any other object, which it prints."""
    if value in ("", "None"):
        return 0
    if value.lstrip("-").isdecimal():
        return int(value) & 0xFF
    print(value, file=sys.stderr)
    return 1
